"""Secrets recognised only by the name beside them: `DB_PASSWORD=...`, "my API key is ..."."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from agents_ledger.model.secrets.plausibility import is_mixed, is_password, is_token

PASSWORD = "password by name"  # noqa: S105
KEY = "key by name"

_PASSWORD_WORDS = ("password", "passwd", "passphrase", "passcode", "pwd", "pass")
_KEY_WORDS = ("secret", "token", "key", "credential", "pat")
_NAME_MAX = 64
# What a name must end in to be the name of a secret, in lower case, with _ for - and space.
_IS_PASSWORD = re.compile(r"(?:password|passwd|passphrase|passcode|pwd|(?<![a-z])pass|_pass)$")
_IS_KEY = re.compile(
    r"(?:secret|token|credentials?|(?<![a-z])pat"
    r"|(?:api|access|secret|private|admin|encryption|signing|auth|account|master|service|shared"
    r"|storage|preshared|license|subscription|deploy|server|account|write|age|rapidapi|session"
    r"|app|client|bot|user|project|personal|root|host|webhook|verify|hmac|jwt|functions?)_?key"
    r"|secret_access_key|key_secret|secret_?key_?base)$"
)
_NO_KEY = re.compile(
    r"(?:^|_)(?:public|publishable|primary|foreign|cache|sort|partition|page|next|continuation|cancel"
    r"|cancellation|count|max|min|input|output|total|num|idempotency|csrf_header|key_id"
    r"|keyid|session_key|query|route|routing|dedupe|object|row|react|map|tmap|anon|site)"
    r"_?(?:\w*_)?(?:key|token|tokens|secret)$"
)
# An upper-case variable whose name ends in KEY holds one, unless its value is a plain word.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*_KEY$")
_TAIL = r"(?P<tail>[A-Za-z0-9_-]{0,24})"
_VALUE = (
    r"""(?:(?P<quote>\\*["'`])(?P<quoted>[^\s"'`\\]{6,4000})(?=\\*["'`])"""
    r"""|(?P<bare>[^\s"'`\\]{6,4000}))"""
)
_QUOTED_MIN = 8


@cache
def _after() -> re.Pattern[str]:
    """From a keyword on: the rest of the name, what joins the two, and the value."""
    return re.compile(
        rf"{_TAIL}(?:\\*[\"'`]\]?)?"
        r"(?:(?P<assigned>\s{0,4}(?::=|=(?![=>~])|=>|:(?!:))\s{0,4})"
        r"|(?P<prose>\s(?:is|to|was|were|set to|now|=)\s(?:now\s)?)"
        r"|(?P<option>[ =]))" + _VALUE
    )


@cache
def _before() -> re.Pattern[str]:
    r"""`VALUE` as the API key, in quotes."""
    return re.compile(
        r"`(?P<value>[^\s`\"'\\]{8,400})`\s+(?:as|for|is)\s+(?:the|my|your|our|its|a)\s+"
        r"(?P<name>[A-Za-z0-9 _-]{0,40}?(?:password|passphrase|passwd|secret|token|key|pass|pat))"
        r"(?![A-Za-z])"
    )


def named_secrets(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and kind of each value whose name says that it is a secret."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few characters have longer lower-case forms
        lowered = "".join(c.lower() if c.isascii() else c for c in text)
    for word in (*_PASSWORD_WORDS, *_KEY_WORDS):
        at = lowered.find(word)
        while at >= 0:
            if span := _named_at(text, lowered, at, word):
                yield span
            at = lowered.find(word, at + len(word))
    if "`" in text:
        for match in _before().finditer(text):
            kind = _kind_of(match["name"])
            if kind and _accepts(kind, match["value"], quoted=True, prose=True):
                yield *match.span("value"), kind


def _named_at(text: str, lowered: str, at: int, word: str) -> tuple[int, int, str] | None:
    match = _after().match(text, at + len(word))
    if match is None or (match["tail"] and word not in ("secret", "key", "credential", "token")):
        return None
    name = _name_until(text, at + len(word) + len(match["tail"]))
    kind = _kind_of(name)
    if kind is None:
        return None
    if match["option"] and not _is_option(text, at, name):
        return None
    group = "quoted" if match["quote"] else "bare"
    start, end = match.span(group)
    if group == "bare":
        end = start + len(_bare(match["bare"]))
    value = text[start:end]
    if not _accepts(kind, value, quoted=bool(match["quote"]), prose=bool(match["prose"])):
        return None
    return start, end, kind


def _name_until(text: str, end: int) -> str:
    """The name that ends there, with the words before it."""
    before = text[max(0, end - _NAME_MAX) : end]
    match = re.search(r"[A-Za-z0-9_ -]*\Z", before)
    return match[0] if match else ""


def _is_option(text: str, at: int, name: str) -> bool:
    """--db-password VALUE"""
    word = name.rsplit(" ", 1)[-1]
    return word.startswith("--") and text[max(0, at - len(word)) : at + len(word)].count("--") > 0


def _kind_of(name: str) -> str | None:
    last = name.rsplit(" ", 1)[-1]
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    plain = re.sub(r"[ _-]+", "_", plain).lower().strip("_")
    if _IS_PASSWORD.search(plain):
        return PASSWORD
    if _NO_KEY.search(plain):
        return None
    if _IS_KEY.search(plain) or _VARIABLE.fullmatch(last):
        return KEY
    return None


_ENDS = re.compile(r"[,;)}\]>|&]")


def _bare(value: str) -> str:
    """An unquoted value ends where a list or a sentence goes on."""
    end = _ENDS.search(value)
    return (value[: end.start()] if end else value).rstrip(".,;:")


def _accepts(kind: str, value: str, *, quoted: bool, prose: bool) -> bool:
    if kind == PASSWORD:
        if prose and not quoted:
            return is_password(value) and is_mixed(value)
        return is_password(value)
    if is_token(value):
        return True
    return quoted and len(value) >= _QUOTED_MIN and is_password(value) and is_mixed(value)
