"""A random conversation with a ledger: every verb, several sessions, everything it was told noted.

It keeps in mind only what it needs to tell beforehand what each call will make true.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from msgspec import Struct, field

from agents_ledger import (
    Compaction,
    Config,
    HeadMoved,
    Ledger,
    LiveTurn,
    Message,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    ToolCall,
    Usage,
)
from agents_ledger.ledger.ledger import LiveCall
from agents_ledger.ledger.turns.live import NO_RESPONSE
from agents_ledger.model.ids import new_id
from tests.trust.picture import Fact, Step, brief, digest

LIVE_MAX = 4
_WORDS = [
    "the",
    "agent",
    "reads",
    "a",
    "file,",
    "changes",
    "it,",
    "runs",
    "the",
    "tests",
    "and",
    "says",
    "what",
    "it",
    "did",
]
_ODD = ("\x00", "\ud800", "\x1a0041", "\U0001f600", "'", '"', "\r\n", "ß", "")


class Perform(Protocol):
    """Makes one call and notes its facts. None: they hold, but the call's result is not known."""

    def __call__(self, action: Callable[[], Any], /, *facts: Fact) -> Any: ...


class _Live(Struct):
    """A live turn as it should stand in the ledger."""

    turn: LiveTurn
    label: str
    parent: str | None
    steps: list[Step]
    open_calls: dict[str, LiveCall] = field(default_factory=dict)
    streamed: str = ""


class Workload:
    """One writer. Its sessions are its own, so that it knows where they stand."""

    def __init__(
        self, ledger: Ledger, rng: Random, perform: Perform, owner: str, *, big: bool = True
    ) -> None:
        self.ledger = ledger
        self.rng = rng
        self.perform = perform
        self.owner = owner
        self.big = big
        self.turns: dict[str, str | None] = {}  # sealed ones, with their parents
        self.heads: dict[str, str | None] = {}  # of sessions that can be written
        self.moves: dict[str, list[str | None]] = {}
        self.lives: list[_Live] = []
        self._count = 0
        self._verbs: dict[Callable[[], None], int] = {
            self.record: 30,
            self.begin: 14,
            self.say: 12,
            self.call: 14,
            self.finish: 14,
            self.stream: 16,
            self.respond: 10,
            self.fail: 3,
            self.fork: 5,
            self.move: 3,
            self.roll_back: 3,
            self.undo: 3,
            self.clear: 1,
            self.alias: 3,
            self.merge: 2,
            self.archive: 1,
            self.title: 2,
            self.compact: 4,
            self.spawn: 2,
        }

    def step(self) -> None:
        """Do one thing; nothing, if what was drawn cannot be done now."""
        [verb] = self.rng.choices(list(self._verbs), list(self._verbs.values()))
        verb()

    # -- making things up ---------------------------------------------------------------------

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{self.owner}-{kind}-{self._count}"

    def _text(self) -> str:
        rng = self.rng
        size = min(40_000 if self.big else 2_000, int(rng.paretovariate(1.1) * 30))
        text = " ".join(rng.choices(_WORDS, k=size // 5 + 1))
        if rng.random() < 0.2:
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(_ODD) + text[at:]
        return text

    def _session(self) -> str | None:
        return self.rng.choice(list(self.heads)) if self.heads else None

    def _usage(self) -> Usage:
        return Usage(self.rng.randrange(1000), self.rng.randrange(1000))

    def _ancestors(self, turn: str | None) -> list[str]:
        found = []
        while turn is not None:
            found.append(turn)
            turn = self.turns[turn]
        return found

    # -- finished turns -----------------------------------------------------------------------

    def record(self) -> None:
        rng = self.rng
        label = self._session()
        if label is None or (len(self.heads) < 6 and rng.random() < 0.2):
            label = self._name("session")
        query = [self._text() for _ in range(rng.randint(1, 3))]
        calls = [
            ToolCall("Read", '{"path":"a"}', f'"{number}"', id=f"call-{number}")
            for number in range(rng.choice((0, 0, 0, 1, 3)))
        ]
        answer = self._text()
        failed = rng.random() < 0.1
        error = "it broke" if failed else None
        usage = self._usage()
        steps: list[Step] = [("message", "user", brief(text)) for text in query]
        for call in calls:
            done = (call.params_json, "completed", call.result_json, None)
            steps.append(("call", call.id, call.tool_name, *done))
        steps.append(("message", "assistant", brief(answer)))
        fields = self._extras()
        if label in self.heads and rng.random() < 0.5:
            fields["parent"] = self.heads[label]
        response = self._detailed(answer)
        self._recorded(
            label,
            steps,
            usage,
            error=error,
            action=lambda id: self.ledger.record(
                label,
                [Message("user", text, "human") for text in query],
                response,
                steps=calls,
                usage=usage,
                status="failed" if failed else "completed",
                error=error,
                id=id,
                **fields,
            ),
        )

    def _extras(self) -> dict[str, Any]:
        rng = self.rng
        extras: dict[str, Any] = {"model": rng.choice((None, "small", "large"))}
        if rng.random() < 0.2:
            extras["system_prompt"] = rng.choice(("You are brief.", "You are kind."))
        if rng.random() < 0.2:
            extras["config"] = Config({"temperature": rng.randrange(3)})
        return extras

    def _detailed(self, answer: str) -> Message:
        if self.rng.random() < 0.8:
            return Message("assistant", answer)
        return Message(
            "assistant",
            answer,
            files=(MessageFile("read", "a.py", 1, 2), MessageFile("written", "b.py")),
            lints=(MessageLint("a.py", "unused"),),
            codeblocks=(MessageCodeblock("pass", "python"),),
        )

    def _recorded(
        self,
        label: str,
        steps: list[Step],
        usage: Usage,
        *,
        action: Callable[[str], Any],
        error: str | None = None,
        summary: str | None = None,
    ) -> None:
        id = new_id()
        status = "failed" if error else "completed"
        facts: list[Fact] = [("turn", id, digest(steps, status, error, usage.total, summary))]
        if not error:
            facts.append(self._move_fact(label, id, "record"))
        self.perform(lambda: action(id), *facts)
        self.turns[id] = self.heads.setdefault(label, None)
        self.moves.setdefault(label, [])
        if not error:
            self._moved(label, id)

    def compact(self) -> None:
        label = self._session()
        thread = self._ancestors(self.heads[label]) if label else []
        if label is None or len(thread) < 2:
            return
        cut = self.rng.randrange(1, len(thread))
        summary = self._text()
        usage = self._usage()
        kept = self.rng.random() < 0.5
        compaction = Compaction(
            summary,
            thread[cut],
            thread[cut - 1] if kept else None,
            turns_summarized=len(thread) - cut,
        )
        self._recorded(
            label,
            [],
            usage,
            summary=summary,
            action=lambda id: self.ledger.record(label, usage=usage, compaction=compaction, id=id),
        )

    # -- live turns ---------------------------------------------------------------------------

    def begin(self) -> None:
        label = self._session()
        if len(self.lives) >= LIVE_MAX or label is None:
            return
        id, query = new_id(), self._text()
        parent, extras = self.heads[label], self._extras()
        said: Step = ("message", "user", brief(query))
        turn = self.perform(
            lambda: self.ledger.turn(label, query, id=id, **extras), ("begun", id, said)
        )
        if turn is not None:
            self.lives.append(_Live(turn, label, parent, [said]))

    def _live(self) -> _Live | None:
        return self.rng.choice(self.lives) if self.lives else None

    def say(self) -> None:
        live = self._live()
        if live is None:
            return
        text = self._text()
        self.perform(
            lambda: live.turn.message(text), ("said", live.turn.id, "assistant", brief(text))
        )
        live.steps.append(("message", "assistant", brief(text)))

    def call(self) -> None:
        live = self._live()
        if live is None:
            return
        id = self._name("call")
        started: Step = ("call", id, "Bash", '{"command":"ls"}')
        call = self.perform(
            lambda: live.turn.tool_call("Bash", {"command": "ls"}, id=id),
            ("called", live.turn.id, *started[1:]),
        )
        live.steps.append((*started, "running", None, None))
        if call is not None:
            live.open_calls[id] = call

    def finish(self) -> None:
        live = self._live()
        if live is None or not live.open_calls:
            return
        id, call = self.rng.choice(list(live.open_calls.items()))
        at = next(n for n, step in enumerate(live.steps) if step[:2] == ("call", id))
        if self.rng.random() < 0.7:
            done: Step = (*live.steps[at][:4], "completed", '"done"', None)
            self.perform(lambda: call.complete('"done"'), ("finished", live.turn.id, *done[1:]))
        else:
            done = (*live.steps[at][:4], "failed", None, "it broke")
            self.perform(lambda: call.fail("it broke"), ("finished", live.turn.id, *done[1:]))
        live.steps[at] = done
        del live.open_calls[id]

    def spawn(self) -> None:
        live = self._live()
        if live is None or not live.open_calls:
            return
        call = self.rng.choice(list(live.open_calls.values()))
        label = f"{call.id}-child"
        if label in self.moves:
            return
        self.perform(lambda: call.spawn(label), ("session", label, live.turn.id))
        self.heads[label] = None
        self.moves[label] = []

    def stream(self) -> None:
        live = self._live()
        if live is None:
            return
        piece = " ".join(self.rng.choices(_WORDS, k=self.rng.randint(1, 12)))
        text = live.streamed + piece
        self.perform(lambda: live.turn.stream(piece), ("streamed", live.turn.id, text))
        live.streamed = text

    def respond(self) -> None:
        live = self._live()
        if live is None:
            return
        answer = None if live.streamed and self.rng.random() < 0.5 else self._text()
        usage = self._usage()

        def action() -> None:
            try:
                live.turn.respond(answer, usage=usage)
            except HeadMoved as moved:  # the turn is stored all the same
                if moved.turn_id != live.turn.id:
                    raise

        self._seal(live, answer if answer is not None else live.streamed, None, usage, action)

    def fail(self) -> None:
        live = self._live()
        if live is None:
            return
        error = self.rng.choice((NO_RESPONSE, "it broke"))
        usage = self._usage()
        last = live.streamed or None
        self._seal(live, last, error, usage, lambda: live.turn.fail(error, usage=usage))

    def _seal(
        self,
        live: _Live,
        last: str | None,
        error: str | None,
        usage: Usage,
        action: Callable[[], None],
    ) -> None:
        steps = [_closed(step) for step in live.steps]
        if last is not None:
            steps.append(("message", "assistant", brief(last)))
        id, status = live.turn.id, "failed" if error else "completed"
        facts: list[Fact] = [("sealed", id, digest(steps, status, error, usage.total, None))]
        follows = not error and self.heads.get(live.label, "") == live.parent
        if follows:
            facts.append(self._move_fact(live.label, id, "record"))
        self.perform(action, *facts)
        self.turns[id] = live.parent
        self.lives.remove(live)
        if follows:
            self._moved(live.label, id)

    # -- sessions -----------------------------------------------------------------------------

    def _move_fact(self, label: str, head: str | None, reason: str) -> Fact:
        return ("moved", label, len(self.moves.get(label, ())), head, reason)

    def _moved(self, label: str, head: str | None) -> None:
        self.heads[label] = head
        self.moves.setdefault(label, []).append(head)

    def fork(self) -> None:
        if not self.turns or len(self.heads) > 12:
            return
        turn, label = self.rng.choice(list(self.turns)), self._name("fork")
        before = self.rng.random() < 0.3
        head = self.turns[turn] if before else turn
        fact: Fact = ("session", label, None)
        if head is not None:
            fact = ("moved", label, 0, head, "fork")
        self.perform(lambda: self.ledger.fork(turn, label=label, before=before), fact)
        self.heads[label] = head
        self.moves[label] = [] if head is None else [head]

    def _moves_to(self, label: str, head: str | None, reason: str, action: Any) -> None:
        self.perform(action, self._move_fact(label, head, reason))
        self._moved(label, head)

    def move(self) -> None:
        label = self._session()
        if label is None or not self.turns:
            return
        turn = self.rng.choice(list(self.turns))
        expected = self.heads[label] if self.rng.random() < 0.5 else ...
        self._moves_to(
            label, turn, "move", lambda: self.ledger.move(label, turn, expected=expected)
        )

    def roll_back(self) -> None:
        label = self._session()
        if label is None or self.heads[label] is None:
            return
        turn = self.rng.choice(self._ancestors(self.heads[label]))
        self._moves_to(label, turn, "rollback", lambda: self.ledger.roll_back(label, turn))

    def undo(self) -> None:
        label = self._session()
        if label is None or not self.moves[label]:
            return
        before = self.moves[label][-2] if len(self.moves[label]) > 1 else None
        self._moves_to(label, before, "undo", lambda: self.ledger.undo(label))

    def clear(self) -> None:
        label = self._session()
        if label is not None:
            self._moves_to(label, None, "clear", lambda: self.ledger.clear(label))

    def alias(self) -> None:
        label = self._session()
        if label is not None:
            alias = self._name("alias")
            self.perform(lambda: self.ledger.alias(alias, label), ("same", alias, label))

    def merge(self) -> None:
        """Two sessions of which it is clear who stays: the one with the longer history."""
        quiet = self._quiet()
        if len(quiet) < 4:
            return
        first, second = self.rng.sample(quiet, 2)
        if len(self.moves[first]) == len(self.moves[second]):
            return
        goes = min(first, second, key=lambda label: len(self.moves[label]))
        self.perform(
            lambda: self.ledger.merge(first, second), ("same", first, second), ("archived", goes)
        )
        del self.heads[goes]

    def archive(self) -> None:
        quiet = self._quiet()
        if len(quiet) < 4:
            return
        label = self.rng.choice(quiet)
        self.perform(lambda: self.ledger.archive(label), ("archived", label))
        del self.heads[label]

    def _quiet(self) -> list[str]:
        """The sessions no live turn will end on."""
        busy = {live.label for live in self.lives}
        return [label for label in self.heads if label not in busy]

    def title(self) -> None:
        label = self._session()
        if label is not None:
            self._count += 1
            number = self._count
            self.perform(
                lambda: self.ledger.annotate(label, title=str(number)), ("titled", label, number)
            )


def _closed(step: Step) -> Step:
    """A step of a sealed turn: open calls are given up."""
    if step[0] == "call" and step[4] == "running":
        return (*step[:4], "cancelled", None, "no result recorded")
    return step
