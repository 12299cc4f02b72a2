"""Whether a JSON value fits a type of the schema, and how to say what would."""

from collections.abc import Iterable
from re import search
from typing import Any

from msgspec import inspect

LARGEST = 2**53 - 1


def is_of_kind(value: Any, kind: inspect.Type) -> bool:
    """Whether a value is of the right sort, never mind what is in it."""
    match kind:
        case inspect.Metadata():
            return is_of_kind(value, kind.type)
        case inspect.UnionType():
            return any(is_of_kind(value, member) for member in kind.types)
        case inspect.StructType() | inspect.DictType():
            return isinstance(value, dict)
        case inspect.VarTupleType():
            return isinstance(value, list)
        case inspect.LiteralType() | inspect.StrType():
            return isinstance(value, str)
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType() | inspect.FloatType() | inspect.DecimalType():
            # Beyond this a number is not the one that was written; 1e999 is not one at all.
            return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
        case _:
            return True


def fits(value: Any, kind: inspect.Type) -> bool:
    if not is_of_kind(value, kind):
        return False
    match kind:
        case inspect.Metadata():
            return fits(value, kind.type)
        case inspect.LiteralType():
            return value in kind.values
        case inspect.StrType():
            return kind.pattern is None or search(kind.pattern, value) is not None
        case inspect.IntType():
            return value == int(value) and (kind.gt is None or value > kind.gt)
        case inspect.FloatType():
            return kind.ge is None or value >= kind.ge
        case _:
            return True


def words(kind: inspect.Type) -> Iterable[str]:
    match kind:
        case inspect.LiteralType():
            yield from (str(value) for value in kind.values)
        case inspect.UnionType():
            for member in kind.types:
                yield from words(member)
        case _:
            return


def describe(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata():
            return str((kind.extra or {}).get("expected") or describe(kind.type))
        case inspect.UnionType():
            return either(describe(member) for member in kind.types)
        case inspect.LiteralType():
            return either(map(quote, kind.values))
        case inspect.IntType():
            return "a whole number" if kind.gt is None else f"a whole number above {kind.gt}"
        case inspect.FloatType():
            return "a number" if kind.ge is None else f"a number of at least {kind.ge}"
        case inspect.DecimalType():
            return "a number"
        case inspect.BoolType():
            return "true or false"
        case inspect.VarTupleType():
            return "a list"
        case inspect.StrType():
            return "a string"
        case _:
            return "an object"


def either(words: Iterable[str], joint: str = "or") -> str:
    *most, last = words
    return f"{', '.join(most)} {joint} {last}" if most else last


def quote(word: object) -> str:
    return f'"{word}"'


def name_kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "something else"
