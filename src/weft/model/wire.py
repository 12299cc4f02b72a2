"""The base of every value: one naming rule, JSON in and out, and nothing lost that we do not know.

A document may have been written by a version that knows more than we do. What we do not know is carried in
`extra_` and written back where it was. The fast path never looks at it: decoding is strict, and only a document
that strict decoding refuses is taken apart by hand.
"""

import json
import math
import re
import types
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import msgspec
from msgspec import UNSET, Struct, UnsetType

from weft.errors import DocumentError

T = TypeVar("T")

EXTRA = "$extra"
_EXTRA_BYTES = b'"$extra"'
_ESCAPED_LETTER = re.compile(rb"\\u00[267]")  # `$`, or a letter of `extra`, written as an escape


def wire_name(name: str) -> str:
    """`session_id` is `sessionID` on the wire, `is_retryable` is `isRetryable`, `id` is `id`."""
    if name == "extra_":
        return EXTRA
    first, *rest = name.rstrip("_").split("_")
    return first + "".join("ID" if word == "id" else word.capitalize() for word in rest)


class Wire(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename=wire_name
):
    """A value that is stored and sent. Subclasses repeat `frozen` and `kw_only`; checkers want it so."""

    extra_: dict[str, Any] | UnsetType = UNSET


def always(value: T, *, name: str | None = None) -> Any:
    """A default for what old documents lack and new ones always carry: it is written even when it is the default."""
    # msgspec omits a field that equals its `default`, and never one that comes from a factory of ours.
    return msgspec.field(default_factory=value.copy if isinstance(value, dict) else lambda: value, name=name)


def _exact(text: str) -> float | Decimal:
    """A number with a point or an exponent: a float if that is what was written, else all its digits."""
    try:
        number, exact = float(text), Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text[:40]} is beyond all numbers") from error
    return number if Decimal(repr(number)) == exact else exact


_encoder = msgspec.json.Encoder(decimal_format="number")
_anything = msgspec.json.Decoder(float_hook=_exact)


@cache
def _decoder(kind: object) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _names_extra(raw: bytes) -> bool:
    # Looking for one byte is many times faster than looking for eight, and few documents hold a dollar sign.
    return b"$" in raw and _EXTRA_BYTES in raw


@overload
def decode(raw: bytes, kind: type[T], *, where: str = ...) -> T: ...
@overload
def decode(raw: bytes, kind: object, *, where: str = ...) -> Any: ...
def decode(raw: bytes, kind: Any, *, where: str = "document") -> Any:
    """JSON to a value of `kind` (a struct, or a union of tagged structs). Raises `DocumentError` naming `where`."""
    try:
        if not _names_extra(raw) and _ESCAPED_LETTER.search(raw) is None:
            return _decoder(kind).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidOperation):
        pass  # unknown fields, an unknown tag, a lone surrogate, or broken: the careful way tells which
    except RecursionError as error:
        raise DocumentError(where, "nested too deeply") from error
    return from_plain(parse(raw, where=where), kind, where=where)


def parse(raw: bytes, *, where: str = "document") -> Any:
    """JSON to plain Python. Accepts what JavaScript writes and strict parsers refuse: half a surrogate pair."""
    try:
        return _anything.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except RecursionError as error:
        raise DocumentError(where, "nested too deeply") from error
    try:
        return json.loads(raw, parse_float=_exact, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DocumentError(where, f"not JSON: {error}") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


@overload
def from_plain(value: Any, kind: type[T], *, where: str = ...) -> T: ...
@overload
def from_plain(value: Any, kind: object, *, where: str = ...) -> Any: ...
def from_plain(value: Any, kind: Any, *, where: str = "document") -> Any:
    """Plain Python (from JSON) to a value of `kind`, what we do not know kept in `extra_`."""
    try:
        sorted_out = _sort_out(value, kind)
        # Converting to one struct costs a thirtieth of converting to the union it is in.
        return msgspec.convert(sorted_out, _member(sorted_out, kind) or kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DocumentError(where, str(error)) from error


def encode(value: Any) -> bytes:
    """A value to compact JSON, everything it carried included."""
    try:
        raw = _encoder.encode(value)
        return _encoder.encode(to_plain(value)) if _names_extra(raw) else raw
    except (UnicodeEncodeError, RecursionError):
        return _spelled(value, indent=0)


def encode_pretty(value: Any) -> bytes:
    """A value to JSON as OpenCode lays it on disk: two spaces, no newline at the end."""
    try:
        return msgspec.json.format(encode(value), indent=2)
    except (msgspec.DecodeError, RecursionError):
        return _spelled(value, indent=2)


def _spelled(value: Any, *, indent: int) -> bytes:
    # Half a surrogate pair is legal in JSON as an escape and as nothing else, and msgspec refuses it.
    try:
        return _spell(to_plain(value), "\n" if indent else "", " " * indent).encode()
    except RecursionError as error:
        raise DocumentError(type(value).__name__, "nested too deeply") from error


def _spell(plain: Any, newline: str, step: str) -> str:
    """JSON by hand, every odd character escaped; `newline` holds the indentation so far, or is empty."""
    inner, colon = newline + step, ": " if newline else ":"
    if isinstance(plain, str):
        return json.dumps(plain)
    if isinstance(plain, dict) and plain:
        items = [json.dumps(key) + colon + _spell(item, inner, step) for key, item in plain.items()]
        return "{" + inner + f",{inner}".join(items) + newline + "}"
    if isinstance(plain, list) and plain:
        return "[" + inner + f",{inner}".join(_spell(item, inner, step) for item in plain) + newline + "]"
    return _encoder.encode(plain).decode()


def to_plain(value: Any) -> Any:
    """A value to plain Python as it stands on the wire. Decimals stay: the encoder writes them exactly."""
    if isinstance(value, Struct):
        return _struct_to_plain(value)
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def _struct_to_plain(value: Struct) -> dict[str, Any]:
    config = value.__struct_config__
    plain: dict[str, Any] = {config.tag_field: config.tag} if config.tag_field else {}
    for field in _told_fields(type(value)):
        item = getattr(value, field.name)
        if field.encode_name != EXTRA and item is not UNSET and not _omitted(config, field, item):
            plain[field.encode_name] = to_plain(item)
    extra = getattr(value, "extra_", UNSET)
    if extra is not UNSET:
        # What we know wins over what we carried, but for the tag of a catch-all: there the tag is what we carried.
        plain = {**extra, **plain}
        if config.tag_field and config.tag_field in extra:
            plain[config.tag_field] = extra[config.tag_field]
    return plain


@cache
def _told_fields(struct: type[Struct]) -> tuple[Any, ...]:
    return msgspec.structs.fields(struct)


def _omitted(config: Any, field: Any, item: Any) -> bool:
    return bool(config.omit_defaults) and field.default is not msgspec.NODEFAULT and item == field.default


# --- the careful way ---------------------------------------------------------------------------------------------


@cache
def _fields(struct: type[Struct]) -> dict[str, Any]:
    hints = get_type_hints(struct)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(struct)}


@cache
def _members(kind: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the one type it is."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _members(get_args(kind)[0])
    if origin is Union or origin is types.UnionType:
        return tuple(member for part in get_args(kind) for member in _members(part))
    return (kind,)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _member(value: Any, kind: Any) -> type[Struct] | None:
    """The struct of a union that a JSON object is meant for: by its tag, else the catch-all (its tag starts with `$`)."""
    if not isinstance(value, dict):
        return None
    structs = [member for member in _members(kind) if _is_struct(member)]
    for struct in structs:
        config = struct.__struct_config__
        if config.tag_field is None or value.get(config.tag_field) == config.tag:
            found: type[Struct] = struct
            return found
    return next((struct for struct in structs if _catches(value, struct.__struct_config__)), None)


def _catches(value: dict[str, Any], config: Any) -> bool:
    return str(config.tag).startswith("$") and config.tag_field in value


def _sort_out(value: Any, kind: Any) -> Any:
    """Move every field that `kind` does not know into `$extra`, all the way down."""
    if isinstance(value, dict):
        struct = _member(value, kind)
        if struct is not None:
            return _sort_out_struct(value, struct)
        return _sort_out_items(value, kind)
    if isinstance(value, list):
        item = _item_type(kind, (list, tuple))
        return [_sort_out(each, item) for each in value] if item is not None else value
    if isinstance(value, float) and math.isfinite(value) and value.is_integer() and int in _members(kind):
        return int(value)
    if isinstance(value, Decimal) and float in _members(kind):
        return float(value)
    return value


def _sort_out_items(value: dict[str, Any], kind: Any) -> Any:
    item = _item_type(kind, (dict,))
    return {key: _sort_out(each, item) for key, each in value.items()} if item is not None else value


def _sort_out_struct(value: dict[str, Any], struct: type[Struct]) -> dict[str, Any]:
    known, config = _fields(struct), struct.__struct_config__
    catch_all = str(config.tag).startswith("$")
    sorted_out: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, item in value.items():
        if key == config.tag_field:
            sorted_out[key] = config.tag
            if catch_all and item != config.tag:
                extra[key] = item
        elif key in known and key != EXTRA:
            sorted_out[key] = _sort_out(item, known[key])
        else:
            extra[key] = item
    if extra and EXTRA in known:
        sorted_out[EXTRA] = extra
    return sorted_out


def _item_type(kind: Any, origins: tuple[type, ...]) -> Any:
    for member in _members(kind):
        if get_origin(member) in origins:
            return next((arg for arg in reversed(get_args(member)) if arg is not Ellipsis), None)
    return None
