"""Tools made from functions: what the model reads about them, and which functions are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from weft.errors import InvalidInputError
from weft.plugin.loader import collect
from weft.plugin.tools import MARK, CustomTool, ToolCallContext, name_in_file, tool


@tool
async def deploy(
    service: Annotated[str, "which one"],
    ctx: ToolCallContext,
    *,
    where: Literal["test", "live"] = "test",
    retries: Annotated[int, Meta(ge=0)] = 0,
    also: list[str] = [],  # noqa: B006  every call has its own
) -> str:
    """Deploy a service.

    Only after the tests have passed.
    """
    return f"{service} {where} {retries} {also} {ctx}"


def get_tool(function: Callable[..., Any]) -> CustomTool:
    found: CustomTool = getattr(function, MARK)
    return found


def test_the_schema_comes_from_the_docstring_and_the_type_hints() -> None:
    custom = get_tool(deploy)

    assert (custom.name, custom.context, custom.is_async) == ("deploy", "ctx", True)
    assert custom.about == "Deploy a service.\n\nOnly after the tests have passed."
    schema = msgspec.json.schema(custom.takes)["$defs"]["DeployInput"]
    assert schema["required"] == ["service"]
    assert schema["properties"]["service"] == {"type": "string", "description": "which one"}
    assert schema["properties"]["where"]["enum"] == ["live", "test"]
    assert schema["properties"]["retries"]["minimum"] == 0


def test_invalid_arguments_are_refused_by_name() -> None:
    takes = get_tool(deploy).takes
    for wrong, said in (
        ({}, "service"),
        ({"service": "a", "retries": -1}, "retries"),
        ({"service": "a", "x": 1}, "x"),
    ):
        with pytest.raises(msgspec.ValidationError, match=said):
            msgspec.convert(wrong, takes)


def test_a_decorated_function_keeps_its_name_and_is_found_as_a_tool() -> None:
    assert deploy.__name__ == "deploy"
    assert [each.name for each in collect({"deploy": deploy}).tools] == ["deploy"]


def no_hint(words) -> str:  # type: ignore[no-untyped-def]
    """Say it."""
    return str(words)


def no_words(words: str) -> str:
    return words


def any_number(*words: str) -> str:
    """Say it."""
    return " ".join(words)


def by_any_name(**words: str) -> str:
    """Say it."""
    return str(words)


def by_place(words: str, /) -> str:
    """Say it."""
    return words


def of_nothing_known(words: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
    """Say it."""
    return str(words)


def of_no_json(words: Callable[[], None]) -> str:
    """Say it."""
    return str(words)


def of_a_path(words: str, where: Path) -> str:
    """Say it there."""
    return f"{words} {where}"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (no_hint, "has no type for 'words'"),
        (no_words, "has no docstring"),
        (any_number, r"takes \*words"),
        (by_any_name, r"takes \*\*words"),
        (by_place, "a model cannot send"),
        (of_nothing_known, "has an invalid hint"),
        (of_no_json, r"takes words: .*Callable.*, which cannot be read from JSON"),
        (of_a_path, r"takes where: pathlib.*Path, which cannot be read from JSON"),
    ],
)
def test_a_function_with_untyped_parameters_is_refused_by_name(
    function: Callable[..., Any], said: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"tool {function.__name__}: .*{said}"):
        tool(function)


def test_the_context_parameter_may_be_a_union() -> None:
    @tool
    def quiet(words: str, ctx: ToolCallContext | None = None) -> str:
        """Say it."""
        return f"{words} {ctx}"

    assert get_tool(quiet).context == "ctx"
    assert get_tool(quiet).takes.__struct_fields__ == ("words",)


def test_a_class_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="not on a function"):
        tool(int)


@pytest.mark.parametrize(
    ("function", "name"),
    [("default", "math"), ("execute", "math"), ("math", "math"), ("add", "math_add")],
)
def test_a_tool_in_a_tool_file_is_named_after_the_file(function: str, name: str) -> None:
    assert name_in_file(function, "math") == name
