"""Secrets by the company they keep: a value beside a name that says what it is."""

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator

from weft.session.transfer.secret_shapes import Span

SHORTEST, SHORT = 8, 6
ENTROPY = 2.75

# The word that says so comes last in a name: TOKEN_FILE names a file, and PASSWORD_LENGTH a length.
_SECRET = (
    r"api[_-]?key|(?:secret|access|private|auth|signing|encryption|master|license|account|app|service[_-]?role)[_-]?key"
    r"|secret[_-]?key[_-]?base|secret|token|password|passwd|passphrase|passcode|credentials?|cookie|authorization"
)
_SHORT_WORDS = r"auth|pwd|pat|pass"
_SUFFIX = r"(?:[_-]?(?:\d+|base64|b64|prod|production|dev|staging|old|new))?"
NAME = re.compile(rf"(?:.*(?:{_SECRET})|(?:.*[_.-])(?:{_SHORT_WORDS}))(?:{_SUFFIX})", re.IGNORECASE)
PASSWORD = re.compile(r".*(?:password|passwd|passphrase|passcode|pwd|pass)(?:[_-]?\d+)?", re.IGNORECASE)
PASSWORD_NAME = "password"
ENVIRONMENT = re.compile(r"[A-Z][A-Z0-9_]*")

# Begins where a name ends, for few names end like this: what stands before is looked at afterwards.
_ASSIGNED = re.compile(
    r"(?i:key|secret|token|pass(?:word|wd|phrase|code)?|credentials?|cookie|auth(?:orization)?|pwd|pat)"
    r"(?P<suffix>[A-Za-z0-9_-]{0,12})(?:\\*[\"'])?(?P<sign>\s{0,4}(?:=>|:=|[:=])\s{0,4})"
    r"(?:\\*(?P<quote>[\"'`])(?P<quoted>[^\"'`\n]{1,400}?)\\*(?P=quote)|(?P<bare>[^\s\"'`,;(){}\[\]<>|\\]+)(?P<after>[(\[]?))"
)
_NAME_BEFORE = re.compile(r"[A-Za-z0-9_.-]*\Z")
NAME_LENGTH = 80
_FLAG = re.compile(r"--(?P<name>[a-z][a-z-]{2,40})\s+[\"']?(?P<value>[^\s\"'`,;|]{6,})")
_BEARER = re.compile(r"\b(?:bearer|token|ssws)\s+(?P<value>[A-Za-z0-9._~+/=-]{12,})", re.IGNORECASE)
_BASIC = re.compile(r"\bbasic\s+(?P<value>[A-Za-z0-9+/]{8,}={0,2})", re.IGNORECASE)
_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@\"'<>]{0,100}:(?P<value>[^\s/@\"'<>]{3,200})@")
_NETRC = re.compile(r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<value>\S{4,})")
_COOKIE = re.compile(r"^(?:set-)?cookie:[ \t]*(?P<value>[^\s\"'][^\r\n]{7,})", re.IGNORECASE | re.MULTILINE)
_SIGNED = re.compile(r"[?&]sig(?:nature)?=(?P<value>[A-Za-z0-9%._~+/=-]{16,})", re.IGNORECASE)
_PUTTY = re.compile(r"\bPrivate-Lines: \d+\s+(?P<value>[A-Za-z0-9+/=\s]{32,}[A-Za-z0-9+/=])")
# Commands that take a password as the short flag that means something else to most.
_SHORT_FLAGS = re.compile(
    r"\bcurl\b[^\n|;&]{0,300}?\s-u\s+[\"']?[^\s:\"']{1,100}:(?P<user>[^\s\"'`]{4,200})"
    r"|\b(?:sshpass|login)\b[^\n|;&]{0,300}?\s-p\s+[\"']?(?P<apart>[^\s\"'`]{4,200})"
    r"|\bmysql(?:dump|admin)?\b[^\n|;&]{0,300}?\s-p(?P<joined>[^\s\"'`]{4,200})"
)
# A name and its value where no sign stands between them: images, deployments, settings in XML.
_PAIRS = (
    re.compile(
        r"^\s*(?:ENV|ARG|set\s+-\w+)\s+(?P<name>[A-Z][A-Z0-9_]{2,80})\s+(?P<value>[^\s\"']{6,})", re.MULTILINE
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
_ATTRIBUTES = re.compile(r"[A-Za-z_]\w*(?:(?:\.|->|::|\?\.)[A-Za-z_]\w*)+[!?]?")
_SPOKEN = re.compile(
    r"_*(?:[A-Z]?[a-z]+|[A-Z]+)(?:[A-Z][a-z]+)*(?:[._: -](?:[A-Z]?[a-z]+|[A-Z]+)(?:[A-Z][a-z]+)*)*[._-]?v?\d{0,3}"
)


def find_named(text: str) -> Iterator[Span]:
    """Values that a name, a header, a URL or a flag declares to be secret."""
    for found in _ASSIGNED.finditer(text):
        which = "quoted" if found["quoted"] is not None else "bare"
        name = _whole_name(text, found)
        if is_secret_name(name) and _is_assigned_secret(name, found, which):
            yield Span(*found.span(which), _kind(name))
    if "--" in text:
        for found in _FLAG.finditer(text):
            if is_secret_name(found["name"]) and _is_worth_hiding(found["name"], found["value"]):
                yield Span(*found.span("value"), _kind(found["name"]))
    if "value" in text or "</" in text or "ENV" in text or "ARG" in text or "set " in text:
        yield from _find_pairs(text)
    yield from _find_declared(text)


def _find_pairs(text: str) -> Iterator[Span]:
    for pattern in _PAIRS:
        for found in pattern.finditer(text):
            if is_secret_name(found["name"]) and _is_worth_hiding(found["name"], found["value"]):
                yield Span(*found.span("value"), _kind(found["name"]))


def _find_declared(text: str) -> Iterator[Span]:
    lower = text.lower()
    if "bearer" in lower or "token " in lower or "ssws " in lower:
        yield from _values(_BEARER, text, "bearer-token", looks_random)
    if "basic " in lower:
        yield from _values(_BASIC, text, "basic-auth", _is_basic)
    if "://" in text:
        yield from _values(_URL, text, "url-password", _is_real)
    if "machine" in lower:
        yield from _values(_NETRC, text, "password", _is_real)
    if "cookie:" in lower:
        yield from _values(_COOKIE, text, "cookie", _is_real)
    if "sig" in lower:
        yield from _values(_SIGNED, text, "signature", looks_random)
    if "private-lines" in lower:
        yield from _values(_PUTTY, text, "private-key", _is_real)
    if " -p" in text or " -u" in text:
        yield from _find_short_flags(text)


def _find_short_flags(text: str) -> Iterator[Span]:
    for found in _SHORT_FLAGS.finditer(text):
        which = found.lastgroup or ""
        if _is_worth_hiding(PASSWORD_NAME, found[which]) and not found[which].isdigit():
            yield Span(*found.span(which), "password")


def _values(pattern: re.Pattern[str], text: str, kind: str, judge: Callable[[str], bool]) -> Iterator[Span]:
    for found in pattern.finditer(text):
        if judge(found["value"]):
            yield Span(*found.span("value"), kind)


def _is_real(value: str) -> bool:
    return not is_placeholder(value)


def _whole_name(text: str, found: re.Match[str]) -> str:
    before = _NAME_BEFORE.search(text[max(0, found.start() - NAME_LENGTH) : found.start()])
    return (before[0] if before else "").lstrip(".-") + text[found.start() : found.end("suffix")]


def is_secret_name(name: str) -> bool:
    return NAME.fullmatch(name) is not None


def is_secret_field(name: str, value: str) -> bool:
    """The same for a field of an object: its name, and its whole value."""
    return is_secret_name(name) and _is_worth_hiding(name, value)


def _is_assigned_secret(name: str, found: re.Match[str], which: str) -> bool:
    value = found[which]
    if which == "bare" and (found["after"] or value.startswith(("/", "./", "~", "=", ":")) or "://" in value):
        return False
    # `NAME=value` is how an environment is written: there even a plain word is a password.
    if ENVIRONMENT.fullmatch(name) and found["sign"] in ("=", ":="):
        return len(value) >= SHORT and not is_placeholder(value) and not _ATTRIBUTES.fullmatch(value)
    if which == "bare" and (_ATTRIBUTES.fullmatch(value) or value.replace("_", "").isalpha()):
        return False  # a name in code
    return _is_worth_hiding(name, value)


def _is_worth_hiding(name: str, value: str) -> bool:
    if PASSWORD.fullmatch(name):
        plain = value.isalpha() or any(map(str.isspace, value))
        return len(value) >= SHORT and not plain and not is_placeholder(value)
    return looks_random(value)


def is_placeholder(value: str) -> bool:
    """What stands where a secret would stand: a variable, an example, a type."""
    return _PLACEHOLDER.fullmatch(value) is not None


def looks_random(value: str) -> bool:
    """Whether somebody drew it by lot: letters and digits mixed, few of them twice. No word, no number, no path."""
    if len(value) < SHORTEST or value.startswith(("/", "./")) or is_placeholder(value) or " " in value:
        return False
    mixed = any(map(str.isalpha, value)) and (any(map(str.isdigit, value)) or _changes_case(value))
    return mixed and entropy(value) >= ENTROPY and _SPOKEN.fullmatch(value) is None


def entropy(value: str) -> float:
    """Bits a character, as far as the value itself tells."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())


def _changes_case(value: str) -> bool:
    few = 2
    upper = sum(map(str.isupper, value[1:]))
    return len(value) >= 2 * SHORTEST and few <= upper <= len(value) - few


def _is_basic(value: str) -> bool:
    try:
        said = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False
    return ":" in said and said.isprintable()


def _kind(name: str) -> str:
    if PASSWORD.fullmatch(name):
        return "password"
    return "token" if "token" in name.lower() else "secret"
