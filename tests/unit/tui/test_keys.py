"""Key bindings of the configuration, as Textual names keys."""

import pytest

from weft.config.schema import get_default_keybinds
from weft.tui.full.actions import render_keys
from weft.tui.keys import ACTIONS, EDITING, OWN_KEYS, KeyMap, to_key
from weft.tui.text import to_plain_text


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("ctrl+alt+b", "alt+ctrl+b"),
        ("return", "enter"),
        ("shift+return", "shift+enter"),
        ("shift+a", "A"),
        ("pgup", "pageup"),
        ("ctrl+-", "ctrl+underscore"),
        ("F2", "f2"),
        ("/", "slash"),
    ],
)
def test_keys_are_named_as_textual_names_them(written: str, key: str) -> None:
    assert to_key(written) == key


def test_an_action_is_listed_next_to_its_keys_or_below_them_if_they_are_many() -> None:
    lines = to_plain_text(render_keys(KeyMap(get_default_keybinds()), 100)).split("\n")
    assert f"  {'ctrl+q':<30} send when the run has ended" in lines
    many = lines.index("  shift+return, ctrl+return, alt+return, ctrl+j")
    assert lines[many + 1] == "    begin a new line"


def test_a_key_triggers_the_first_possible_action() -> None:
    keys = KeyMap(get_default_keybinds())
    assert keys.feed("ctrl+d", ["input_delete", "app_exit"]) == "input_delete"
    assert keys.feed("ctrl+d", ["app_exit", "input_delete"]) == "app_exit"
    assert keys.feed("ctrl+d", ["session_list"]) is None
    assert keys.feed("x", ACTIONS) is None


def test_the_leader_key_waits_for_another_key() -> None:
    keys = KeyMap({"session_list": "<leader>l,ctrl+l", "leader": "ctrl+b"})
    assert (keys.feed("ctrl+b", ACTIONS), keys.is_pending) == ("", True)
    assert (keys.feed("l", ACTIONS), keys.is_pending) == ("session_list", False)
    assert keys.feed("l", ACTIONS) is None
    assert keys.feed("ctrl+l", ACTIONS) == "session_list"
    assert (keys.feed("ctrl+b", ACTIONS), keys.feed("q", ACTIONS)) == ("", "")  # nothing is typed by mistake
    assert keys.describe("session_list") == "ctrl+b l, ctrl+l"


def test_none_unbinds_a_key() -> None:
    keys = KeyMap({"help": "none", "leader": "none"})
    assert keys.feed("f1", ACTIONS) is None
    assert keys.describe("help") == ""


def test_every_action_is_known_to_opencode_or_is_ours() -> None:
    known = {*get_default_keybinds(), *OWN_KEYS}
    assert {*ACTIONS, *EDITING} <= known
