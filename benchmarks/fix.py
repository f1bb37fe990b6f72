"""Fix: does the ledger name what fixed an error?

A case is a call of a real session that failed, where a later call of the same kind succeeded in
that conversation. What fixed it is the last change between the two, or the corrected call. Cases
are asked in two ways.

*Before it was fixed*: all sessions are replayed together, turn by turn, in the order of their
times. The turn of a case is live: it is asked when the failed call is the last that the ledger has,
and goes on after that. The remedy can only be known if it is there: a case is an error like an
earlier one, of the same tool with a third of their words in common, that ended by the same remedy.
The same is the same program and subcommand, or the same kind of file tool on the same file or, in
both conversations, on the file of the failed call or one that the error names. For a corrected form
of the failed command, it must share a word of the correction that the failed command lacks. An
answer is right if it names the same remedy. A further line has the errors that are like an earlier
one, whatever ended that: some of them nobody can know.

*When it comes again*: the ledger has everything. The error is asked as it would read in another
project: folders, file names and numbers replaced. An answer is right only if it is the very call
that fixed it, or one with equal parameters.

Sessions of CORPUS and of the folders in LOGS are read; copies of a conversation count once.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agents_ledger import Ledger, Message, ToolCall, Turn
from agents_ledger.importers.pipeline import import_paths
from agents_ledger.ledger.ask.calls import Call, stored_call
from agents_ledger.ledger.ask.fixes import Episode
from agents_ledger.model.files.file_tools import touched
from agents_ledger.model.reports.ask import CallStep, Fix
from benchmarks.measure import Goal, Line

CORPUS = "AGENTS_LEDGER_CORPUS"
LOGS = "AGENTS_LEDGER_LOGS"  # more folders of the same form, separated like those of PATH
SOURCES = ("claude_code", "codex", "pi", "cursor", "opencode", "copilot", "gemini")
GOAL = 0.6
SHOWN = 10
ANSWERS = 3
FOLLOWED = 3  # turns after the error in which it may end
WORDS_MIN = 3  # of an error
COMMON_WORDS = 1 / 3  # of two errors that are alike
_WORD = re.compile(r"[A-Za-z][A-Za-z_]+")


_PATH = re.compile(
    r"(?:[A-Za-z]:)?[\w.@~-]*(?:[/\\][\w.@*\[\]-]+)+?(\.[A-Za-z]\w{0,4})?(?![\w/\\.-])"
)
CallsOf = Callable[[CallStep], Call]


class PastTurn(NamedTuple):
    turn: Turn
    label: str
    agent: str
    following: tuple[Call, ...]  # its calls and those of the next turns


class EndedError(NamedTuple):
    words: frozenset[str]
    label: str
    episode: Episode


class FixCase(NamedTuple):
    past: PastTurn
    at: int  # of the failed call among those of the turn
    episode: Episode  # what really happened
    likes: tuple[EndedError, ...] = ()  # the earlier errors like this one

    @property
    def known(self) -> tuple[EndedError, ...]:
        """Those that ended by the same remedy."""
        real = self.episode
        return tuple(
            one
            for one in self.likes
            if is_same_remedy(one.episode.fixed_by, one.episode.failed, real.fixed_by, real.failed)
        )


class FixResult(NamedTuple):
    case: FixCase
    rank: int  # of the first right answer; 0: none
    answers: tuple[Fix, ...]


def fix(folder: Path) -> Iterator[Line]:
    """The share of errors whose remedy is among the first answers."""
    corpus = os.environ.get(CORPUS)
    if not corpus:
        yield Line(f"fix: skipped, {CORPUS} does not name a folder", "-")
        return
    folders = [Path(corpus), *map(Path, filter(None, os.environ.get(LOGS, "").split(os.pathsep)))]
    with Ledger.open(str(folder / "whole.db")) as ledger:
        import_paths(ledger, [one / name for one in folders for name in SOURCES])
        ledger._core.index(least=1)
        history = past_turns(ledger)
        again = list(_asked_again(ledger, history))
    with Ledger.open(str(folder / "growing.db")) as ledger:
        before = list(replayed(ledger, history))
    known = [result for result in before if result.case.known]
    for way, results, goal in (
        ("before it was fixed", known, Goal(">=", GOAL)),
        ("before it was fixed, known or not", before, None),
        ("when it comes again", again, None),
    ):
        print(f"\nTen cases, {way}:")
        for number, result in enumerate(results[:: max(1, len(results) // SHOWN)][:SHOWN], 1):
            print(_shown(number, result))
        yield from _report(way, results, goal)


# -- cases ------------------------------------------------------------------------------------


def past_turns(ledger: Ledger) -> list[PastTurn]:
    """The turns of every session once, oldest first. Copies of a conversation count once."""
    past: list[PastTurn] = []
    seen: set[tuple[Any, ...]] = set()
    for session in ledger.sessions(status=None, limit=10_000):
        turns = ledger.thread(session.label).turns
        for at, turn in enumerate(turns):
            key = (turn.started_at, *(call.params_json for call in turn.tool_calls[:5]))
            if (turn.id,) in seen or (turn.tool_calls and key in seen):
                continue
            seen |= {(turn.id,), key} if turn.tool_calls else {(turn.id,)}
            calls = [_call(c) for later in turns[at : at + FOLLOWED + 1] for c in later.tool_calls]
            past.append(PastTurn(turn, session.label, session.origin or "?", tuple(calls)))
    return sorted(past, key=lambda one: one.turn.started_at)


def _call(call: ToolCall) -> Call:
    fields = (call.turn_id, call.tool_name, call.status, call.params_json, call.result_json)
    return stored_call(*fields, call.error, call.sequence, call.started_at)


def _is_case(call: Call) -> bool:
    """Whether a call failed with an error that says something. What a user refused is none."""
    words = _words(call.problem)
    return call.failed and call.status != "rejected" and len(words) >= WORDS_MIN


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(text))


def _similar(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= COMMON_WORDS * len(one | other)


def _ended(calls: Sequence[Call], at: int) -> Episode | None:
    """The end of a failed call, found without the words of any question."""
    failed, words = calls[at], _words(calls[at].problem)
    for number in range(at + 1, len(calls)):
        call = calls[number]
        if not call.is_like(failed):
            continue
        if not call.failed:
            return Episode(1.0, failed, tuple(calls[at + 1 : number]), call)
        if _similar(words, _words(call.problem)):
            return None
    return None


def cases_of(past: PastTurn, ended: dict[str, list[EndedError]]) -> Iterator[FixCase]:
    """The cases of a turn; `ended` collects the errors that have ended, by tool."""
    for at in range(len(past.turn.tool_calls)):
        call = past.following[at]
        episode = _ended(past.following, at) if _is_case(call) else None
        if episode is None:
            continue
        words = _words(call.problem)
        likes = tuple(one for one in ended[call.tool_name] if _similar(words, one.words))
        ended[call.tool_name].append(EndedError(words, past.label, episode))
        if likes:
            yield FixCase(past, at, episode, likes)


# -- measuring --------------------------------------------------------------------------------


def replayed(ledger: Ledger, history: Sequence[PastTurn]) -> Iterator[FixResult]:
    """Record all turns as they happened, and ask for the remedy of each case at its error."""
    ended: dict[str, list[EndedError]] = defaultdict(list)
    calls = _stored(ledger)
    for past in history:
        cases = list(cases_of(past, ended))
        if cases:
            ledger._core.index(least=1)
        steps = _steps(past.turn)
        with ledger.turn(past.label, _prompt(past.turn), started_at=past.turn.started_at) as live:
            recorded = 0
            for case in cases:
                upto = 1 + steps.index(past.turn.tool_calls[case.at])
                live.add(*map(_plain, steps[recorded:upto]))
                recorded = upto
                answers = ledger.fix(case.episode.failed.problem, limit=ANSWERS).fixes
                real, failed = case.episode.fixed_by, case.episode.failed
                right = [
                    number
                    for number, one in enumerate(answers, 1)
                    if is_same_remedy(calls(one.fixed_by), calls(one.failed), real, failed)
                ]
                yield FixResult(case, next(iter(right), 0), answers)
            live.add(*map(_plain, steps[recorded:]))
            live.respond("-")


def _asked_again(ledger: Ledger, history: Sequence[PastTurn]) -> Iterator[FixResult]:
    calls = _stored(ledger)
    asked: set[str] = set()
    for past in history:
        for at in range(len(past.turn.tool_calls)):
            failed = past.following[at]
            episode = _ended(past.following, at) if _is_case(failed) else None
            text = disguised(failed.problem)
            if episode is None or text in asked:
                continue
            asked.add(text)
            case = FixCase(past, at, episode)
            answers = ledger.fix(text, limit=ANSWERS).fixes
            real = episode.fixed_by.params_json
            right = [
                n for n, one in enumerate(answers, 1) if calls(one.fixed_by).params_json == real
            ]
            yield FixResult(case, next(iter(right), 0), answers)


def disguised(error: str) -> str:
    """An error as it would read elsewhere: other folders, file names and numbers."""
    text = _PATH.sub(lambda path: f"/srv/elsewhere/item{path[1] or ''}", error)
    return re.sub(r"\d+", "7", text)


def _steps(turn: Turn) -> list[Message | ToolCall]:
    steps = [message for message in turn.messages if message.role != "user"]
    return sorted([*steps, *turn.tool_calls], key=lambda part: part.sequence)


def _prompt(turn: Turn) -> str:
    return next((m.content for m in turn.messages if m.role == "user" and m.content), "-")


def _plain(part: Message | ToolCall) -> Message | ToolCall:
    if isinstance(part, Message):
        return Message(part.role, part.content or "")
    return ToolCall(
        part.tool_name,
        part.params_json,
        part.result_json,
        part.error,
        part.status if part.status not in ("pending", "running") else "cancelled",
        started_at=part.started_at,
    )


def is_same_remedy(step: Call, of: Call, real: Call, failed: Call) -> bool:
    """Whether what ended an error, `of`, is what ended another, `failed`."""
    if (real.shell is None) is not (step.shell is None):
        return False
    if real.shell is None:
        return _file_role(real, failed) == _file_role(step, of)
    if real.is_like(failed):
        return bool(_correction(real, failed) & _correction(step, of))
    return bool({one[:2] for one in real.programs} & {one[:2] for one in step.programs})


def _stored(ledger: Ledger) -> CallsOf:
    """Looks up the whole call of a step."""

    def find(step: CallStep) -> Call:
        calls = ledger.get_turn(step.turn_id).tool_calls
        return next(_call(call) for call in calls if call.sequence == step.sequence)

    return find


def _correction(call: Call, failed: Call) -> set[str]:
    return set((call.shell or "").split()) - set((failed.shell or "").split())


def _file_role(call: Call, failed: Call) -> tuple[str, ...]:
    """The kind of a file tool, and the file: that of the failed call, one the error names, or its
    path."""
    kinds = sorted({kind for kind, _ in touched(call.tool_name, call.params_json)})
    names = {re.split(r"[/\\]", path)[-1] for path in call.paths}
    if call.paths & failed.paths:
        return (*kinds, "file of the call")
    if any(name in failed.problem for name in names):
        return (*kinds, "file in the error")
    return (*kinds, *sorted(call.paths))


# -- report -----------------------------------------------------------------------------------


def _shown(number: int, result: FixResult) -> str:
    case = result.case
    lines = [
        f"{number}. {case.past.agent}: {_short(case.episode.failed.command)}",
        f"   error:     {_short(case.episode.failed.problem)}",
        f"   fixed by:  {_short(case.episode.fixed_by.command)}",
    ]
    for rank, answer in enumerate(result.answers, 1):
        mark = " (right)" if rank == result.rank else ""
        lines.append(f"   answer {rank}:  {_short(answer.fixed_by.command)}{mark}")
    return "\n".join(lines)


def _short(text: str) -> str:
    return " ".join(text.split())[:110]


def _report(way: str, results: Sequence[FixResult], goal: Goal | None) -> Iterator[Line]:
    groups = {"": list(results)}
    elsewhere = [
        one
        for one in results
        if one.case.known and one.case.past.label not in {like.label for like in one.case.likes}
    ]
    if elsewhere:
        groups[", from other conversations alone"] = elsewhere
    for name, is_command in ((", a command", True), (", a file tool", False)):
        groups[name] = [
            one for one in results if (one.case.episode.fixed_by.shell is not None) is is_command
        ]
    for agent in sorted({result.case.past.agent for result in results}):
        groups[f", {agent}"] = [result for result in results if result.case.past.agent == agent]
    for name, group in groups.items():
        first = sum(result.rank == 1 for result in group) / max(1, len(group))
        third = sum(result.rank > 0 for result in group) / max(1, len(group))
        ours = f"first {first:.2f}, first three {third:.2f}"
        aim = goal if not name else None
        yield Line(f"remedy of an error, {way}{name}", ours, "", third, aim, len(group))
