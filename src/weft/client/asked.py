"""A request as a value: what is asked, and whether it may be asked twice."""

from typing import Any, Literal
from urllib.parse import quote

from msgspec import Struct

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Asked(Struct, frozen=True, kw_only=True):
    """`twice` says that asking it again does no harm: whoever answers does it once. What may take `long` is waited for as
    long as the server is there. The same `key` is the same request."""

    method: Method
    path: str
    query: dict[str, str] = {}
    body: Any = None
    twice: bool = False
    long: bool = False
    key: str | None = None


def get(path: str, /, **query: Any) -> Asked:
    return Asked(method="GET", path=path, query=to_query(query), twice=True)


def post(path: str, body: Any = None, **more: Any) -> Asked:
    return Asked(method="POST", path=path, body=body, **more)


def put(path: str, body: Any) -> Asked:
    return Asked(method="PUT", path=path, body=body, twice=True)


def patch(path: str, body: Any) -> Asked:
    return Asked(method="PATCH", path=path, body=body)


def delete(path: str, /, body: Any = None, **query: Any) -> Asked:
    return Asked(method="DELETE", path=path, body=body, query=to_query(query))


def to_query(given: dict[str, Any]) -> dict[str, str]:
    """What is said at all, in the words of an address."""
    return {name: _word(value) for name, value in given.items() if value is not None}


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def quoted(given: str) -> str:
    """A name for a path, whatever is in it."""
    return quote(given, safe="")
