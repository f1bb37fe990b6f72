"""Secrets that are recognised by themselves: one rule for each kind.

The formats are those their issuers document. A rule's group `secret` is the secret; without that
group, the whole match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from agents_ledger.model.secrets.plausibility import (
    is_issued,
    is_mixed,
    is_password,
    is_placeholder,
    is_random,
)

# No part of a longer word. The letter of an escape such as \n, and %20 of a URL, end one.
_START = re.compile(r"(?<![A-Za-z0-9_-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})")
_END = r"(?![A-Za-z0-9_-])"
_QUOTE = r"""(?:\\*["'`])?"""
_WORD = r"[A-Za-z0-9_-]"
DISTINCT_MIN = 8  # characters of a key; a ruler of letters has fewer


def is_given(value: str) -> bool:
    """Anything but a placeholder."""
    return not is_placeholder(value)


class SecretRule:
    """Compiled when one of its hints is encountered first: all of them take 50 ms."""

    def __init__(
        self,
        kind: str,
        hints: str,
        source: str,
        is_secret: Callable[[str], bool] = is_given,
        *,
        is_word: bool = False,
    ) -> None:
        self.kind = kind
        self._is_word = is_word
        self.hints = tuple(hints.split())  # every match contains one; searching for them is fast
        self._source = source
        self._is_secret = is_secret

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the secret with what it is recognised by."""
        return re.compile(self._source)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of each secret of this kind."""
        if not any(hint in text for hint in self.hints):
            return
        for match in self.pattern.finditer(text):
            start, end = match.span(self._group)
            # Tested here, because a pattern that begins with letters is searched much faster.
            if self._is_word and not _START.match(text, match.start()):
                continue
            if end > start and self._is_secret(match[self._group]):
                yield start, end

    @cached_property
    def _group(self) -> Any:
        return "secret" if "secret" in self.pattern.groupindex else 0


# kind | prefixes | what follows
_PREFIXED = r"""
Anthropic key      | sk-ant-                          | [A-Za-z0-9_-]{16,}
OpenRouter key     | sk-or-                           | [A-Za-z0-9_-]{16,}
Langfuse key       | sk-lf-                           | [0-9a-f-]{36}
GitHub token       | ghp_ gho_ ghu_ ghs_ ghr_         | [A-Za-z0-9_]{30,}
GitHub token       | github_pat_                      | [A-Za-z0-9_]{22,}
GitLab token       | glpat- glrt- gldt- glptt- glcbt- | [A-Za-z0-9_-]{18,}(?:\.[0-9a-z]{2}\.\w{7,})?
GitLab token       | glsoat- glagent- glft- glimt-    | [A-Za-z0-9_-]{18,}
Bitbucket password | ATBB                             | [A-Za-z0-9_]{28,}
Atlassian token    | ATATT3 ATCTT3                    | [A-Za-z0-9_=-]{60,}
Sourcegraph token  | sgp_                             | (?:(?:[0-9a-f]{16}|local)_)?[0-9a-f]{40}
Slack token        | xoxa- xoxb- xoxc- xoxe- xoxp-    | [A-Za-z0-9-]{10,}
Slack token        | xoxo- xoxr- xoxs- xapp-          | [A-Za-z0-9-]{10,}
Slack token        | xoxe.xoxb- xoxe.xoxp-            | [A-Za-z0-9-]{10,}
Slack token        | xoxd-                            | [A-Za-z0-9%/+=_-]{20,}
Google key         | AIza                             | [A-Za-z0-9_-]{35}
Google key         | GOCSPX-                          | [A-Za-z0-9_-]{20,}
Google token       | ya29.                            | [A-Za-z0-9_.-]{30,}
Google token       | 1//0                             | [A-Za-z0-9_-]{30,}
Hugging Face token | hf_ api_org_                     | [A-Za-z0-9]{30,}
Groq key           | gsk_                             | [A-Za-z0-9]{40,}
xAI key            | xai-                             | [A-Za-z0-9]{60,}
Perplexity key     | pplx-                            | [A-Za-z0-9]{32,}
Replicate token    | r8_                              | [A-Za-z0-9]{37}
Cerebras key       | csk-                             | [a-z0-9]{40,}
Fireworks key      | fw_                              | [A-Za-z0-9]{22,24}
LangSmith key      | lsv2_pt_ lsv2_sk_                | [0-9a-f]{32}_[0-9a-f]{10}
Pinecone key       | pcsk_                            | [A-Za-z0-9_]{50,}
Tavily key         | tvly-                            | [A-Za-z0-9-]{28,}
NVIDIA key         | nvapi-                           | [A-Za-z0-9_-]{50,}
Databricks token   | dapi                             | [0-9a-f]{32}(?:-\d)?
Firecrawl key      | fc-                              | [0-9a-f]{32}
Amazon Bedrock key | ABSK                             | [A-Za-z0-9+/]{100,}={0,2}
DigitalOcean token | dop_v1_ doo_v1_ dor_v1_          | [0-9a-f]{64}
Heroku key         | HRKU-                            | [A-Za-z0-9_-]{36,}
Fly.io token       | fm1_ fm1r_ fm2_ fo1_             | [A-Za-z0-9+/=_-]{40,}
Netlify token      | nfp_ nfc_ nfo_ nfb_ nfu_         | [A-Za-z0-9]{36,}
Render key         | rnd_                             | [A-Za-z0-9]{28,}
Alibaba Cloud key  | LTAI                             | [A-Za-z0-9]{16,20}
Tencent Cloud key  | AKID                             | [A-Za-z0-9]{32}
Pulumi token       | pul-                             | [0-9a-f]{40}
Vault token        | hvs. hvb. hvr.                   | [A-Za-z0-9_-]{24,}
Doppler token      | dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit. | [A-Za-z0-9._-]{40,}
1Password token    | ops_eyJ                          | [A-Za-z0-9+/=_-]{100,}
Twilio key         | SK                               | [0-9a-f]{32}
Mailgun key        | key-                             | [0-9a-f]{32}
Resend key         | re_                              | [A-Za-z0-9]{8}_[A-Za-z0-9]{20,}
Brevo key          | xkeysib- xsmtpsib-               | [0-9a-f]{64}-[A-Za-z0-9]{16}
Stripe key         | sk_live_ sk_test_ rk_live_ rk_test_ whsec_ | [A-Za-z0-9+/=]{16,}
ElevenLabs key     | sk_                              | [0-9a-f]{48}
Square token       | EAAA                             | [A-Za-z0-9_-]{60}
Square token       | sq0csp- sq0atp-                  | [A-Za-z0-9_-]{22,}
Facebook token     | EAA                              | [A-Za-z0-9]{100,}
Twitter token      | AAAAAAAAAAAAAAAAAAAAA            | [A-Za-z0-9%]{40,}
Braintree token    | access_token$production$ access_token$sandbox$ | [a-z0-9]{16}\$[0-9a-f]{32}
Shopify token      | shpat_ shpss_ shpca_ shppa_      | [0-9A-Fa-f]{32}
npm token          | npm_                             | [A-Za-z0-9]{36}
PyPI token         | pypi-                            | [A-Za-z0-9_-]{50,}
RubyGems key       | rubygems_                        | [0-9a-f]{48}
crates.io token    | cio                              | [A-Za-z0-9]{32}
NuGet key          | oy2                              | [a-z0-9]{43}
Docker token       | dckr_pat_ dckr_oat_              | [A-Za-z0-9_-]{24,}
Artifactory key    | AKCp                             | [A-Za-z0-9]{60,}
Sentry token       | sntrys_                          | [A-Za-z0-9+/=_-]{60,}
Sentry token       | sntryu_                          | [0-9a-f]{64}
New Relic key      | NRAK- NRAA- NRJS-                | [A-Za-z0-9-]{19,}
Grafana token      | glsa_                            | [A-Za-z0-9]{32}_[0-9A-Fa-f]{8}
Grafana token      | glc_eyJ                          | [A-Za-z0-9+/=]{40,}
PostHog key        | phx_ phs_                        | [A-Za-z0-9]{32,}
Notion token       | ntn_                             | [A-Za-z0-9]{40,}
Notion token       | secret_                          | [A-Za-z0-9]{43}
Linear key         | lin_api_ lin_oauth_              | [A-Za-z0-9]{32,}
Figma token        | figd_                            | [A-Za-z0-9_-]{36,}
Airtable token     | pat                              | [A-Za-z0-9]{14}\.[0-9a-f]{64}
Asana token        | 1/                               | \d{16}:[0-9a-f]{32}
Asana token        | 2/                               | \d{16}/\d{16}:[0-9a-f]{32}
Supabase token     | sbp_                             | [0-9a-f]{40}
Supabase token     | sb_secret_                       | [A-Za-z0-9_-]{30,}
PlanetScale token  | pscale_tkn_ pscale_pw_ pscale_oauth_ | [A-Za-z0-9_.=-]{32,}
Neon key           | napi_                            | [a-z0-9]{40,}
CircleCI token     | CCIPAT_ CCIPRJ_                  | [A-Za-z0-9]{20,24}_[0-9a-f]{40}
Buildkite token    | bkua_                            | [0-9a-f]{40}
Contentful token   | CFPAT-                           | [A-Za-z0-9_-]{40,}
Postman key        | PMAK-                            | [0-9a-f]{24}-[0-9a-f]{34}
Mapbox token       | sk.eyJ                           | [A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{16,}
Dropbox token      | sl.                              | (?:u\.)?[A-Za-z0-9_-]{100,}
"""


def _prefixed() -> Iterator[SecretRule]:
    for line in _PREFIXED.strip().splitlines():
        kind, prefixes, tail = (part.strip() for part in line.split("|", 2))
        starts = "|".join(re.escape(prefix) for prefix in prefixes.split())
        # A tail of a fixed length must end there: a longer word is something else.
        end = "" if ",}" in tail else _END
        source = rf"(?:{starts})(?:{tail}){end}"
        yield SecretRule(kind, prefixes, source, is_issued, is_word=True)


_LINES = r"(?:[A-Za-z0-9+/=\s:,.()-]|\\+[nr])*"
RULES: tuple[SecretRule, ...] = (
    SecretRule(
        "private key",
        "-----BEGIN",
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
        rf"(?P<secret>{_LINES}?)(?=-----END|\\*[\"'`<]|\Z)",
    ),
    SecretRule(
        "private key",
        "Private-Lines:",
        r"Private-Lines: \d+(?:\s|\\+[nr])+(?P<secret>(?:[A-Za-z0-9+/=]{4,}(?:\s|\\+[nr])*)+)",
    ),
    SecretRule("age key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    *_prefixed(),
    # Keys of many other providers begin with sk- too; words such as sk-learn-model have no digit.
    SecretRule(
        "OpenAI key",
        "sk-",
        rf"sk-(?:(?:proj|svcacct|admin|None)-)?{_WORD}{{20,}}",
        lambda value: is_mixed(value) and is_random(value),
        is_word=True,
    ),
    SecretRule(
        "webhook address",
        "hooks.slack.com/ /api/webhooks/ webhook.office.com/ .logic.azure.com",
        r"(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks"
        r"|webhook\.office\.com/webhookb2)/(?P<secret>[A-Za-z0-9_/@-]{20,})",
        is_random,
    ),
    SecretRule(
        "AWS key",
        "AKIA ASIA ABIA ACCA",
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b",
        lambda value: not is_placeholder(value) and len(set(value)) >= DISTINCT_MIN,
    ),
    SecretRule("Azure client secret", "8Q~", r"[\w~.-]{3}8Q~[\w~.-]{31,37}", is_word=True),
    SecretRule(
        "Azure shared key",
        "AccountKey= SharedAccessKey= sig=",
        r"(?:\b(?:AccountKey|SharedAccessKey)=|[?&]sig=)(?P<secret>[A-Za-z0-9%+/]{40,}={0,2})",
    ),
    SecretRule("Terraform token", ".atlasv1.", rf"\w{{14}}\.atlasv1\.{_WORD}{{60,}}", is_word=True),
    SecretRule(
        "Discord token",
        "MT Mj Mz ND NT Nj Nz OD OT",  # how digits begin in base 64
        rf"(?:M[Tjz]|N[DTjz]|O[DT]){_WORD}{{22,26}}\.{_WORD}{{6}}\.{_WORD}{{27,38}}{_END}",
        is_random,
        is_word=True,
    ),
    SecretRule("Telegram token", ":AA", rf"(?<!\d)\d{{8,10}}:AA[A-Za-z0-9_-]{{33}}{_END}"),
    SecretRule(
        "SendGrid key",
        "SG.",
        rf"SG\.{_WORD}{{20,24}}\.{_WORD}{{40,46}}",
        is_random,
        is_word=True,
    ),
    SecretRule("Mailchimp key", "-us", rf"[0-9a-f]{{32}}-us\d{{1,2}}{_END}", is_word=True),
    SecretRule(
        "JSON web token",
        "eyJ",
        rf"eyJ{_WORD}{{8,}}\.eyJ{_WORD}{{8,}}\.{_WORD}{{8,}}",
        is_word=True,
    ),
    SecretRule(
        "password in an address",
        "://",
        r"(?<=://)[^\s/:@\"'<>\\]{0,200}:(?P<secret>[^\s/@\"'<>\\]{1,500})@(?=[\w\[])",
        lambda value: not is_placeholder(value),
    ),
    SecretRule(
        "Authorization header",
        "uthorization UTHORIZATION",
        rf"(?i)\bauthorization{_QUOTE}\s*[:=]\s*{_QUOTE}"
        r"(?:bearer|basic|token|digest|ssws|apikey|key)\s+(?P<secret>[^\s\"'`\\,;]{8,})",
        lambda value: is_password(value) or is_random(value),
    ),
    SecretRule(
        "Authorization header",
        "uthorization UTHORIZATION",
        rf"(?i)\bauthorization{_QUOTE}\s*[:=]\s*{_QUOTE}(?P<secret>[A-Za-z0-9._~+/=-]{{12,}})",
        lambda value: is_mixed(value) and is_random(value),
    ),
    SecretRule(
        "Authorization header",
        "earer asic",
        r"\b(?:[Bb]earer|[Bb]asic)\s+(?P<secret>[A-Za-z0-9._~+/=-]{20,})",
        lambda value: is_mixed(value) and is_random(value),
    ),
    SecretRule(
        "cookie",
        "ookie",
        r"(?i)\b(?:set-)?cookie:\s*(?P<secret>[\w.-]+=[^\s\"'\\;]+(?:; ?[\w.-]+=[^\s\"'\\;]+)*)",
        is_mixed,
    ),
    SecretRule(
        "password in a command",
        "curl",
        r"\bcurl\b[^\n]{0,300}?\s(?:-u|--user|--proxy-user)[ =]?\s*[\"']?[^\s:\"'$]{1,64}:"
        r"(?P<secret>(?!\$)[^\s\"'\\]{4,})",
    ),
    SecretRule(
        "password in a command",
        "mysql mariadb",
        r"\b(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n|]{0,200}?\s-p"
        r"(?P<secret>[^\s\"'\\$-][^\s\"'\\]{3,})",
        is_password,
    ),
    SecretRule(
        "password in a command",
        "sshpass",
        r"\bsshpass\s+-p\s*\\*[\"']?(?P<secret>(?!\$)[^\s\"'\\]{4,})",
    ),
    SecretRule(
        "password in a command",
        "--password-stdin --with-token",
        r"\becho\s+(?:-n\s+)?[\"']?(?P<secret>(?!\$)[^\s\"'\\]{6,})[\"']?\s*\|[^\n|]{1,200}"
        r"--(?:password-stdin|with-token)",
    ),
    SecretRule(
        "password in a command",
        "redis-cli",
        r"\bredis-cli\b[^\n|]{0,200}?\s(?:-a|--pass)\s+[\"']?(?P<secret>(?!\$)[^\s\"'\\]{4,})",
    ),
    SecretRule(
        "password in a file",
        "machine",
        r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<secret>[^\s\"'\\]{4,})",
    ),
    SecretRule(
        "password in a file",
        ":5432: :5433: :5434: :6432: :6543: :*:",
        r"(?m)(?:^|(?<=[\"'`\s])|(?<=\\n))[\w.*-]+:(?:543[234]|6432|6543|\*):[\w*-]+:[\w*-]+:(?P<secret>[^\s:\"'\\]{4,})"
        r"(?=\s|\\|[\"'`]|\Z)",
        is_password,
    ),
    SecretRule(
        "password in a file",
        '"auth',
        r"\\*\"auth\\*\"\s*:\s*\\*\"(?P<secret>[A-Za-z0-9+/]{16,}={0,2})",
        is_random,
    ),
    SecretRule(
        "private key",
        "kty",
        r"kty[^{}]{0,2000}?\"d\\*\"\s*:\s*\\*\"(?P<secret>[A-Za-z0-9_-]{32,})",
    ),
    SecretRule(
        "one-time password", "otpauth://", r"otpauth://[^\s\"']*?[?&]secret=(?P<secret>[A-Z2-7]+)"
    ),
)
