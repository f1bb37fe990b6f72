"""Secrets: what looks like one is masked and told, what only resembles one is left."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections import Counter
from itertools import pairwise

import pytest

from agents_ledger.model.secrets.detection import MARK, find_secrets
from agents_ledger.model.secrets.masking import OPAQUE_MIN, Masker, review
from agents_ledger.model.secrets.rules import RULES
from benchmarks.secrets.recall import is_covered
from benchmarks.secrets.samples import decoys, samples

# Made up, and put together here so that nobody takes this file for a leak.
LETTERS = "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6dE9f"
HEX = hashlib.sha256(b"made up").hexdigest()
SECRETS = {
    "Anthropic key": "sk-ant-" + "api03-" + LETTERS,
    "OpenRouter key": "sk-or-" + "v1-" + HEX,
    "OpenAI key": "sk-" + "proj-" + LETTERS,
    "GitHub token": "ghp_" + LETTERS[:36],
    "GitLab token": "glpat-" + LETTERS[:20],
    "Slack token": "xoxb-" + "123456789012-" + LETTERS[:24],
    "AWS key": "AKIA" + "Q3EXZ4MPL5QRST6U",
    "Google key": "AIza" + LETTERS[:35],
    "Stripe key": "sk_live_" + LETTERS[:24],
    "npm token": "npm_" + LETTERS[:36],
    "PyPI token": "pypi-" + LETTERS + LETTERS,
    "Hugging Face token": "hf_" + LETTERS[:34],
    "SendGrid key": "SG." + LETTERS[:22] + "." + LETTERS,
    "Telegram token": "123456789:AA" + LETTERS[:33],
    "Groq key": "gsk_" + LETTERS,
    "age key": "AGE-SECRET-KEY-1" + LETTERS.upper() + LETTERS.upper()[:20],
    "JSON web token": "eyJ" + LETTERS[:20] + ".eyJ" + LETTERS[:30] + "." + LETTERS,
}


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize(
    "frame", ["{}", "use {}.", 'KEY="{}"', '{{"k": "{}"}}', "a\n{}\nb", "x={},y"]
)
def test_a_key_is_masked_in_every_notation(kind: str, frame: str) -> None:
    masker, secret = Masker(), SECRETS[kind]

    shown = masker.text(frame.format(secret), "here")

    assert secret not in shown
    assert secret[8:] not in shown
    [one] = masker.masked
    assert (one.kind, one.where, one.count) == (kind, "here", 1)
    assert one.shown == secret[:4] + MARK
    assert shown == frame.format(one.shown)


@pytest.mark.parametrize(
    ("text", "secret", "kind"),
    [
        ("postgresql://me:hunter22@db.example/x", "hunter22", "password in an address"),
        ("https://:tok123en@host/", "tok123en", "password in an address"),
        ("redis://default:p%40ss@[::1]:6379", "p%40ss", "password in an address"),
        ("Authorization: Bearer abc.def.ghi12345", "abc.def.ghi12345", "Authorization header"),
        ('"authorization": "Basic dXNlcjpwYXNz"', "dXNlcjpwYXNz", "Authorization header"),
        ("-H 'authorization: token abcdef123456'", "abcdef123456", "Authorization header"),
        ("curl -H Bearer " + LETTERS, LETTERS, "Authorization header"),
        ("Cookie: session=abc123def456; theme=dark", "abc123def456", "cookie"),
        ('password = "hunter2!xyz"', "hunter2!xyz", "password by name"),
        (r"{\"api_key\": \"abcd1234efgh\"}", "abcd1234efgh", "key by name"),
        ("DB_PASSWORD=s3cr3tpass", "s3cr3tpass", "password by name"),
        ("client_secret: 'q8w7e6r5t4'", "q8w7e6r5t4", "key by name"),
        (f"aws_secret_access_key = {LETTERS}", LETTERS, "key by name"),
        (
            "https://hooks.slack.com/services/T0AAAA/B0BBBB/" + LETTERS[:24],
            LETTERS[:24],
            "webhook address",
        ),
    ],
)
def test_values_named_as_secrets_are_masked(text: str, secret: str, kind: str) -> None:
    masker = Masker()

    shown = masker.text(text, "here")

    assert secret not in shown
    assert [one.kind for one in masker.masked] == [kind]


@pytest.mark.parametrize("newline", ["\n", "\\n"])
def test_the_body_of_a_private_key_is_masked(newline: str) -> None:
    body = newline.join([LETTERS] * 3)
    frame = "before -----BEGIN RSA PRIVATE KEY-----{}-----END RSA PRIVATE KEY----- after"
    masker = Masker()

    shown = masker.text(frame.format(f"{newline}{body}{newline}"), "here")

    assert shown == frame.format(MARK)
    assert review(masker.masked) == {"private key": 1}


def test_a_private_key_without_an_end_is_masked_to_the_end() -> None:
    assert LETTERS not in Masker().text(f"-----BEGIN PRIVATE KEY-----\n{LETTERS}\nmore", "here")


@pytest.mark.parametrize(
    "text",
    [
        "The token is passed as a parameter; the secret is kept in the vault.",
        "password: string;",
        "def login(password: str, token: str = '') -> None:",
        "token = tokens[index]",
        "api_key=settings.api_key",
        'api_key = os.environ["API_KEY"]',
        "token: ${GITHUB_TOKEN}",
        'password="your-password-here"',
        'api_key: "<your key>"',
        'secret = "xxxxxxxxxxxx"',
        '"input_tokens": 12480, "total_tokens": 13135',
        '{"max_tokens": 4096, "token_type": "bearer"}',
        "for token in tokenizer.tokenize(text):",
        'token == "something1"',
        "const token => parse1(token)",
        'tokens: "function_name"',
        "sk-learn-contrib-style-transformers-for-pandas",
        "see https://example.org/a:b@c and user@example.org",
        "git@github.com:owner/name.git",
        "http://localhost:8080/@scope/package",
        "scp me@host:file.txt .",
        "key: value, Key: Value, KEY=value",
        "The bearer of this letter may pass.",
        "Authorization: required",
        f"commit {hashlib.sha1(b'x').hexdigest()}",  # noqa: S324
        f"sha256:{HEX}",
        f"sha512-{'Ab1+' * 21}==",
        str(uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF)),
        "01M7GNZ1W63N05QDRFARP04WDN",
        "AKIAAAAAAAAAAAAAAAAA is no key: it has no digit",
        "[redacted] token: [redacted]",
        "hf_hub_download_with_a_very_long_name_here",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "=" * 2000,
        "a" * 2000,
        "word " * 500,
    ],
)
def test_ordinary_text_is_unchanged(text: str) -> None:
    masker = Masker()

    assert masker.text(text, "here") == text
    assert masker.masked == ()


def test_json_stays_json() -> None:
    value = {"password": "hunter2!xyz", "url": "https://u:p4ssw0rd@h/", **SECRETS}
    nested = json.dumps({"inner": json.dumps(value)})

    for text in (json.dumps(value), nested, json.dumps(nested)):
        shown = Masker().text(text, "here")

        assert json.loads(shown)
        assert not [secret for secret in SECRETS.values() if secret[8:] in shown]


def test_opaque_data_is_removed_and_counted() -> None:
    data = (LETTERS * 60)[:OPAQUE_MIN]
    masker = Masker()

    shown = masker.text(f'{{"data": "{data}=="}}', "here")

    assert json.loads(shown) == {"data": "[1,002 characters of data removed]"}
    assert review(masker.masked) == {"opaque data": 1}


def test_masking_is_idempotent() -> None:
    text = " ".join([*SECRETS.values(), 'password="hunter2!xyz"'])
    once = Masker().text(text, "here")

    again = Masker()

    assert again.text(once, "here") == once
    assert again.masked == ()


def test_a_repeated_secret_is_one_line_of_the_review() -> None:
    masker = Masker()
    for where in ("here", "here", "there"):
        masker.text(SECRETS["GitHub token"], where)

    assert [(one.where, one.count) for one in masker.masked] == [("here", 2), ("there", 1)]
    assert review(masker.masked) == {"GitHub token": 3}


def test_masking_can_be_turned_off() -> None:
    masker = Masker(on=False)

    assert masker.text(SECRETS["OpenAI key"], "here") == SECRETS["OpenAI key"]
    assert masker.masked == ()


def test_a_long_word_is_scanned_in_linear_time() -> None:
    began = time.process_time()

    for text in ("a1" * 50_000, "://" * 20_000, "x-" * 40_000, "sk-" * 30_000, '="' * 40_000):
        Masker().text(f"sk- :// eyJ token: earer ookie: {text}", "here")

    assert time.process_time() - began < 20  # it takes a quarter of a second, not an hour


def test_every_match_of_a_rule_contains_a_hint() -> None:
    for rule in RULES:
        assert rule.hints
        assert all(rule.hints), rule.kind


def test_secrets_of_all_formats_are_found_wherever_they_stand() -> None:
    """The measured share is on the page of benchmarks."""
    texts = list(samples(2, start=7))
    missed = Counter(sample.format for sample in texts if not is_covered(sample))

    assert sum(missed.values()) <= 0.02 * len(texts), missed


def test_texts_without_a_secret_raise_no_alarm() -> None:
    assert [text for text in decoys(1000) if find_secrets(text)] == []


def test_what_is_found_does_not_overlap() -> None:
    for sample in samples(1):
        spans = find_secrets(sample.text)
        assert all(one.end <= other.start for one, other in pairwise(spans)), sample
