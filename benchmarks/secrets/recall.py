"""Secrets: how many are found in generated texts, and how often real messages raise a false alarm.

Texts of 210 formats are made in prose, code, JSON, logs and headers, between decoys. A secret is
found if all of it is covered. Real messages are those of the corpus: from those who published
them, their secrets were removed, so that whatever is reported there is counted as false.
detect-secrets scans a sample of the same texts as files; it has found a secret if it reports
anything that overlaps each line of it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from time import process_time

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import import_paths
from agents_ledger.model.secrets.detection import find_secrets
from benchmarks.against import PEERS, ROOT
from benchmarks.measure import Goal, Line
from benchmarks.secrets.formats import FORMATS
from benchmarks.secrets.samples import Sample, decoys, samples

CORPUS = "AGENTS_LEDGER_CORPUS"
PER_PLACE = 8
DECOYS = 3000
GOAL = 0.95
FALSE_MAX = 1.0  # in a thousand messages
FORMAT_FOUND = 0.95  # of its texts
THEIRS_MAX = 1500  # texts: it takes a second for 150 kB


def secrets(folder: Path) -> Iterator[Line]:
    """Recall, false alarms and speed, ours and those of detect-secrets."""
    made = list(samples(PER_PLACE))
    ours = [is_covered(sample) for sample in made]
    sampled = made[:: len(made) // THEIRS_MAX + 1]
    theirs = _found_by_detect_secrets(sampled)
    yield _share("texts whose secret is found", ours, theirs, Goal(">=", GOAL))
    yield _by_format(made, ours)
    for place in dict.fromkeys(sample.place for sample in made):
        yield _share(
            f"texts whose secret is found, in {place}",
            _of_place(made, ours, place),
            None if theirs is None else _of_place(sampled, theirs, place),
        )
    yield _false("1,000 generated texts without a secret", list(decoys(DECOYS)), None)
    if not (corpus := os.environ.get(CORPUS)):
        yield Line(f"secrets: false alarms not measured, {CORPUS} does not name a folder", "-")
        return
    messages, calls = _real(folder, Path(corpus))
    yield _false("1,000 real messages", messages, Goal("<=", FALSE_MAX))
    yield _false("1,000 real parameters and results of calls", calls, Goal("<=", FALSE_MAX))
    real = messages + calls
    began = process_time()
    for text in real:
        find_secrets(text)
    took = process_time() - began
    yield Line("real text scanned, MB per CPU second", f"{sum(map(len, real)) / took / 1e6:.1f}")


def is_covered(sample: Sample) -> bool:
    """Whether nothing is left of a text's secrets when what is found is removed."""
    spans = find_secrets(sample.text)
    for start, end in sample.secrets:
        at = start
        for span in spans:
            if span.start <= at < span.end:
                at = span.end
        if at < end:
            return False
    return True


def _overlaps(sample: Sample, values: Sequence[str]) -> bool:
    for start, end in sample.secrets:
        secret = sample.text[start:end]
        lines = [line for line in secret.splitlines() if line]
        if not any(value in secret or any(line in value for line in lines) for value in values):
            return False
    return True


def _found_by_detect_secrets(made: Sequence[Sample]) -> list[bool] | None:
    values = _detect_secrets([sample.text for sample in made])
    if values is None:
        return None
    return [_overlaps(*pair) for pair in zip(made, values, strict=True)]


def _detect_secrets(texts: Sequence[str]) -> list[list[str]] | None:
    """What it reports of each text; None if it is not installed."""
    if not PEERS.exists():
        return None
    process = subprocess.run(
        [str(PEERS), "-m", "benchmarks.peers.detect_secrets_worker"],
        input=json.dumps(texts),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    values: list[list[str]] = json.loads(process.stdout)
    return values


def _share(
    name: str, ours: Sequence[bool], theirs: Sequence[bool] | None, goal: Goal | None = None
) -> Line:
    share = sum(ours) / len(ours)
    other = "" if theirs is None else f"{sum(theirs) / len(theirs):.1%} detect-secrets"
    return Line(name, f"{share:.1%} of {len(ours):,}", other, share if goal else None, goal)


def _of_place(made: Sequence[Sample], hits: Sequence[bool], place: str) -> list[bool]:
    return [hit for sample, hit in zip(made, hits, strict=True) if sample.place == place]


def _by_format(made: Sequence[Sample], hits: Sequence[bool]) -> Line:
    """Formats of which nearly all texts are found; those least found are printed."""
    counts = Counter(sample.format for sample in made)
    found = Counter(sample.format for sample, hit in zip(made, hits, strict=True) if hit)
    shares = {name: found[name] / counts[name] for name in counts}
    print("\nLeast found:", sorted(shares.items(), key=lambda one: one[1])[:5])
    good = sum(share >= FORMAT_FOUND for share in shares.values())
    name = f"formats found in {FORMAT_FOUND:.0%} of their texts"
    return Line(name, f"{good} of {len(FORMATS)}", "", good / len(FORMATS), Goal(">=", GOAL))


def _false(of: str, texts: Sequence[str], goal: Goal | None) -> Line:
    """Texts that raise an alarm."""
    rate = 1000 * sum(bool(find_secrets(text)) for text in texts) / len(texts)
    sampled = texts[:: len(texts) // THEIRS_MAX + 1]
    theirs = _detect_secrets(sampled)
    other = ""
    if theirs is not None:
        other = f"{1000 * sum(map(bool, theirs)) / len(sampled):.1f} detect-secrets"
    return Line(f"false alarms in {of}", f"{rate:.1f}", other, rate if goal else None, goal)


def _real(folder: Path, corpus: Path) -> tuple[list[str], list[str]]:
    """The texts of messages, and of calls."""
    with Ledger.open(str(folder / "corpus.db")) as ledger:
        import_paths(ledger, [corpus])
        read = ledger._core.db.query
        messages = read("SELECT content, thinking FROM messages")[1]
        calls = read("SELECT params_json, result_json, error FROM tool_calls")[1]
    return _texts(messages), _texts(calls)


def _texts(rows: Iterable[Sequence[str | None]]) -> list[str]:
    return [text for row in rows for text in row if text]
