"""Recognise credentials by their form and by the names next to them."""

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

_WORD = r"[A-Za-z0-9_-]"


class SecretShape(NamedTuple):
    """A form of credential. Every match contains one of `marks`; searching for those is much faster than matching."""

    kind: str
    marks: tuple[str, ...]
    pattern: str


SHAPES = (
    SecretShape("private-key", ("-----BEGIN",), r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----BEGIN)){16,16384}?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
    # A key that is cut off before its end is still a key.
    SecretShape("private-key", ("-----BEGIN",), r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:\\[rn]|[\sA-Za-z0-9+/=:,-]){32,}"),
    SecretShape("private-key", ("AGE-SECRET-KEY",), r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    SecretShape("anthropic-key", ("sk-ant-",), rf"sk-ant-{_WORD}{{16,}}"),
    SecretShape("openrouter-key", ("sk-or-",), r"sk-or-(?:v\d-)?[0-9a-f]{32,}"),
    SecretShape("openai-key", ("sk-", "sess-"), rf"(?:sk|sess)-(?:proj-|svcacct-|admin-|None-)?(?=[A-Za-z_-]{{0,200}}\d){_WORD}{{20,}}"),
    SecretShape("aws-key", ("AKIA", "ASIA", "ABIA", "ACCA"), r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}"),
    SecretShape("github-token", ("gh",), r"gh[pousr]_[A-Za-z0-9]{20,}"),
    SecretShape("github-token", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{20,}"),
    SecretShape("gitlab-token", ("gl",), rf"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent)-{_WORD}{{20,}}"),
    SecretShape("google-key", ("AIza",), rf"AIza{_WORD}{{35}}"),
    SecretShape("google-token", ("ya29.",), rf"ya29\.{_WORD}{{20,}}"),
    SecretShape("google-secret", ("GOCSPX-",), rf"GOCSPX-{_WORD}{{20,}}"),
    SecretShape("slack-token", ("xox",), r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    SecretShape("slack-token", ("xapp-",), r"xapp-\d-[A-Za-z0-9-]{20,}"),
    SecretShape("slack-webhook", ("hooks.slack.com",), r"(?<=hooks\.slack\.com/services/)T[A-Z0-9]+/B[A-Z0-9]+/[A-Za-z0-9]{16,}"),
    SecretShape("discord-webhook", ("/api/webhooks/",), rf"(?<=/api/webhooks/)\d{{15,}}/{_WORD}{{40,}}"),
    SecretShape("discord-token", (".",), rf"[MNO]{_WORD}{{23,27}}\.{_WORD}{{6}}\.{_WORD}{{27,}}"),
    SecretShape("telegram-token", (":AA",), rf"\d{{8,10}}:AA{_WORD}{{33}}"),
    SecretShape("stripe-key", ("k_live_", "k_test_"), r"(?:sk|rk|pk)_(?:live|test)_[0-9A-Za-z]{16,}"),
    SecretShape("webhook-secret", ("whsec_",), r"whsec_[A-Za-z0-9+/]{20,}=*"),
    SecretShape("twilio-key", ("SK",), r"SK[0-9a-f]{32}"),
    SecretShape("sendgrid-key", ("SG.",), rf"SG\.{_WORD}{{16,}}\.{_WORD}{{16,}}"),
    SecretShape("mailgun-key", ("key-",), r"key-[0-9a-f]{32}"),
    SecretShape("mailchimp-key", ("-us",), r"[0-9a-f]{32}-us\d{1,2}"),
    SecretShape("npm-token", ("npm_",), r"npm_[A-Za-z0-9]{36}"),
    SecretShape("pypi-token", ("pypi-",), rf"pypi-{_WORD}{{50,}}"),
    SecretShape("rubygems-key", ("rubygems_",), r"rubygems_[0-9a-f]{48}"),
    SecretShape("docker-token", ("dckr_pat_",), rf"dckr_pat_{_WORD}{{20,}}"),
    SecretShape("huggingface-token", ("hf_",), r"hf_[A-Za-z0-9]{30,}"),
    SecretShape("replicate-token", ("r8_",), r"r8_[A-Za-z0-9]{30,}"),
    SecretShape("groq-key", ("gsk_",), r"gsk_[A-Za-z0-9]{20,}"),
    SecretShape("xai-key", ("xai-",), r"xai-[A-Za-z0-9]{20,}"),
    SecretShape("perplexity-key", ("pplx-",), r"pplx-[A-Za-z0-9]{20,}"),
    SecretShape("cerebras-key", ("csk-",), r"csk-[a-z0-9]{20,}"),
    SecretShape("fireworks-key", ("fw_",), r"fw_[A-Za-z0-9]{20,}"),
    SecretShape("digitalocean-token", ("_v1_",), r"do[opr]_v1_[0-9a-f]{64}"),
    SecretShape("shopify-token", ("shp",), r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    SecretShape("square-token", ("sq0",), rf"sq0(?:atp|csp|idp)-{_WORD}{{22,}}"),
    SecretShape("databricks-token", ("dapi",), r"dapi[0-9a-f]{32}"),
    SecretShape("linear-key", ("lin_",), r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}"),
    SecretShape("notion-token", ("ntn_", "secret_"), r"(?:ntn|secret)_[A-Za-z0-9]{40,}"),
    SecretShape("figma-token", ("figd_",), rf"figd_{_WORD}{{30,}}"),
    SecretShape("planetscale-token", ("pscale_",), r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{30,}"),
    SecretShape("doppler-token", ("dp.",), r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._-]{30,}"),
    SecretShape("vault-token", ("hv",), rf"hv[sbr]\.{_WORD}{{20,}}"),
    SecretShape("terraform-token", (".atlasv1.",), rf"[A-Za-z0-9]{{14}}\.atlasv1\.{_WORD}{{60,}}"),
    SecretShape("grafana-token", ("glsa_", "glc_"), r"gl(?:sa|c)_[A-Za-z0-9_+/=]{32,}"),
    SecretShape("newrelic-key", ("NR",), r"NR(?:AK|JS|RA|II)-[A-Z0-9a-z]{19,}"),
    SecretShape("sentry-token", ("sntry",), r"sntry[su]_[A-Za-z0-9+/=_-]{40,}"),
    SecretShape("postman-key", ("PMAK-",), r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    SecretShape("atlassian-token", ("ATATT3",), rf"ATATT3{_WORD}{{30,}}(?:=[0-9A-F]{{8}})?"),
    SecretShape("bitbucket-password", ("ATBB",), r"ATBB[A-Za-z0-9]{24,}"),
    SecretShape("airtable-token", ("pat",), r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    SecretShape("supabase-key", ("sbp_", "sbs_", "sb_"), r"sb(?:p|s|_secret|_publishable)_[A-Za-z0-9_-]{30,}"),
    SecretShape("tailscale-key", ("tskey-",), r"tskey-[a-z]+-[A-Za-z0-9]+-[A-Za-z0-9]{16,}"),
    SecretShape("heroku-key", ("HRKU-",), rf"HRKU-{_WORD}{{30,}}"),
    SecretShape("flyio-token", ("fo1_",), r"fo1_[A-Za-z0-9_-]{30,}"),
    SecretShape("cloudflare-key", ("v1.0-",), r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}"),
    SecretShape("netlify-token", ("nfp_",), r"nfp_[A-Za-z0-9]{36,}"),
    SecretShape("pinecone-key", ("pcsk_",), r"pcsk_[A-Za-z0-9_]{40,}"),
    SecretShape("langsmith-key", ("lsv2_",), r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    SecretShape("onepassword-token", ("ops_eyJ",), rf"ops_eyJ{_WORD}{{100,}}"),
    SecretShape("facebook-token", ("EAA",), r"EAA[A-Za-z0-9]{80,}"),
    SecretShape("mapbox-token", ("sk.eyJ",), rf"sk\.eyJ{_WORD}{{20,}}\.{_WORD}{{20,}}"),
    SecretShape("resend-key", ("re_",), r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}"),
    SecretShape("neon-key", ("napi_",), r"napi_[A-Za-z0-9]{40,}"),
    SecretShape("vercel-token", ("vercel_blob_rw_",), r"vercel_blob_rw_[A-Za-z0-9]{8,}_[A-Za-z0-9]{20,}"),
    SecretShape("dropbox-token", ("sl.",), rf"sl\.{_WORD}{{100,}}"),
    SecretShape("google-token", ("1//0",), rf"1//0{_WORD}{{40,}}"),
    SecretShape("jwt", ("eyJ",), rf"eyJ{_WORD}{{8,16384}}+\.eyJ{_WORD}{{8,}}\.{_WORD}{{8,}}"),
)  # fmt: skip

# A match must not be part of a longer word. An escaped newline before it is not part of the word.
_NOT_IN_WORD_BEFORE, _NOT_IN_WORD_AFTER = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))", r"(?![A-Za-z0-9])"
KEY_HEADER = "-----BEGIN"
_HEADER_SHAPES = [shape for shape in SHAPES if KEY_HEADER in shape.marks]
_WORD_SHAPES = [shape for shape in SHAPES if KEY_HEADER not in shape.marks]
# Most words contain no mark, so one search rules them out.
_ANY_MARK = re.compile("|".join(sorted({re.escape(mark) for shape in _WORD_SHAPES for mark in shape.marks})))
# Only long words are examined, and text has few of them.
LONG_WORD = re.compile(r"[A-Za-z0-9_+/=.:-]{16,}")


class SecretSpan(NamedTuple):
    """The position of a secret in a text, and its kind."""

    start: int
    end: int
    kind: str


def find_shapes(text: str) -> Iterator[SecretSpan]:
    """Yield credentials that are recognisable by their form. They may overlap."""
    if KEY_HEADER in text:
        yield from _match_shapes(_HEADER_SHAPES, text, 0, len(text))
    for word in LONG_WORD.finditer(text):
        if _ANY_MARK.search(word[0]) is None:
            continue
        candidates = [shape for shape in _WORD_SHAPES if any(mark in word[0] for mark in shape.marks)]
        yield from _match_shapes(candidates, text, word.start(), word.end())


def _match_shapes(shapes: list[SecretShape], text: str, start: int, end: int) -> Iterator[SecretSpan]:
    for shape in shapes:
        for match in _compile_shape(shape).finditer(text, start, end):
            yield SecretSpan(*match.span(), shape.kind)


@cache
def _compile_shape(shape: SecretShape) -> re.Pattern[str]:
    """Compile a pattern when a mark of it first occurs. Compiling all of them takes longer than most texts do."""
    return re.compile(f"{_NOT_IN_WORD_BEFORE}{shape.pattern}{_NOT_IN_WORD_AFTER}")


MIN_RANDOM_LENGTH, MIN_PASSWORD_LENGTH = 8, 6
MIN_ENTROPY = 2.75

# The last word of a name decides: TOKEN_FILE names a file, and PASSWORD_LENGTH a length.
_SECRET_WORDS = (
    r"api[_-]?key|(?:secret|access|private|auth|signing|encryption|master|license|account|app|service[_-]?role)[_-]?key"
    r"|secret[_-]?key[_-]?base|secret|token|password|passwd|passphrase|passcode|credentials?|cookie|authorization"
)
_SHORT_SECRET_WORDS = r"auth|pwd|pat|pass"
_SUFFIX = r"(?:[_-]?(?:\d+|base64|b64|prod|production|dev|staging|old|new))?"
SECRET_NAME = re.compile(
    rf"(?:.*(?:{_SECRET_WORDS})|(?:.*[_.-])(?:{_SHORT_SECRET_WORDS}))(?:{_SUFFIX})", re.IGNORECASE
)
PASSWORD_LIKE_NAME = re.compile(
    r".*(?:password|passwd|passphrase|passcode|pwd|pass)(?:[_-]?\d+)?", re.IGNORECASE
)
PASSWORD_NAME = "password"
ENVIRONMENT_NAME = re.compile(r"[A-Z][A-Z0-9_]*")

# Starts at the end of a name, because few names end like this. The rest of the name is examined afterwards.
_ASSIGNMENT = re.compile(
    r"(?i:key|secret|token|pass(?:word|wd|phrase|code)?|credentials?|cookie|auth(?:orization)?|pwd|pat)"
    r"(?P<suffix>[A-Za-z0-9_-]{0,12})(?:\\*[\"'])?(?P<sign>\s{0,4}(?:=>|:=|[:=])\s{0,4})"
    r"(?:\\*(?P<quote>[\"'`])(?P<quoted>[^\"'`\n]{1,400}?)\\*(?P=quote)|(?P<bare>[^\s\"'`,;(){}\[\]<>|\\]+)(?P<after>[(\[]?))"
)
_NAME_BEFORE = re.compile(r"[A-Za-z0-9_.-]*\Z")
MAX_NAME_LENGTH = 80
_FLAG = re.compile(r"--(?P<name>[a-z][a-z-]{2,40})\s+[\"']?(?P<value>[^\s\"'`,;|]{6,})")
_BEARER = re.compile(r"\b(?:bearer|token|ssws)\s+(?P<value>[A-Za-z0-9._~+/=-]{12,})", re.IGNORECASE)
_BASIC = re.compile(r"\bbasic\s+(?P<value>[A-Za-z0-9+/]{8,}={0,2})", re.IGNORECASE)
_URL_PASSWORD = re.compile(
    r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@\"'<>]{0,100}:(?P<value>[^\s/@\"'<>]{3,200})@"
)
_NETRC = re.compile(r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<value>\S{4,})")
_COOKIE = re.compile(r"^(?:set-)?cookie:[ \t]*(?P<value>[^\s\"'][^\r\n]{7,})", re.IGNORECASE | re.MULTILINE)
_SIGNED_URL = re.compile(r"[?&]sig(?:nature)?=(?P<value>[A-Za-z0-9%._~+/=-]{16,})", re.IGNORECASE)
_PUTTY = re.compile(r"\bPrivate-Lines: \d+\s+(?P<value>[A-Za-z0-9+/=][A-Za-z0-9+/=\s]{31,}[A-Za-z0-9+/=])")
# Commands with a short flag for a password that means something else in most other commands.
_SHORT_FLAGS = re.compile(
    r"\bcurl\b[^\n|;&]{0,300}?\s-u\s+[\"']?[^\s:\"']{1,100}:(?P<user>[^\s\"'`]{4,200})"
    r"|\b(?:sshpass|login)\b[^\n|;&]{0,300}?\s-p\s+[\"']?(?P<apart>[^\s\"'`]{4,200})"
    r"|\bmysql(?:dump|admin)?\b[^\n|;&]{0,300}?\s-p(?P<joined>[^\s\"'`]{4,200})"
)
# A name and its value without a sign between them: images, deployments, settings in XML.
_PAIRS = (
    re.compile(
        r"^[^\S\n]*(?:ENV|ARG|set\s+-\w+)\s+(?P<name>[A-Z][A-Z0-9_]{2,80})\s+(?P<value>[^\s\"']{6,})",
        re.MULTILINE,
    ),
    re.compile(
        r"\b(?:name|key)[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?P<name>[A-Za-z][\w.-]{2,80})[\"']?\s{0,40},?\s{0,40}"
        r"[\"']?value[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?P<value>[^\s\"'<>,]{6,400})"
    ),
    re.compile(r"<(?P<name>[A-Za-z][\w.-]{2,80})>(?P<value>[^<>\s]{6,400})</(?P=name)>"),
)

_PLACEHOLDER = re.compile(
    r"[$%<{\[*#@(].*|.*[>}\])]"
    r"|(?:your|my|the|some|an?|fake|dummy|example|sample|placeholder|change|redacted|insert|enter)(?:[-_ ].*)?"
    r"|x+|[.*•-]+|true|false|null|none|nil|undefined|string|str|bytes|required|optional"
    r"|(?:user|db|new|old|api|access|test)?[-_]?(?:password|passwd|pass|secret|token|key)|.*\.{3}|changeme",
    re.IGNORECASE,
)
_ATTRIBUTE_ACCESS = re.compile(r"[A-Za-z_]\w*(?:(?:\.|->|::|\?\.)[A-Za-z_]\w*)+[!?]?")
_PLAIN_WORDS = re.compile(
    r"_*(?:[A-Z]?[a-z]+|[A-Z]+)(?:[A-Z][a-z]+)*(?:[._: -](?:[A-Z]?[a-z]+|[A-Z]+)(?:[A-Z][a-z]+)*)*[._-]?v?\d{0,3}"
)


def find_named(text: str) -> Iterator[SecretSpan]:
    """Yield values that a name, header, URL or flag declares to be secret."""
    for match in _ASSIGNMENT.finditer(text):
        group = "quoted" if match["quoted"] is not None else "bare"
        name = _find_name(text, match)
        if is_secret_name(name) and _is_assigned_secret(name, match, group):
            yield SecretSpan(*match.span(group), _to_kind(name))
    if "--" in text:
        for match in _FLAG.finditer(text):
            if is_secret_name(match["name"]) and _is_secret_value(match["name"], match["value"]):
                yield SecretSpan(*match.span("value"), _to_kind(match["name"]))
    if "value" in text or "</" in text or "ENV" in text or "ARG" in text or "set " in text:
        yield from _find_pairs(text)
    yield from _find_declared(text)


def _find_pairs(text: str) -> Iterator[SecretSpan]:
    for pattern in _PAIRS:
        for match in pattern.finditer(text):
            if is_secret_name(match["name"]) and _is_secret_value(match["name"], match["value"]):
                yield SecretSpan(*match.span("value"), _to_kind(match["name"]))


def _find_declared(text: str) -> Iterator[SecretSpan]:
    lower = text.lower()
    if "bearer" in lower or "token " in lower or "ssws " in lower:
        yield from _find_values(_BEARER, text, "bearer-token", looks_random)
    if "basic " in lower:
        yield from _find_values(_BASIC, text, "basic-auth", _is_basic_auth)
    if "://" in text:
        yield from _find_values(_URL_PASSWORD, text, "url-password", _is_not_placeholder)
    if "machine" in lower:
        yield from _find_values(_NETRC, text, "password", _is_not_placeholder)
    if "cookie:" in lower:
        yield from _find_values(_COOKIE, text, "cookie", _is_not_placeholder)
    if "sig" in lower:
        yield from _find_values(_SIGNED_URL, text, "signature", looks_random)
    if "private-lines" in lower:
        yield from _find_values(_PUTTY, text, "private-key", _is_not_placeholder)
    if " -p" in text or " -u" in text:
        yield from _find_short_flags(text)


def _find_short_flags(text: str) -> Iterator[SecretSpan]:
    for match in _SHORT_FLAGS.finditer(text):
        group = match.lastgroup or ""
        if _is_secret_value(PASSWORD_NAME, match[group]) and not match[group].isdigit():
            yield SecretSpan(*match.span(group), "password")


def _find_values(
    pattern: re.Pattern[str], text: str, kind: str, is_secret: Callable[[str], bool]
) -> Iterator[SecretSpan]:
    for match in pattern.finditer(text):
        if is_secret(match["value"]):
            yield SecretSpan(*match.span("value"), kind)


def _is_not_placeholder(value: str) -> bool:
    return not is_placeholder(value)


def _find_name(text: str, match: re.Match[str]) -> str:
    before = _NAME_BEFORE.search(text[max(0, match.start() - MAX_NAME_LENGTH) : match.start()])
    return (before[0] if before else "").lstrip(".-") + text[match.start() : match.end("suffix")]


def is_secret_name(name: str) -> bool:
    return SECRET_NAME.fullmatch(name) is not None


def is_secret_field(name: str, value: str) -> bool:
    """Return True if a field of an object holds a secret, judged by its name and value."""
    return is_secret_name(name) and _is_secret_value(name, value)


def _is_assigned_secret(name: str, match: re.Match[str], group: str) -> bool:
    value = match[group]
    if group == "bare" and (match["after"] or value.startswith(("/", "./", "~", "=", ":")) or "://" in value):
        return False
    # In an environment (`NAME=value`) even a plain word can be a password.
    if ENVIRONMENT_NAME.fullmatch(name) and match["sign"] in ("=", ":="):
        return (
            len(value) >= MIN_PASSWORD_LENGTH
            and not is_placeholder(value)
            and not _ATTRIBUTE_ACCESS.fullmatch(value)
        )
    if group == "bare" and (_ATTRIBUTE_ACCESS.fullmatch(value) or value.replace("_", "").isalpha()):
        return False  # an identifier in code
    return _is_secret_value(name, value)


def _is_secret_value(name: str, value: str) -> bool:
    if PASSWORD_LIKE_NAME.fullmatch(name):
        is_plain = value.isalpha() or any(map(str.isspace, value))
        return len(value) >= MIN_PASSWORD_LENGTH and not is_plain and not is_placeholder(value)
    return looks_random(value)


def is_placeholder(value: str) -> bool:
    """Return True for text in the place of a secret: a variable, an example, a type."""
    return _PLACEHOLDER.fullmatch(value) is not None


def looks_random(value: str) -> bool:
    """Return True if the value looks random: letters and digits mixed, with few repeats; not a word, number or path."""
    if (
        len(value) < MIN_RANDOM_LENGTH
        or value.startswith(("/", "./"))
        or is_placeholder(value)
        or " " in value
    ):
        return False
    is_mixed = any(map(str.isalpha, value)) and (any(map(str.isdigit, value)) or _mixes_case(value))
    return is_mixed and measure_entropy(value) >= MIN_ENTROPY and _PLAIN_WORDS.fullmatch(value) is None


def measure_entropy(value: str) -> float:
    """Return the entropy of the value in bits per character."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())


def _mixes_case(value: str) -> bool:
    min_count = 2
    upper = sum(map(str.isupper, value[1:]))
    return len(value) >= 2 * MIN_RANDOM_LENGTH and min_count <= upper <= len(value) - min_count


def _is_basic_auth(value: str) -> bool:
    try:
        decoded = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False
    return ":" in decoded and decoded.isprintable()


def _to_kind(name: str) -> str:
    if PASSWORD_LIKE_NAME.fullmatch(name):
        return "password"
    return "token" if "token" in name.lower() else "secret"
