"""Changes what was recorded behind the ledger's back, with the guards out of the way and put back:
`verify` names what was changed, every time.

Each round takes a copy of one ledger and does one thing to it, as somebody would who can write to
the file but has neither the key nor the checkpoints that were kept elsewhere.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, cast

from agents_ledger import Ledger, LedgerError
from agents_ledger.ledger.evidence import canonical, stored_content
from agents_ledger.ledger.evidence.canonical import Columns
from agents_ledger.store.database import Transaction
from tests.trust import harness, specimen
from tests.trust.harness import Options, Outcome

TURNS = 8
BLIND = "verify finds nothing"  # a plant: the harness must say that changes are not named

# Columns that are covered, by table, and the column with the id that is named.
COVERED: dict[str, tuple[Columns, str]] = {
    "turns": (canonical.TURN, "id"),
    "messages": (canonical.MESSAGE, "turn_id"),
    "tool_calls": (canonical.CALL, "turn_id"),
    "compactions": (canonical.COMPACTION, "turn_id"),
}
OF_MESSAGES = {
    "message_files": canonical.FILE,
    "message_lints": canonical.LINT,
    "message_codeblocks": canonical.CODEBLOCK,
}
NATIVE = "SELECT id FROM turns WHERE projected = 0 AND status IN ('completed', 'failed')"


class Tampered(NamedTuple):
    """What was done, and what `verify` has to name: one of these ids, or a checkpoint."""

    what: str
    ids: frozenset[str]


Tamper = Callable[["Tampering"], Tampered | None]


def other(chance: random.Random, value: Any) -> Any:
    """Another value of the same kind."""
    if value is None:
        return "forged"
    if isinstance(value, int):
        return value + chance.choice((-1, 1, 1000))
    if isinstance(value, bytes):
        at = chance.randrange(len(value))
        return value[:at] + bytes([value[at] ^ 1 << chance.randrange(8)]) + value[at + 1 :]
    if not value:
        return "x"
    at = chance.randrange(len(value))
    letter = chr((ord(value[at]) + 1) % 0x7F or 0x20)
    changed = value[:at] + ("y" if letter == value[at] else letter) + value[at + 1 :]
    return chance.choice((changed, value + " ", value[:-1] or "z"))


class _Plain:
    """As much of a transaction as reading what is covered needs."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._raw.execute(sql, values).fetchall()


class Tampering:
    """One round on a copy of the ledger."""

    def __init__(self, chance: random.Random, raw: sqlite3.Connection, folder: Path) -> None:
        self.chance = chance
        self.raw = raw
        self.folder = folder

    def pick(self, sql: str, *values: object) -> tuple[Any, ...] | None:
        rows = self.raw.execute(sql, values).fetchall()
        return self.chance.choice(rows) if rows else None

    # -- values ---------------------------------------------------------------------------------

    def change_value(self) -> Tampered | None:
        table = self.chance.choice([*COVERED, *OF_MESSAGES])
        if table in COVERED:
            columns, subject = COVERED[table]
            owner = subject if table != "turns" else "id"
        else:
            columns = OF_MESSAGES[table]
            owner = "(SELECT m.turn_id FROM messages m WHERE m.id = message_id)"
        column = self.chance.choice(columns.all)
        row = self.pick(f"SELECT rowid, {column}, {owner} FROM {table} WHERE {owner} IN ({NATIVE})")
        if row is None:
            return None
        rowid, value, turn_id = row
        ids = {turn_id}
        new = other(self.chance, value)
        if (table, column) == ("turns", "id"):
            ids.add(new)
        try:
            self.raw.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, rowid))
        except sqlite3.IntegrityError:  # a word that the column does not take
            return None
        stored = self.raw.execute(
            f"SELECT {column} FROM {table} WHERE rowid = ?", (rowid,)
        ).fetchone()[0]
        if stored == value:
            return None
        return Tampered(f"{table}.{column} of {turn_id}", frozenset(ids))

    def change_place(self) -> Tampered | None:
        column = self.chance.choice(("system_prompt_hash", "persona_id", "thread_key"))
        row = self.pick(f"SELECT turn_id, {column} FROM places WHERE turn_id IN ({NATIVE})")
        assert row is not None
        self.raw.execute(
            f"UPDATE places SET {column} = ? WHERE turn_id = ?", (f"{row[1]}x", row[0])
        )
        return Tampered(f"places.{column} of {row[0]}", frozenset((row[0],)))

    def change_parent(self) -> Tampered | None:
        turn, parent = self.pick(NATIVE), self.pick(NATIVE)
        assert turn
        assert parent
        sql = "UPDATE turns SET parent_turn_id = ? WHERE id = ? AND parent_turn_id IS NOT ?"
        if not self.raw.execute(sql, (parent[0], turn[0], parent[0])).rowcount:
            return None
        return Tampered(f"parent of {turn[0]}", frozenset((turn[0],)))

    def change_prompt(self) -> Tampered | None:
        """A prompt with a hash of its own, as the audit wants it."""
        from agents_ledger.ledger.turns.recording import hash_prompt

        row = self.pick("SELECT hash, content FROM system_prompts")
        turn = row and self.pick(
            f"SELECT turn_id FROM places WHERE system_prompt_hash = ? AND turn_id IN ({NATIVE})",
            row[0],
        )
        if row is None or turn is None:
            return None
        content = f"{row[1]} Obey me."
        forged = hash_prompt(content)
        self.raw.execute("INSERT INTO system_prompts VALUES (?, ?)", (forged, content))
        self.raw.execute(
            "UPDATE places SET system_prompt_hash = ? WHERE system_prompt_hash = ?",
            (forged, row[0]),
        )
        return Tampered("a system prompt", frozenset((turn[0],)))

    def swap_texts(self) -> Tampered | None:
        rows = [
            self.pick(f"SELECT id, content, turn_id FROM messages WHERE turn_id IN ({NATIVE})")
            for _ in range(2)
        ]
        first, second = rows
        assert first
        assert second
        if first[1] == second[1]:
            return None
        for row, content in ((first, second[1]), (second, first[1])):
            self.raw.execute("UPDATE messages SET content = ? WHERE id = ?", (content, row[0]))
        return Tampered("two texts were swapped", frozenset((first[2], second[2])))

    # -- rows -------------------------------------------------------------------------------------

    def delete_rows(self) -> Tampered | None:
        table = self.chance.choice(("messages", "tool_calls"))
        row = self.pick(f"SELECT turn_id FROM {table} WHERE turn_id IN ({NATIVE})")
        assert row
        self.raw.execute(f"DELETE FROM {table} WHERE turn_id = ?", row)
        return Tampered(f"{table} of {row[0]} deleted", frozenset(row))

    def delete_turns(self) -> Tampered | None:
        rows = self.raw.execute(f"{NATIVE} ORDER BY id").fetchall()
        start = self.chance.randrange(len(rows))
        range_ = [row[0] for row in rows[start : start + self.chance.randint(1, 3)]]
        for turn_id in range_:
            for table in ("messages", "tool_calls", "compactions", "places"):
                self.raw.execute(f"DELETE FROM {table} WHERE turn_id = ?", (turn_id,))
            self.raw.execute("DELETE FROM turns WHERE id = ?", (turn_id,))
        return Tampered(f"{len(range_)} turns deleted", frozenset(range_))

    def insert_message(self) -> Tampered | None:
        row = self.pick(NATIVE)
        assert row
        self.raw.execute(
            "INSERT INTO messages (id, turn_id, role, content, sequence, created_at)"
            " VALUES ('forged', ?, 'user', 'I allow it.', 99, 1)",
            row,
        )
        return Tampered(f"a message in {row[0]}", frozenset(row))

    def insert_turn(self) -> Tampered | None:
        self.raw.execute(
            "INSERT INTO turns (id, status, started_at, completed_at)"
            " VALUES ('forged', 'completed', 1, 2)"
        )
        return Tampered("a turn inserted", frozenset(("forged",)))

    # -- moves ------------------------------------------------------------------------------------

    def change_move(self) -> Tampered | None:
        column = self.chance.choice(("thread_id", "changed_at", "reason", "session_label"))
        row = self.pick(
            f"SELECT id, {column}, thread_id FROM session_history WHERE thread_id IN ({NATIVE})"
        )
        assert row
        new = other(self.chance, row[1])
        if column == "session_label":
            label = self.pick("SELECT label FROM sessions WHERE label <> ?", row[1])
            assert label
            new = label[0]
        self.raw.execute(f"UPDATE session_history SET {column} = ? WHERE id = ?", (new, row[0]))
        return Tampered(f"session_history.{column} of {row[0]}", frozenset((str(row[0]), row[2])))

    def delete_move(self) -> Tampered | None:
        row = self.pick("SELECT id FROM session_history")
        assert row
        self.raw.execute("DELETE FROM session_history WHERE id = ?", row)
        return Tampered(f"move {row[0]} deleted", frozenset((str(row[0]),)))

    def insert_move(self) -> Tampered | None:
        row = self.pick("SELECT session_label, thread_id FROM session_history")
        assert row
        [(number,)] = self.raw.execute(
            "INSERT INTO session_history (session_label, thread_id, changed_at, reason)"
            " VALUES (?, ?, 1, 'move') RETURNING id",
            row,
        ).fetchall()
        return Tampered("a move inserted", frozenset((str(number),)))

    def swap_moves(self) -> Tampered | None:
        """Two moves of one session, with what is said of them."""
        rows = [
            row
            for _ in range(2)
            if (
                row := self.pick(
                    "SELECT id, thread_id FROM session_history WHERE session_label = 'main'"
                )
            )
        ]
        if len(rows) < 2 or rows[0] == rows[1]:
            return None
        (one, first), (two, second) = rows
        for old, new in ((one, -1), (two, one), (-1, two)):
            self.raw.execute("UPDATE session_history SET id = ? WHERE id = ?", (new, old))
        for old, new in ((one, -1), (two, one), (-1, two)):
            self.raw.execute("UPDATE evidence SET move_id = ? WHERE move_id = ?", (new, old))
        return Tampered("two moves swapped", frozenset((str(one), str(two), first, second)))

    # -- source records and the log itself --------------------------------------------------------

    def change_block(self) -> Tampered | None:
        row = self.pick("SELECT file_id, start, data, length FROM source_blocks")
        assert row
        import zstandard

        data = bytearray(zstandard.ZstdDecompressor().decompress(row[2], max_output_size=row[3]))
        data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
        packed = zstandard.ZstdCompressor().compress(bytes(data))
        self.raw.execute(
            "UPDATE source_blocks SET data = ? WHERE file_id = ? AND start = ?",
            (packed, row[0], row[1]),
        )
        return Tampered("a source record", frozenset((f"{row[0]}/{row[1]}",)))

    def change_path(self) -> Tampered | None:
        row = self.pick("SELECT b.file_id, b.start FROM source_blocks b")
        assert row
        self.raw.execute("UPDATE source_files SET path = path || 'x' WHERE id = ?", row[:1])
        return Tampered("the path of a source file", frozenset((f"{row[0]}/{row[1]}",)))

    def delete_block(self) -> Tampered | None:
        row = self.pick("SELECT file_id, start FROM source_blocks")
        assert row
        self.raw.execute("DELETE FROM source_blocks WHERE file_id = ? AND start = ?", row)
        return Tampered("a block of records deleted", frozenset((f"{row[0]}/{row[1]}",)))

    def change_leaf(self) -> Tampered | None:
        column = self.chance.choice(("hash", "opening"))
        row = self.pick(
            f"SELECT position, subject, move_id, {column} FROM evidence"
            f" WHERE {column} IS NOT NULL AND kind <> 'key'"
        )
        assert row
        new = other(self.chance, row[3])
        self.raw.execute(f"UPDATE evidence SET {column} = ? WHERE position = ?", (new, row[0]))
        return Tampered(f"evidence.{column} of {row[1]}", frozenset((row[1], str(row[2]))))

    def delete_leaf(self) -> Tampered | None:
        row = self.pick("SELECT position, subject, move_id FROM evidence WHERE kind <> 'key'")
        assert row
        self.raw.execute("DELETE FROM evidence WHERE position = ?", row[:1])
        named = {row[1], str(row[2]), f"{row[0]} to {row[0]}"}
        return Tampered(f"leaf {row[0]} deleted", frozenset(named))

    def swap_leaves(self) -> Tampered | None:
        rows = [self.pick("SELECT position, subject FROM evidence") for _ in range(2)]
        first, second = rows
        assert first
        assert second
        if first[0] == second[0]:
            return None
        for old, new in ((first[0], 0), (second[0], first[0]), (0, second[0])):
            self.raw.execute("UPDATE evidence SET position = ? WHERE position = ?", (new, old))
        return Tampered("two leaves swapped", frozenset((first[1], second[1], "checkpoint")))

    def reseal(self) -> Tampered | None:
        """A turn, changed together with its leaf, as our documentation says how."""
        row = self.pick(
            "SELECT e.subject, e.opening, h.session_label, h.changed_at FROM evidence e"
            " JOIN session_history h ON h.id = e.move_id WHERE e.kind = 'turn'"
        )
        assert row
        turn_id, seed, label, moved_at = row
        self.raw.execute("UPDATE turns SET started_at = started_at - 1 WHERE id = ?", (turn_id,))
        turn = stored_content.read_turn(cast(Transaction, _Plain(self.raw)), turn_id)
        content = canonical.content_hash(turn.content, canonical.seeded(seed))
        place = turn.place._replace(session_label=label, moved_at=moved_at)
        self.raw.execute(
            "UPDATE evidence SET hash = ? WHERE subject = ? AND kind = 'turn'",
            (canonical.leaf_of_turn(content, place), turn_id),
        )
        return Tampered(f"{turn_id} and its leaf", frozenset(("checkpoint",)))

    def cut_off(self) -> Tampered | None:
        """The last turns with all that is known of them: only a checkpoint tells."""
        rows = self.raw.execute(
            "SELECT position, subject, move_id FROM evidence WHERE kind = 'turn'"
            " ORDER BY position DESC LIMIT ?",
            (self.chance.randint(1, 4),),
        ).fetchall()
        for position, turn_id, move_id in rows:
            for table in ("messages", "tool_calls", "compactions", "places"):
                self.raw.execute(f"DELETE FROM {table} WHERE turn_id = ?", (turn_id,))
            self.raw.execute("DELETE FROM turns WHERE id = ?", (turn_id,))
            self.raw.execute("DELETE FROM session_history WHERE id = ?", (move_id,))
            self.raw.execute("DELETE FROM evidence WHERE position >= ?", (position,))
        self.raw.execute("DELETE FROM evidence_checkpoints")
        return Tampered("the end cut off", frozenset(("checkpoint",)))

    def forge_checkpoint(self) -> Tampered | None:
        [(size, note)] = self.raw.execute(
            "SELECT size, note FROM evidence_checkpoints ORDER BY size DESC LIMIT 1"
        ).fetchall()
        lines = note.split("\n")
        line = self.chance.choice((1, 2))
        if line == 1:
            lines[1] = str(size - 1)
        else:
            root = list(lines[2])
            at = self.chance.randrange(len(root) - 2)
            root[at] = "A" if root[at] != "A" else "B"
            lines[2] = "".join(root)
        self.raw.execute(
            "UPDATE evidence_checkpoints SET note = ? WHERE size = ?", ("\n".join(lines), size)
        )
        return Tampered("a forged checkpoint", frozenset(("checkpoint",)))


KINDS: tuple[Tamper, ...] = (
    *(Tampering.change_value,) * 8,
    Tampering.change_place,
    Tampering.change_parent,
    Tampering.change_prompt,
    Tampering.swap_texts,
    Tampering.delete_rows,
    Tampering.delete_turns,
    Tampering.insert_message,
    Tampering.insert_turn,
    Tampering.change_move,
    Tampering.delete_move,
    Tampering.insert_move,
    Tampering.swap_moves,
    Tampering.change_block,
    Tampering.change_path,
    Tampering.delete_block,
    Tampering.change_leaf,
    Tampering.delete_leaf,
    Tampering.swap_leaves,
    Tampering.reseal,
    Tampering.cut_off,
    Tampering.forge_checkpoint,
)


class Rounds:
    """A ledger with checkpoints kept elsewhere, tampered with again and again."""

    def __init__(self, options: Options, folder: Path) -> None:
        self.chance = random.Random(options.seed)
        self.options = options
        self.folder = folder
        self.outcome = Outcome()
        os.environ["AGENTS_LEDGER_EVIDENCE"] = str(folder / "keys")
        self.checkpoints = folder / "checkpoints"
        path = folder / "whole.db"
        specimen.make(path, folder, turns=TURNS)
        with Ledger.open(str(path)) as ledger:
            self.early = self._bytes(path)
            ledger.evidence.set_up(str(self.checkpoints))
            ledger.evidence.checkpoint()
        with Ledger.open(str(path)) as ledger:
            for number in range(3):
                ledger.record("main", f"later {number}", "r")
        with Ledger.open(str(path)) as ledger:
            assert ledger.verify(str(self.checkpoints)).holds
        self.whole = self._bytes(path)

    def _bytes(self, path: Path) -> bytes:
        target = self.folder / "bytes.db"
        target.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(target)) as saved:
            source.backup(saved)
        return target.read_bytes()

    def run(self) -> Outcome:
        for number in range(self.options.count):
            tampered = None
            while tampered is None:
                tampered = self._round(self.folder / f"round{number % 8}.db")
            self.outcome.done += 1
        return self.outcome

    def _round(self, path: Path) -> Tampered | None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        kind = self.chance.choice([*KINDS, None])
        if kind is None:  # the file as it was once
            path.write_bytes(self.early)
            tampered: Tampered | None = Tampered("rolled back", frozenset(("checkpoint",)))
        else:
            path.write_bytes(self.whole)
            tampered = self._tamper(path, kind)
        if tampered is not None:
            self._check(path, tampered)
        return tampered

    def _tamper(self, path: Path, kind: Tamper) -> Tampered | None:
        with closing(sqlite3.connect(path, isolation_level=None)) as raw:
            guards = raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
            kept = guards.fetchall()
            for name, _ in kept:
                raw.execute(f"DROP TRIGGER {name}")
            tampered = kind(Tampering(self.chance, raw, self.folder))
            for name, sql in kept:
                # Sometimes a guard comes back empty.
                emptied = f"CREATE TRIGGER {name} AFTER DELETE ON writers BEGIN SELECT 1; END"
                raw.execute(emptied if self.chance.random() < 0.01 else sql)
        return tampered

    def _check(self, path: Path, tampered: Tampered) -> None:
        try:
            with Ledger.open(str(path), read_only=True) as ledger:
                findings = ledger.verify(str(self.checkpoints)).findings
        except LedgerError as error:
            self.outcome.found(f"{tampered.what}: {error!r}")
            return
        if self.options.plant == BLIND:
            findings = ()
        named = {finding.id for finding in findings}
        named |= {"checkpoint" for finding in findings if finding.kind == "checkpoint"}
        if not named & tampered.ids:
            self.outcome.found(f"{tampered.what}: {', '.join(map(str, findings)) or 'nothing'}")


def run(options: Options) -> Outcome:
    """Tamper with ledgers."""
    with harness.workplace() as folder:
        return Rounds(options, folder).run()


if __name__ == "__main__":
    harness.main(run)
