"""Fills the word index. The number of a turn in it begins with its time, so that numbers sort."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

import msgspec

from agents_ledger.ledger.search.documents import SearchDocument, documents, of_turn
from agents_ledger.ledger.search.ranking import SECOND
from agents_ledger.ledger.search.words import tokenizer
from agents_ledger.model.turns import Turn, to_json
from agents_ledger.store.database import Transaction
from agents_ledger.store.matching import vector
from agents_ledger.store.text import escape, ids_of, in_batches

# Per millisecond. Further turns of the same millisecond take the numbers that follow.
NUMBERS = 4
# PostgreSQL clips positions in a tsvector at 16,383.
PIECE_WORDS = 16_000
# It keeps at most 256 positions of one word: phrases after them were not found.
PIECE_SAME = 255
# Words that consecutive pieces share, so that phrases across both are found.
PIECE_SHARED = 8
PIECE_LETTERS = 100_000  # characters; a tsvector holds at most a megabyte


class _Indexed(msgspec.Struct):
    """A row of the index on SQLite."""

    id: int
    user: str = ""
    assistant: str = ""
    thinking: str = ""
    system: str = ""
    tool_call: str = ""
    tool_result: str = ""
    project: str = ""
    model: str = ""
    tool: str = ""
    file: str = ""
    state: str = ""


class _Doc(msgspec.Struct):
    id: int
    turn_id: str


def first_number(at_ms: int) -> int:
    """The smallest number of a turn that started at a time."""
    seconds, ms = divmod(max(0, at_ms), 1000)
    return seconds * SECOND + ms * NUMBERS


def put(tx: Transaction, turns: Iterable[Turn]) -> None:
    _insert(tx, (of_turn(turn, tx.limits) for turn in turns))


def put_again(tx: Transaction, turn_ids: Sequence[str]) -> None:
    """Index turns again, replacing what the index has of them."""
    done = 0
    while done < len(turn_ids):
        done += put_some(tx, turn_ids[done:])


def put_some(tx: Transaction, turn_ids: Sequence[str]) -> int:
    """put_again() for as many turns as fit into a commit; returns how many."""
    taken_documents: list[SearchDocument] = []
    taken = letters = 0
    while taken < len(turn_ids) and letters < tx.limits.index_chars:
        end = taken + tx.limits.index_read_turns
        batch = documents(tx, ids_of(turn_ids[taken:end])).values()
        taken_documents += batch
        letters += sum(document.letters for document in batch)
        taken = end
    forget(tx, turn_ids[:taken])
    _insert(tx, taken_documents)
    return min(taken, len(turn_ids))


def forget(tx: Transaction, turn_ids: Sequence[str]) -> None:
    for ids in in_batches(turn_ids):
        # On a server vectors are deleted with their documents, by a foreign key.
        if tx.engine == "sqlite":
            tx.run("forget_vectors", ids=ids)
        tx.run("forget_docs", ids=ids)
        tx.run("delete_waiting", ids=ids)


def forget_all(tx: Transaction) -> None:
    """Empty the index, and queue every turn."""
    tx.run("forget_words")
    tx.run("forget_all_docs")
    tx.run("await_index_all")


def _insert(tx: Transaction, taken: Iterable[SearchDocument]) -> None:
    oldest_first = sorted(taken, key=lambda document: (document.started_at, document.turn_id))
    if tx.engine == "postgresql":
        _insert_on_server(tx, oldest_first)
        return
    numbers = _numbers(tx, oldest_first)
    rows = [
        _Indexed(number, *map(tokenizer.spaced, document.texts().values()))
        for number, document in zip(numbers, oldest_first, strict=True)
    ]
    # FTS5 flushes its buffer whenever row ids do not ascend.
    rows.sort(key=lambda row: row.id)
    if rows:
        tx.run_many("insert_words", rows)


def _numbers(tx: Transaction, oldest_first: Sequence[SearchDocument]) -> list[int]:
    """A number for each document: all at once, if they are free."""
    wanted: list[int] = []
    for document in oldest_first:
        after = wanted[-1] + 1 if wanted else 0
        wanted.append(max(first_number(document.started_at), after))
    if not tx.run("numbers_taken", numbers=to_json(wanted))[0][0]:
        numbered = zip(wanted, oldest_first, strict=True)
        tx.run_many("insert_doc", [_Doc(number, document.turn_id) for number, document in numbered])
        return wanted
    return list(_one_by_one(tx, oldest_first))


def _one_by_one(tx: Transaction, oldest_first: Sequence[SearchDocument]) -> Iterator[int]:
    """A number for each document. If none is free, the range is doubled, and stays so for documents
    of the same time."""
    before = doubled = 0
    for document in oldest_first:
        low = first_number(document.started_at)
        begin = doubled if low == before else 0
        for doubled in count(begin):
            high = low + (NUMBERS << doubled)
            rows = tx.run("new_doc", low=low, high=high, turn_id=document.turn_id)
            if rows:
                break
        before = low
        yield int(rows[0][0])


def _insert_on_server(tx: Transaction, documents: Sequence[SearchDocument]) -> None:
    """Others may take the same numbers meanwhile: each document tries one after the other of a
    range, which grows when it has tried them all."""
    left = {document.turn_id: document for document in documents}
    for tried in count():
        if not left:
            return
        room = NUMBERS << tried // NUMBERS
        wanted = [
            {"turn_id": escape(turn_id), "low": first_number(document.started_at)}
            for turn_id, document in left.items()
        ]
        numbered = tx.run("new_docs", docs=to_json(wanted), room=room, tried=tried)
        rows = [
            {"id": number, **piece}
            for number, turn_id in numbered
            for piece in _pieces(left.pop(turn_id).texts())
        ]
        if rows:
            tx.run("insert_pieces", pieces=to_json(rows))


def _pieces(columns: dict[str, str]) -> Iterator[dict[str, object]]:
    for part, text in columns.items():
        for piece, words in enumerate(_split(tokenizer.words(text))):
            yield {"part": part, "piece": piece, "words": vector(words)}


def _split(words: list[str]) -> Iterator[list[str]]:
    """Words in pieces that fit a tsvector. Each begins with the last words of the previous one,
    so that phrases across both are found."""
    run: list[str] = []
    times: Counter[str] = Counter()
    letters = new = 0
    for word in words:
        run.append(word)
        times[word] += 1
        letters += len(word)
        new += 1
        if len(run) == PIECE_WORDS or letters >= PIECE_LETTERS or times[word] == PIECE_SAME:
            yield run
            run, letters, new = run[-PIECE_SHARED:], 0, 0
            times = Counter(run)
    if new:
        yield run
