"""Texts with a secret in them, and texts with none that look as if they had one.

A secret stands where people and agents put it: in prose, code, JSON, logs and headers, beside
hashes, ids, paths and placeholders that are none.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.secrets.formats import ALPHABETS, FORMATS, Format

TOKEN_PLACES = {
    "prose": (
        "Here is my token: {v}\nCould you try it?",
        "I used {v} and it still says 401.",
        "My {words} is {v}, keep it safe.",
        "Please rotate {v}.",
    ),
    "code": (
        '{LABEL} = "{v}"',
        "const {camel} = '{v}';",
        "export {LABEL}={v}",
        'client = Client(api_key="{v}")',
        "{LABEL}={v} make deploy",
        'os.environ["{LABEL}"] = "{v}"',
        "{label}: {v}",
    ),
    "JSON": (
        '{{"{label}": "{v}", "retries": 3}}',
        '{{"env": {{"{LABEL}": "{v}"}}}}',
        '{{"arguments": "{{\\"{camel}\\": \\"{v}\\"}}"}}',
    ),
    "logs": (
        "2026-03-03T12:00:00.123Z INFO  starting with {label}={v} region=eu",
        "[12:00:03] DEBUG config: {{'{label}': '{v}'}}",
        "> tool run --verbose {v}",
        "error: request failed (status 401, token {v})",
    ),
    "headers": (
        "Authorization: Bearer {v}",
        "x-api-key: {v}",
        "curl -H 'Authorization: Bearer {v}' https://api.example.net/v1/models",
        '"headers": {{"Authorization": "Bearer {v}"}}',
    ),
}
NAMED_PLACES = {
    "prose": (
        "My {words} is {v}, keep it safe.",
        "{words}: {v}",
        "I set {LABEL} to {v} and started it again.",
        "Use `{v}` as the {words}.",
    ),
    "code": (
        '{LABEL} = "{v}"',
        "const {camel} = '{v}';",
        "export {LABEL}={v}",
        'os.environ["{LABEL}"] = "{v}"',
        "{label}: {v}",
        "{LABEL}='{v}' make deploy",
        "  - {LABEL}={v}",
        "tool --{kebab} {v} run",
    ),
    "JSON": (
        '{{"{label}": "{v}", "retries": 3}}',
        '{{"env": {{"{LABEL}": "{v}"}}}}',
        '{{"{camel}":"{v}"}}',
        '{{"arguments": "{{\\"{camel}\\": \\"{v}\\"}}"}}',
    ),
    "logs": (
        "2026-03-03T12:00:00.123Z INFO  starting with {label}={v} region=eu",
        "[12:00:03] DEBUG config: {{'{label}': '{v}'}}",
        "{LABEL}: {v}",
    ),
    "headers": (
        "x-{kebab}: {v}",
        "Authorization: Bearer {v}",
        "curl -H 'x-api-key: {v}' https://api.example.net/v1/models",
    ),
}
WHOLE_PLACES = {
    "prose": ("This is what I have:\n\n{v}\n\nDoes it look right?", "Try this:\n{v}\n"),
    "code": ("#!/bin/sh\nset -e\n{v}\n", "```\n{v}\n```", "# as documented\n{v}"),
    "JSON": ('{{"stdout": {json}, "exit_code": 0}}', '{{"content": {json}}}'),
    "logs": (
        "2026-03-03T12:00:00.123Z INFO  output follows\n{v}",
        "[12:00:03] $ \n{v}\n[12:00:04] done",
    ),
}
PLACES = {"token": TOKEN_PLACES, "named": NAMED_PLACES, "whole": WHOLE_PLACES}

DECOYS = (
    "commit {40:H}",
    "id 01{24:U}",
    "request {8:H}-{4:H}-4{3:H}-a{3:H}-{12:H} took 12 ms",
    "sha256:{64:H}",
    '"integrity": "sha512-{86:b}=="',
    "/home/ada/src/app/{12:l}/index_{8:H}.js",
    "toolu_01{22:A}",
    "call_{24:A}",
    "msg_01{22:A}",
    "chatcmpl-{29:A}",
    "max_tokens=4096, token_count: 12345",
    "export OPENAI_API_KEY=your-api-key-here",
    'api_key = "<YOUR_API_KEY>"',
    "password: ********",
    "Authorization: Bearer $TOKEN",
    "Authorization: Bearer ${{ secrets.GITHUB_TOKEN }}",
    "apiKey: process.env.OPENAI_API_KEY,",
    'token = os.environ["GITHUB_TOKEN"]',
    "password = getpass.getpass()",
    "const password = await prompt('Password: ');",
    "password: string;",
    "secret: true",
    "--password-stdin",
    "The password field is required.",
    "the token is missing or has expired",
    "the secret is stored in the keychain",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5{44:b} ada@example.net",
    "-----BEGIN PUBLIC KEY-----\n{64:b}\n{64:b}\n-----END PUBLIC KEY-----",
    "-----BEGIN CERTIFICATE-----\n{64:b}\n{64:b}\n-----END CERTIFICATE-----",
    "data:image/png;base64,iVBORw0KGgo{200:b}",
    "postgresql://user:password@localhost/app",
    "postgresql://localhost:5432/app",
    "https://example.net/items?token_type=bearer&page=2",
    "input_tokens: 8123, output_tokens: 431",
    "--token-limit 4000",
    "sk-...",
    "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "AKIAIOSFODNN7EXAMPLE",
    "class SecretStore extends TokenProvider {",
    "def reset_password(user_id: int) -> None:",
    "SECRET_KEY = config('SECRET_KEY')",
    'key: "ArrowLeft", keyCode: 37',
    "primary_key: customer_account_number_id",
    '"key": "{8:H}-{4:H}-4{3:H}-a{3:H}-{12:H}", "value": 3',
    'etag: W/"{32:H}"',
    "x-request-id: {32:H}",
    "traceparent: 00-{32:H}-{16:H}-01",
    "cache-key: build-{64:H}",
    "session_id: {8:H}-{4:H}-4{3:H}-a{3:H}-{12:H}",
    "session {8:H}-{4:H}-4{3:H}-a{3:H}-{12:H}",
    "pk_live_{24:A}",
    "nonce={32:A}",
    "password_hash = hash_password(password)",
    "token: ${NPM_TOKEN}",
    "//registry.example.net/:_authToken=${NPM_TOKEN}",
    "PASSWORD=changeme",
    "if (token === undefined) throw new Error('token required')",
    '{"type": "password", "name": "password", "label": "Password"}',
    "auth: { token: user.token, password: form.password }",
    "keyboard: QWERTYUIOPASDFGHJKLZXCVBNM",
)


class Sample(NamedTuple):
    format: str
    place: str
    text: str
    secrets: tuple[tuple[int, int], ...]  # where in `text`


def samples(per_place: int, *, start: int = 0) -> Iterator[Sample]:
    """`per_place` texts of every format in every place it appears in."""
    for format_ in FORMATS:
        rng = random.Random(f"{format_.name} {start}")
        for place, templates in PLACES[format_.group].items():
            for number in range(per_place):
                yield _sample(format_, place, templates[(number + start) % len(templates)], rng)


def _sample(format_: Format, place: str, template: str, rng: random.Random) -> Sample:
    name = format_.label.lower()
    first, *others = name.split("_")
    secret = format_.make(rng)
    body = template.format(
        v=secret,
        json=json.dumps(secret),
        LABEL=format_.label,
        label=name,
        camel=first + "".join(word.title() for word in others),
        kebab=name.replace("_", "-"),
        words=name.replace("_", " "),
    )
    before, after = (decoy(rng) for _ in range(2))
    text = f"{before}\n{body}\n{after}" if rng.random() < 0.7 else body
    return Sample(format_.name, place, *_unmarked(text))


def _unmarked(text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    pieces = re.split(r"<<(.*?)>>", text, flags=re.DOTALL)
    plain, spans, at = [], [], 0
    for number, piece in enumerate(pieces):
        if number % 2:
            spans.append((at, at + len(piece)))
        plain.append(piece)
        at += len(piece)
    return "".join(plain), tuple(spans)


def decoy(rng: random.Random) -> str:
    """A line that has no secret."""
    field = re.compile(r"\{(\d+):(\w)\}")
    return field.sub(
        lambda match: "".join(rng.choices(ALPHABETS[match[2]], k=int(match[1]))), rng.choice(DECOYS)
    )


def decoys(count: int) -> Iterator[str]:
    rng = random.Random("decoys")
    for _ in range(count):
        yield "\n".join(decoy(rng) for _ in range(rng.randint(1, 4)))
