"""Whether a value can be a secret: no placeholder, no code, no word."""

from __future__ import annotations

import re

DIGIT = re.compile(r"\d")
LETTER = re.compile(r"[A-Za-z]")
# Placeholders and references to a setting, as they appear in documentation and code.
_NO_SECRET = re.compile(
    r"(?i)^(?:x+|\*+|\.+|#+|0+|-+|_+)$|^(?:[<{\[(]|%[sdvq(]|%\w+%$|\$[\w{(])|\*\*\*|\.\.\.$|…"
    r"|^(?:your|my|some|fake|test|sample)[-_ ]|your[-_]|example|placeholder|changeme|change-me"
    r"|dummy|redacted|masked|xxxx|-here\b|_here\b|insert|replace"
    r"|^(?:process\.env|os\.environ|env|settings|config|self|this|args|secrets|import\.meta)\b[.\[]"
)
_CODE = re.compile(
    r"[()\[\]{}<>;,|]|\$[{(A-Za-z]|^\w{1,20}(?:\.[A-Za-z_]\w{0,19})+[!?]?$|::|->|=>|^&|\?\.|&&"
)
_COMMON = frozenset(
    (
        *("password", "passwd", "pass", "pwd", "secret", "token", "user", "username", "admin"),
        *("root", "postgres", "mysql", "test", "guest", "changeme", "example", "key", "string"),
        *("none", "null", "undefined", "true", "false", "required", "optional", "default"),
    )
)
# Names of methods and encodings, which have digits too.
_METHODS = re.compile(
    r"(?i)(?<![a-z0-9])(?:base-?64|base-?32|oauth-?2|sha-?\d|md5|utf-?8|argon2|pbkdf2|bcrypt|x509|ed25519|rs256"
    r"|hs256|es256|rsa-?\d{4}|aes-?\d|http2|s3\b|ec2|ipv[46]|k8s|i18n|auth0|ws[12]|p256|0auth"
    r"|pkcs|jwt)"
)
# One word of an identifier or one number.
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[A-Z]|\d+")
_RANDOM_RUN = 4.0  # characters of a piece; identifiers have 5, random characters 2
_LETTERS_RUN = 3.0  # without a digit
_RUN_TOGETHER = re.compile(r"[a-z0-9]{32,}")  # no word of a person is that long
_KEY_MIN = 16
_LETTERS_MIN = 20
_PASSWORD_MIN = 6
_DISTINCT_MIN = 4  # characters


def is_placeholder(value: str) -> bool:
    """A word that stands for a secret, a mask, or a reference to where one is."""
    if _NO_SECRET.search(value) or value.lower() in _COMMON:
        return True
    return len(set(value)) < _DISTINCT_MIN


def is_mixed(value: str) -> bool:
    """Letters and digits together: neither a word nor a number."""
    return bool(DIGIT.search(value) and LETTER.search(value)) and not is_placeholder(value)


def _run(value: str) -> float:
    pieces = _PIECE.findall(value)
    return sum(map(len, pieces)) / max(1, len(pieces))


def is_random(value: str) -> bool:
    """Characters as a machine draws them, rather than words with numbers."""
    if is_placeholder(value) or not LETTER.search(value):
        return False
    return _run(value) < _RANDOM_RUN or bool(_RUN_TOGETHER.fullmatch(value))


def is_issued(value: str) -> bool:
    """What follows the prefix of a service: enough that it is no word."""
    return is_mixed(value) or is_random(value)


def is_token(value: str) -> bool:
    """Random, of a length that services issue, and no path or expression."""
    if len(value) < _KEY_MIN or _CODE.search(value) or _METHODS.match(value):
        return False
    if DIGIT.search(value):
        return is_random(value)
    return len(value) >= _LETTERS_MIN and is_random(value) and _run(value) < _LETTERS_RUN


def is_password(value: str) -> bool:
    """Like a password that a person chose or a machine made, not a word, a name or code."""
    if len(value) < _PASSWORD_MIN or is_placeholder(value) or _CODE.search(value):
        return False
    if value.lower().strip("!?.") in _COMMON or _METHODS.search(value) or "/" in value[:2]:
        return False
    return bool(LETTER.search(value)) and bool(re.search(r"[^A-Za-z_./ -]", value.rstrip("!?:")))
