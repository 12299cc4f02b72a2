"""The address of a Postgres store: what its URL says, and how errors name it without the password (pure)."""

import re
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from weft.errors import InvalidInputError

SCHEMES = ("postgres", "postgresql")
URL_FORM = "postgres://USER@HOST/DATABASE"
DEFAULT_SCHEMA = "weft"
DEFAULT_PORT = 5432
# How long the sessions of a dead process wait for another one, unless the URL says otherwise. A process that is paused for longer
# than this loses its runs. Leases are renewed several times in this period (`lease.py`), nodes send a heartbeat every second
# (`cluster/node.py`). The default is also in docs/guides/stores-postgres.md and docs/guides/cluster.md.
LEASE_SECONDS = 15.0
# How long a statement is repeated while the server cannot be reached, unless the URL says otherwise.
RETRY_SECONDS = 10.0
POOL_SIZE = 10
MAX_POOL_SIZE = 1000
MAX_POOL_DIGITS = 4  # Python refuses to convert thousands
MAX_SECONDS = 86_400.0
_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_OWN_PARAMETERS = ("schema", "lease", "retry", "pool", "pgbouncer", "direct")
_DIRECT = re.compile(r"[^\s/@:]+(:\d{1,5})?|\[[0-9a-fA-F:]+\](:\d{1,5})?")


class PostgresAddress(NamedTuple):
    """Where a store is, and how to use it. `place` names it for people, and has neither user nor password.

    `dsn` is for the driver, `secrets` are the passwords in it, in every spelling. A lease runs out after `lease_seconds` without
    a heartbeat. A statement that a lost connection interrupted is repeated for `retry_seconds`. `pooled` says that prepared statements
    are lost, because a pooler such as pgbouncer shares connections between transactions; None means that the store finds out. `direct`
    is the DSN of the server behind the pooler, for the connection that listens.
    """

    dsn: str
    place: str
    secrets: tuple[str, ...] = ()
    schema: str = DEFAULT_SCHEMA
    lease_seconds: float = LEASE_SECONDS
    retry_seconds: float = RETRY_SECONDS
    pool_size: int = POOL_SIZE
    pooled: bool | None = None
    direct: str = ""

    def __repr__(self) -> str:
        return f"PostgresAddress({self.place!r})"


def parse_address(url: str) -> PostgresAddress:
    """Parse the URL of a store. Raise `InvalidInputError`, which never contains the URL, if it is not valid."""
    split = _split(url)
    if split is None:
        raise InvalidInputError(
            "store",
            "this is not the URL of a Postgres database",
            hint=f"use {URL_FORM}; in a user or password, write %40 for @, %2F for /, %3A for : and %25 for %",
        )
    parts, (host, port), pairs = split
    own = {name: value for name, value in pairs if name in _OWN_PARAMETERS}
    others = {name: value for name, value in pairs if name not in _OWN_PARAMETERS}
    schema = own.get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(schema):
        raise InvalidInputError(
            "store", f"schema: {schema[:80]!r} is not a name", hint="use small letters, digits and _"
        )
    database = (
        parts.path.lstrip("/") or others.get("dbname") or others.get("database") or parts.username or ""
    )
    place = f"{parts.scheme}://{host or others.get('host', '')}:{others.get('port', port)}/{database}"
    return PostgresAddress(
        dsn=parts._replace(query=urlencode(others, quote_via=quote)).geturl(),
        place=place if schema == DEFAULT_SCHEMA else f"{place}?schema={schema}",
        secrets=_list_secrets(parts.password, *(value for name, value in pairs if "password" in name)),
        schema=schema,
        lease_seconds=_parse_seconds(own, "lease", LEASE_SECONDS),
        retry_seconds=_parse_seconds(own, "retry", RETRY_SECONDS),
        pool_size=_parse_pool_size(own),
        pooled=_parse_pooled(own),
        direct=_parse_direct(own, parts, others),
    )


def _split(url: str) -> tuple[SplitResult, tuple[str, int], list[tuple[str, str]]] | None:
    """Return the parts of a URL, its host and port, and its parameters; None if it is not valid.

    The error that says why it is not valid may contain the password, so it ends here.
    """
    try:
        parts = urlsplit(url)
        place = parts.hostname or "", parts.port or DEFAULT_PORT
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        return None
    if parts.scheme not in SCHEMES or not url.startswith(f"{parts.scheme}://") or parts.fragment:
        return None
    if "@" in parts.path or len(dict(pairs)) != len(pairs):
        return None  # a password with a slash ends up in the path
    return parts, place, pairs


def _list_secrets(*found: str | None) -> tuple[str, ...]:
    return tuple(secret for each in found if each for secret in {each, unquote(each)})


def _parse_seconds(own: dict[str, str], name: str, default: float) -> float:
    try:
        seconds = float(own.get(name, default))
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= MAX_SECONDS:
        raise InvalidInputError("store", f"{name}: {own[name][:80]!r} is not a number of seconds")
    return seconds


def _parse_pool_size(own: dict[str, str]) -> int:
    given = own.get("pool", str(POOL_SIZE))
    is_number = given.isdecimal() and given.isascii() and len(given) <= MAX_POOL_DIGITS
    if not is_number or not 1 <= int(given) <= MAX_POOL_SIZE:
        raise InvalidInputError(
            "store", f"pool: {given[:80]!r} is not a number of connections from 1 to {MAX_POOL_SIZE}"
        )
    return int(given)


def _parse_pooled(own: dict[str, str]) -> bool | None:
    given = own.get("pgbouncer")
    if given not in (None, "0", "1"):
        raise InvalidInputError("store", "pgbouncer: it is 0 or 1")
    return None if given is None else given == "1"


def _parse_direct(own: dict[str, str], parts: SplitResult, others: dict[str, str]) -> str:
    given = own.get("direct")
    if given is None:
        return ""
    if not _DIRECT.fullmatch(given):
        raise InvalidInputError("store", f"direct: {given[:80]!r} is not HOST or HOST:PORT")
    user, at, _ = parts.netloc.rpartition("@")
    query = urlencode(others, quote_via=quote)
    return parts._replace(netloc=f"{user}{at}{given}", query=query).geturl()
