"""Cursor: what stands around the words of a prompt in the files of its agent: when it was sent, and
what the program put there itself."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from agents_ledger.importers.transcript.turn_builder import milliseconds

ASKED, ASKED_END = "<user_query>", "</user_query>"
TAG = r"<timestamp>([^<>]{1,80})</timestamp>\s*"
SENT = re.compile(rf"\A\s*{TAG}")
SENT_BESIDE = re.compile(rf"{TAG}(?=<user_query>)")
TIME = re.compile(
    r"(?:[A-Za-z]+,\s+)?([A-Za-z]{3})[a-z]*\s+(\d{1,2}),\s+(\d{4}),\s+(\d{1,2}):(\d\d)(?::(\d\d))?"
    r"(?:\s*([AP])M)?(?:\s*\((?:UTC|GMT)(?:([-+\u2212])(\d{1,2})(?::(\d\d))?)?\))?"
)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
HALF_DAY = 12
FINISHED = "Briefly inform the user about the task result"  # that a task in the background ended
CONTEXT = re.compile(
    r"<(agent_(?:skills|transcripts)|available_subagent_(?:models|types)|dynamic_tools|git_status|"
    r"mcp_file_system|open_and_recently_viewed_files|rules|system_(?:notification|reminder)|user_info)>"
)


class Prompt(NamedTuple):
    """What a text in the user's name says."""

    words: str
    at: int  # 0: not said
    is_event: bool  # the program wrote it


def prompt_in(text: str) -> Prompt:
    """What was asked, and when. A tag that says no time stays where it is."""
    begin = text.find(ASKED)
    end = text.find(ASKED_END, begin) if begin >= 0 else -1
    query = text[begin + len(ASKED) : end].strip() if end >= 0 else None
    tag = SENT.match(text)
    if tag is None and query is not None:
        tag = SENT_BESIDE.search(text, 0, end)
    at = moment(tag[1]) if tag is not None else 0
    rest = text[tag.end() :] if tag is not None and at and not tag.start() else text
    words = rest if query is None else query
    is_event = words.startswith(FINISHED) or (query is None and _is_context(rest))
    return Prompt(words, at, is_event)


def moment(said: str) -> int:
    """Unix milliseconds of a time as a tag says it, in English on any machine; 0 if it is none.
    Without an offset it is taken as UTC, like others."""
    found = TIME.fullmatch(said.strip())
    month = found[1].lower() if found is not None else ""
    if found is None or month not in MONTHS:
        return 0
    day, year, hour, minute, second = (int(found[n] or 0) for n in range(2, 7))
    if found[7]:
        hour = hour % HALF_DAY + (HALF_DAY if found[7] == "P" else 0) if hour <= HALF_DAY else -1
    ahead = timedelta(hours=int(found[9] or 0), minutes=int(found[10] or 0))
    try:
        zone = timezone(ahead if found[8] == "+" else -ahead)
        at = datetime(year, MONTHS.index(month) + 1, day, hour, minute, second, tzinfo=zone)
    except ValueError:
        return 0
    return milliseconds(at.isoformat())


def _is_context(text: str) -> bool:
    """Whether a text is nothing but what the program tells the model."""
    rest = text.strip()
    is_told = ""
    while tag := CONTEXT.match(rest):
        _, is_told, rest = rest.partition(f"</{tag[1]}>")
        rest = rest.lstrip()
    return bool(is_told) and not rest
