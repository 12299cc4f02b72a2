"""The base class of values, their JSON names, and encoding and decoding without losing unknown fields.

A newer version may have written a document with unknown fields. They are kept in `extra_` and written back. Decoding is
strict and fast; only a document that strict decoding refuses is decoded field by field.
"""

import math
import re
import types
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import msgspec
from msgspec import UNSET, Struct, UnsetType

from weft.errors import DocumentError

T = TypeVar("T")

EXTRA = "$extra"
_EXTRA_BYTES = b'"$extra"'
_ESCAPED_LETTER = re.compile(rb"\\u00[267]")  # `$` or a letter of `extra`, written as an escape


@cache  # the same names come in many classes
def wire_name(name: str) -> str:
    """Return the JSON name of a field: `session_id` is `sessionID`, `is_retryable` is `isRetryable`."""
    if name == "extra_":
        return EXTRA
    first, *rest = name.rstrip("_").split("_")
    return first + "".join("ID" if word == "id" else word.capitalize() for word in rest)


class Wire(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename=wire_name
):
    """A value that is stored and sent. Subclasses repeat `frozen` and `kw_only`, because type checkers require it."""

    extra_: dict[str, Any] | UnsetType = UNSET

    def __repr__(self) -> str:
        """Show the fields that are set."""
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        shown = (f"{name}={value!r}" for name, value in values if value is not UNSET and value is not None)
        return f"{type(self).__name__}({', '.join(shown)})"


def always(value: T, *, name: str | None = None) -> Any:
    """Return a field default that is also written. Old documents lack the field, new ones always have it."""
    # msgspec omits a field that equals its `default`, but not one with a default factory.
    return msgspec.field(default_factory=value.copy if isinstance(value, dict) else lambda: value, name=name)


def check_finite(number: Decimal | None) -> None:
    """Raise `ValueError` for a number that JSON does not have: msgspec reads the texts "NaN" and "Infinity" as decimals, and would
    write them into documents that nobody can read.
    """
    if isinstance(number, Decimal) and not number.is_finite():
        raise ValueError(f"{str(number)[:40]} is not a JSON number")


def _parse_number(text: str) -> float | Decimal:
    """Parse a number with a point or an exponent: as a float if that is exact, else as a Decimal."""
    try:
        number, exact = float(text), Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text[:40]} is not a valid number") from error
    return number if Decimal(repr(number)) == exact else exact


_encoder = msgspec.json.Encoder(decimal_format="number")
_sorting_encoder = msgspec.json.Encoder(decimal_format="number", order="sorted")
_plain_decoder = msgspec.json.Decoder(float_hook=_parse_number)


@cache
def _make_decoder(kind: object) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _mentions_extra(raw: bytes) -> bool:
    # Searching one byte is many times faster than searching eight, and few documents contain a dollar sign.
    return b"$" in raw and _EXTRA_BYTES in raw


@overload
def decode(raw: bytes, kind: type[T], *, where: str = ...) -> T: ...
@overload
def decode(raw: bytes, kind: object, *, where: str = ...) -> Any: ...
def decode(raw: bytes, kind: Any, *, where: str = "document") -> Any:
    """Decode JSON to a value of `kind`, a struct or a union of tagged structs. Raise `DocumentError` with `where`."""
    try:
        if not _mentions_extra(raw) and _ESCAPED_LETTER.search(raw) is None:
            return _make_decoder(kind).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidOperation):
        pass  # unknown fields, an unknown tag, a lone surrogate, or invalid: the slow path finds out
    except RecursionError as error:
        raise DocumentError(where, "nested too deeply") from error
    return from_plain(parse(raw, where=where), kind, where=where)


DOCUMENTS_PER_PASS = 256


def decode_many(documents: Sequence[bytes], kind: Any) -> list[Any]:
    """Decode JSON documents of one kind. In place of one that is not valid, return its `DocumentError`.

    Documents are decoded many at a time, which takes half as long as one by one.
    """
    found: list[Any] = []
    for start in range(0, len(documents), DOCUMENTS_PER_PASS):
        some = documents[start : start + DOCUMENTS_PER_PASS]
        found += _decode_at_once(some, kind) or [_decode_or_error(each, kind) for each in some]
    return found


def _decode_at_once(documents: Sequence[bytes], kind: Any) -> list[Any] | None:
    """Return None if one of the documents needs the slow path."""
    raw = b"[" + b",".join(documents) + b"]"
    if _mentions_extra(raw) or _ESCAPED_LETTER.search(raw) is not None:
        return None
    try:
        found: list[Any] = _make_decoder(list[kind]).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidOperation, RecursionError):
        return None
    return found if len(found) == len(documents) else None


def _decode_or_error(raw: bytes, kind: Any) -> Any:
    try:
        return decode(raw, kind)
    except DocumentError as error:
        return error


def parse(raw: bytes, *, where: str = "document") -> Any:
    """Decode JSON to plain Python values. Accept lone surrogates, which JavaScript writes. Raise `DocumentError` if it is not JSON."""
    try:
        return _plain_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except RecursionError as error:
        raise DocumentError(where, "nested too deeply") from error
    from json import loads  # noqa: PLC0415  msgspec reads almost every document

    try:
        return loads(raw, parse_float=_parse_number, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DocumentError(where, f"not JSON: {error}") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


@overload
def from_plain(value: Any, kind: type[T], *, where: str = ...) -> T: ...
@overload
def from_plain(value: Any, kind: object, *, where: str = ...) -> Any: ...
def from_plain(value: Any, kind: Any, *, where: str = "document") -> Any:
    """Convert plain values to a value of `kind`, with unknown fields in `extra_`. Raise `DocumentError` if they do not fit."""
    try:
        separated = _separate_unknown(value, kind)
        # Converting to one struct costs a thirtieth of converting to the union it is in.
        return msgspec.convert(separated, _choose_struct(separated, kind) or kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DocumentError(where, str(error)) from error
    except UnicodeEncodeError as error:
        # msgspec looks into a text where another type or one of a few words is expected.
        raise DocumentError(where, "half a surrogate pair where no text is expected") from error


def encode(value: Any) -> bytes:
    """Encode a value as compact JSON, with its unknown fields."""
    try:
        raw = _encoder.encode(value)
        # The test for a dollar sign alone saves most values a call.
        return _encoder.encode(to_plain(value)) if b"$" in raw and _mentions_extra(raw) else raw
    except (UnicodeEncodeError, RecursionError):
        return _encode_by_hand(value, indent=0)


def encode_many(values: Iterable[Any]) -> list[bytes]:
    """Encode each value as `encode` does. For many small ones that takes a third less than calling it for each."""
    values = list(values)
    try:
        found = list(map(_encoder.encode, values))
    except (UnicodeEncodeError, RecursionError):
        return [encode(value) for value in values]
    return [
        encode(value) if b"$" in raw and _mentions_extra(raw) else raw
        for raw, value in zip(found, values, strict=True)
    ]


def encode_sorted(value: Any) -> bytes:
    """Encode a value as compact JSON, with its unknown fields and the keys of each object in alphabetical order."""
    try:
        raw = _sorting_encoder.encode(value)
        if not _mentions_extra(raw):
            return raw
    except (UnicodeEncodeError, RecursionError):
        pass  # the slow path writes it, or says what is wrong
    return encode(_sort_keys(parse(encode(value))))


def _sort_keys(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _sort_keys(plain[key]) for key in sorted(plain)}
    if isinstance(plain, list):
        return [_sort_keys(item) for item in plain]
    return plain


def encode_pretty(value: Any, *, compact: bytes | None = None) -> bytes:
    """Encode a value as OpenCode writes it to disk: indented by two spaces, no newline at the end.

    `compact` is what `encode` returns for it, if the caller has that already.
    """
    try:
        return msgspec.json.format(encode(value) if compact is None else compact, indent=2)
    except (msgspec.DecodeError, RecursionError):
        return _encode_by_hand(value, indent=2)


def _encode_by_hand(value: Any, *, indent: int) -> bytes:
    # JSON allows a lone surrogate only as an escape, and msgspec refuses it.
    try:
        return _write_json(to_plain(value), "\n" if indent else "", " " * indent).encode()
    except RecursionError as error:
        raise DocumentError(type(value).__name__, "nested too deeply") from error


def _write_json(plain: Any, newline: str, step: str) -> str:
    """Write JSON with escaped characters. `newline` includes the current indentation, or is empty for compact JSON."""
    from json import dumps  # noqa: PLC0415  msgspec writes almost every document

    inner, colon = newline + step, ": " if newline else ":"
    if isinstance(plain, str):
        return dumps(plain)
    if isinstance(plain, dict) and plain:
        items = [dumps(key) + colon + _write_json(item, inner, step) for key, item in plain.items()]
        return "{" + inner + f",{inner}".join(items) + newline + "}"
    if isinstance(plain, list) and plain:
        return (
            "[" + inner + f",{inner}".join(_write_json(item, inner, step) for item in plain) + newline + "]"
        )
    return _encoder.encode(plain).decode()


def to_plain(value: Any) -> Any:
    """Convert a value to plain Python values with JSON names. Decimals stay, because the encoder writes them exactly."""
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
    for field in _list_fields(type(value)):
        item = getattr(value, field.name)
        if field.encode_name != EXTRA and item is not UNSET and not _is_omitted(config, field, item):
            plain[field.encode_name] = to_plain(item)
    extra = getattr(value, "extra_", UNSET)
    if extra is not UNSET:
        # Known fields win over unknown ones, except for the tag of a catch-all struct, which is kept in `extra_`.
        plain = {**extra, **plain}
        if config.tag_field and config.tag_field in extra:
            plain[config.tag_field] = extra[config.tag_field]
    return plain


@cache
def _list_fields(struct: type[Struct]) -> tuple[Any, ...]:
    return msgspec.structs.fields(struct)


def _is_omitted(config: Any, field: Any, item: Any) -> bool:
    return bool(config.omit_defaults) and field.default is not msgspec.NODEFAULT and item == field.default


# --- the slow path: separate unknown fields ---


@cache
def _get_field_types(struct: type[Struct]) -> dict[str, Any]:
    hints = get_type_hints(struct)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(struct)}


@cache
def _list_members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _list_members(get_args(kind)[0])
    if origin is Union or origin is types.UnionType:
        return tuple(member for part in get_args(kind) for member in _list_members(part))
    return (kind,)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _choose_struct(value: Any, kind: Any) -> type[Struct] | None:
    """Return the struct of a union for a JSON object: by its tag, else the catch-all, whose tag starts with `$`."""
    if not isinstance(value, dict):
        return None
    structs = [member for member in _list_members(kind) if _is_struct(member)]
    for struct in structs:
        config = struct.__struct_config__
        if config.tag_field is None or value.get(config.tag_field) == config.tag:
            found: type[Struct] = struct
            return found
    return next((struct for struct in structs if _is_catch_all(value, struct.__struct_config__)), None)


def _is_catch_all(value: dict[str, Any], config: Any) -> bool:
    return str(config.tag).startswith("$") and config.tag_field in value


def _separate_unknown(value: Any, kind: Any) -> Any:
    """Move every unknown field into `$extra`, recursively."""
    if isinstance(value, dict):
        struct = _choose_struct(value, kind)
        if struct is not None:
            return _separate_unknown_in_struct(value, struct)
        return _separate_unknown_in_items(value, kind)
    if isinstance(value, list):
        item = _find_item_type(kind, (list, tuple))
        return [_separate_unknown(each, item) for each in value] if item is not None else value
    if (
        isinstance(value, float)
        and math.isfinite(value)
        and value.is_integer()
        and int in _list_members(kind)
    ):
        return int(value)
    if isinstance(value, Decimal) and float in _list_members(kind):
        return float(value)
    return value


def _separate_unknown_in_items(value: dict[str, Any], kind: Any) -> Any:
    item = _find_item_type(kind, (dict,))
    return {key: _separate_unknown(each, item) for key, each in value.items()} if item is not None else value


def _separate_unknown_in_struct(value: dict[str, Any], struct: type[Struct]) -> dict[str, Any]:
    field_types, config = _get_field_types(struct), struct.__struct_config__
    catch_all = str(config.tag).startswith("$")
    known_fields: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, item in value.items():
        if key == config.tag_field:
            known_fields[key] = config.tag
            if catch_all and item != config.tag:
                extra[key] = item
        elif key in field_types and key != EXTRA:
            known_fields[key] = _separate_unknown(item, field_types[key])
        else:
            extra[key] = item
    if extra and EXTRA in field_types:
        known_fields[EXTRA] = extra
    return known_fields


def _find_item_type(kind: Any, origins: tuple[type, ...]) -> Any:
    for member in _list_members(kind):
        if get_origin(member) in origins:
            return next((arg for arg in reversed(get_args(member)) if arg is not Ellipsis), None)
    return None
