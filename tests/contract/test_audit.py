"""Audit: every rule names what breaks it, when it is broken behind the ledger's back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from agents_ledger import Compaction, Finding, Ledger, Message, ToolCall
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.maintenance import audit
from agents_ledger.store.database import Database, Transaction
from tests.builders import A_USAGE, a_call, a_detailed_message, a_message
from tests.raw import Raw
from tests.statements import Watched
from tests.tasking import a_task, calls, says, tasks_of

pytestmark = pytest.mark.unsound

# The invariants of the specification, by the rules that look after them.
INVARIANTS = {
    "append-only": {"guard_missing", "guard_changed"},
    "tree integrity": {"parent_missing", "place_wrong"},
    "thread per turn": {"thread_missing"},
    "session is pointer": {"head_missing", "head_live"},
    "ordered messages": {"sequence_doubled", "sequence_negative"},
    "complete tool calls": {"call_open"},
    "compaction preserves history": {"compaction_off_thread", "parent_missing"},
    "compaction has details": {"compaction_missing", "compaction_extra"},
    "session history logged": {"head_unlogged", "history_dangling"},
}


class Plant(NamedTuple):
    """SQL that breaks one rule, the id the finding names, and rules that break along with it."""

    sql: str
    id: str
    along: frozenset[str] = frozenset()


def plant(sql: str, named: str, *along: str) -> Plant:
    return Plant(sql, named, frozenset(along))


REFERENCE = "reference_dangling"  # a rule of SQLite alone: a server keeps its references itself
WRITER = "(SELECT min(id) FROM writers)"
QUEUED = (
    "INSERT INTO queue (id, session_label, mode, status, enqueued_at, ready_at, turn_id, ask_json,"
    " request_hash, writer_id) VALUES"
)
BAD = {  # what the engine itself complains of
    "sqlite": "PRAGMA ignore_check_constraints=ON;UPDATE sessions SET created_as = 'x';"
    "PRAGMA ignore_check_constraints=OFF",
    "postgresql": "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid ="
    " CAST('idx_turns_parent' AS regclass)",
}
# In braces: the turns, messages and segments of the scene below.
PLANTS: dict[str, list[Plant]] = {
    "turn_unindexed": [
        plant("DELETE FROM search_docs WHERE turn_id = '{last}'", "{last}"),
    ],
    "words_wrong": [
        plant("UPDATE messages SET content = 'other' WHERE id = '{other_message}'", "{last}"),
        plant(
            "UPDATE search_docs SET turn_id = '{last}x' WHERE turn_id = '{last}';"
            "UPDATE search_docs SET turn_id = '{last}' WHERE turn_id = '{side}';"
            "UPDATE search_docs SET turn_id = '{side}' WHERE turn_id = '{last}x'",
            "{side}",
        ),
    ],
    "usage_sums": [
        plant("INSERT INTO summary_days VALUES ({day})", "{day}", "tool_sums"),
        plant(
            "INSERT INTO summary_days VALUES (1);"
            "INSERT INTO usage_sums"
            " VALUES (1, 24, '', '', '', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)",
            "1",
        ),
    ],
    "tool_sums": [
        plant("INSERT INTO summary_days VALUES ({day})", "{day}", "usage_sums"),
        plant(
            "INSERT INTO summary_days VALUES (1);"
            "INSERT INTO tool_sums VALUES (1, 'x', 'completed', 0, 1, 0, 0, 0)",
            "1",
        ),
    ],
    "parent_missing": [
        plant(
            "UPDATE turns SET parent_turn_id = 'gone' WHERE id = '{side}'",
            "{side}",
            "place_wrong",
            "thread_latest",
            "thread_totals",
            REFERENCE,
        ),
    ],
    "thread_missing": [
        plant(
            "DELETE FROM places WHERE turn_id = '{failed}';"
            "DELETE FROM segments WHERE id = {failed_segment}",
            "{failed}",
        ),
    ],
    "place_wrong": [
        plant("UPDATE places SET depth = 99 WHERE turn_id = '{last}'", "{last}"),
        plant(
            "UPDATE segments SET fork_depth = 2 WHERE id = {side_segment}",
            "{side}",
            "segment_empty",
            "segment_wrong",
        ),
    ],
    "place_joined": [
        plant(
            "UPDATE turns SET status = 'failed', error = 'x' WHERE id = '{last}'",
            "{last}",
            "words_wrong",
        ),
    ],
    "segment_wrong": [
        plant("UPDATE segments SET level = 7 WHERE id = {side_segment}", "{side_segment}"),
        plant("UPDATE segments SET jump_depth = 7 WHERE id = {side_segment}", "{side_segment}"),
        plant("UPDATE segments SET jump_id = NULL WHERE id = {side_segment}", "{side_segment}"),
    ],
    "segment_empty": [
        plant(
            "INSERT INTO segments (id, parent_id, fork_depth, level, jump_id, jump_depth)"
            " VALUES (999, {main_segment}, 1, 1, {main_segment}, 1)",
            "999",
        ),
    ],
    "thread_totals": [
        plant(f"UPDATE places SET {kind} = {kind} + 1 WHERE turn_id = '{{last}}'", "{last}")
        for kind in (
            "input_tokens",
            "output_tokens",
            "cached_input_tokens",
            "cache_write_tokens",
            "reasoning_tokens",
            "total_tokens",
        )
    ],
    "thread_latest": [
        plant("UPDATE places SET model = 'x' WHERE turn_id = '{last}'", "{last}"),
        plant("UPDATE places SET provider = NULL WHERE turn_id = '{last}'", "{last}"),
    ],
    "thread_compactions": [
        plant("UPDATE places SET compaction_count = 5 WHERE turn_id = '{last}'", "{last}"),
        plant("UPDATE places SET compaction_turn_id = NULL WHERE turn_id = '{last}'", "{last}"),
    ],
    "prompt_missing": [
        plant("UPDATE places SET system_prompt_hash = 'gone' WHERE turn_id = '{last}'", "{last}"),
    ],
    "prompt_changed": [
        plant("UPDATE system_prompts SET content = 'Be long.'", "{prompt}"),
    ],
    "children_flag": [
        plant("UPDATE turns SET has_children = 0 WHERE id = '{first}'", "{first}"),
        plant("UPDATE turns SET has_children = 1 WHERE id = '{side}'", "{side}"),
    ],
    "child_of_live": [
        plant(
            "UPDATE turns SET status = 'pending', completed_at = NULL WHERE id = '{first}';"
            "INSERT INTO live_turns (turn_id, writer_id, session_label)"
            " SELECT '{first}', id, 'main' FROM writers",
            "{side}",
        ),
    ],
    "call_count": [
        plant("UPDATE turns SET tool_call_count = 9 WHERE id = '{second}'", "{second}"),
    ],
    "query_messages": [
        plant(
            """UPDATE turns SET query_message_ids = '["gone"]' WHERE id = '{second}'""", "{second}"
        ),
        plant(
            """UPDATE turns SET query_message_ids = '["{other_message}"]' WHERE id = '{second}'""",
            "{second}",
        ),
    ],
    "response_message": [
        plant(
            f"UPDATE turns SET response_message_id = '{which}' WHERE id = '{{second}}'", "{second}"
        )
        for which in ("gone", "{other_message}", "{query_message}")
    ],
    "turn_times": [
        plant("UPDATE turns SET completed_at = NULL WHERE id = '{second}'", "{second}"),
        plant("UPDATE turns SET completed_at = 1 WHERE id = '{live}'", "{live}"),
    ],
    "failed_unsaid": [
        plant("UPDATE turns SET error = NULL WHERE id = '{failed}'", "{failed}"),
    ],
    "request_missing": [
        plant("UPDATE turns SET request_hash = NULL WHERE id = '{second}'", "{second}"),
    ],
    "sequence_doubled": [
        plant("UPDATE tool_calls SET sequence = 0 WHERE id = 'call-1'", "{second}"),
    ],
    "sequence_negative": [
        plant("UPDATE messages SET sequence = -1 WHERE id = '{query_message}'", "{query_message}"),
        plant("UPDATE tool_calls SET sequence = -1 WHERE id = 'call-1'", "call-1"),
    ],
    "details_flag": [
        plant(
            "UPDATE messages SET has_details = 0 WHERE id = '{query_message}'", "{query_message}"
        ),
        plant(
            "UPDATE messages SET has_details = 1 WHERE id = '{other_message}'", "{other_message}"
        ),
    ],
    "call_open": [
        plant("UPDATE tool_calls SET status = 'running' WHERE id = 'call-1'", "call-1"),
        plant("UPDATE tool_calls SET status = 'pending' WHERE id = 'call-f'", "call-f"),
    ],
    "call_message": [
        plant("UPDATE tool_calls SET message_id = '{other_message}' WHERE id = 'call-1'", "call-1"),
        plant("UPDATE tool_calls SET message_id = 'gone' WHERE id = 'call-1'", "call-1", REFERENCE),
    ],
    "compaction_missing": [
        plant("DELETE FROM compactions WHERE turn_id = '{compaction}'", "{compaction}"),
    ],
    "compaction_extra": [
        plant(
            "INSERT INTO compactions (turn_id, summary, summarized_through_turn_id, model)"
            " VALUES ('{second}', 's', '{first}', 'm')",
            "{second}",
        ),
        plant(
            "INSERT INTO compactions (turn_id, summary, summarized_through_turn_id, model)"
            " VALUES ('gone', 's', '{first}', 'm')",
            "gone",
            "compaction_off_thread",
            REFERENCE,
        ),
    ],
    "compaction_off_thread": [
        plant(
            "UPDATE compactions SET summarized_through_turn_id = '{side}',"
            " first_kept_turn_id = NULL",
            "{compaction}",
        ),
        plant("UPDATE compactions SET first_kept_turn_id = '{side}'", "{compaction}"),
        plant(
            "UPDATE compactions SET summarized_through_turn_id = '{second}',"
            " first_kept_turn_id = '{first}'",
            "{compaction}",
        ),
    ],
    "head_missing": [
        plant(
            "UPDATE sessions SET thread_id = 'gone' WHERE label = 'side'",
            "side",
            "head_unlogged",
            REFERENCE,
        ),
    ],
    "head_live": [
        plant(
            "UPDATE sessions SET thread_id = '{live}' WHERE label = 'side';"
            "INSERT INTO session_history (session_label, thread_id, changed_at, reason)"
            " SELECT label, thread_id, updated_at, 'move' FROM sessions WHERE label = 'side'",
            "side",
        ),
    ],
    "head_unlogged": [
        plant("UPDATE sessions SET thread_id = '{first}' WHERE label = 'side'", "side"),
        plant("UPDATE sessions SET thread_id = NULL WHERE label = 'side'", "side"),
    ],
    "history_time": [
        plant(
            "UPDATE session_history SET changed_at = 1 WHERE id ="
            " (SELECT max(id) FROM session_history WHERE session_label = 'main')",
            "main",
        ),
        plant("UPDATE sessions SET updated_at = 1 WHERE label = 'main'", "main"),
    ],
    "history_dangling": [
        plant(
            "INSERT INTO session_history (session_label, thread_id, changed_at, reason)"
            " VALUES ('gone', '{first}', 1, 'move')",
            "gone",
            REFERENCE,
        ),
        plant(
            "UPDATE session_history SET thread_id = 'gone' WHERE id ="
            " (SELECT min(id) FROM session_history WHERE session_label = 'main')",
            "main",
            REFERENCE,
        ),
    ],
    "name_missing": [
        plant("DELETE FROM names WHERE name = 'side'", "side"),
        plant("UPDATE names SET session_label = 'main' WHERE name = 'side'", "side"),
    ],
    "alias_chain": [
        plant(
            "UPDATE sessions SET status = 'archived' WHERE label = 'side';"
            "UPDATE names SET session_label = 'main' WHERE name = 'side';"
            "UPDATE names SET session_label = 'side' WHERE name = 'nick'",
            "nick",
        ),
    ],
    "subagent_disagrees": [
        plant("UPDATE tool_calls SET spawned_session_label = NULL", "child"),
        plant("UPDATE tool_calls SET spawned_session_label = 'side' WHERE id = 'call-2'", "child"),
        plant("UPDATE sessions SET spawn_tool_call_id = NULL WHERE label = 'child'", "child"),
        plant("UPDATE sessions SET spawn_tool_call_id = 'call-1' WHERE label = 'child'", "child"),
        plant("UPDATE sessions SET is_subagent = 0 WHERE label = 'child'", "child"),
        plant("UPDATE sessions SET parent_turn_id = '{first}' WHERE label = 'child'", "child"),
        plant("UPDATE sessions SET parent_session_label = NULL WHERE label = 'child'", "child"),
    ],
    "writer_missing": [
        plant("DELETE FROM partial_texts; DELETE FROM live_turns", "{live}"),
    ],
    "unfrozen": [
        plant("UPDATE turns SET projected = 1 WHERE id = '{first}'", "{first}", "source_missing"),
    ],
    "frozen_above": [
        plant(
            "UPDATE turns SET projected = 1 WHERE id = '{first}';"
            "UPDATE segments SET frozen_depth = 2 WHERE id = {side_segment}",
            "{side_segment}",
            "unfrozen",
            "source_missing",
        ),
    ],
    "source_gap": [
        plant(
            "INSERT INTO source_files (id, source, path, generation, family, kind, size, mtime_ns,"
            " kept_bytes, first_seen_at, seen_at)"
            " VALUES (77, 's', '/p', 0, 'f', 'lines', 5, 0, 5, 0, 0)",
            "77",
        ),
    ],
    "source_missing": [
        plant("UPDATE turns SET projected = 1 WHERE id = '{failed}'", "{failed}"),
    ],
    "task_message": [
        plant(
            "UPDATE messages SET content = 'other' WHERE id = 'task:m1'",
            "m1",
        ),
        plant("DELETE FROM bus_turns", "m1", "source_missing"),
        plant("UPDATE bus_messages SET turn_id = NULL WHERE id = 'm1'", "m1"),
    ],
    "task_call": [
        plant("UPDATE tool_calls SET tool_name = 'other' WHERE id = 'task-call'", "task-call"),
        plant("DELETE FROM tool_calls WHERE id = 'task-call'", "task-call", "call_count"),
    ],
    "task_reference": [
        plant(
            "INSERT INTO bus_tasks (id, system_prompt_hash, created_at, updated_at, session_label)"
            " VALUES ('t9', '{prompt}', 1, 1, 'side');"
            "UPDATE bus_calls SET task_id = 't9'",
            "task-call",
        ),
    ],
    "task_writer": [
        plant("UPDATE bus_calls SET status = 'in_progress'", "task-call"),
    ],
    "writer_late": [
        plant(
            "INSERT INTO live_turns (turn_id, writer_id, session_label)"
            " SELECT '{second}', id, 'main' FROM writers",
            "{second}",
        ),
        plant(
            "INSERT INTO partial_texts (turn_id, piece, content) VALUES ('{second}', 0, 'x')",
            "{second}",
            REFERENCE,
        ),
    ],
    "line_divided": [
        plant(
            f"{QUEUED} ('x', 'side', 'followup', 'claimed', 0, 0, 't1', 'x', <h>, {WRITER}),"
            f" ('y', 'side', 'followup', 'claimed', 0, 0, 't2', 'x', <h>, {WRITER})",
            "side",
        ),
    ],
    "claim_incomplete": [
        plant(f"{QUEUED} ('x', 'side', 'followup', 'claimed', 0, 0, 't1', 'x', <h>, NULL)", "x"),
        plant(
            f"{QUEUED} ('x', 'side', 'followup', 'claimed', 0, 0, NULL, 'x', <h>, {WRITER})",
            "x",
        ),
        plant(
            f"{QUEUED} ('x', 'side', 'followup', 'waiting', 0, 0, NULL, 'x', <h>, {WRITER})",
            "x",
        ),
    ],
    "claim_late": [
        plant(
            f"{QUEUED} ('x', 'side', 'followup', 'claimed', 0, 0, '{{side}}', 'x', <h>, {WRITER})",
            "x",
        ),
    ],
    "entry_unanswered": [
        plant(f"{QUEUED} ('x', 'side', 'steer', 'done', 0, 0, 'gone', NULL, <h>, NULL)", "x"),
        plant(f"{QUEUED} ('x', 'side', 'steer', 'waiting', 0, 0, NULL, NULL, <h>, NULL)", "x"),
    ],
    "guard_missing": [
        plant("DROP VIEW agent_turns", "agent_turns"),
        plant("DROP TRIGGER turns_update<on turns>", "turns_update"),
    ],
    "guard_changed": [
        plant("DROP VIEW calls;CREATE VIEW calls AS SELECT id FROM bus_calls", "calls"),
    ],
    "engine_check": [plant("<bad index or row>", "")],
    "rule_unchecked": [plant("DROP TABLE tool_sums", "tool_sums")],
    "value_wrong": [plant("UPDATE annotations SET note = <bytes>", "annotations:side")],
    "reference_dangling": [
        plant(
            "UPDATE sessions SET parent_session_label = 'gone' WHERE label = 'child'", "sessions"
        ),
    ],
}


class Scene(NamedTuple):
    """A ledger with something for every rule to look at, and the names used above."""

    db: Database
    names: dict[str, str]


@pytest.fixture(scope="module")
def scene(shared_address: str) -> Iterator[Scene]:
    """One scene for all: each test takes back what it broke."""
    with Ledger.open(shared_address) as ledger, Raw(shared_address) as raw:
        yield Scene(ledger._core.db, set_up(ledger, raw))


def set_up(ledger: Ledger, raw: Raw) -> dict[str, str]:
    first = ledger.record("main", "one", "r", usage=A_USAGE, system_prompt="Be brief.", model="m")
    steps: list[Message | ToolCall] = [
        a_message("I spawn.", role="assistant"),
        a_call(id="call-1"),
        a_call("Task", id="call-2", spawned_session_label="child"),
    ]
    second = ledger.record("main", a_detailed_message(), "r", steps=steps, provider="p")
    compaction = ledger.record("main", compaction=Compaction("s", first.id, second.id))
    last = ledger.record("main", "last", "r", usage=A_USAGE)
    failed = ledger.record(
        "main", "f", status="failed", error="no", steps=[ToolCall("F", id="call-f")]
    )
    ledger.fork(first.id, label="side")
    side = ledger.record("side", "beside", "r")
    ledger.alias("nick", "main")
    ledger.annotate("side", note="n")
    live = ledger.turn("elsewhere", "live")
    live.stream("so far")
    ledger._core.index(least=1)

    tasks_of(ledger).save(
        a_task(system_prompt="Be brief."),
        says("m1", "user", "q", 1),
        says("m2", "assistant", "r", 2),
        calls("task-call"),
    )

    def segment(turn_id: str) -> str:
        return str(raw.one("SELECT segment_id FROM places WHERE turn_id = ?", (turn_id,)))

    return {
        "first": first.id,
        "second": second.id,
        "compaction": compaction.id,
        "last": last.id,
        "failed": failed.id,
        "side": side.id,
        "live": live.id,
        "query_message": second.query[0].id,
        "other_message": last.messages[-1].id,
        "day": str(first.started_at // 86_400_000),
        "main_segment": segment(first.id),
        "side_segment": segment(side.id),
        "failed_segment": segment(failed.id),
        "prompt": raw.one("SELECT hash FROM system_prompts"),
    }


class TakenBack(Exception):
    """Carries the findings out of the transaction that is undone."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        self.findings = findings


def findings_of(scene: Scene, statements: list[str], *, guarded: bool) -> tuple[Finding, ...]:
    """What the audit says after the statements, which are then undone."""

    def break_and_look(tx: Transaction) -> None:
        guards: list[tuple[str, str]] = []
        tx.execute("UPDATE writers SET seen_at = seen_at")  # else there might be nothing to undo
        if scene.db.engine == "postgresql":
            tx.execute("SET LOCAL session_replication_role TO replica")
        else:
            tx.execute("PRAGMA defer_foreign_keys=ON")
            if not guarded:
                found = tx.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
                guards = [(name, sql) for name, sql in found]
        for name, _ in guards:
            tx.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            tx.execute(statement)
        for _, sql in guards:
            tx.execute(sql)
        raise TakenBack(audit.audit(tx, scene.db.engine))

    with pytest.raises(TakenBack) as taken_back:
        scene.db.write(break_and_look)
    return taken_back.value.findings


def test_no_rule_lacks_a_test() -> None:
    assert set(PLANTS) == set(audit.rules())


def test_every_rule_says_what_it_means() -> None:
    meanings = audit.meanings()

    assert set(meanings) == set(audit.rules())
    assert all(meaning.endswith(".") for meaning in meanings.values()), meanings


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_every_invariant_of_the_seed_has_its_rules(invariant: str) -> None:
    assert set(audit.rules()) >= INVARIANTS[invariant]


@pytest.mark.parametrize(
    ("rule", "number"), [(rule, number) for rule in PLANTS for number in range(len(PLANTS[rule]))]
)
def test_a_broken_rule_is_named(scene: Scene, rule: str, number: int) -> None:
    sql, named, along = PLANTS[rule][number]
    on_server = scene.db.engine == "postgresql"
    expected = {rule, *along} - ({REFERENCE, "value_wrong"} if on_server else set())
    sql = sql.format_map(scene.names).replace("<on turns>", " ON turns" if on_server else "")
    sql = sql.replace("<bad index or row>", BAD[scene.db.engine])
    sql = sql.replace("<h>", "'h'" if on_server else "x'68'")
    sql = sql.replace("<bytes>", "'x'" if on_server else "x'ff'")

    findings = findings_of(scene, sql.split(";"), guarded=rule == "guard_missing")

    assert {finding.rule for finding in findings} == expected
    if rule in expected:
        ids = [finding.id for finding in findings if finding.rule == rule]
        assert any(found.startswith(named.format_map(scene.names)) for found in ids), findings


def test_nothing_is_found_where_nothing_is_broken(scene: Scene) -> None:
    assert findings_of(scene, [], guarded=True) == ()


def test_a_finding_tells_what_breaks_the_rule(scene: Scene) -> None:
    turn_id = scene.names["second"]
    plant = f"UPDATE turns SET tool_call_count = 9 WHERE id = '{turn_id}'"

    assert findings_of(scene, [plant], guarded=False) == (Finding("call_count", turn_id, "9"),)


def test_a_ledger_in_use_is_sound(ledger: Ledger, raw: Raw) -> None:
    set_up(ledger, raw)

    ledger.merge("main", "side")
    ledger.undo("main")
    ledger.archive("main")

    assert ledger.audit() == ()


def test_the_audit_sees_what_was_done_behind_the_ledgers_back(ledger: Ledger, raw: Raw) -> None:
    turn = ledger.record("main", "q", "r")
    with raw.unguarded():
        raw.execute("UPDATE turns SET has_children = 1, request_hash = NULL")

    assert [(finding.rule, finding.id) for finding in ledger.audit()] == [
        ("children_flag", turn.id),
        ("request_missing", turn.id),
    ]


def test_the_words_of_many_turns_are_looked_up_at_once(db: Database) -> None:
    statements, database = Watched.over(db)
    asked = []
    with Ledger(Core(database)) as ledger:
        for turns in (3, 20):
            for _ in range(turns):
                ledger.record("main", "the same question", "the same answer")
            ledger._core.index(least=1)

            assert ledger.audit() == ()

            asked.append(sum(name == "search_each" for name, _ in statements.ran))

    assert asked == [1, 1]
