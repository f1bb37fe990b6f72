"""What an import holds in memory: little of each record, and nothing twice."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from agents_ledger import Ledger
from agents_ledger.importers.discovery import Unrecognised, files_at
from agents_ledger.importers.pipeline import Importer, rederive
from agents_ledger.importers.port.limits import ImportLimits
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import Source
from agents_ledger.importers.sources.claude_code.source import ClaudeCode
from agents_ledger.importers.sources.registry import SOURCES
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.projection import reconcile
from agents_ledger.ledger.projection import turns as projected_turns
from agents_ledger.model.imports.records import RowRecord, frame
from agents_ledger.model.imports.sources import Derivation, SourceFile, SourceKind
from agents_ledger.model.limits import LedgerLimits
from agents_ledger.store.database import open_database
from tests.importers.claude_log import SESSION, Log, text
from tests.importers.codex_log import Rollout
from tests.importers.helping import import_paths, packed_result, result
from tests.statements import Meddled

TURNS = 2000
FEW_TURNS = 300
BLOCK = 16 << 10
FEW_HELD = ImportLimits(held_bytes=0, held_names=256, held_values=16)


def session(folder: Path, turns: int, first: str = "question") -> Log:
    log = Log(folder)
    for turn in range(turns):
        log.user(f"{turn}a", "question" if turn else first)
        log.assistant(f"{turn}b", text("answer"))
    return log


class Given:
    """The bytes of one file."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def stream(self, _: int) -> Iterator[bytes]:
        return (self.data[at : at + BLOCK] for at in range(0, len(self.data), BLOCK))

    def read(self, _: int, start: int, length: int) -> bytes:
        return self.data[start : start + length]


def rollout(folder: Path, turns: int) -> Rollout:
    log = Rollout(folder)
    for turn in range(turns):
        log.start(turn)
        log.ask("question")
        log.call(f"call_{turn}", output="done", cmd="make")
        log.tokens(10 * turn)
        log.say("answer")
    return log


def held_of(
    reader: Source, kind: SourceKind, data: bytes, path: Path = Path("/tasks/t/file.json")
) -> tuple[int, int]:
    """The bytes that a derivation is and, at most, took; both without what is made once, which may
    fall into one of two."""
    given = Given(data)
    size = len(given.data)
    file = SourceFile(1, reader.name, str(path), 0, "f", kind, size, 0, size)
    found: list[tuple[int, int]] = []
    for _ in range(2):
        gc.collect()  # when it will come next is then the same each time
        tracemalloc.start()
        try:
            derivation = reader.derive(Material(given, [file], limits=FEW_HELD))
            assert sum(1 for _ in derivation.turns) == len(derivation.turns)
            found.append(tracemalloc.get_traced_memory())
        finally:
            tracemalloc.stop()
        del derivation
    return min(held for held, _ in found), min(most for _, most in found)


def iso(second: int) -> str:
    return datetime.fromtimestamp(1_767_225_600 + second, UTC).isoformat()


def name(number: int) -> str:
    return str(UUID(int=number, version=4))


def lines(records: Iterable[object]) -> bytes:
    return b"".join(msgspec.json.encode(each) + b"\n" for each in records)


def asked_and_said(each: int) -> object:
    return {"role": ("user", "assistant")[each % 2], "content": "said"}


def asked_and_called(each: int) -> object:
    if each % 100 == 0:
        return {"role": "user", "content": "do"}
    if each % 2:
        call = {"type": "toolCall", "id": f"call_{each:024}", "name": "bash", "arguments": {}}
        return {"role": "assistant", "content": [call]}
    return {"role": "toolResult", "toolCallId": f"call_{each - 1:024}", "content": "done"}


def of_pi(
    number: int, said: Callable[[int], object] = asked_and_said, *, forks: bool = False
) -> bytes:
    def above(each: int) -> int:
        return max(0, each - (11 if forks and each % 10 == 0 else 1))

    head = {"type": "session", "version": 3, "id": name(0), "timestamp": iso(0), "cwd": "/w"}
    entries = (
        {
            "type": "message",
            "id": f"{each:08x}",
            "parentId": f"{above(each):08x}" if each else None,
            "timestamp": iso(each),
            "message": said(each),
        }
        for each in range(number)
    )
    return lines([head, *entries])


def of_pi_with_calls(number: int) -> bytes:
    return of_pi(number, asked_and_called)


def of_pi_with_forks(number: int) -> bytes:
    return of_pi(number, forks=True)


def of_openclaw(number: int) -> bytes:
    events = (
        {"session_id": name(0), "seq": seq, "event_json": line.decode(), "created_at": seq}
        for seq, line in enumerate(of_pi(number).splitlines())
    )
    return b"".join(
        frame(RowRecord("transcript_events", ("session_id", "seq"), tuple(e), tuple(e.values())))
        for e in events
    )


def of_gemini(number: int) -> bytes:
    head = {"sessionId": name(0), "projectHash": "a" * 64, "startTime": iso(0)}
    messages = (
        {
            "id": name(each),
            "timestamp": iso(each),
            "type": ("user", "gemini")[each % 2],
            "content": "said",
        }
        for each in range(number)
    )
    return lines([head, *messages])


def of_copilot(number: int) -> bytes:
    head = {"type": "session.start", "id": name(0), "data": {"sessionId": name(0)}}
    events = (
        {
            "type": ("user.message", "assistant.message")[each % 2],
            "id": name(each + 1),
            "timestamp": iso(each),
            "data": {"content": "said"},
        }
        for each in range(number)
    )
    return lines([head, *events])


def of_cline(number: int) -> bytes:
    kinds = ("user_feedback", "text")
    first = {"ts": 1_767_225_600_000, "type": "say", "say": "task", "text": "do"}
    entries = (
        {"ts": 1_767_225_600_000 + each, "type": "say", "say": kinds[each % 2], "text": "said"}
        for each in range(1, number)
    )
    return msgspec.json.encode([first, *entries])


def of_cline_history(number: int) -> bytes:
    sides = (
        {"role": "user", "content": "<task>do</task>"},
        {"role": "assistant", "content": "said"},
    )
    return msgspec.json.encode([sides[each % 2] for each in range(number)])


def of_cline_session(number: int) -> bytes:
    sides = (
        {"role": "user", "content": [{"type": "text", "text": "said"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "said"}]},
    )
    messages = ({"id": f"msg_{each:08}", **sides[each % 2]} for each in range(number))
    return msgspec.json.encode({"version": 1, "sessionId": "s", "messages": list(messages)})


def of_gemini_document(number: int) -> bytes:
    head, *messages = map(msgspec.json.decode, of_gemini(number).splitlines())
    return msgspec.json.encode({**head, "messages": messages})


def of_chatgpt(number: int) -> bytes:
    nodes = {
        name(each): {
            "message": {
                "author": {"role": ("user", "assistant")[each % 2]},
                "content": {"content_type": "text", "parts": ["said"]},
            },
            "parent": name(each - 1) if each else None,
            "children": [name(each + 1)],
        }
        for each in range(number)
    }
    return msgspec.json.encode([{"id": name(number), "mapping": nodes}])


def of_claude_ai(number: int) -> bytes:
    messages = [
        {"uuid": name(each), "sender": ("human", "assistant")[each % 2], "text": "said"}
        for each in range(number)
    ]
    return msgspec.json.encode([{"uuid": name(number), "chat_messages": messages}])


def rows(table: str, key: str, records: Iterable[Mapping[str, object]]) -> bytes:
    return b"".join(
        frame(RowRecord(table, (key,), tuple(each), tuple(each.values()))) for each in records
    )


def of_opencode(number: int) -> bytes:
    messages = (
        {
            "id": f"msg_{each:026}",
            "session_id": "ses_1",
            "data": ('{"role":"user"}', '{"role":"assistant"}')[each % 2],
        }
        for each in range(number // 2)
    )
    parts = (
        {"id": f"prt_{each:026}", "message_id": f"msg_{each:026}", "data": '{"type":"text"}'}
        for each in range(number // 2)
    )
    return rows("message", "id", messages) + rows("part", "id", parts)


def of_cursor(number: int) -> bytes:
    bubbles = (
        {
            "key": f"bubbleId:{name(0)}:{name(each)}",
            "value": msgspec.json.encode(
                {"bubbleId": name(each), "type": 1 + each % 2, "createdAt": iso(each), "text": "x"}
            ).decode(),
        }
        for each in range(number)
    )
    listed = [{"bubbleId": name(each)} for each in range(number)]
    chat = msgspec.json.encode({"fullConversationHeadersOnly": listed}).decode()
    own = {"key": f"composerData:{name(0)}", "value": chat}
    return rows("cursorDiskKV", "key", (*bubbles, own))


def of_claude_code(number: int) -> bytes:
    return "\n".join(session(Path(), number // 2).lines).encode() + b"\n"


def of_codex(number: int) -> bytes:
    return "\n".join(rollout(Path(), number // 9).lines).encode() + b"\n"


RECORDS: tuple[tuple[str, SourceKind, Callable[[int], bytes], int], ...] = (
    ("pi", "lines", of_pi, 120),
    ("pi", "lines", of_pi_with_calls, 160),
    ("pi", "lines", of_pi_with_forks, 120),
    ("openclaw", "rows", of_openclaw, 160),
    ("gemini-cli", "lines", of_gemini, 230),
    ("gemini-cli", "document", of_gemini_document, 350),
    ("chatgpt", "document", of_chatgpt, 960),
    ("claude-ai", "document", of_claude_ai, 370),
    ("copilot", "lines", of_copilot, 120),
    ("cline", "document", of_cline, 350),
    ("cline", "document", of_cline_session, 350),
    ("opencode", "rows", of_opencode, 190),
    ("cursor", "rows", of_cursor, 600),
    ("claude-code", "lines", of_claude_code, 110),
    ("codex", "lines", of_codex, 110),
)


@pytest.mark.parametrize(("source", "kind", "made", "most"), RECORDS)
def test_of_one_more_record_less_than_a_kilobyte_is_held(
    source: str, kind: SourceKind, made: Callable[[int], bytes], most: int
) -> None:
    _, few = held_of(SOURCES[source], kind, made(FEW_TURNS))
    _, many = held_of(SOURCES[source], kind, made(3 * FEW_TURNS))

    assert (many - few) / (2 * FEW_TURNS) < 1 << 10


@pytest.mark.exhaustive
@pytest.mark.parametrize(("source", "kind", "made", "most"), RECORDS)
def test_of_one_more_of_many_records_hardly_more_than_its_place_is_held(
    source: str, kind: SourceKind, made: Callable[[int], bytes], most: int
) -> None:
    _, few = held_of(SOURCES[source], kind, made(TURNS // 2))
    _, many = held_of(SOURCES[source], kind, made(3 * TURNS // 2))

    assert (many - few) / TURNS < most


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("gemini-cli", of_gemini_document),
        ("chatgpt", of_chatgpt),
        ("claude-ai", of_claude_ai),
        ("cline", of_cline),
        ("cline", of_cline_session),
    ],
)
@pytest.mark.parametrize("odd", [rb'"\ud83d"', b"NaN", b"-Infinity"])
def test_what_is_no_json_in_a_document_takes_one_copy_of_it(
    source: str, made: Callable[[int], bytes], odd: bytes
) -> None:
    large = b'"%b"' % (b"." * (2 * BLOCK))
    data = made(4).replace(b'"said"', b'"cut"', 1).replace(b'"said"', large)
    _, most = held_of(SOURCES[source], "document", data)
    _, most_mended = held_of(SOURCES[source], "document", data.replace(b'"cut"', odd))

    assert most_mended - most < 1.1 * len(data)


@pytest.mark.parametrize(
    ("path", "made"),
    [
        ("chats/session-2026-01-01-00000000.json", of_gemini_document),
        ("chats/session-2026-01-01-00000000.jsonl", of_gemini),
        ("chatgpt/conversations.json", of_chatgpt),
        ("claude/conversations.json", of_claude_ai),
        ("copilot/events.jsonl", of_copilot),
        ("pi/session.jsonl", of_pi),
        ("pi/session.jsonl", of_pi_with_forks),
        ("tasks/1/ui_messages.json", of_cline),
        ("tasks/1/api_conversation_history.json", of_cline_history),
    ],
)
@pytest.mark.parametrize("said", [b'"said"', rb'"half \ud83d"', b"NaN"])
def test_messages_that_are_packed_say_the_same(
    path: str,
    made: Callable[[int], bytes],
    said: bytes,
    ledger: Ledger,
    *,
    tmp_path: Path,
) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    data = made(40).replace(b'"said"', said, 1)
    file.write_bytes(b"\xef\xbb\xbf" * path.endswith(".json") + data)
    import_paths(ledger, file)
    before = result(ledger)

    assert packed_result(tmp_path, file) == before
    assert len(before["turns"]) == 20


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize(
    ("few", "limit"), [(100, 650), pytest.param(500, 350, marks=pytest.mark.exhaustive)]
)
def test_to_write_one_more_turn_takes_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, limit: int, *, twice: bool
) -> None:
    limits = LedgerLimits(
        held_record_ids=16,
        held_names=256,
        derived_turns=64,
        batch_turns=32,
        batch_bytes=BLOCK + 64 * projected_turns.ROW_BYTES,
        block_bytes=BLOCK,
    )
    most: list[int] = []
    add = reconcile.Projector.add

    def measured(self: reconcile.Projector, *values: Any, **named: Any) -> None:
        gc.collect()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        add(self, *values, **named)
        most.append(tracemalloc.get_traced_memory()[1] - before)

    monkeypatch.setattr(reconcile.Projector, "add", measured)
    for turns in (few, few, 3 * few, 3 * few):  # each twice: one of them may make what is made once
        log = session(tmp_path / str(len(most)), turns)
        if twice:
            log.resume(f"c{number:x}" for number in range(2 * turns))
        path = log.save()
        database = open_database(str(tmp_path / f"{len(most)}.db"), limits=limits)
        with Ledger(Core(database)) as ledger:
            tracemalloc.start()
            import_paths(ledger, path, limits=FEW_HELD)
            tracemalloc.stop()
            repeated = ledger.query("SELECT count(*) FROM repeated_records")[1]
        assert repeated == [(2 * turns * twice,)]

    assert (min(most[2:]) - min(most[:2])) / (2 * few) < limit


def test_turns_of_many_small_records_are_not_all_built_at_once(
    limited: Callable[..., Ledger], tmp_path: Path
) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(of_pi_with_calls(1000))
    ledger = limited(batch_bytes=200 * projected_turns.ROW_BYTES)
    meddled, ledger._core.db = Meddled.over(ledger._core.db)
    import_paths(ledger, path)

    turns = [ran.count("insert_turn") for ran in meddled.writes]
    assert sum(turns) == 10
    assert max(turns) == 2  # each has 51 messages and 50 calls


def test_turns_that_are_packed_and_met_again_say_the_same(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    for turn in range(6):
        log.start(turn)
        log.ask(f"question {turn}")
        log.call(f"call_{turn}", cmd="make")
    for turn in range(6):  # results come when many others have begun
        log.item("function_call_output", call_id=f"call_{turn}", output=f"done {turn}")
    log.start(2)
    log.say("answer of the third")
    path = log.save()
    import_paths(ledger, path)
    before = result(ledger)

    assert packed_result(tmp_path, path) == before
    assert len(before["turns"]) == 6
    assert "done 0" in str(before["tool_calls"])


def test_what_was_told_of_many_small_files_is_held_once(ledger: Ledger, tmp_path: Path) -> None:
    for number in range(3):
        log = Log(tmp_path, SESSION.replace("1", str(number + 2)))
        log.user(f"{number}a", "question")
        log.save()
    importer = Importer(ledger)
    importer.run(files_at(tmp_path, Unrecognised([], [])))

    assert len(importer._family_reports) == 3
    assert len({id(told.records) for told in importer._family_reports.values()}) == 1
    assert sum(importer.report.records.values()) == 3


def test_a_family_is_not_held_twice_while_it_is_derived_with_what_shares_its_turns(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = session(tmp_path / "logs", 3)
    origin.save()
    fork = Log(tmp_path / "logs", SESSION.replace("1", "2"))
    fork.lines, fork.last, fork.clock = list(origin.lines), origin.last, origin.clock
    fork.user("c", "more")
    fork.assistant("d", text("said"))
    fork.save()
    import_paths(ledger, tmp_path / "logs")
    derive = ClaudeCode.derive
    alive: list[int] = []

    def counted(self: ClaudeCode, material: Material) -> Derivation:
        alive.append(sum(isinstance(each, Derivation) for each in gc.get_objects()))
        return derive(self, material)

    monkeypatch.setattr(ClaudeCode, "derive", counted)
    gc.collect()
    rederive(ledger)

    assert alive == [alive[0]] * 2  # for itself, then with the fork


def test_a_tree_larger_than_the_places_that_are_remembered_is_put_again(
    limited: Callable[..., Ledger], tmp_path: Path
) -> None:
    ledger = limited(held_places=2)
    path = session(tmp_path, 7).save()
    import_paths(ledger, path)
    before = result(ledger)

    session(tmp_path, 7, first="another question").save()
    import_paths(ledger, path)

    after = result(ledger)
    assert before["messages"] != after["messages"]
    assert [depth for _, depth, *_ in after["threads"]] == list(range(1, 8))
    assert before["threads"] == after["threads"]
    assert ledger.audit() == ()
