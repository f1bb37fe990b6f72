"""At most one earlier passage for a prompt, and only with confidence.

A hook runs this on every prompt while an agent waits. Each distinctive word of the prompt is looked
up in the word index by itself, in the turns of the project; the newest turns with it count. The
confidence of a turn is the share of the prompt's distinctive words that it has, each word weighted
by its rarity (ranking.rarity).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from typing import Any, NamedTuple
from zlib import crc32

from agents_ledger.ledger.reports.project_brief import (
    SESSIONS_LOOKED_AT,
    Reader,
    sentences,
    shortened,
    words_of,
)
from agents_ledger.ledger.search import ranking
from agents_ledger.ledger.search.words import tokenizer

CONFIDENCE = 0.6
FOLDERS_MAX = 20
WORDS_MIN = 3  # distinctive words that a passage must have
WORDS_MAX = 12  # of a prompt; the longest ones
TURNS_PER_WORD = 1000
CANDIDATES = 20
LETTERS_MIN = 3
PASSAGE_CHARS = 700
PROMPT_CHARS = 200
_FEW_TURNS = 500  # the size of a project is not counted: rarity is relative to this at least


class Passage(NamedTuple):
    turn_id: str
    text: str
    session_label: str | None
    confidence: float
    started_at: int

    @property
    def digest(self) -> str:
        """Of its answer: the same work may have been recorded as several turns."""
        return f"{crc32(self.text.rpartition(chr(10))[2].encode()):08x}"


class _Scored(NamedTuple):
    number: int
    confidence: float


def recalled(
    reader: Reader,
    prompt: str,
    project: str,
    *,
    except_session: str = "",
    except_passages: Collection[str] = (),
    confidence: float = CONFIDENCE,
) -> Passage | None:
    """The passage of the project that most likely concerns a prompt.

    `except_passages`: ids of turns, and digests of passages, that must not be repeated.
    """
    words = distinctive(prompt)
    if len(words) < WORDS_MIN:
        return None
    for scored in _scored(reader, words, project):
        if scored.confidence < confidence:
            return None
        passage = _passage(reader, scored, words, project)
        if passage is None or {passage.turn_id, passage.digest} & set(except_passages):
            continue
        session = reader.run("turn_session", turn_id=passage.turn_id)
        if session and (session[0][1] == except_session or session[0][3]):
            continue
        return passage._replace(session_label=session[0][0] if session else None)
    return None


def distinctive(prompt: str) -> list[str]:
    """The words of a prompt that can tell one subject from another, the longest ones."""
    words = dict.fromkeys(
        word
        for word in tokenizer.words(prompt[:4000])
        if len(word) >= LETTERS_MIN and word not in tokenizer.COMMON
    )
    return sorted(words, key=lambda word: -len(word))[:WORDS_MAX]


def _scored(reader: Reader, words: list[str], project: str) -> list[_Scored]:
    scope = _scope(reader, project)
    scores: dict[int, float] = defaultdict(float)
    counts: dict[int, int] = defaultdict(int)
    total = 0.0
    for word in words:
        match = f'{{user assistant}} : "{word}"{scope}'
        rows = reader.run("turns_with_word", match=match, limit=TURNS_PER_WORD)
        size = max(_FEW_TURNS, len(rows))
        weight = ranking.rarity(len(rows), size)
        total += weight
        for (number,) in rows:
            scores[number] += weight
            counts[number] += 1
    best = sorted(
        (number for number in scores if counts[number] >= WORDS_MIN),
        key=lambda number: (-scores[number], -number),
    )
    return [_Scored(number, scores[number] / total) for number in best[:CANDIDATES]]


def _scope(reader: Reader, project: str) -> str:
    """The index has the last name of each turn's folder: that of the project, or of one in it."""
    root = project.rstrip("/\\")
    rows = reader.run("project_folders", project=root, looked_at=SESSIONS_LOOKED_AT)
    folders = [root, *(row[0] for row in rows)][:FOLDERS_MAX]
    names = [" ".join(tokenizer.asked(re.split(r"[/\\]", folder)[-1])) for folder in folders]
    chosen = [f'"{name}"' for name in dict.fromkeys(names) if name]
    return f" AND project : ({' OR '.join(chosen)})" if chosen and all(names) else ""


def _passage(reader: Reader, scored: _Scored, words: list[str], project: str) -> Passage | None:
    rows = reader.run("indexed_turn", number=scored.number)
    if not rows:
        return None
    turn_id, workspace, started_at = rows[0]
    if not _is_within(workspace or "", project):
        return None
    text = _best_sentences(reader.run("turn_texts", turn_id=turn_id), set(words))
    return Passage(turn_id, text, None, scored.confidence, started_at) if text else None


def _is_within(workspace: str, project: str) -> bool:
    root = project.rstrip("/\\")
    return workspace == root or workspace.startswith((f"{root}/", f"{root}\\"))


def _best_sentences(texts: list[tuple[Any, ...]], words: set[str]) -> str:
    """The question, and the sentences of the answer with the most words of the prompt, in order."""
    prompts = (words_of(text) for role, text in texts if role == "user")
    question = shortened(next(filter(None, prompts), ""), PROMPT_CHARS)
    lines = [line for role, text in texts if role == "assistant" for line in sentences(text)]
    by_worth = sorted(
        range(len(lines)), key=lambda at: (-len(words.intersection(tokenizer.words(lines[at]))), at)
    )
    chosen: set[int] = set()
    size = 0
    for at in by_worth:
        size += len(lines[at])
        if size > PASSAGE_CHARS:
            break
        chosen.add(at)
    answer = " ".join(lines[at] for at in sorted(chosen))
    if not answer:
        return ""
    return f"Asked: {question}\nAnswered: {answer}"
