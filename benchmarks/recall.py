"""Recall: does a question find the session that answers it?

The conversations of LoCoMo, each in a ledger of its own, two lines of dialogue a turn, a session of
the dialogue a session, recorded at the time that LoCoMo gives for it. Questions are asked word for
word, by the call that the MCP tool `search` makes; once more without the times of the sessions, as
if all had been recorded now; and by words and meaning together. Beside it, a bare FTS5 table with a
porter stemmer and one document for each session. The same is asked of a PostgreSQL server.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from agents_ledger import Ledger
from agents_ledger.ledger.search.query import parse
from agents_ledger.mcp.tools import SearchArguments, search_results
from agents_ledger.model.turns import TurnFields
from benchmarks.measure import Goal, Line
from benchmarks.postgres import postgres_server
from benchmarks.routing import BenchEmbedder, bench_embedder, routing

DATA = "AGENTS_LEDGER_RECALL"
GOALS = {"hit@1": 0.72, "hit@5": 0.93, "hit@10": None, "MRR": 0.80}
NEAR = -0.03  # how far PostgreSQL may be behind
LINE_MS = 1000  # between the lines of a dialogue, whose times are not known


class RecallSession(NamedTuple):
    started_at: int
    lines: list[str]


Ranks = dict[str, list[int]]  # of the right sessions, by way of asking; 0: not among the hits


class RecallQuestion(NamedTuple):
    text: str
    sessions: frozenset[str]  # those that hold the evidence


def recall(folder: Path) -> Iterator[Line]:
    """Hit@1, hit@5, hit@10 and MRR by session."""
    data = os.environ.get(DATA)
    if data:
        samples = conversations(Path(data))
        model = bench_embedder()
        ranks = _measured(samples, lambda name: str(folder / f"recall-{name}.db"), model)
        ranks["bare"] = _bare(samples)
        with postgres_server(folder) as postgres:
            if postgres is not None:
                joint = "&" if "?" in postgres else "?"
                place = f"{postgres}{joint}schema=recall_{{}}".format
                ranks["PostgreSQL"] = _measured(samples, place, None)["dated"]
        yield from _report(ranks)
    else:
        yield Line(f"recall: skipped, {DATA} does not name a file or folder", "-")
    yield from routing(folder)


def conversations(path: Path) -> list[dict[str, Any]]:
    files = sorted(path.glob("locomo*.json")) if path.is_dir() else [path]
    return [conversation for file in files for conversation in json.loads(file.read_text())]


def _measured(
    samples: Sequence[dict[str, Any]], place: Callable[[str], str], model: BenchEmbedder | None
) -> Ranks:
    ranks: Ranks = defaultdict(list)
    for number, sample in enumerate(samples):
        sessions = _sessions(sample["conversation"])
        questions = list(_questions(sample["qa"]))
        for kind in ("dated", "undated"):
            with Ledger.open(place(f"{number}_{kind}")) as ledger:
                _fill(ledger, sessions, dated=kind == "dated")
                ranks[kind] += [_rank(_ask(ledger, asked.text), asked) for asked in questions]
                if model is not None and kind == "dated":
                    ledger.embed(model)
                    model.prepare([_encoded(asked.text) for asked in questions])
                    ranks["dated, with meaning"] += [
                        _rank(_ask(ledger, asked.text, model), asked) for asked in questions
                    ]
    return ranks


def _sessions(conversation: dict[str, Any]) -> dict[str, RecallSession]:
    numbers = sorted(int(m[1]) for m in map(re.compile(r"session_(\d+)$").match, conversation) if m)
    return {
        f"s{number}": RecallSession(
            _time(conversation[f"session_{number}_date_time"]),
            [line["text"] for line in conversation[f"session_{number}"]],
        )
        for number in numbers
    }


def _time(text: str) -> int:
    return int(datetime.strptime(text, "%I:%M %p on %d %B, %Y").timestamp() * 1000)


def _questions(rows: Sequence[dict[str, Any]]) -> Iterator[RecallQuestion]:
    for row in rows:
        labels = {
            f"s{number}" for item in row["evidence"] for number in re.findall(r"D(\d+)", item)
        }
        if labels:
            yield RecallQuestion(row["question"], frozenset(labels))


def _fill(ledger: Ledger, sessions: dict[str, RecallSession], *, dated: bool) -> None:
    for label, session in sessions.items():
        for at in range(0, len(session.lines), 2):
            fields: TurnFields = {"started_at": session.started_at + at * LINE_MS} if dated else {}
            answer = "".join(session.lines[at + 1 : at + 2])
            ledger.record(label, session.lines[at], answer, **fields)
    ledger._core.index(least=1)


def _ask(ledger: Ledger, text: str, model: BenchEmbedder | None = None) -> list[str]:
    args = SearchArguments(text)
    if model is None:
        results = search_results(ledger, args)
    else:
        results = ledger.search(text, limit=args.limit, order="meaning", embedder=model)
    return [hit.session_label for hit in results.hits if hit.session_label is not None]


def _encoded(text: str) -> str:
    """What a search by meaning encodes of a question."""
    return " ".join(term.text for term in parse(text, 0).terms if not term.negated)


def _bare(samples: Sequence[dict[str, Any]]) -> list[int]:
    ranks = []
    for sample in samples:
        table = sqlite3.connect(":memory:")
        table.execute(
            "CREATE VIRTUAL TABLE found USING fts5 (label, text, tokenize='porter unicode61')"
        )
        sessions = _sessions(sample["conversation"]).items()
        rows = [(label, "\n".join(session.lines)) for label, session in sessions]
        table.executemany("INSERT INTO found VALUES (?, ?)", rows)
        for asked in _questions(sample["qa"]):
            ranks.append(_rank(_ask_bare(table, asked.text), asked))
    return ranks


def _ask_bare(table: sqlite3.Connection, text: str) -> list[str]:
    words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", text))
    rows = table.execute(
        f"SELECT label FROM found WHERE found MATCH '{{text}} : ({words})' ORDER BY rank"
    )
    return [label for (label,) in rows]


def _rank(labels: Sequence[str], question: RecallQuestion) -> int:
    ranked = enumerate(dict.fromkeys(labels), 1)
    return next((rank for rank, label in ranked if label in question.sessions), 0)


def _report(ranks: Ranks) -> Iterator[Line]:
    bare = ranks["bare"]
    for name, least in GOALS.items():
        words = _figure(name, ranks["dated"])
        for way, reference, goal in (
            ("dated", _figure(name, bare), least),
            ("undated", _figure(name, bare), None),
            ("dated, with meaning", words, words),
            ("PostgreSQL", words, words + NEAR),
        ):
            if way in ranks:
                value = _figure(name, ranks[way])
                aim = None if goal is None or least is None else Goal(">=", round(goal, 3))
                title = f"session of the answer, {way}, {name}"
                ours = f"{value:.3f}"
                yield Line(title, ours, f"{reference:.3f}", value, aim, len(ranks[way]))


def _figure(name: str, ranks: Sequence[int]) -> float:
    if name == "MRR":
        return sum(1 / rank for rank in ranks if rank) / len(ranks)
    most = int(name.partition("@")[2])
    return sum(1 <= rank <= most for rank in ranks) / len(ranks)
