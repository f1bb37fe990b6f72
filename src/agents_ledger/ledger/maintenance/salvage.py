"""Copies the readable rows of a damaged SQLite ledger into a new one, and lists what is missing.

Every readable row is kept, as far as the rules allow. A turn whose row is lost is rebuilt from its
place, its messages or its children, so that threads stay whole; if its parent is lost without a
trace, it becomes a root. Places, segments, totals and the word index are derived and rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from agents_ledger.ledger.maintenance import audit
from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.turns import live, threads
from agents_ledger.ledger.turns.recording import hash_prompt
from agents_ledger.ledger.turns.threads import TurnPlace
from agents_ledger.model.errors import Refused
from agents_ledger.model.ids import new_id, now_ms
from agents_ledger.model.installation.settings import is_postgres
from agents_ledger.model.sessions import Finding
from agents_ledger.model.turns import Message, Usage
from agents_ledger.store import queries
from agents_ledger.store.database import Transaction, open_database
from agents_ledger.store.files import new_private_file, replace_durably
from agents_ledger.store.salvage.damaged_file import DamagedFile
from agents_ledger.store.salvage.rebuild import Loading, TableRows, load, mend_references

DERIVED = ("places", "segments")  # rebuilt, so nothing of them is missing


class Missing(Struct, frozen=True):
    """A row that is lost or changed."""

    what: str
    id: str
    detail: str = ""


class Salvaged(Struct, frozen=True):
    tables: tuple[TableRows, ...]
    missing: tuple[Missing, ...]
    remarks: tuple[str, ...]  # on the file as a whole
    findings: tuple[Finding, ...]  # of the audit of the new ledger; expected to be empty

    @property
    def complete(self) -> bool:
        lost = any(table.lost for table in self.tables if table.table not in DERIVED)
        return not (lost or self.missing or self.remarks or self.findings)


def salvage(file: str, target: str) -> Salvaged:
    """Copy what is readable of a damaged ledger into a new file. The damaged one is only read."""
    if is_postgres(file) or is_postgres(target):
        raise Refused(
            "salvage reads and writes SQLite files only",
            "For PostgreSQL, restore a backup with `agents-ledger restore`.",
        )
    new = Path(target)
    if new.exists():
        raise Refused(f"{new} exists already", "Name a file that does not exist.")
    damaged = DamagedFile(Path(file))
    try:
        unfinished = new_private_file(new)
        try:
            salvaged = _fill(damaged, unfinished)
            replace_durably(unfinished, new)
        finally:
            # The log and lock files of the unfinished ledger too, if something failed.
            for left in unfinished.parent.glob(f"{unfinished.name}*"):
                left.unlink(missing_ok=True)
    finally:
        damaged.close()
    return salvaged


def _fill(damaged: DamagedFile, unfinished: Path) -> Salvaged:
    db = open_database(str(unfinished))
    try:
        loading, missing = db.restore(partial(_restore, damaged=damaged))
        for writer_id, seen_at, _ in db.read(lambda tx: tx.run("other_writers", id="")):
            db.write(partial(live.fail_all, writer_id=writer_id, seen_at=seen_at))
        index_queue.catch_up(db)
        findings = db.read(lambda tx: audit.audit(tx, db.engine))
    finally:
        db.close()
    missing += [
        Missing(f"{change.table}: {change.what}", change.key)
        for change in loading.changes
        if change.table not in DERIVED
    ]
    return Salvaged(
        tuple(loading.tables.values()), tuple(missing), tuple(damaged.remarks), findings
    )


def _restore(tx: Transaction, damaged: DamagedFile) -> tuple[Loading, list[Missing]]:
    loading = load(damaged, tx)
    missing = _SalvageRepair(tx, loading).run()
    # The revocation of a token may be among the lost rows.
    tx.run("revoke_all_tokens", now=now_ms())
    return loading, missing


class _OldPlace(NamedTuple):
    """The columns of a lost turn that only its place has."""

    persona_id: str | None = None
    system_prompt_hash: str | None = None
    thread_key: str | None = None


# Prefixes of the statements in salvage.sql; all statements of a prefix are run in their order.
MEND, TIDY, FLAG = "mend_", "tidy_", "flag_"


class _SalvageRepair:
    def __init__(self, tx: Transaction, loading: Loading) -> None:
        self._tx = tx
        self._loading = loading
        self._missing: list[Missing] = []
        self._old: dict[str, _OldPlace] = {}
        self._places: dict[str, TurnPlace] = {}
        self._remarks = queries.remarks("queries/salvage.sql")

    def run(self) -> list[Missing]:
        """All repairs, each after those it depends on."""
        tx = self._tx
        for name in ("salvage_turn_rebuilt", "salvage_session_rebuilt", "salvage_block_unbased"):
            self._run_and_report(name)
        self._old = {row[0]: _OldPlace(*row[1:]) for row in tx.run("old_places")}
        tx.run("forget_places")
        tx.run("forget_segments")
        mend_references(tx, self._loading, leave=("places", "segments"))
        self._mend_prompts()
        self._run_and_report_all(MEND)
        self._mend_compactions()
        self._place_all()
        self._mend_heads()
        mend_references(tx, self._loading)
        self._run_and_report_all(TIDY)
        # Again, because rows that were dropped since may leave others without their target.
        mend_references(tx, self._loading)
        self._mend_sources()
        self._mend_order()
        self._mend_queries()
        self._run_and_report_all(FLAG)
        tx.run("true_children")
        tx.run("true_details")
        tx.run("await_index_all")
        return self._missing

    def _run_and_report_all(self, prefix: str) -> None:
        for name in queries.names():
            if name.startswith(prefix) and name in self._remarks:
                self._run_and_report(name)

    def _run_and_report(self, name: str) -> None:
        values = {"nothing": b""} if name == "mend_request" else {}
        for key, detail in self._tx.run(name, **values):
            self._miss(self._remarks[name], key, detail)

    def _miss(self, what: str, key: object, detail: object = None) -> None:
        self._missing.append(Missing(what, str(key), "" if detail is None else str(detail)))

    # -- prompts and compactions --------------------------------------------------------------

    def _mend_prompts(self) -> None:
        """Store a prompt whose text is damaged under the hash of the rest."""
        tx = self._tx
        renamed: dict[str, str] = {}
        stored: dict[str, str] = dict(tx.run("system_prompts"))
        for key, content in stored.items():
            own = hash_prompt(content)
            if own != key:
                tx.run("insert_system_prompt", hash=own, content=content)
                tx.run("rename_prompt", old=key, hash=own)
                tx.run("delete_prompt", hash=key)
                renamed[key] = own
                self._miss("A system prompt is damaged; it is kept as it is.", own, f"was {key}")
        hashes = {renamed.get(key, key) for key in stored}
        for turn_id, old in self._old.items():
            now = renamed.get(old.system_prompt_hash or "", old.system_prompt_hash)
            if now is not None and now not in hashes:
                self._miss("The system prompt of a thread is lost.", turn_id, now)
                now = None
            self._old[turn_id] = old._replace(system_prompt_hash=now)

    def _mend_compactions(self) -> None:
        """Turn the summary of a compaction whose turns are not on its thread any more into a
        message."""
        tx = self._tx
        parents: dict[str, str | None] = dict(tx.run("all_parents"))
        for turn_id, through, first_kept, summary in tx.run("all_compactions"):
            above = list(_above(parents, turn_id))
            is_right = through in above and (
                first_kept is None
                or (first_kept in above and above.index(first_kept) < above.index(through))
            )
            if not is_right:
                tx.run("delete_compaction", turn_id=turn_id)
                last = tx.run("last_sequence", turn_id=turn_id)[0][0]
                sequence = 0 if last is None else last + 1
                kept_summary = Message(
                    "assistant", summary, id=new_id(), turn_id=turn_id, sequence=sequence
                )
                tx.run_many("insert_message", [kept_summary])
                self._miss("What a compaction summarised is lost.", turn_id, "kept as a message")
        self._run_and_report("mend_compaction_lost")

    # -- places -------------------------------------------------------------------------------

    def _place_all(self) -> None:
        """Place every turn below its parent, in the order of recording."""
        parents: dict[str, str | None] = dict(self._tx.run("all_parents"))
        for start in parents:
            path: list[str] = []
            at: str | None = start
            while at is not None and at not in self._places:
                # A damaged parent can make a cycle. It is cut where it was entered.
                if at in path:
                    self._tx.run("cut_parent", id=path[-1])
                    self._miss("The parent of a turn is lost; it is a root now.", path[-1])
                    break
                path.append(at)
                at = parents[at]
            for turn_id in reversed(path):
                self._put(turn_id)
        for (turn_id,) in self._tx.run("parents_that_freeze"):
            threads.freeze(self._tx, self._places[turn_id])

    def _put(self, turn_id: str) -> None:
        parent_id, status, turn_type, model, provider, *tokens = self._tx.run(
            "place_values", id=turn_id
        )[0]
        old = self._old.get(turn_id, _OldPlace())
        place = threads.below(
            threads.ABOVE_ROOT if parent_id is None else self._places[parent_id],
            usage=Usage(*tokens),
            model=model,
            provider=provider,
            persona_id=old.persona_id,
            system_prompt_hash=old.system_prompt_hash,
            thread_key=old.thread_key,
            compaction_turn_id=turn_id if turn_type == "compaction" else None,
        )
        self._places[turn_id] = threads.put(self._tx, turn_id, place, join=status == "completed")

    # -- sessions -----------------------------------------------------------------------------

    def _mend_heads(self) -> None:
        """Point a session whose head is lost to the last turn of its history that is left."""
        tx = self._tx
        self._run_and_report("salvage_history_lost")
        for label, lost, now in tx.run("lost_heads"):
            tx.run("point_to", label=label, turn_id=now)
            detail = f"{lost}; it points to {now or 'no turn'} now"
            self._miss("The head of a session is lost.", label, detail)
        for label, head, at in tx.run("heads_unlogged"):
            tx.run("log_salvaged", label=label, turn_id=head, at=at)
            self._miss("The last line of a session's history was lost.", label, head)
        tx.run("set_session_times")

    # -- sources and the order of steps -------------------------------------------------------

    def _mend_sources(self) -> None:
        """Keep the records of a source file up to the first gap: an import continues from there."""
        for file_id, kept_bytes, path, intact in list(_intact_bytes(self._tx)):
            if intact != kept_bytes:
                self._tx.run("cut_blocks", file_id=file_id, kept=intact)
                self._tx.run("cut_source_file", file_id=file_id, kept=intact)
                detail = f"{intact} of {kept_bytes} bytes are left: import it again"
                self._miss("Source records are lost.", path, detail)

    def _mend_order(self) -> None:
        tx = self._tx
        for (turn_id,) in tx.run("steps_disordered"):
            steps = tx.run("steps_in_order", turn_id=turn_id)
            # First to numbers that nothing has: two messages of a turn must never share one.
            for number, (_, is_call, key) in enumerate(steps):
                if not is_call:
                    tx.run("set_message_sequence", id=key, sequence=-1 - len(steps) - number)
            for number, (_, is_call, key) in enumerate(steps):
                if is_call:
                    tx.run("set_call_sequence", turn_id=turn_id, id=key, sequence=number)
                else:
                    tx.run("set_message_sequence", id=key, sequence=number)
            self._miss("The order of a turn's messages and calls is lost in part.", turn_id)

    def _mend_queries(self) -> None:
        for turn_id, named in self._tx.run("queries_of_turns"):
            own = [key for key, _ in self._tx.run("own_messages", turn_id=turn_id)]
            left = [key for key in own if f'"{key}"' in named]
            ids = msgspec.json.encode(left).decode()
            self._tx.run("set_query_messages", id=turn_id, ids=ids)
            self._miss("A turn lost messages that asked.", turn_id, named)


def _above(parents: dict[str, str | None], turn_id: str) -> Iterator[str]:
    """The ancestors of a turn, nearest first."""
    seen = {turn_id}
    at = parents.get(turn_id)
    while at is not None and at not in seen:
        yield at
        seen.add(at)
        at = parents.get(at)


def _intact_bytes(tx: Transaction) -> Iterator[tuple[int, int, str, int]]:
    """Every source file with the number of bytes that are intact from its beginning."""
    current: tuple[int, int, str] | None = None
    intact, whole = 0, True
    for file_id, kept_bytes, path, start, length in tx.run("file_blocks"):
        if current is None or current[0] != file_id:
            if current is not None:
                yield (*current, intact)
            current, intact, whole = (file_id, kept_bytes, path), 0, True
        if start is not None and whole and start == intact:
            intact += length
        else:
            whole = False
    if current is not None:
        yield (*current, intact)
