"""The types of the public names say something: no signature contains `Any`. Every name is described."""

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypedDict, TypeVar, Unpack, get_args, get_type_hints, overload

import pytest

import weft
import weft.testing

T = TypeVar("T")
PUBLIC = {
    **{f"weft.{name}": getattr(weft, name) for name in weft.__all__},
    **{f"weft.testing.{name}": getattr(weft.testing, name) for name in weft.testing.__all__},
}
# What Python calls for a caller: a constructor, a call, `with`, `for`.
CALLED = {
    f"__{name}__"
    for name in ("init", "call", "enter", "exit", "aenter", "aexit", "iter", "next", "aiter", "anext")
}

# Fields with JSON that another program wrote.
FOREIGN_JSON = {"extra_", "metadata"}


def contains_any(hint: object) -> bool:
    """Return True if a type is `Any`, or has it as an argument or in the fields of a `TypedDict`."""
    if typing.is_typeddict(hint):
        return any(contains_any(each) for each in get_type_hints(hint).values())
    parts = [each for part in get_args(hint) for each in (part if isinstance(part, list) else [part])]
    return hint is Any or any(contains_any(each) for each in parts)


def list_members(kind: type) -> Iterator[tuple[str, object]]:
    """Yield the methods and properties of a class that are ours, with those that it inherits."""
    for each in kind.__mro__:
        if each.__module__.split(".")[0] in ("weft", __name__.split(".")[0]):
            yield from (
                (name, inspect.unwrap(getattr(it, "__func__", it))) for name, it in vars(each).items()
            )


def list_hints(name: str, value: object, within: tuple[object, ...] = ()) -> Iterator[tuple[str, object]]:
    """Yield the types that a public name mentions, each with its place.

    A protocol of ours that it leads to is part of it: `api.configuration.get`. `within` are those that led here.
    """
    if inspect.isfunction(value):
        for each in typing.get_overloads(value) or [value]:  # the implementation of overloads is not seen
            for parameter, hint in get_type_hints(each).items():
                yield from follow(f"{name}({parameter})", hint, within)
    elif isinstance(value, property):
        yield from list_hints(name, value.fget, within)
    elif isinstance(value, type):
        for field, hint in get_type_hints(value).items():
            if not field.startswith("_") and field not in FOREIGN_JSON:
                yield from follow(f"{name}.{field}", hint, within)
        for member, each in list_members(value):
            if (member in CALLED or not member.startswith("_")) and isinstance(each, property | Callable):
                yield from list_hints(f"{name}.{member}", each, within)
    else:
        yield name, value


def follow(place: str, hint: object, within: tuple[object, ...]) -> Iterator[tuple[str, object]]:
    yield place, hint
    if getattr(hint, "_is_protocol", False) and hint not in within:
        yield from list_hints(place, hint, (*within, hint))


def find_any(name: str, value: object) -> list[str]:
    return [place for place, hint in list_hints(name, value) if contains_any(hint)]


@pytest.mark.parametrize("name", PUBLIC)
def test_no_public_signature_contains_any(name: str) -> None:
    assert find_any(name, PUBLIC[name]) == []


class LooseArguments(TypedDict, total=False):
    extra: Any


class Loose(Protocol):
    def call(self, value: list[Any]) -> None: ...


class Offender:
    held: Loose
    field: dict[str, Any]

    def __init__(self, make: Callable[[Any], str]) -> None: ...

    @property
    def shown(self) -> Mapping[str, Any]: ...

    @overload
    def ask(self, schema: None = None) -> str: ...
    @overload
    def ask(self, schema: type[T]) -> Any: ...
    def ask(self, schema: Any = None) -> object: ...

    def open(self, **options: Unpack[LooseArguments]) -> str: ...

    def _hidden(self, value: Any) -> Any: ...


def test_the_check_finds_any_in_public_signatures() -> None:
    assert find_any("O", Offender) == [
        "O.held.call(value)",
        "O.field",
        "O.__init__(make)",
        "O.shown(return)",
        "O.ask(return)",
        "O.open(options)",
    ]
    assert find_any("Alias", list[Any] | None) == ["Alias"]


def find_undescribed(name: str, value: object) -> list[str]:
    """Return the name, and its methods and properties, that have no docstring. A protocol describes its methods itself."""
    if not isinstance(value, type):
        return [name] if inspect.isfunction(value) and not value.__doc__ else []
    described = vars(value).get("__doc__")
    members = [] if getattr(value, "_is_protocol", False) else list_members(value)
    return [
        *([] if described else [name]),
        *(
            f"{name}.{member}"
            for member, each in members
            if not member.startswith("_")
            and (inspect.isfunction(each) or isinstance(each, property))
            and not each.__doc__
        ),
    ]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert find_undescribed(name, PUBLIC[name]) == []


def test_the_check_finds_missing_docstrings() -> None:
    assert find_undescribed("O", Offender) == ["O", "O.shown", "O.ask", "O.open"]
