"""Themes of OpenCode's files."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.tui.theme import TERMINAL, WEFT, WEFT_LIGHT, to_ansi_name, to_palette

FILE: dict[str, Any] = {
    "defs": {"deep": "#102030", "loop": "loop"},
    "theme": {
        "background": "deep",
        "text": {"dark": "#ffffff", "light": "deep"},
        "primary": 4,
        "backgroundPanel": "none",
        "error": "loop",
        "success": "no colour",
        "textMuted": "text",
    },
}


def test_references_modes_numbers_and_missing_values_are_resolved() -> None:
    dark, light = to_palette(FILE), to_palette(FILE, dark=False)
    assert (dark.background, dark.text, dark.muted) == ("#102030", "#ffffff", "#ffffff")
    assert (light.text, light.dark) == ("#102030", False)
    assert (dark.accent, dark.panel) == ("ansi_blue", "ansi_default")
    assert (dark.red, dark.green, light.green) == (WEFT.red, WEFT.green, WEFT_LIGHT.green)


@pytest.mark.parametrize(("number", "name"), [(1, "ansi_red"), (9, "ansi_bright_red"), (16, "#000000"), (231, "#ffffff"), (232, "#080808")])  # fmt: skip
def test_terminal_colours_have_numbers(number: int, name: str) -> None:
    assert to_ansi_name(number) == name


@pytest.mark.parametrize("file", [None, [], {}, {"theme": 3}])
def test_a_file_that_is_not_a_theme_is_refused(file: object) -> None:
    with pytest.raises(ConfigError, match="not a theme file"):
        to_palette(file)


def test_named_styles_have_colours() -> None:
    assert (WEFT.find_colour("dim"), WEFT.find_colour("ansired"), WEFT.find_colour("bold")) == (
        WEFT.muted,
        WEFT.red,
        None,
    )
    assert TERMINAL.find_colour("ansiaccent") == "ansi_blue"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dark", "light", "text", "x"]), inner, max_size=3), max_leaves=8))  # fmt: skip
def test_any_value_in_a_theme_file_is_handled(value: Any) -> None:
    palette = to_palette({"defs": value, "theme": {"text": value, "background": value, "x": value}})
    assert palette.text.startswith(("#", "ansi_"))
