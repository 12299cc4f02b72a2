"""Redaction: no secret survives, and ordinary code does not change."""

import base64
import string
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from given.session_exports import export, list_texts, with_parts, with_text
from weft.model.ids import MessageID, PartID
from weft.model.part import FilePart
from weft.model.wire import encode
from weft.transfer.redact import Redactor, find_secrets
from weft.transfer.secrets import SHAPES

LETTERS = string.ascii_letters + string.digits
TAIL = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY"
HEX = "0123456789abcdef" * 8
KEYS = {
    "anthropic-key": f"sk-ant-api03-{TAIL}-{TAIL}",
    "openrouter-key": f"sk-or-v1-{HEX[:64]}",
    "openai-key": f"sk-proj-{TAIL}",
    "aws-key": "AKIA" + "Z7Q2X9W4V1B8N5M3",
    "github-token": f"ghp_{TAIL}abcd",
    "gitlab-token": f"glpat-{TAIL[:20]}",
    "google-key": "AIza" + (TAIL + TAIL)[:35],
    "google-token": f"ya29.{TAIL}",
    "google-secret": f"GOCSPX-{TAIL[:28]}",
    "slack-token": "xoxb-" + "123456789012-" + TAIL[:24],
    "slack-webhook": "https://hooks.slack.com/services/"
    f"T0{TAIL[:6].upper()}/B0{TAIL[:6].upper()}/{TAIL[:24]}",
    "discord-webhook": "https://discord.test/api/webhooks/" + f"123456789012345678/{TAIL}{TAIL}",
    "discord-token": f"M{TAIL[:23]}.{TAIL[:6]}.{TAIL[:27]}",
    "telegram-token": f"123456789:AA{(TAIL + TAIL)[:33]}",
    "stripe-key": f"sk_live_{TAIL[:24]}",
    "webhook-secret": f"whsec_{TAIL}",
    "twilio-key": f"SK{HEX[:32]}",
    "sendgrid-key": f"SG.{TAIL[:22]}.{(TAIL + TAIL)[:43]}",
    "mailgun-key": f"key-{HEX[:32]}",
    "mailchimp-key": f"{HEX[:32]}-us12",
    "npm-token": f"npm_{(TAIL + TAIL)[:36]}",
    "pypi-token": f"pypi-{TAIL}{TAIL}",
    "rubygems-key": f"rubygems_{HEX[:48]}",
    "docker-token": f"dckr_pat_{TAIL[:27]}",
    "huggingface-token": f"hf_{(TAIL + TAIL)[:34]}",
    "replicate-token": f"r8_{(TAIL + TAIL)[:37]}",
    "groq-key": f"gsk_{TAIL}",
    "xai-key": f"xai-{TAIL}",
    "perplexity-key": f"pplx-{TAIL}",
    "cerebras-key": f"csk-{TAIL.lower()}",
    "fireworks-key": f"fw_{TAIL[:24]}",
    "digitalocean-token": f"dop_v1_{HEX[:64]}",
    "shopify-token": f"shpat_{HEX[:32]}",
    "square-token": f"sq0atp-{TAIL[:22]}",
    "databricks-token": f"dapi{HEX[:32]}",
    "linear-key": f"lin_api_{(TAIL + TAIL)[:40]}",
    "notion-token": f"ntn_{(TAIL + TAIL)[:44]}",
    "figma-token": f"figd_{(TAIL + TAIL)[:40]}",
    "planetscale-token": f"pscale_tkn_{TAIL}{TAIL[:11]}",
    "doppler-token": f"dp.pt.{(TAIL + TAIL)[:43]}",
    "vault-token": f"hvs.{TAIL}",
    "terraform-token": f"{TAIL[:14]}.atlasv1.{TAIL}{TAIL}",
    "grafana-token": f"glsa_{TAIL}_{HEX[:8]}",
    "newrelic-key": f"NRAK-{TAIL[:27].upper()}",
    "sentry-token": f"sntryu_{HEX[:64]}",
    "postman-key": f"PMAK-{HEX[:24]}-{HEX[:34]}",
    "atlassian-token": f"ATATT3{TAIL}{TAIL}",
    "bitbucket-password": f"ATBB{TAIL}",
    "airtable-token": f"pat{TAIL[:14]}.{HEX[:64]}",
    "supabase-key": f"sbp_{HEX[:40]}",
    "tailscale-key": f"tskey-auth-{TAIL[:12]}-{TAIL}",
    "heroku-key": f"HRKU-{TAIL}",
    "flyio-token": f"fo1_{TAIL}",
    "cloudflare-key": f"v1.0-{HEX[:24]}-{HEX[:128]}",
    "netlify-token": f"nfp_{(TAIL + TAIL)[:40]}",
    "pinecone-key": f"pcsk_{TAIL}{TAIL}",
    "langsmith-key": f"lsv2_pt_{HEX[:32]}_{HEX[:10]}",
    "onepassword-token": f"ops_eyJ{TAIL * 4}",
    "facebook-token": f"EAA{TAIL * 4}",
    "mapbox-token": f"sk.eyJ1{TAIL}.{TAIL[:22]}",
    "resend-key": f"re_{TAIL[:8]}_{TAIL[:24]}",
    "neon-key": f"napi_{TAIL}{TAIL}",
    "vercel-token": f"vercel_blob_rw_{TAIL[:16]}_{TAIL}",
    "dropbox-token": f"sl.B{TAIL * 4}",
    "jwt": f"eyJ{TAIL[:16]}.eyJ{TAIL}.{TAIL}",
    "private-key": f"-----BEGIN RSA PRIVATE KEY-----\n{TAIL}\n{TAIL}\n-----END RSA PRIVATE KEY-----",
}
PLACES = (
    "{}",
    "the key is {} and no other",
    '{{"value": "{}"}}',
    "curl -H 'x-thing: {}'",
    "FOO={}",
    "line one\\n{}\\nline two",
    "https://example.test/?q={}&x=1",
)


def redact_text(text: str) -> str:
    session, redactor = with_text(export(), text), Redactor()
    redactor.scan(session)
    return list_texts(redactor.redact(session).messages)[0]


def test_every_shape_has_an_example() -> None:
    assert {shape.kind for shape in SHAPES} == set(KEYS)
    assert len(KEYS) >= 50


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KEYS)
def test_a_credential_is_redacted_wherever_it_occurs(kind: str, place: str) -> None:
    key = KEYS[kind]
    secret = key.rpartition("services/" if "slack.com" in key else "webhooks/")[2]
    assert secret not in redact_text(place.format(key))


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("DB_PASSWORD=hunter22", "hunter22"),
        ("export API_TOKEN=correcthorse", "correcthorse"),
        ("password: 'tr0ub4dor&3'", "tr0ub4dor&3"),
        ('{"clientSecret": "q8Zp2LmX0vTt"}', "q8Zp2LmX0vTt"),
        ('{\\"apiKey\\": \\"q8Zp2LmX0vTt\\"}', "q8Zp2LmX0vTt"),
        ("Authorization: Bearer q8Zp2LmX0vTt9", "q8Zp2LmX0vTt9"),
        ("Authorization: Basic YWRhOmxvdmVsYWNlMTIz", "YWRhOmxvdmVsYWNlMTIz"),
        ("postgres://ada:l0velace@db.test/x", "l0velace"),
        ("redis://:s3cr3t@cache.test:6379", "s3cr3t"),
        ("mysql --password q8Zp2LmX", "q8Zp2LmX"),
        ("machine host.test login ada password xyzzy9", "xyzzy9"),
        ("Cookie: session=q8Zp2LmX0vTt; theme=dark", "q8Zp2LmX0vTt"),
        ("Set-Cookie: sid=correct horse battery; Path=/", "correct horse battery"),
        ("X-Api-Key: q8Zp2LmX0vTt", "q8Zp2LmX0vTt"),
        ("AZURE_STORAGE_ACCOUNT_KEY=q8Zp2LmX0vTt==", "q8Zp2LmX0vTt"),
        ("?access_token=q8Zp2LmX0vTt&page=2", "q8Zp2LmX0vTt"),
        ("https://files.test/a?se=2030&sig=q8Zp2LmX0vTtq8Zp2LmX%3D", "q8Zp2LmX0vTtq8Zp2LmX"),
        ("curl -s -u ada:l0velace! https://x.test", "l0velace!"),
        ("mysql -uroot -pl0velace1 db", "l0velace1"),
        ("sshpass -p 'l0velace1' ssh x.test", "l0velace1"),
        ("docker login -u ada -p q8Zp2LmX0vTt", "q8Zp2LmX0vTt"),
        ("Authorization: SSWS q8Zp2LmX0vTt9", "q8Zp2LmX0vTt9"),
        ("ENV SECRET_TOKEN q8Zp2LmX0vTt", "q8Zp2LmX0vTt"),
        ("- name: API_TOKEN\n  value: q8Zp2LmX0vTt", "q8Zp2LmX0vTt"),
        ('{"name": "DB_PASSWORD", "value": "l0velace1"}', "l0velace1"),
        ('<add key="ApiKey" value="q8Zp2LmX0vTt" />', "q8Zp2LmX0vTt"),
        ("<password>l0velace1</password>", "l0velace1"),
        ("SECRET_KEY_BASE=3064d6d59291f0cde2e5738713a818d8", "3064d6d59291f0cde2e5738713a818d8"),
        (f"Private-Lines: 2\n{HEX[:64]}\n{HEX[:64]}\nPrivate-MAC: 0", HEX[:64]),
    ],
)
def test_a_value_with_a_secret_name_is_redacted(text: str, secret: str) -> None:
    assert secret not in redact_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 4096, tokens = count_tokens(text)",
        "token = self.tokens.next()",
        "password: str | None = None",
        'api_key = os.environ["API_KEY"]',
        "const apiKey = process.env.OPENAI_API_KEY;",
        "API_KEY=$OTHER_KEY TOKEN=${TOKEN} SECRET=<your secret>",
        'PASSWORD="changeme" # or <password>',
        "export GITHUB_TOKEN=your-token-here",
        "postgres://user:password@localhost/db",
        "postgres://user:${PASSWORD}@localhost/db",
        "TOKEN_FILE=/var/run/secrets/token",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "def primary_key(self) -> str: return self.key",
        'sort_key = "created_at"; cache_key: "user-profile-page"',
        "uuid 123e4567-e89b-12d3-a456-426614174000",
        "Bearer authentication is used; send a bearer token header",
        "<input type='password' name=\"password\" placeholder='Password'>",
        "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        "class TokenStream: secret_name = get_secret_name(region)",
        "disk-usage-monitoring-and-alerting-service-for-2024-q3",
        "risk-assessment-of-the-2019-financial-report-section-4",
        "cookie: 'theme=dark'",
        "docker run -u 1000:1000 -p 8080:80 image",
        "curl -u $USER:$PASS https://x.test",
        "curl -u ada: https://x.test && mkdir -p src/components2",
        "- name: API_TOKEN\n  valueFrom: secretKeyRef9",
        "<token>string</token>",
    ],
)
def test_ordinary_code_and_prose_are_left_alone(text: str) -> None:
    assert redact_text(text) == text


def test_our_own_source_is_left_alone() -> None:
    source = Path(__file__).parents[3] / "src" / "weft"
    found = [
        (path.name, text[span.start - 20 : span.end])
        for path in sorted(source.rglob("*.py"))
        for text in [path.read_text()]
        for span in find_secrets("", text)
    ]
    assert found == []


secrets = st.text(LETTERS, min_size=16, max_size=40).filter(
    lambda it: any(map(str.isdigit, it)) and any(map(str.isalpha, it)) and len(set(it)) >= 8
)


@given(secrets, st.sampled_from(["API_KEY={}", "my_token: '{}'", "Bearer {}", "https://ada:{}@host.test"]))
def test_a_planted_secret_is_redacted_everywhere(secret: str, place: str) -> None:
    """Also where nothing reveals that it is a secret: in an answer, a call, an attachment."""
    raw = base64.b64encode(f"the value is {secret}".encode()).decode()
    session = with_text(export(turns=2), place.format(secret))
    ids = {"session_id": session.info.id, "message_id": MessageID(session.messages[0].info.id)}
    attached = FilePart(id=PartID("prt_file"), **ids, mime="text/plain", url=f"data:text/plain;base64,{raw}")
    bare = FilePart(id=PartID("prt_bare"), **ids, mime="text/plain", url=f"file:///tmp/{secret}.txt")
    redactor, session = Redactor(), with_parts(session, attached, bare)
    redactor.scan(session)
    left = redactor.redact(session)
    assert secret.encode() not in encode(left)
    [_, kept, _] = left.messages[0].parts
    assert isinstance(kept, FilePart)
    assert secret.encode() not in base64.b64decode(kept.url.partition(",")[2])


def test_the_same_secret_always_gets_the_same_placeholder() -> None:
    text = f"{KEYS['github-token']} {KEYS['groq-key']} {KEYS['github-token']}"
    assert redact_text(text) == "[redacted:github-token:1] [redacted:groq-key:1] [redacted:github-token:1]"


def test_every_secret_of_a_text_is_redacted_even_if_it_is_a_plain_word() -> None:
    # Plain words are replaced only where their names reveal them, so no search for the first one finds the second.
    text = "DB_PASSWORD=lovelace\nADMIN_PASSWORD=babbage\nROOT_PASSWORD=somerville"
    assert redact_text(text) == (
        "DB_PASSWORD=[redacted:password:1]\nADMIN_PASSWORD=[redacted:password:2]\nROOT_PASSWORD=[redacted:password:3]"
    )


def test_a_secret_inside_another_is_redacted_with_it() -> None:
    text = 'DB_TOKEN="postgres://ada:l0velace@db.test/x" and more'
    assert redact_text(text) == 'DB_TOKEN="[redacted:token:1]" and more'


def test_redacting_twice_equals_redacting_once() -> None:
    once = redact_text(f"API_KEY={KEYS['groq-key']} and Bearer {TAIL}")
    assert redact_text(once) == once


def test_findings_do_not_reveal_the_secret() -> None:
    redactor, session = Redactor(), with_text(export(), f"use {KEYS['github-token']}")
    redactor.scan(session)
    redactor.redact(session)
    [finding] = redactor.findings()
    assert (finding.kind, finding.placeholder, finding.times) == (
        "github-token",
        "[redacted:github-token:1]",
        1,
    )
    assert finding.glimpse == "ghp_… (40 characters)"
    assert finding.where == f"{session.messages[0].info.id} {session.messages[0].parts[0].id}"


@pytest.mark.parametrize(
    "text",
    [
        "set x\n" + "\n" * 40_000,
        "Private-Lines: 1" + " " * 40_000 + "!",
        "-sk-aaa" * 6_000,
        "-eyJaaaaaaaa" * 20_000,
        "-----BEGIN PRIVATE KEY-----" * 20_000,
    ],
    ids=["settings", "lines of a key", "keys without digits", "halves of tokens", "beginnings of keys"],
)
def test_text_that_is_made_to_take_long_does_not(text: str) -> None:
    began = process_time()
    redact_text(text)
    assert process_time() - began < 8


def test_a_key_is_redacted_after_the_beginning_of_another() -> None:
    begin, end = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"
    assert redact_text(f"{begin} {begin}\n{TAIL}\n{end}") == "[redacted:private-key:1]"
