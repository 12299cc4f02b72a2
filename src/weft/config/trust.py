"""What an untrusted project may configure, and what is held back until the user trusts the project."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from weft.config.commands import list_insertions, parse_template
from weft.config.layer import ConfigLayer
from weft.config.schema import Config
from weft.config.sources import ConfigDirectory, ConfigScope, ConfigSource
from weft.config.substitution import PLACEHOLDER
from weft.model.project import is_within
from weft.model.trust import HeldItem, HeldKind

CONFIG_FOLDER = ".opencode"


def find_root(scope: ConfigScope, path: str) -> str:
    """Return the directory that must contain a configuration file of a project: the checkout or, without one, the directory that it configures."""
    if os.path.normpath(scope.worktree) != os.sep:
        return scope.worktree
    level, folder, _ = path.partition(f"{os.sep}{CONFIG_FOLDER}{os.sep}")
    return (level or os.sep) if folder else os.path.dirname(path)


def is_inside(path: str, root: str) -> bool:
    """Return True if a path, with all links resolved, is below a directory."""
    return is_within(os.path.realpath(path), os.path.realpath(root))


def is_ordinary_file(path: str, root: str) -> bool:
    """Return True if a file is not in a hidden directory such as `.git` and is not itself hidden, such as `.env`."""
    inner = os.path.relpath(os.path.realpath(path), os.path.realpath(root))
    return not any(part.startswith(".") and part != CONFIG_FOLDER for part in inner.split(os.sep))


LEADS_OUT = "leads out of the project"


TOOL_FOLDERS = ("tool", "tools")
# OpenCode loads the last two. The first is ours.
TOOL_ENDINGS = (".py", ".ts", ".js")


def list_tools(directory: str) -> list[str]:
    """Return the files of custom tools in a configuration directory, sorted by name."""
    paths: list[str] = []
    for folder in TOOL_FOLDERS:
        top = os.path.join(directory, folder)
        try:
            names = sorted(os.listdir(top))
        except OSError:
            continue
        paths += [os.path.join(top, name) for name in names if name.endswith(TOOL_ENDINGS)]
    return paths


def list_held_tools(sources: Iterable[ConfigSource]) -> Iterator[HeldItem]:
    """Yield the custom tools of an untrusted project, none of which is loaded."""
    for source in sources:
        if isinstance(source, ConfigDirectory) and not source.origin.own:
            for path in list_tools(source.origin.path):
                name = os.path.splitext(os.path.basename(path))[0]
                yield HeldItem(kind="tool", name=name, path=path, does="runs its code")


# These settings choose models, agents and appearance. Rules (`permission`, `tools`, those of an agent) are allowed
# because they count only where they are stricter than the user's. `instructions` are read only inside the project.
_ALLOWED_KEYS = """
$schema theme tui layout logLevel username autoupdate watcher compaction instructions
model small_model default_agent agent mode permission tools enabled_providers disabled_providers
"""
ALLOWED_KEYS = frozenset(_ALLOWED_KEYS.split())
# Allowed keys of `experimental` and of `experimental.weft`. Budgets and sandboxes count only where they are stricter. Deadlines
# are held back: a longer one lets a run go on for longer than the user wants.
ALLOWED_EXPERIMENTS = frozenset({"hook", "chatMaxRetries", "disable_paste_summary", "batch_tool"})
ALLOWED_WEFT_KEYS = frozenset({"budget", "compaction", "sandbox"})
# The value that is allowed, and what any other value does.
RESTRICTED_SWITCHES: dict[str, tuple[Any, str]] = {
    "share": ("disabled", "shares sessions"),
    "autoshare": (False, "shares sessions"),
    "snapshot": (True, "switches undo off"),
}


def hold_back_layers(
    layers: Iterable[ConfigLayer], scope: ConfigScope
) -> tuple[list[ConfigLayer], list[HeldItem]]:
    """Return the layers with the settings that may pass, and what is held back."""
    kept: list[ConfigLayer] = []
    held: list[HeldItem] = []
    for layer in layers:
        path = layer.origin.path
        if layer.origin.own:
            kept.append(layer)
        elif not is_inside(path, find_root(scope, path)):
            held.append(HeldItem(kind="link", name=path, path=path, does=LEADS_OUT))
        else:
            layer_filter = _LayerFilter(path)
            kept.append(replace(layer, data=layer_filter.filter(layer.data)))
            held += layer_filter.held
    return kept, held


def narrow_providers(config: Config, trusted_config: Config) -> Config:
    """Limit the providers: a project may disable the user's providers, but not enable a disabled one."""
    disabled = dict.fromkeys((*(trusted_config.disabled_providers or ()), *(config.disabled_providers or ())))
    lists = [
        names for names in (trusted_config.enabled_providers, config.enabled_providers) if names is not None
    ]
    enabled = [name for name in lists[-1] if all(name in names for names in lists)] if lists else None
    return replace(
        config,
        disabled_providers=tuple(disabled) or None,
        enabled_providers=None if enabled is None else tuple(enabled),
    )


class _LayerFilter:
    """Filters the settings of one file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.held: list[HeldItem] = []

    def filter(self, data: Mapping[str, Any]) -> dict[str, Any]:
        passed = {
            key: allowed
            for key, value in data.items()
            if (allowed := self._filter_key(key, value)) is not None
        }
        # In Markdown, braces are plain text.
        return passed if self._path.endswith(".md") else self._drop_placeholders(passed, ())

    def _filter_key(self, key: str, value: Any) -> Any:
        if key in ALLOWED_KEYS:
            return value
        if key in RESTRICTED_SWITCHES:
            return self._filter_switch(key, value)
        match key:
            case "mcp" | "formatter" | "lsp" | "provider" | "command":
                return self._filter_section(key, value)
            case "plugin":
                for entry in value:
                    self._hold("plugin", entry.removeprefix("file://"), "runs its code")
                return None
            case "experimental":
                return self._filter_experiments(value)
            case _:
                self._hold("setting", key, "changes how weft works")
                return None

    def _filter_switch(self, key: str, value: Any) -> Any:
        harmless, does = RESTRICTED_SWITCHES[key]
        if value == harmless:
            return value
        self._hold("setting", key, does)
        return None

    def _filter_section(self, kind: HeldKind, value: Any) -> Any:
        """Filter entries by name. An entry that only disables something may pass."""
        if not isinstance(value, dict):
            if value is False:
                return value
            self._hold("setting", kind, "runs programs on files")
            return None
        passed = {name: entry for name, entry in value.items() if _only_disables(entry)}
        for name, entry in value.items():
            if name not in passed:
                self._hold(kind, name, DESCRIBE_EFFECT[kind](entry))
        return passed or None

    def _filter_experiments(self, value: Mapping[str, Any]) -> dict[str, Any]:
        passed = {key: item for key, item in value.items() if key in ALLOWED_EXPERIMENTS}
        for key in value.keys() - passed.keys() - {"weft"}:
            self._hold("setting", f"experimental.{key}", "changes how weft works")
        weft_settings = value.get("weft", {})
        for name, commands in weft_settings.get("hooks", {}).items():
            for command in commands:
                self._hold("hook", name, _describe_program(command))
        for key in weft_settings.keys() - ALLOWED_WEFT_KEYS - {"hooks"}:
            does = "declares itself trusted" if key == "trusted" else "changes how weft works"
            self._hold("setting", f"experimental.weft.{key}", does)
        if "weft" in value:
            passed["weft"] = {key: item for key, item in weft_settings.items() if key in ALLOWED_WEFT_KEYS}
        return passed

    def _drop_placeholders(self, value: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, item in value.items():
            item_path = (*path, key)
            if isinstance(item, dict):
                kept[key] = self._drop_placeholders(item, item_path)
            elif (placeholder := _find_placeholder(item)) is None:
                kept[key] = item
            else:
                self._hold("substitution", ".".join(item_path), f"reads {placeholder}")
        return kept

    def _hold(self, kind: HeldKind, name: str, does: str) -> None:
        self.held.append(HeldItem(kind=kind, name=name, path=self._path, does=does))


def _only_disables(entry: Any) -> bool:
    return entry in ({"enabled": False}, {"disabled": True})


def _find_placeholder(value: Any) -> str | None:
    texts = value if isinstance(value, list) else [value]
    matches = (PLACEHOLDER.search(text) for text in texts if isinstance(text, str))
    return next((match[0] for match in matches if match is not None), None)


def _describe_mcp(entry: Mapping[str, Any]) -> str:
    return f"connects to {entry['url']}" if "url" in entry else _describe_program(entry)


def _describe_program(entry: Mapping[str, Any]) -> str:
    return f"runs {' '.join(entry['command'])}" if entry.get("command") else "changes which programs run"


def _describe_provider(entry: Mapping[str, Any]) -> str:
    address = next(_list_addresses(entry), "")
    return f"sends your prompts and keys to {address}" if address else "changes how a model is reached"


def _list_addresses(entry: Mapping[str, Any]) -> Iterator[str]:
    for key in ("baseURL", "api", "enterpriseUrl"):
        for holder in (entry.get("options") or {}, entry):
            if isinstance(holder.get(key), str):
                yield holder[key]


def _describe_command(entry: Mapping[str, Any]) -> str:
    commands = list_insertions(parse_template(str(entry.get("template", ""))))
    return f"runs {'; '.join(commands)}" if commands else "replaces your prompt with its own text"


DESCRIBE_EFFECT: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "mcp": _describe_mcp,
    "formatter": _describe_program,
    "lsp": _describe_program,
    "provider": _describe_provider,
    "command": _describe_command,
}
