"""Key bindings of the configuration, as Textual names keys."""

import pytest

from weft.config.schema import get_default_keybinds
from weft.tui.keys import ACTIONS, EDITING, OWN_KEYS, KeyMap, to_key


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


def test_a_key_is_the_first_action_that_is_possible() -> None:
    keys = KeyMap(get_default_keybinds())
    assert keys.feed("ctrl+d", ["input_delete", "app_exit"]) == "input_delete"
    assert keys.feed("ctrl+d", ["app_exit", "input_delete"]) == "app_exit"
    assert keys.feed("ctrl+d", ["session_list"]) is None
    assert keys.feed("x", ACTIONS) is None


def test_the_leader_key_waits_for_one_more() -> None:
    keys = KeyMap({"session_list": "<leader>l,ctrl+l", "leader": "ctrl+b"})
    assert (keys.feed("ctrl+b", ACTIONS), keys.is_pending) == ("", True)
    assert (keys.feed("l", ACTIONS), keys.is_pending) == ("session_list", False)
    assert keys.feed("l", ACTIONS) is None
    assert keys.feed("ctrl+l", ACTIONS) == "session_list"
    assert (keys.feed("ctrl+b", ACTIONS), keys.feed("q", ACTIONS)) == ("", "")  # nothing is typed by mistake
    assert keys.describe("session_list") == "ctrl+b l, ctrl+l"


def test_none_binds_no_key() -> None:
    keys = KeyMap({"help": "none", "leader": "none"})
    assert keys.feed("f1", ACTIONS) is None
    assert keys.describe("help") == ""


def test_every_action_is_known_to_opencode_or_ours() -> None:
    known = {*get_default_keybinds(), *OWN_KEYS}
    assert {*ACTIONS, *EDITING} <= known
