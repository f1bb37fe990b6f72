"""A state machine: Hypothesis draws verbs, the ledger must do what plain dictionaries do.

Every answer and every refusal is compared as it comes; everything, and the audit, at the end.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agents_ledger import (
    Compaction,
    Conflict,
    HeadMoved,
    Ledger,
    LedgerError,
    LiveTurn,
    NameTaken,
    NotFound,
    Refused,
    ToolCall,
    Turn,
    Usage,
)
from agents_ledger.ledger.ledger import LiveCall
from agents_ledger.ledger.turns.live import WRITER_DIED
from agents_ledger.model.ids import new_id
from tests.raw import Raw
from tests.trust import harness, plants
from tests.trust.ground import Ground
from tests.trust.harness import Options, Outcome
from tests.trust.reference import Reference, RefSession, RefTurn
from tests.trust.server import some_server
from tests.waiting import PATIENCE_S

KEYS = st.sampled_from("abcde")
PICK = st.integers(0, 1 << 16)
TEXT = st.text(max_size=8) | st.sampled_from(["\x00", "\ud800", "\x1a0041", "\U0001f600"])
STEPS = 30


class Machine(RuleBasedStateMachine):
    """One example."""

    ground: ClassVar[Ground]
    examples: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).examples += 1
        self.ledger, self.prefix = self.ground.next()
        self.ref = Reference()
        self.lives: dict[str, LiveTurn] = {}
        self.calls: dict[str, dict[str, LiveCall]] = {}
        self.serial = 0

    # -- comparing ----------------------------------------------------------------------------

    def attempt(self, expected: type[LedgerError] | None, action: Callable[[], Any]) -> Any:
        """Make a call that must succeed, or be refused in just this way."""
        try:
            result, told = action(), None
        except LedgerError as error:
            result = told = error
        assert type(told) is (expected or type(None)), f"expected {expected}, was told {told!r}"
        return result

    def key(self, letter: str) -> str:
        return self.prefix + letter

    def pick(self, number: int, among: list[str]) -> str:
        return among[number % len(among)]

    def same_head(self, key: str) -> None:
        session = self.ref.find(key)
        assert session is not None
        assert self.ledger.head(key) == session.head

    # -- finished turns -----------------------------------------------------------------------

    @initialize(length=st.integers(0, 6))
    def start(self, length: int) -> None:
        """Something to begin with: most rules need a session that has moved."""
        for letter, turns in (("a", length), ("b", length // 2)):
            self.talk(letter, turns)

    @rule(letter=KEYS, turns=st.integers(1, 5))
    def talk(self, letter: str, turns: int) -> None:
        """Several plain turns, for depth."""
        key = self.key(letter)
        for _ in range(0 if self._refusal(key, ...) else turns):
            id = self.ledger.record(key, "q", "a").id
            session = self._writable(key)
            self.ref.turns[id] = RefTurn(
                session.head, [("user", "q"), ("assistant", "a")], "completed"
            )
            session.move(id, "record")

    def _refusal(self, key: str, parent: str | Any | None) -> type[LedgerError] | None:
        """How a new turn on a session is refused, if it is."""
        session = self.ref.find(key)
        if session is not None and session.status != "active":
            return Refused
        head = session.head if session else None
        return HeadMoved if parent is not ... and parent != head else None

    def _parent(self, said: str, key: str, number: int) -> str | Any | None:
        session = self.ref.find(key)
        if said == "right":
            return session.head if session else None
        if said == "other" and self.ref.turns:
            return self.pick(number, list(self.ref.turns))
        return ...

    def _writable(self, key: str) -> RefSession:
        return self.ref.find(key) or self.ref.create(key)

    @rule(
        letter=KEYS,
        query=TEXT,
        answer=TEXT,
        failed=st.integers(0, 9),
        calls=st.integers(0, 2),
        said=st.sampled_from(["", "", "right", "other"]),
        number=PICK,
    )
    def record(  # noqa: PLR0917
        self, letter: str, query: str, answer: str, failed: int, calls: int, said: str, number: int
    ) -> None:
        key = self.key(letter)
        parent = self._parent(said, key, number)
        id, error = new_id(), "broke" if failed == 0 else None
        passed: dict[str, Any] = {
            "steps": [ToolCall("Read", id=f"c{n}") for n in range(calls)],
            "usage": Usage(number, 1),
            "status": "failed" if error else "completed",
            "error": error,
            "id": id,
        }
        if parent is not ...:
            passed["parent"] = parent
        expected = self._refusal(key, parent)
        turn = self.attempt(expected, lambda: self.ledger.record(key, query, answer, **passed))
        if expected:
            return
        session = self._writable(key)
        steps = [("user", query), *(("call", f"c{n}", "completed") for n in range(calls))]
        self.ref.turns[id] = RefTurn(
            session.head, [*steps, ("assistant", answer)], str(turn.status), error, number + 1
        )
        if not error:
            session.move(id, "record")
        self._again(turn, key, query, answer, passed)
        self.same_head(key)

    def _again(self, turn: Turn, key: str, query: str, answer: str, passed: dict[str, Any]) -> None:
        """The same call changes nothing; another content under that id is refused."""
        again = self.ledger.record(key, query, answer, **passed)
        assert (again.id, again.messages) == (turn.id, turn.messages)
        self.attempt(Conflict, lambda: self.ledger.record(key, query + "!", answer, **passed))

    @rule(letter=KEYS, number=PICK, keep=st.booleans(), summary=TEXT)
    def compact(self, letter: str, number: int, keep: bool, summary: str) -> None:
        key = self.key(letter)
        session = self.ref.find(key)
        if not self.ref.turns:
            return
        thread = self.ref.thread(session.head) if session else []
        through = self.pick(number, thread or self.ref.sealed() or list(self.ref.turns))
        at = thread.index(through) if through in thread else -1
        kept = thread[at + 1] if keep and 0 <= at < len(thread) - 1 else None
        expected = self._refusal(key, ...) or (None if thread else Refused)
        id = new_id()
        self.attempt(
            expected,
            lambda: self.ledger.record(
                key, usage=Usage(2, 1), compaction=Compaction(summary, through, kept), id=id
            ),
        )
        if expected is None:
            assert session is not None
            self.ref.turns[id] = RefTurn(session.head, [], "completed", None, 3, summary)
            session.move(id, "record")
            self.same_head(key)

    # -- live turns ---------------------------------------------------------------------------

    @rule(letter=KEYS, query=TEXT, said=st.sampled_from(["", "", "right", "other"]), number=PICK)
    def begin(self, letter: str, query: str, said: str, number: int) -> None:
        key, id = self.key(letter), new_id()
        parent = self._parent(said, key, number)
        passed: Any = {} if parent is ... else {"parent": parent}
        expected = self._refusal(key, parent)
        turn = self.attempt(expected, lambda: self.ledger.turn(key, query, id=id, **passed))
        if expected:
            return
        session = self._writable(key)
        self.lives[id] = turn
        self.calls[id] = {}
        self.ref.turns[id] = RefTurn(session.head, [("user", query)], label=self.ref.names[key])
        self.same_head(key)

    def live(self, number: int) -> LiveTurn:
        return self.lives[self.pick(number, list(self.lives))]

    @precondition(lambda self: self.lives)
    @rule(number=PICK, text=TEXT)
    def say(self, number: int, text: str) -> None:
        turn = self.live(number)
        turn.message(text)
        self.ref.turns[turn.id].steps.append(("assistant", text))

    @precondition(lambda self: self.lives)
    @rule(number=PICK, finish=st.sampled_from(["complete", "fail", "cancel", "reject", ""]))
    def call(self, number: int, finish: str) -> None:
        turn = self.live(number)
        self.serial += 1
        id = f"call{self.serial}"
        call = turn.tool_call("Bash", {"n": 1}, id=id)
        status = "running"
        if finish:
            getattr(call, finish)("said")
            status = {"complete": "completed", "fail": "failed", "cancel": "cancelled"}.get(
                finish, "rejected"
            )
            self.attempt(Conflict, lambda: call.complete("again"))
        self.ref.turns[turn.id].steps.append(("call", id, status))

    @precondition(lambda self: self.lives)
    @rule(number=PICK, text=st.text(min_size=1, max_size=8))
    def stream(self, number: int, text: str) -> None:
        turn = self.live(number)
        turn.stream(text)
        ref = self.ref.turns[turn.id]
        ref.streamed += text
        assert self.ledger.partial_text(turn.id) == ref.streamed

    @precondition(lambda self: self.lives)
    @rule(number=PICK, answer=st.none() | TEXT)
    def respond(self, number: int, answer: str | None) -> None:
        turn = self.live(number)
        ref = self.ref.turns[turn.id]
        spoke = ref.streamed or any(step[0] == "assistant" for step in ref.steps)
        if answer is None and not spoke:
            self.attempt(Refused, lambda: turn.respond(None))
            return
        session = self.ref.sessions[self.ref.names[ref.label]]
        follows = session.head == ref.parent
        told = self.attempt(
            None if follows else HeadMoved, lambda: turn.respond(answer, usage=Usage(1, 2))
        )
        assert follows or told.turn_id == turn.id
        ref.tokens = 3
        self.ref.seal(turn.id, None, ref.streamed if answer is None else None)
        if answer is not None:
            ref.steps.append(("assistant", answer))
        if follows:
            session.move(turn.id, "record")
        self._sealed(turn)

    @rule(letter=KEYS, meanwhile=st.booleans(), answer=TEXT)
    def converse(self, letter: str, meanwhile: bool, answer: str) -> None:
        """A live turn from its beginning to its end; perhaps its session moves meanwhile."""
        known = set(self.lives)
        self.begin(letter, "q", "", 0)
        for id in set(self.lives) - known:
            if meanwhile:
                self.talk(letter, 1)
            self.respond(list(self.lives).index(id), answer)

    @precondition(lambda self: self.lives)
    @rule(number=PICK)
    def fail(self, number: int) -> None:
        turn = self.live(number)
        turn.fail("broke")
        self.ref.seal(turn.id, "broke", self.ref.turns[turn.id].streamed)
        self._sealed(turn)

    def _sealed(self, turn: LiveTurn) -> None:
        del self.lives[turn.id]
        self.attempt(Conflict, lambda: turn.message("late"))
        self.attempt(Conflict, lambda: turn.respond("late"))

    @rule(letter=KEYS, stream=st.booleans())
    def recover(self, letter: str, stream: bool) -> None:
        """Another process begins a turn and is gone; ours stay alone."""
        key, id = self.key(letter), new_id()
        if self._refusal(key, ...):
            return
        with Ledger.open(self.ground.address) as other:
            turn = other.turn(key, "Who goes?", id=id)
            turn.tool_call("Bash", id="left open")
            if stream:
                turn.stream("I ")
        if not Path(self.ground.address).exists():
            with Raw(self.ground.address) as raw:  # its lease runs out
                raw.execute(
                    "UPDATE writers SET seen_at = 0 WHERE id ="
                    " (SELECT writer_id FROM live_turns WHERE turn_id = ?)",
                    (id,),
                )
        end = time.monotonic() + PATIENCE_S
        while not (failed := self.ledger.recover()) and time.monotonic() < end:
            time.sleep(0.01)  # a server frees a lock a moment after its connection was closed
        assert failed == (id,)
        session = self._writable(key)
        self.ref.turns[id] = RefTurn(
            session.head, [("user", "Who goes?"), ("call", "left open", "running")]
        )
        self.ref.seal(id, WRITER_DIED, "I " if stream else None)

    # -- sessions -----------------------------------------------------------------------------

    def _free(self, name: str) -> bool:
        return name not in self.ref.names

    @rule(letter=KEYS)
    def create(self, letter: str) -> None:
        key = self.key(letter)
        expected = None if self._free(key) else NameTaken
        self.attempt(expected, lambda: self.ledger.create_session(key))
        if expected is None:
            self.ref.create(key)

    @precondition(lambda self: self.ref.turns)
    @rule(letter=KEYS, number=PICK, before=st.booleans())
    def fork(self, letter: str, number: int, before: bool) -> None:
        label, turn = self.key(letter), self.pick(number, list(self.ref.turns))
        expected: type[LedgerError] | None = None
        if self.ref.turns[turn].status == "pending":
            expected = Refused
        elif not self._free(label):
            expected = NameTaken
        self.attempt(expected, lambda: self.ledger.fork(turn, label=label, before=before))
        if expected is None:
            head = self.ref.turns[turn].parent if before else turn
            session = self.ref.create(label)
            if head is not None:
                session.move(head, "fork")
            self.same_head(label)

    @precondition(lambda self: self.ref.turns)
    @rule(
        letter=KEYS,
        number=PICK,
        back=st.booleans(),
        said=st.sampled_from(["", "right", "other"]),
        other=PICK,
    )
    def move(self, letter: str, number: int, back: bool, said: str, other: int) -> None:
        key = self.key(letter)
        session = self.ref.find(key)
        thread = self.ref.thread(session.head) if session else []
        turn = self.pick(number, (back and number % 3 and thread) or list(self.ref.turns))
        seen = self._parent(said, key, other)
        expected: type[LedgerError] | None = None
        if session is None:
            expected = NotFound
        elif self.ref.turns[turn].status == "pending" or (back and turn not in thread):
            expected = Refused
        elif seen is not ... and seen != session.head:
            expected = HeadMoved
        verb = self.ledger.roll_back if back else self.ledger.move
        self.attempt(expected, lambda: verb(key, turn, expected=seen))
        if session is not None:
            if expected is None:
                session.move(turn, "rollback" if back else "move")
            self.same_head(key)

    @rule(letter=KEYS, which=st.none() | PICK)
    def undo(self, letter: str, which: int | None) -> None:
        key = self.key(letter)
        session = self.ref.find(key)
        moves = session.history if session else []
        expected = NotFound if session is None else None if moves else Refused
        move_id, before = None, len(moves) - 2
        if which is not None and moves:
            at = which % len(moves)
            move_id, before = self.ledger.history(key, limit=1000)[::-1][at].id, at - 1
        self.attempt(expected, lambda: self.ledger.undo(key, move_id))
        if expected is None:
            assert session is not None
            session.move(moves[before][0] if before >= 0 else None, "undo")
            self.same_head(key)

    @rule(letter=KEYS)
    def clear(self, letter: str) -> None:
        key = self.key(letter)
        session = self.ref.find(key)
        self.attempt(None if session else NotFound, lambda: self.ledger.clear(key))
        if session is not None:
            session.move(None, "clear")
            self.same_head(key)

    @rule(letter=KEYS, status=st.sampled_from(["active", "active", "archived", "deleted"]))
    def archive(self, letter: str, status: Any) -> None:
        key = self.key(letter)
        session = self.ref.find(key)
        self.attempt(None if session else NotFound, lambda: self.ledger.archive(key, status))
        if session is not None:
            session.status = status

    @rule(alias=KEYS, letter=KEYS)
    def alias(self, alias: str, letter: str) -> None:
        name, key = self.key(alias), self.key(letter)
        expected: type[LedgerError] | None = None
        if key not in self.ref.names:
            expected = NotFound
        elif name in self.ref.names and (
            self.ref.names[name] != self.ref.names[key] or name == self.ref.names[key]
        ):
            expected = NameTaken
        self.attempt(expected, lambda: self.ledger.alias(name, key))
        if expected is None:
            self.ref.names[name] = self.ref.names[key]
            self.same_head(name)

    @rule(first=KEYS, second=KEYS)
    def merge(self, first: str, second: str) -> None:
        one, other = self.key(first), self.key(second)
        known = one in self.ref.names and other in self.ref.names
        if known:
            labels = {self.ref.names[one], self.ref.names[other]}
            stays = max(labels, key=self._rank)
        self.attempt(None if known else NotFound, lambda: self.ledger.merge(one, other))
        if known:
            for goes in labels - {stays}:
                self.ref.merge(stays, goes)
            self.same_head(one)
            self.same_head(other)

    def _rank(self, label: str) -> tuple[int, int, str]:
        updated = self.ledger.session(label, exact=True).updated_at
        return len(self.ref.sessions[label].history), updated, label

    # -- questions ----------------------------------------------------------------------------

    @precondition(lambda self: self.ref.turns)
    @rule(first=PICK, second=PICK)
    def compare(self, first: int, second: int) -> None:
        turns = list(self.ref.turns)
        one, other = self.pick(first, turns), self.pick(second, turns)
        assert self.ledger.common_ancestor(one, other) == self.ref.common(one, other)
        assert self.ledger.is_ancestor(one, other) == (one in self.ref.thread(other))
        assert [t.id for t in self.ledger.children(one)] == self.ref.children(one)

    def teardown(self) -> None:
        for key, label in self.ref.names.items():
            session = self.ref.sessions[label]
            found = self.ledger.session(key)
            assert (found.label, found.thread_id, found.status) == (
                label,
                session.head,
                session.status,
            )
        for label, session in self.ref.sessions.items():
            if self.ref.names[label] == label:
                moves = self.ledger.history(label, limit=10_000)[::-1]
                assert [(move.thread_id, move.reason) for move in moves] == session.history
            assert list(self.ledger.ancestry(label)) == self.ref.thread(
                self.ref.sessions[self.ref.names[label]].head
            )
        for id, ref in self.ref.turns.items():
            self._same_turn(self.ledger.get_turn(id), ref)
        assert self.ledger.audit() == ()
        for turn in list(self.lives.values()):
            turn.fail("the example is over")

    def _same_turn(self, turn: Turn, ref: RefTurn) -> None:
        steps = [
            ("call", step.id, step.status)
            if isinstance(step, ToolCall)
            else (step.role, step.content)
            for step in turn.steps
        ]
        status = "pending" if turn.status == "streaming" else turn.status
        assert steps == ref.steps
        assert (turn.parent_turn_id, status, turn.error) == (ref.parent, ref.status, ref.error)
        assert turn.depth == len(self.ref.thread(turn.id))
        assert (turn.compaction.summary if turn.compaction else None) == ref.summary
        thread = self.ledger.thread(turn.id, last=0)
        assert thread.total_tokens == sum(
            self.ref.turns[id].tokens for id in self.ref.thread(turn.id)
        )


def run(options: Options) -> Outcome:
    """Run `count` examples."""
    outcome = Outcome()
    hypothesis.core.global_force_seed = options.seed  # type: ignore[assignment]
    plants.plant(options.plant)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(harness.workplace())
        server = options.engine == "postgres"
        address = stack.enter_context(some_server(options)) if server else ""
        Machine.ground = Ground(folder, address)
        stack.callback(Machine.ground.close)
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                run_state_machine_as_test(
                    Machine,
                    settings=settings(
                        max_examples=options.count,
                        stateful_step_count=STEPS,
                        database=None,
                        report_multiple_bugs=False,
                        phases=[Phase.generate] if options.plant else tuple(Phase),
                        deadline=None,
                        suppress_health_check=list(HealthCheck),
                    ),
                )
        except Exception as error:
            notes = "\n".join(getattr(error, "__notes__", ()))
            outcome.found(
                f"seed {options.seed}: {type(error).__name__}: {error}\n{notes}\n{said.getvalue()}"
            )
    outcome.done = Machine.examples
    return outcome


if __name__ == "__main__":
    harness.main(run)
