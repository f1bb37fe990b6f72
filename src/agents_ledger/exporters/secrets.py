"""Secrets in exports: recognised by their format, masked and listed for review.

Each rule matches one kind of secret. Its group `secret` is masked; without that group, the whole
match. Data that cannot be checked, such as images, is removed and counted. Recognition is a
heuristic: people should read the review before they share an export.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from msgspec import Struct

# Leading characters of a secret that stay, so that its owner recognises it.
VISIBLE_MAX = 4
# Characters without a space: data rather than words, and no rule can tell what it holds.
OPAQUE_MIN = 1000


class Masked(Struct, frozen=True):
    """The secrets of one kind that were masked in one place."""

    kind: str
    where: str
    count: int
    shown: str


class SecretRule(NamedTuple):
    kind: str
    hints: tuple[str, ...]  # every match contains one of these; searching for them is fast
    pattern: re.Pattern[str]
    is_secret: Callable[[str], bool] = lambda _: True


_DIGIT = re.compile(r"\d")
_LETTER = re.compile(r"[A-Za-z]")
# Placeholders and references to a setting, as they appear in documentation and code.
_NO_SECRET = re.compile(
    r"(?i)^(?:x+|\*+|\.+|#+|0+)$|^[<$%{\[(]|your|example|placeholder|changeme|dummy|redacted|masked"
    r"|^(?:process\.env|os\.environ|env|settings|config|self|this|args|secrets)\b[.\[]"
)
_CODE = re.compile(r"[()\[\]{}<>$;,]|^\w+(?:\.\w+)+$|::|->|=>")


def _mixed(value: str) -> bool:
    """Letters and digits together: neither a word nor a number."""
    return bool(_DIGIT.search(value) and _LETTER.search(value)) and not _NO_SECRET.search(value)


def _is_password(value: str) -> bool:
    """Like a password that a person chose or a machine made, not a word, a name or code."""
    if _NO_SECRET.search(value) or _CODE.search(value):
        return False
    return bool(_LETTER.search(value)) and bool(re.search(r"[^A-Za-z_./-]", value))


def _rule(
    kind: str, hints: str, pattern: str, is_secret: Callable[[str], bool] = lambda _: True
) -> SecretRule:
    return SecretRule(kind, tuple(hints.split()), re.compile(pattern), is_secret)


_START = r"(?<![A-Za-z0-9_-])"
_QUOTE = r"""(?:\\*["'`])?"""
_NAMES = (
    "password", "passwd", "passphrase", "secret", "token", "credential", "api_key", "api-key",
    "apikey", "apiKey", "access_key", "accessKey", "secret_key", "secretKey", "private_key",
    "privateKey", "client_secret", "clientSecret",
)  # fmt: skip
# Every spelling in full: ignoring case takes eight times as long.
_NAME = "|".join(sorted({x for w in _NAMES for x in (w, w[0].upper() + w[1:], w.upper())}))

# Specific rules first: what one rule has masked, later ones do not see.
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
    # Keys of many other providers begin with sk- too; words such as sk-learn-model have no digit.
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
        _is_password,
    ),
    _rule(
        "password or key by name",
        "assword asswd ASSWORD ASSWD ecret ECRET oken OKEN key KEY",
        rf"(?:{_NAME})\s?=(?![=>~])(?P<secret>[^\s\"'`\\&;,]{{8,}})",
        lambda value: _is_password(value) and _mixed(value),
    ),
)
_OPAQUE = re.compile(rf"[A-Za-z0-9+/_-]{{{OPAQUE_MIN},}}={{0,2}}")


class Masker:
    def __init__(self, *, on: bool = True) -> None:
        self.on = on
        self._counts: Counter[tuple[str, str, str]] = Counter()

    @property
    def masked(self) -> tuple[Masked, ...]:
        """What was masked so far, in the order it was encountered."""
        return tuple(
            Masked(kind, where, count, replacement)
            for (kind, where, replacement), count in self._counts.items()
        )

    def text(self, text: str, where: str) -> str:
        """The text with its secrets masked. The review lists them under `where`."""
        if not self.on:
            return text
        for rule in RULES:
            if any(hint in text for hint in rule.hints):
                mask = partial(self._mask, rule=rule, where=where)
                text = rule.pattern.sub(mask, text)
        # Last, so that a long key is masked by its own rule.
        if len(text) >= OPAQUE_MIN:
            text = _OPAQUE.sub(lambda match: self._leave_out(match[0], where), text)
        return text

    def _mask(self, match: re.Match[str], rule: SecretRule, where: str) -> str:
        group = "secret" if "secret" in rule.pattern.groupindex else 0
        secret = match[group]
        if not rule.is_secret(secret) or MARK in secret:
            return match[0]
        replacement = secret[: min(VISIBLE_MAX, len(secret) // 4)] + MARK
        # The first characters of a private key are its header.
        if rule.kind == "private key":
            replacement = MARK
        self._counts[rule.kind, where, replacement] += 1
        start, end = (at - match.start() for at in match.span(group))
        return match[0][:start] + replacement + match[0][end:]

    def _leave_out(self, data: str, where: str) -> str:
        # A ruler of dashes or one repeated letter is no data.
        if not (_DIGIT.search(data) and _LETTER.search(data)):
            return data
        replacement = f"[{len(data):,} characters of data removed]"
        self._counts["opaque data", where, replacement] += 1
        return replacement


MARK = "…[masked]"


def review(masked: Iterable[Masked]) -> dict[str, int]:
    """The number of masked secrets of each kind, most frequent first."""
    counts: Counter[str] = Counter()
    for one in masked:
        counts[one.kind] += one.count
    return dict(counts.most_common())
