"""Key bindings of the full screen, from `keybinds` of the configuration (pure).

The actions and their names are OpenCode's; `OWN_KEYS` has those that OpenCode does not know. A binding is a list of keys,
separated by commas; `<leader>` stands for the leader key, and `none` for no key. `KeyActions` carries out what they are bound to.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

# How keys are called in configuration files, and in Textual.
_NAMES: Final = {
    "return": "enter",
    "esc": "escape",
    "pgup": "pageup",
    "pgdown": "pagedown",
    "del": "delete",
    "ins": "insert",
    "-": "minus",
    ".": "full_stop",
    "/": "slash",
    "\\": "backslash",
    "?": "question_mark",
    "_": "underscore",
    "[": "left_square_bracket",
    "]": "right_square_bracket",
}
# What a terminal sends instead: it has no code for these.
_SENT: Final = {
    "ctrl+minus": "ctrl+underscore",
    "ctrl+slash": "ctrl+underscore",
    "ctrl+backspace": "ctrl+h",
    "alt+enter": "alt+enter",
}
LEADER: Final = "<leader>"

OWN_KEYS: Final[Mapping[str, str]] = {
    "help": "f1",
    "screen_switch": "<leader>f",
    "transcript_focus": "ctrl+o",
    "prompt_next": "alt+down",
    "prompt_previous": "alt+up",
    "diff_view": "<leader>d",
    "prompt_queue": "ctrl+q",
    "prompt_search": "ctrl+r",
    "reasoning_details": "<leader>i",
}
# What each action does, in the order of the help page. Actions that are not here do nothing in the full screen.
ACTIONS: Final[Mapping[str, str]] = {
    "input_submit": "send; during a run, join it",
    "prompt_queue": "send when the run has ended",
    "input_newline": "begin a new line",
    "prompt_search": "search in earlier prompts",
    "history_previous": "the prompt before",
    "history_next": "the prompt after",
    "editor_open": "edit the prompt in your editor",
    "session_interrupt": "interrupt the run; without one, go to the transcript and back",
    "screen_switch": "go to inline mode",
    "transcript_focus": "go to the transcript and back",
    "messages_page_up": "scroll up by a page",
    "messages_page_down": "scroll down by a page",
    "messages_half_page_up": "scroll up by half a page",
    "messages_half_page_down": "scroll down by half a page",
    "messages_line_up": "scroll up",
    "messages_line_down": "scroll down",
    "messages_first": "go to the first message",
    "messages_last": "go to the last message",
    "prompt_previous": "go to the prompt before",
    "prompt_next": "go to the prompt after",
    "messages_previous": "go to the prompt before",
    "messages_next": "go to the prompt after",
    "messages_last_user": "go to the last prompt",
    "messages_copy": "copy the last answer",
    "tool_details": "fold or unfold all calls",
    "reasoning_details": "fold or unfold all reasoning",
    "messages_undo": "preview the undo of the last prompt",
    "messages_redo": "redo",
    "diff_view": "show changed files side by side",
    "session_list": "choose another session",
    "session_new": "begin a session",
    "session_timeline": "timeline: prompts, times and costs",
    "session_child_cycle": "show the next child session beside this one",
    "session_child_cycle_reverse": "show the child session before",
    "session_parent": "close the pane of the child session",
    "session_fork": "continue with a copy",
    "session_compact": "summarise the conversation",
    "session_share": "share the session",
    "session_unshare": "stop sharing it",
    "session_export": "write the session into a file",
    "sidebar_toggle": "show or hide cost, context, files and todos",
    "status_view": "tools and MCP servers",
    "model_list": "choose a model",
    "model_cycle_recent": "the next model that was used",
    "agent_list": "choose an agent",
    "agent_cycle": "the next agent",
    "agent_cycle_reverse": "the agent before",
    "variant_cycle": "the next variant of the model",
    "theme_list": "choose a theme",
    "command_list": "all commands",
    "input_clear": "clear the prompt",
    "terminal_suspend": "suspend",
    "help": "this page",
    "app_exit": "leave",
}
# Editing actions, and the action of the text area that does each.
EDITING: Final[Mapping[str, str]] = {
    "input_move_left": "cursor_left",
    "input_move_right": "cursor_right",
    "input_select_left": "cursor_left(True)",
    "input_select_right": "cursor_right(True)",
    "input_select_up": "cursor_up(True)",
    "input_select_down": "cursor_down(True)",
    "input_line_home": "cursor_line_start",
    "input_line_end": "cursor_line_end",
    "input_select_line_home": "cursor_line_start(True)",
    "input_select_line_end": "cursor_line_end(True)",
    "input_visual_line_home": "cursor_line_start",
    "input_visual_line_end": "cursor_line_end",
    "input_delete_line": "delete_line",
    "input_delete_to_line_end": "delete_to_end_of_line",
    "input_delete_to_line_start": "delete_to_start_of_line",
    "input_backspace": "delete_left",
    "input_delete": "delete_right",
    "input_undo": "undo",
    "input_redo": "redo",
    "input_word_forward": "cursor_word_right",
    "input_word_backward": "cursor_word_left",
    "input_select_word_forward": "cursor_word_right(True)",
    "input_select_word_backward": "cursor_word_left(True)",
    "input_delete_word_forward": "delete_word_right",
    "input_delete_word_backward": "delete_word_left",
}


def to_key(name: str) -> str:
    """Return the name that Textual gives to a key: `ctrl+alt+b` is `alt+ctrl+b`, `shift+a` is `A`, `return` is `enter`."""
    *modifiers, key = name.strip().lower().replace("++", "+plus").split("+")
    key = _NAMES.get(key, key)
    held = sorted(set(modifiers))
    if len(key) == 1 and held == ["shift"]:
        return key.upper()
    whole = "+".join((*held, key))
    return _SENT.get(whole, whole)


class KeyMap:
    """Finds the action of a key. The keys of `keybinds` win over our own."""

    def __init__(self, keybinds: Mapping[str, str]) -> None:
        bindings = {**OWN_KEYS, **keybinds}
        self.leader = leader = bindings.get("leader", "ctrl+x")
        self._leader = to_key(leader) if leader != "none" else ""
        self._actions: dict[tuple[bool, str], list[str]] = {}
        self._keys: dict[str, list[str]] = {}
        for action, keys in bindings.items():
            for each in keys.split(","):
                if action != "leader" and each.strip() not in ("", "none"):
                    self._bind(action, each.strip(), leader)
        self.is_pending = False

    def _bind(self, action: str, written: str, leader: str) -> None:
        led = written.lower().startswith(LEADER)
        key = to_key(written[len(LEADER) :] if led else written)
        self._actions.setdefault((led, key), []).append(action)
        self._keys.setdefault(action, []).append(written.replace(LEADER, f"{leader} "))

    def feed(self, key: str, actions: Iterable[str]) -> str | None:
        """Return the first of the actions that a key is bound to: "" after the leader key, None if there is none."""
        if self.is_pending:
            self.is_pending = False
            # Many still hold Ctrl after the leader key, as Ctrl-X Ctrl-E of shells has it.
            return (
                self._find(True, key, actions) or self._find(True, key.removeprefix("ctrl+"), actions) or ""
            )
        if key == self._leader:
            self.is_pending = True
            return ""
        return self._find(False, key, actions)

    def _find(self, led: bool, key: str, actions: Iterable[str]) -> str | None:
        bound = self._actions.get((led, key), ())
        return next((action for action in actions if action in bound), None)

    def describe(self, action: str) -> str:
        """Return the keys of an action as a person would say them, or an empty text."""
        return ", ".join(self._keys.get(action, ()))


class KeyActions(Protocol):
    """What keys do: `run` carries out an action by name, `browse` handles a key of the transcript if it means something."""

    def run(self, action: str) -> None: ...

    def browse(self, key: str) -> bool: ...
