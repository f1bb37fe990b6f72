"""What secrets look like, as their issuers document them.

A format is a template. `{40:A}` stands for 40 random characters of alphabet A; what is between `<<`
and `>>` is the secret, everything if there are none. Three groups differ in where they can appear:
a token of the first is recognised by itself, one of the second only by the name beside it, and
those of the third are whole lines or files.
"""

from __future__ import annotations

import random
import re
import string
from typing import Literal, NamedTuple

Group = Literal["token", "named", "whole"]

ALPHABETS = {
    "A": string.ascii_letters + string.digits,
    "a": string.ascii_letters,
    "U": string.ascii_uppercase + string.digits,
    "L": string.ascii_lowercase + string.digits,
    "H": "0123456789abcdef",
    "D": string.digits,
    "B": string.ascii_letters + string.digits + "-_",
    "b": string.ascii_letters + string.digits + "+/",
    "3": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",  # base 32
    "l": string.ascii_lowercase,
    "q": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",  # bech32
}
WORDS = (
    *("correct", "horse", "battery", "staple", "summer", "winter"),
    *("dragon", "orange", "maple", "rocket", "harbor", "violin"),
)
_FIELD = re.compile(r"\{(?:(\d+):(\w)|(\w+))\}")


class Format(NamedTuple):
    name: str
    group: Group
    label: str  # what it is usually called, as an environment variable
    template: str

    def make(self, rng: random.Random) -> str:
        """One secret, marked."""
        text = _FIELD.sub(lambda field: _field(field, rng), self.template)
        return text if "<<" in text else f"<<{text}>>"


def _field(field: re.Match[str], rng: random.Random) -> str:
    length, alphabet, word = field.groups()
    if length:
        return "".join(rng.choices(ALPHABETS[alphabet], k=int(length)))
    if word == "uuid":
        return _uuid(rng)
    if word == "password":
        return _password(rng)
    if word == "lines":
        return "\n".join(
            "".join(rng.choices(ALPHABETS["b"], k=64)) for _ in range(rng.randint(6, 20))
        )
    return field.group(0)


def _uuid(rng: random.Random) -> str:
    digits = "".join(rng.choices(ALPHABETS["H"], k=32))
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def _password(rng: random.Random) -> str:
    """What people choose: words, digits, a sign; or what a password manager makes."""
    first, second = rng.sample(WORDS, 2)
    styles = (
        f"{first.title()}{rng.randint(10, 9999)}!",
        f"{first}-{second}-{rng.randint(10, 99)}",
        first.replace("o", "0").replace("e", "3").title()
        + f"{rng.randint(1, 99)}"
        + rng.choice("!$%*#"),
        "".join(rng.choices(ALPHABETS["A"] + "!%*-_", k=16)),
    )
    return rng.choice(styles)


TOKENS = """
Anthropic API key           | ANTHROPIC_API_KEY      | sk-ant-api03-{93:B}AA
Anthropic admin key         | ANTHROPIC_ADMIN_KEY    | sk-ant-admin01-{93:B}AA
Anthropic OAuth token       | CLAUDE_CODE_OAUTH_TOKEN| sk-ant-oat01-{93:B}AA
OpenAI API key              | OPENAI_API_KEY         | sk-{20:A}T3BlbkFJ{20:A}
OpenAI project key          | OPENAI_API_KEY         | sk-proj-{74:B}T3BlbkFJ{74:B}
OpenAI service account key  | OPENAI_API_KEY         | sk-svcacct-{74:B}T3BlbkFJ{74:B}
OpenAI admin key            | OPENAI_ADMIN_KEY       | sk-admin-{74:B}T3BlbkFJ{74:B}
OpenRouter                  | OPENROUTER_API_KEY     | sk-or-v1-{64:H}
Hugging Face                | HF_TOKEN               | hf_{34:a}
Hugging Face organisation   | HF_TOKEN               | api_org_{34:a}
Google API key              | GEMINI_API_KEY         | AIza{35:B}
Groq                        | GROQ_API_KEY           | gsk_{52:A}
xAI                         | XAI_API_KEY            | xai-{80:A}
Perplexity                  | PERPLEXITY_API_KEY     | pplx-{48:A}
Replicate                   | REPLICATE_API_TOKEN    | r8_{37:A}
DeepSeek                    | DEEPSEEK_API_KEY       | sk-{32:H}
Cerebras                    | CEREBRAS_API_KEY       | csk-{48:L}
ElevenLabs                  | ELEVENLABS_API_KEY     | sk_{48:H}
Fireworks                   | FIREWORKS_API_KEY      | fw_{24:A}
LangSmith                   | LANGSMITH_API_KEY      | lsv2_pt_{32:H}_{10:H}
Langfuse secret key         | LANGFUSE_SECRET_KEY    | sk-lf-{uuid}
Pinecone                    | PINECONE_API_KEY       | pcsk_{6:A}_{63:A}
Tavily                      | TAVILY_API_KEY         | tvly-{32:A}
NVIDIA                      | NVIDIA_API_KEY         | nvapi-{64:B}
Databricks                  | DATABRICKS_TOKEN       | dapi{32:H}
GitHub personal token       | GITHUB_TOKEN           | ghp_{36:A}
GitHub OAuth token          | GITHUB_TOKEN           | gho_{36:A}
GitHub user-to-server token | GITHUB_TOKEN           | ghu_{36:A}
GitHub server-to-server     | GITHUB_TOKEN           | ghs_{36:A}
GitHub refresh token        | GITHUB_REFRESH_TOKEN   | ghr_{76:A}
GitHub fine-grained token   | GH_TOKEN               | github_pat_{22:A}_{59:A}
GitLab personal token       | GITLAB_TOKEN           | glpat-{20:B}
GitLab routable token       | GITLAB_TOKEN           | glpat-{27:B}.01.{2:L}{7:L}
GitLab runner token         | RUNNER_TOKEN           | glrt-{20:B}
GitLab deploy token         | DEPLOY_TOKEN           | gldt-{20:B}
GitLab job token            | CI_JOB_TOKEN           | glcbt-{2:H}_{20:B}
GitLab trigger token        | TRIGGER_TOKEN          | glptt-{40:H}
Bitbucket app password      | BITBUCKET_APP_PASSWORD | ATBB{24:A}{8:U}
Atlassian API token         | JIRA_API_TOKEN         | ATATT3xFfGF0{171:B}={8:U}
Sourcegraph                 | SRC_ACCESS_TOKEN       | sgp_{16:H}_{40:H}
AWS access key id           | AWS_ACCESS_KEY_ID      | AKIA{16:3}
AWS temporary key id        | AWS_ACCESS_KEY_ID      | ASIA{16:3}
Amazon Bedrock              | AWS_BEARER_TOKEN_BEDROCK| ABSK{128:b}
Google OAuth client secret  | GOOGLE_CLIENT_SECRET   | GOCSPX-{28:B}
Google OAuth access token   | GOOGLE_ACCESS_TOKEN    | ya29.{140:B}
Google OAuth refresh token  | GOOGLE_REFRESH_TOKEN   | 1//0{2:D}{60:B}
Azure client secret         | AZURE_CLIENT_SECRET    | {3:A}8Q~{34:B}
DigitalOcean                | DIGITALOCEAN_TOKEN     | dop_v1_{64:H}
DigitalOcean OAuth          | DIGITALOCEAN_TOKEN     | doo_v1_{64:H}
Heroku                      | HEROKU_API_KEY         | HRKU-AA{58:B}
Fly.io                      | FLY_API_TOKEN          | fm2_{120:b}
Netlify                     | NETLIFY_AUTH_TOKEN     | nfp_{36:A}
Render                      | RENDER_API_KEY         | rnd_{28:A}
Alibaba Cloud key id        | ALIBABA_ACCESS_KEY_ID  | LTAI5t{18:A}
Tencent Cloud key id        | TENCENT_SECRET_ID      | AKID{32:A}
Terraform Cloud             | TFE_TOKEN              | {14:A}.atlasv1.{67:A}
Pulumi                      | PULUMI_ACCESS_TOKEN    | pul-{40:H}
Vault service token         | VAULT_TOKEN            | hvs.{95:B}
Vault batch token           | VAULT_TOKEN            | hvb.{140:B}
Doppler                     | DOPPLER_TOKEN          | dp.pt.{43:A}
1Password service account   | OP_SERVICE_ACCOUNT_TOKEN| ops_eyJ{250:A}
age                         | AGE_KEY                | AGE-SECRET-KEY-1{58:q}
Slack bot token             | SLACK_BOT_TOKEN        | xoxb-{12:D}-{13:D}-{24:A}
Slack user token            | SLACK_USER_TOKEN       | xoxp-{12:D}-{12:D}-{13:D}-{32:H}
Slack browser token         | SLACK_TOKEN            | xoxc-{12:D}-{12:D}-{13:D}-{64:H}
Slack browser cookie        | SLACK_COOKIE           | xoxd-{40:A}%2B{40:A}%2F{20:A}%3D%3D
Slack app token             | SLACK_APP_TOKEN        | xapp-1-A{10:U}-{13:D}-{64:H}
Slack refresh token         | SLACK_REFRESH_TOKEN    | xoxe-1-{140:A}
Slack webhook               | SLACK_WEBHOOK_URL      | https://hooks.slack.com/services/<<T{8:U}/B{10:U}/{24:A}>>
Discord bot token           | DISCORD_TOKEN          | MT{22:A}.G{5:B}.{38:B}
Discord webhook             | DISCORD_WEBHOOK_URL    | https://discord.com/api/webhooks/{18:D}/<<{68:B}>>
Telegram bot token          | TELEGRAM_BOT_TOKEN     | {10:D}:AA{33:B}
SendGrid                    | SENDGRID_API_KEY       | SG.{22:B}.{43:B}
Mailgun                     | MAILGUN_API_KEY        | key-{32:H}
Mailchimp                   | MAILCHIMP_API_KEY      | {32:H}-us{2:D}
Resend                      | RESEND_API_KEY         | re_{8:A}_{24:A}
Brevo                       | BREVO_API_KEY          | xkeysib-{64:H}-{16:A}
Stripe live key             | STRIPE_SECRET_KEY      | sk_live_{24:A}
Stripe long key             | STRIPE_SECRET_KEY      | sk_live_51{97:A}
Stripe test key             | STRIPE_SECRET_KEY      | sk_test_{24:A}
Stripe restricted key       | STRIPE_RESTRICTED_KEY  | rk_live_{24:A}
Stripe webhook secret       | STRIPE_WEBHOOK_SECRET  | whsec_{32:A}
Square access token         | SQUARE_ACCESS_TOKEN    | EAAA{60:B}
Square OAuth secret         | SQUARE_SECRET          | sq0csp-{43:B}
Braintree access token      | BRAINTREE_ACCESS_TOKEN | access_token$production${16:L}${32:H}
Shopify access token        | SHOPIFY_ACCESS_TOKEN   | shpat_{32:H}
Shopify app secret          | SHOPIFY_API_SECRET     | shpss_{32:H}
npm token                   | NPM_TOKEN              | npm_{36:A}
PyPI token                  | TWINE_PASSWORD         | pypi-AgEIcHlwaS5vcmc{150:B}
RubyGems                    | GEM_HOST_API_KEY       | rubygems_{48:H}
crates.io                   | CARGO_REGISTRY_TOKEN   | cio{32:A}
NuGet                       | NUGET_API_KEY          | oy2{43:L}
Docker Hub token            | DOCKER_TOKEN           | dckr_pat_{27:B}
Artifactory API key         | ARTIFACTORY_API_KEY    | AKCp{69:A}
Sentry organisation token   | SENTRY_AUTH_TOKEN      | sntrys_eyJ{90:A}_{43:A}
Sentry user token           | SENTRY_AUTH_TOKEN      | sntryu_{64:H}
New Relic                   | NEW_RELIC_API_KEY      | NRAK-{27:U}
Grafana service account     | GRAFANA_TOKEN          | glsa_{32:A}_{8:H}
Grafana Cloud               | GRAFANA_CLOUD_TOKEN    | glc_eyJ{100:A}
PostHog personal key        | POSTHOG_API_KEY        | phx_{43:A}
Notion                      | NOTION_TOKEN           | ntn_{46:A}
Notion, older               | NOTION_TOKEN           | secret_{43:A}
Linear                      | LINEAR_API_KEY         | lin_api_{40:A}
Figma                       | FIGMA_TOKEN            | figd_{40:B}
Airtable                    | AIRTABLE_TOKEN         | pat{14:A}.{64:H}
Asana                       | ASANA_TOKEN            | 1/{16:D}:{32:H}
Supabase access token       | SUPABASE_ACCESS_TOKEN  | sbp_{40:H}
Supabase secret key         | SUPABASE_SECRET_KEY    | sb_secret_{31:B}
PlanetScale token           | PLANETSCALE_TOKEN      | pscale_tkn_{43:B}
PlanetScale password        | DATABASE_PASSWORD      | pscale_pw_{43:B}
Neon                        | NEON_API_KEY           | napi_{64:L}
CircleCI                    | CIRCLE_TOKEN           | CCIPAT_{22:A}_{40:H}
Buildkite                   | BUILDKITE_TOKEN        | bkua_{40:H}
Contentful                  | CONTENTFUL_TOKEN       | CFPAT-{43:B}
Postman                     | POSTMAN_API_KEY        | PMAK-{24:H}-{34:H}
Mapbox secret token         | MAPBOX_TOKEN           | sk.eyJ{80:A}.{22:B}
Dropbox                     | DROPBOX_TOKEN          | sl.{140:B}
Facebook                    | FACEBOOK_TOKEN         | EAA{170:A}
JSON web token              | ACCESS_TOKEN           | eyJhbGciOiJIUzI1NiJ9.eyJ{80:A}.{43:B}
Azure shared access         | SAS_URL                | https://made.blob.core.windows.net/c?sv=2024-11-04&sig=<<{43:A}%3D>>
"""

NAMED = """
AWS secret access key       | AWS_SECRET_ACCESS_KEY  | {40:b}
AWS session token           | AWS_SESSION_TOKEN      | IQoJb3JpZ2luX2Vj{300:b}==
Mistral                     | MISTRAL_API_KEY        | {32:A}
Cohere                      | COHERE_API_KEY         | {40:A}
Together                    | TOGETHER_API_KEY       | {64:H}
Azure OpenAI                | AZURE_OPENAI_API_KEY   | {32:H}
Azure DevOps                | AZURE_DEVOPS_PAT       | {52:L}
Cloudflare API token        | CLOUDFLARE_API_TOKEN   | {40:B}
Cloudflare global key       | CF_API_KEY             | {37:H}
Vercel                      | VERCEL_TOKEN           | {24:A}
Railway                     | RAILWAY_TOKEN          | {uuid}
Linode                      | LINODE_TOKEN           | {64:H}
Scaleway                    | SCW_SECRET_KEY         | {uuid}
Alibaba Cloud secret        | ALIBABA_ACCESS_KEY_SECRET| {30:A}
IBM Cloud                   | IBMCLOUD_API_KEY       | {44:B}
Vault, older                | VAULT_TOKEN            | s.{24:A}
Gitea                       | GITEA_TOKEN            | {40:H}
Twilio auth token           | TWILIO_AUTH_TOKEN      | {32:H}
Twilio API secret           | TWILIO_API_SECRET      | {32:A}
Postmark                    | POSTMARK_SERVER_TOKEN  | {uuid}
Plaid                       | PLAID_SECRET           | {30:H}
Datadog                     | DD_API_KEY             | {32:H}
Algolia                     | ALGOLIA_ADMIN_KEY      | {32:H}
Snyk                        | SNYK_TOKEN             | {uuid}
Okta                        | OKTA_API_TOKEN         | 00{40:B}
Auth0 client secret         | AUTH0_CLIENT_SECRET    | {64:B}
RapidAPI                    | RAPIDAPI_KEY           | {50:A}
Weights and Biases          | WANDB_API_KEY          | {40:H}
Ethereum private key        | PRIVATE_KEY            | 0x{64:H}
Django secret key           | SECRET_KEY             | {50:A}
JWT signing secret          | JWT_SECRET             | {44:b}
Encryption key              | ENCRYPTION_KEY         | {64:H}
Database password           | DB_PASSWORD            | {password}
Admin password              | ADMIN_PASSWORD         | {password}
SMTP password               | SMTP_PASS              | {password}
Passphrase                  | SSH_PASSPHRASE         | {password}
Client secret               | CLIENT_SECRET          | {32:A}
Session secret              | SESSION_SECRET         | {32:A}
Webhook secret              | WEBHOOK_SECRET         | {40:H}
"""

WHOLE = {
    "RSA private key": (
        "-----BEGIN RSA PRIVATE KEY-----\n<<{lines}>>\n-----END RSA PRIVATE KEY-----"
    ),
    "EC private key": "-----BEGIN EC PRIVATE KEY-----\n<<{lines}>>\n-----END EC PRIVATE KEY-----",
    "PKCS 8 private key": "-----BEGIN PRIVATE KEY-----\n<<{lines}>>\n-----END PRIVATE KEY-----",
    "encrypted private key": (
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\n<<{lines}>>\n-----END ENCRYPTED PRIVATE KEY-----"
    ),
    "OpenSSH private key": (
        "-----BEGIN OPENSSH PRIVATE KEY-----\n<<{lines}>>\n-----END OPENSSH PRIVATE KEY-----"
    ),
    "PGP private key": (
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n<<{lines}>>\n-----END PGP PRIVATE KEY BLOCK-----"
    ),
    "service account": (
        '{"type": "service_account", "private_key_id": "{40:H}", "private_key": '
        '"-----BEGIN PRIVATE KEY-----\\n<<{64:b}\\n{64:b}>>\\n-----END PRIVATE KEY-----\\n"}'
    ),
    "HTTP basic": "Authorization: Basic <<{32:b}>>",
    "HTTP bearer": "Authorization: Bearer <<{40:A}>>",
    "HTTP token": "Authorization: Token <<{40:H}>>",
    "Okta header": "Authorization: SSWS <<00{40:B}>>",
    "Proxy authorization": "Proxy-Authorization: Basic <<{28:b}>>",
    "API key header": "X-Api-Key: <<{32:A}>>",
    "GitLab header": "PRIVATE-TOKEN: <<{20:B}>>",
    "session cookie": "Cookie: theme=dark; sessionid=<<{32:L}>>",
    "Set-Cookie": "Set-Cookie: session_token=<<{43:B}>>; HttpOnly; Path=/",
    "PostgreSQL address": "postgresql://app:<<{password}>>@db.example.net:5432/app",
    "MySQL address": "mysql://root:<<{password}>>@127.0.0.1/shop",
    "MongoDB address": "mongodb+srv://app:<<{password}>>@cluster0.example.mongodb.net/app",
    "Redis address": "redis://:<<{password}>>@cache.example.net:6379/0",
    "AMQP address": "amqp://worker:<<{password}>>@queue.example.net:5672",
    "address with password": "https://deploy:<<{password}>>@git.example.net/team/app.git",
    "address with token": "https://x-access-token:<<{40:A}>>@github.com/example/app.git",
    "query parameter": "https://api.example.net/v1/items?api_key=<<{32:A}>>&page=2",
    "access token in an address": "https://app.example.net/callback#access_token=<<{43:B}>>&state=1",
    "Cloudinary": "cloudinary://{15:D}:<<{27:B}>>@demo",
    "Azure storage": (
        "DefaultEndpointsProtocol=https;AccountName=made;AccountKey=<<{86:b}==>>;"
        "EndpointSuffix=core.windows.net"
    ),
    "Azure service bus": (
        "Endpoint=sb://made.servicebus.windows.net/;SharedAccessKeyName=root;"
        "SharedAccessKey=<<{43:b}=>>"
    ),
    "SQL Server": "Server=db;Database=app;User Id=sa;Password=<<{password}>>;Encrypt=true",
    "netrc": "machine api.example.net login bot password <<{password}>>",
    "pgpass": "db.example.net:5432:app:app:<<{password}>>",
    "npmrc": "//registry.example.net/:_authToken=<<{uuid}>>",
    "Docker configuration": '{"auths": {"registry.example.net": {"auth": "<<{40:b}>>"}}}',
    "pip configuration": "extra-index-url = https://bot:<<{password}>>@pypi.example.net/simple",
    "curl -u": "curl -u admin:<<{password}>> https://api.example.net/v1/users",
    "curl --user": "curl --user 'admin:<<{password}>>' https://api.example.net/v1/users",
    "mysql -p": "mysql -h db -u root -p<<{password}>> shop",
    "sshpass": "sshpass -p '<<{password}>>' ssh deploy@host.example.net",
    "PGPASSWORD": "PGPASSWORD=<<{password}>> psql -h db -U app",
    "--password": "tool login --username bot --password <<{password}>>",
    "--token": "tool deploy --token <<{32:A}>> --site app",
    "echo to login": "echo <<{password}>> | docker login -u bot --password-stdin",
    "redis-cli": "redis-cli -h cache -a <<{password}>> ping",
    "Kubernetes secret": "kind: Secret\ndata:\n  DB_PASSWORD: <<{24:b}>>",
    "JSON web key": '{"kty": "EC", "crv": "P-256", "x": "{43:B}", "d": "<<{43:B}>>"}',
    "one-time password": "otpauth://totp/Made:ada@example.net?secret=<<{32:3}>>&issuer=Made",
    "WireGuard": "[Interface]\nPrivateKey = <<{43:b}=>>\nAddress = 10.0.0.2/24",
    "password: in prose": "Log in as admin, password: <<{password}>>",
    "the password is": "The user is admin and the password is <<{password}>>",
    "yaml password": "database:\n  user: app\n  password: <<{password}>>",
    "PuTTY private key": (
        "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n<<{64:b}>>\nPrivate-MAC: {64:H}"
    ),
}


def _table(text: str, group: Group) -> list[Format]:
    rows = (line.split("|") for line in text.strip().splitlines())
    return [Format(name.strip(), group, label.strip(), made.strip()) for name, label, made in rows]


FORMATS = (
    *_table(TOKENS, "token"),
    *_table(NAMED, "named"),
    *(Format(name, "whole", "", template) for name, template in WHOLE.items()),
)
