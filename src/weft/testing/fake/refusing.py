"""How the rules of an API are written down: what is asked of a body, and the sentence it is refused with."""

import base64
import binascii
import re
from typing import Any, Final

Json = dict[str, Any]
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")


class RefusedError(Exception):
    """The API would refuse this, and say so."""


def need(truth: object, sentence: str) -> None:
    if not truth:
        raise RefusedError(sentence)


def need_keys(value: Any, known: frozenset[str] | set[str], where: str) -> Json:
    """An object with no field the API does not know."""
    need(isinstance(value, dict), f"{where}: Input should be an object")
    for name in value:
        need(name in known, f"{where}.{name}: Extra inputs are not permitted")
    found: Json = value
    return found


def need_list(value: Any, where: str) -> list[Any]:
    need(isinstance(value, list) and value, f"{where}: at least one item is required")
    found: list[Any] = value
    return found


def need_text(value: Any, where: str) -> str:
    need(isinstance(value, str) and value.strip(), f"{where}: text must contain non-whitespace text")
    return str(value)


def need_base64(value: Any, where: str) -> None:
    need(isinstance(value, str) and value, f"{where}: data cannot be empty")
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise RefusedError(f"{where}: invalid base64 data") from None
