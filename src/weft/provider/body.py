"""The body of a request as bytes that stay the same (pure)."""

from collections.abc import Mapping
from typing import Any

import msgspec


def to_bytes(body: Any) -> bytes:
    """The body as JSON, its keys in the order given. Half a surrogate pair, which no API takes, is replaced."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(_paired(body))


def _paired(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_paired(name): _paired(item) for name, item in value.items()}
    return [_paired(item) for item in value] if isinstance(value, list | tuple) else value
