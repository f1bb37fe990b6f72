"""Secrets in what is given away: found by their shape, masked, and told.

One table of rules. Each finds one kind; its group `secret` is what is masked, the whole where there
is none. What cannot be looked into, such as pictures, is left out and counted. Nothing here is
certain: whoever gives a conversation away reads the review.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from msgspec import Struct

KEPT_MAX = 4  # letters of a secret that stay, so that its owner knows it again
OPAQUE_MIN = 1000  # letters in a row that are data, not words


class Masked(Struct, frozen=True):
    """What was masked at a place: the kind of secret, how often, and as what it is shown."""

    kind: str
    where: str
    count: int
    shown: str


class Rule(NamedTuple):
    """How a kind of secret looks."""

    kind: str
    hints: tuple[str, ...]  # one of these is in every text that has one: quick to look for
    pattern: re.Pattern[str]
    is_secret: Callable[[str], bool] = lambda _: True


_DIGIT = re.compile(r"\d")
_LETTER = re.compile(r"[A-Za-z]")
_NO_SECRET = re.compile(
    r"(?i)^(?:x+|\*+|\.+|#+|0+)$|^[<$%{\[(]|your|example|placeholder|changeme|dummy|redacted|masked"
    r"|^(?:process\.env|os\.environ|env|settings|config|self|this|args|secrets)\b[.\[]"
)
_CODE = re.compile(r"[()\[\]{}<>$;,]|^\w+(?:\.\w+)+$|::|->|=>")


def _mixed(value: str) -> bool:
    """Letters and digits: words have none, numbers no letters."""
    return bool(_DIGIT.search(value) and _LETTER.search(value)) and not _NO_SECRET.search(value)


def _chosen(value: str) -> bool:
    """Like something a person chose or a machine made, not a word, a name or a piece of code."""
    if _NO_SECRET.search(value) or _CODE.search(value):
        return False
    return bool(_LETTER.search(value)) and bool(re.search(r"[^A-Za-z_./-]", value))


def _rule(
    kind: str, hints: str, pattern: str, is_secret: Callable[[str], bool] = lambda _: True
) -> Rule:
    return Rule(kind, tuple(hints.split()), re.compile(pattern), is_secret)


_START = r"(?<![A-Za-z0-9_-])"
_QUOTE = r"""(?:\\*["'`])?"""
_NAMES = (
    "password", "passwd", "passphrase", "secret", "token", "credential", "api_key", "api-key",
    "apikey", "apiKey", "access_key", "accessKey", "secret_key", "secretKey", "private_key",
    "privateKey", "client_secret", "clientSecret",
)  # fmt: skip
# Every spelling in full: to ignore the case takes eight times as long.
_NAME = "|".join(sorted({x for w in _NAMES for x in (w, w[0].upper() + w[1:], w.upper())}))

# Special ones before general ones: what one rule has masked, no other sees.
RULES = (
    _rule(
        "private key",
        "-----BEGIN",
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?P<secret>[\s\S]*?)"
        r"(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    _rule("age key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    _rule("Anthropic key", "sk-ant-", rf"{_START}sk-ant-[A-Za-z0-9_-]{{16,}}"),
    _rule("OpenRouter key", "sk-or-", rf"{_START}sk-or-[A-Za-z0-9_-]{{16,}}"),
    _rule("OpenAI key", "sk-", rf"{_START}sk-[A-Za-z0-9_-]{{20,}}", _mixed),
    _rule(
        "GitHub token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        rf"{_START}(?:gh[pousr]_[A-Za-z0-9]{{30,}}|github_pat_[A-Za-z0-9_]{{22,}})",
    ),
    _rule("GitLab token", "glpat-", rf"{_START}glpat-[A-Za-z0-9_-]{{20,}}"),
    _rule(
        "Slack token",
        "xoxa- xoxb- xoxe- xoxp- xoxr- xoxs- xapp-",
        rf"{_START}(?:xox[abeprs]-|xapp-)[A-Za-z0-9-]{{10,}}",
    ),
    _rule(
        "webhook address",
        "hooks.slack.com/ /api/webhooks/",
        r"(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)"
        r"/(?P<secret>[A-Za-z0-9_/-]{20,})",
    ),
    _rule("AWS key", "AKIA ASIA", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", _mixed),
    _rule(
        "AWS secret",
        "ecret",
        rf"(?i)aws_?secret_?(?:access_?)?key{_QUOTE}\s*[:=]\s*{_QUOTE}(?P<secret>[A-Za-z0-9/+=]{{40}})",
    ),
    _rule(
        "Google key", "AIza GOCSPX- ya29.", rf"{_START}(?:AIza|GOCSPX-|ya29\.)[A-Za-z0-9_-]{{20,}}"
    ),
    _rule(
        "Stripe key",
        "_live_ _test_ whsec_",
        rf"{_START}(?:[prs]k_(?:live|test)|whsec)_[A-Za-z0-9]{{16,}}",
    ),
    _rule("npm token", "npm_", rf"{_START}npm_[A-Za-z0-9]{{36}}"),
    _rule("PyPI token", "pypi-", rf"{_START}pypi-[A-Za-z0-9_-]{{50,}}"),
    _rule("Hugging Face token", "hf_", rf"{_START}hf_[A-Za-z0-9]{{30,}}", _mixed),
    _rule("SendGrid key", "SG.", rf"{_START}SG\.[A-Za-z0-9_-]{{20,}}\.[A-Za-z0-9_-]{{20,}}"),
    _rule("Telegram token", ":AA", r"\b\d{8,10}:AA[A-Za-z0-9_-]{33}\b"),
    _rule(
        "service key",
        "xai- gsk_ r8_ nvapi- pplx- tvly- lin_api_ dop_v1_ dapi shpat_ sntrys_ glsa_ figd_ ATATT",
        rf"{_START}(?:xai-|gsk_|r8_|nvapi-|pplx-|tvly-|lin_api_|dop_v1_|dapi|shpat_|sntrys_|glsa_"
        r"|figd_|ATATT)[A-Za-z0-9_=-]{28,}",
        _mixed,
    ),
    _rule(
        "JSON web token",
        "eyJ",
        rf"{_START}eyJ[A-Za-z0-9_-]{{8,}}\.eyJ[A-Za-z0-9_-]{{8,}}\.[A-Za-z0-9_-]{{8,}}",
    ),
    _rule(
        "password in an address",
        "://",
        r"(?<=://)[^\s/:@\"'<>\\]{0,200}:(?P<secret>[^\s/@\"'<>\\]{1,500})@(?=[\w\[])",
        lambda value: not _NO_SECRET.search(value),
    ),
    _rule(
        "Authorization header",
        "uthorization UTHORIZATION",
        rf"(?i)\bauthorization{_QUOTE}\s*[:=]\s*{_QUOTE}(?:bearer|basic|token|digest)\s+"
        r"(?P<secret>[A-Za-z0-9._~+/=-]{8,})",
        lambda value: not _NO_SECRET.search(value),
    ),
    _rule(
        "Authorization header",
        "uthorization UTHORIZATION",
        rf"(?i)\bauthorization{_QUOTE}\s*[:=]\s*{_QUOTE}(?P<secret>[A-Za-z0-9._~+/=-]{{12,}})",
        _mixed,
    ),
    _rule(
        "Authorization header",
        "earer",
        r"\b[Bb]earer\s+(?P<secret>[A-Za-z0-9._~+/=-]{20,})",
        _mixed,
    ),
    _rule(
        "cookie",
        "ookie",
        r"(?i)\b(?:set-)?cookie:\s*(?P<secret>[\w.-]+=[^\s\"'\\]{8,}(?:; ?[\w.-]+=[^\s\"'\\;]+)*)",
        lambda value: not _NO_SECRET.search(value),
    ),
    _rule(
        "password or key by name",
        "asswor asswd ASSWOR ASSWD assphrase ecret ECRET oken OKEN key Key KEY redential",
        rf"(?:{_NAME})s?{_QUOTE}\s?(?::|=(?![=>~]))\s?\\*[\"'`]"
        r"(?P<secret>[^\s\"'`\\]{8,})(?=\\*[\"'`])",
        _chosen,
    ),
    _rule(
        "password or key by name",
        "assword asswd ASSWORD ASSWD ecret ECRET oken OKEN key KEY",
        rf"(?:{_NAME})\s?=(?![=>~])(?P<secret>[^\s\"'`\\&;,]{{8,}})",
        lambda value: _chosen(value) and _mixed(value),
    ),
)
_OPAQUE = re.compile(rf"[A-Za-z0-9+/_-]{{{OPAQUE_MIN},}}={{0,2}}")


class Masker:
    """Masks texts, and remembers what it masked where."""

    def __init__(self, *, on: bool = True) -> None:
        self.on = on
        self._found: Counter[tuple[str, str, str]] = Counter()

    @property
    def masked(self) -> tuple[Masked, ...]:
        """What was masked so far, in its order."""
        return tuple(
            Masked(kind, where, count, shown) for (kind, where, shown), count in self._found.items()
        )

    def text(self, text: str, where: str) -> str:
        """The text with its secrets masked. `where` is told in the review."""
        if not self.on:
            return text
        for rule in RULES:
            if any(hint in text for hint in rule.hints):
                mask = partial(self._mask, rule=rule, where=where)
                text = rule.pattern.sub(mask, text)
        if len(text) >= OPAQUE_MIN:
            text = _OPAQUE.sub(lambda found: self._leave_out(found[0], where), text)
        return text

    def _mask(self, found: re.Match[str], rule: Rule, where: str) -> str:
        group = "secret" if "secret" in rule.pattern.groupindex else 0
        secret = found[group]
        if not rule.is_secret(secret) or MARK in secret:
            return found[0]
        shown = secret[: min(KEPT_MAX, len(secret) // 4)] + MARK
        if rule.kind == "private key":
            shown = MARK
        self._found[rule.kind, where, shown] += 1
        start, end = (at - found.start() for at in found.span(group))
        return found[0][:start] + shown + found[0][end:]

    def _leave_out(self, data: str, where: str) -> str:
        if not (_DIGIT.search(data) and _LETTER.search(data)):  # a line, or a row of one letter
            return data
        shown = f"[{len(data):,} letters of data left out]"
        self._found["opaque data", where, shown] += 1
        return shown


MARK = "…[masked]"


def review(masked: Iterable[Masked]) -> dict[str, int]:
    """How many secrets of each kind were masked."""
    counts: Counter[str] = Counter()
    for one in masked:
        counts[one.kind] += one.count
    return dict(counts.most_common())
