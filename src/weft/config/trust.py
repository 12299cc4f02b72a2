"""What an untrusted project may configure, and what is held back until a person trusts it."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from weft.config.commands import list_insertions, parse
from weft.config.layer import Layer
from weft.config.schema import Config
from weft.config.sources import Directory, Situation, Source
from weft.config.substitute import PLACEHOLDER

FOLDER = ".opencode"


def find_root(situation: Situation, path: str) -> str:
    """Where a file of the project must lie: in the checkout, or without one in the directory it configures."""
    if os.path.normpath(situation.worktree) != os.sep:
        return situation.worktree
    level, folder, _ = path.partition(f"{os.sep}{FOLDER}{os.sep}")
    return (level or os.sep) if folder else os.path.dirname(path)


def is_inside(path: str, root: str) -> bool:
    """Whether a path really leads to something below a directory, whatever links there are on the way."""
    real, home = os.path.realpath(path), os.path.realpath(root)
    return real == home or real.startswith(home.rstrip(os.sep) + os.sep)


def is_plain(path: str, root: str) -> bool:
    """Whether a file lies openly in a project: not in `.git`, not in an `.env` that a person keeps there."""
    inner = os.path.relpath(os.path.realpath(path), os.path.realpath(root))
    return not any(part.startswith(".") and part != FOLDER for part in inner.split(os.sep))


Kind = Literal[
    "provider",
    "mcp",
    "plugin",
    "hook",
    "tool",
    "command",
    "formatter",
    "lsp",
    "skill",
    "instructions",
    "setting",
    "substitution",
    "link",
]


class Held(Struct, frozen=True, kw_only=True):
    """`path` is the file it stands in, `does` what it would do. Neither says a secret: nothing of it was looked up."""

    kind: Kind
    name: str
    path: str
    does: str


def leads_out() -> str:
    return "leads out of the project"


FOLDERS = ("tool", "tools")
# OpenCode runs the last two. The first is ours.
ENDINGS = (".py", ".ts", ".js")


def list_tools(directory: str) -> list[str]:
    """The files of custom tools in a configuration directory, in the order of their names."""
    found: list[str] = []
    for folder in FOLDERS:
        top = os.path.join(directory, folder)
        try:
            names = sorted(os.listdir(top))
        except OSError:
            continue
        found += [os.path.join(top, name) for name in names if name.endswith(ENDINGS)]
    return found


def hold_tools(sources: Iterable[Source]) -> Iterator[Held]:
    """The custom tools of a project, none of which is run."""
    for source in sources:
        if isinstance(source, Directory) and not source.origin.own:
            for path in list_tools(source.origin.path):
                name = os.path.splitext(os.path.basename(path))[0]
                yield Held(kind="tool", name=name, path=path, does="runs its code")


# Which model and agent, what they are told, how things look. Rules (`permission`, `tools`, those of an agent) pass
# too: they are held against the person's own, and the stricter one counts. `instructions` are read within bounds.
_PASSES = """
$schema theme tui layout logLevel username autoupdate watcher compaction instructions
model small_model default_agent agent mode permission tools enabled_providers disabled_providers
"""
PASSES = frozenset(_PASSES.split())
# Below `experimental`, and below `experimental.weft`.
EXPERIMENTS = frozenset({"hook", "chatMaxRetries", "disable_paste_summary", "batch_tool", "mcp_timeout"})
OWN = frozenset({"budget", "compaction", "deadlines", "sandbox"})
# What may be switched off, and not on.
SWITCHES: dict[str, tuple[Any, str]] = {
    "share": ("disabled", "shares sessions"),
    "autoshare": (False, "shares sessions"),
    "snapshot": (True, "switches undo off"),
}


def hold_back(layers: Iterable[Layer], situation: Situation) -> tuple[list[Layer], list[Held]]:
    """The layers as far as they may speak, and what is held back of them."""
    kept: list[Layer] = []
    held: list[Held] = []
    for layer in layers:
        path = layer.origin.path
        if layer.origin.own:
            kept.append(layer)
        elif not is_inside(path, find_root(situation, path)):
            held.append(Held(kind="link", name=path, path=path, does=leads_out()))
        else:
            sieve = _Sieve(path)
            kept.append(replace(layer, data=sieve.sift(layer.data)))
            held += sieve.held
    return kept, held


def narrowed(config: Config, vouched: Config) -> Config:
    """A project may do without providers that the person has, and not bring back one that they do without."""
    off = dict.fromkeys((*(vouched.disabled_providers or ()), *(config.disabled_providers or ())))
    said = [each for each in (vouched.enabled_providers, config.enabled_providers) if each is not None]
    on = [name for name in said[-1] if all(name in each for each in said)] if said else None
    return replace(
        config,
        disabled_providers=tuple(off) or None,
        enabled_providers=None if on is None else tuple(on),
    )


class _Sieve:
    """One file's settings on their way through."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.held: list[Held] = []

    def sift(self, data: Mapping[str, Any]) -> dict[str, Any]:
        passed = {key: kept for key, value in data.items() if (kept := self._root(key, value)) is not None}
        # In markdown the braces are nothing but words.
        return passed if self._path.endswith(".md") else self._without_placeholders(passed, ())

    def _root(self, key: str, value: Any) -> Any:
        if key in PASSES:
            return value
        if key in SWITCHES:
            return self._switch(key, value)
        match key:
            case "mcp" | "formatter" | "lsp" | "provider" | "command":
                return self._section(key, value)
            case "plugin":
                for entry in value:
                    self._hold("plugin", entry.removeprefix("file://"), "runs its code")
                return None
            case "experimental":
                return self._experiments(value)
            case _:
                self._hold("setting", key, "changes how weft works")
                return None

    def _switch(self, key: str, value: Any) -> Any:
        harmless, does = SWITCHES[key]
        if value == harmless:
            return value
        self._hold("setting", key, does)
        return None

    def _section(self, kind: Kind, value: Any) -> Any:
        """Entries by name. One that only switches off what the person has may pass."""
        if not isinstance(value, dict):
            if value is False:
                return value
            self._hold("setting", kind, "runs programs on files")
            return None
        passed = {name: entry for name, entry in value.items() if _only_switches_off(entry)}
        for name, entry in value.items():
            if name not in passed:
                self._hold(kind, name, DOES[kind](entry))
        return passed or None

    def _experiments(self, value: Mapping[str, Any]) -> dict[str, Any]:
        passed = {key: item for key, item in value.items() if key in EXPERIMENTS}
        for key in value.keys() - passed.keys() - {"weft"}:
            self._hold("setting", f"experimental.{key}", "changes how weft works")
        own = value.get("weft", {})
        for name, commands in own.get("hooks", {}).items():
            for each in commands:
                self._hold("hook", name, _program(each))
        for key in own.keys() - OWN - {"hooks"}:
            does = "trusts itself" if key == "trusted" else "changes how weft works"
            self._hold("setting", f"experimental.weft.{key}", does)
        if "weft" in value:
            passed["weft"] = {key: item for key, item in own.items() if key in OWN}
        return passed

    def _without_placeholders(self, value: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, item in value.items():
            here = (*path, key)
            if isinstance(item, dict):
                kept[key] = self._without_placeholders(item, here)
            elif (found := _find_placeholder(item)) is None:
                kept[key] = item
            else:
                self._hold("substitution", ".".join(here), f"reads {found}")
        return kept

    def _hold(self, kind: Kind, name: str, does: str) -> None:
        self.held.append(Held(kind=kind, name=name, path=self._path, does=does))


def _only_switches_off(entry: Any) -> bool:
    return entry in ({"enabled": False}, {"disabled": True})


def _find_placeholder(value: Any) -> str | None:
    texts = value if isinstance(value, list) else [value]
    found = (PLACEHOLDER.search(text) for text in texts if isinstance(text, str))
    return next((each[0] for each in found if each is not None), None)


def _mcp(entry: Mapping[str, Any]) -> str:
    return f"connects to {entry['url']}" if "url" in entry else _program(entry)


def _program(entry: Mapping[str, Any]) -> str:
    return f"runs {' '.join(entry['command'])}" if entry.get("command") else "changes which programs run"


def _provider(entry: Mapping[str, Any]) -> str:
    address = next(_addresses(entry), "")
    return f"sends your words and keys to {address}" if address else "changes how a model is reached"


def _addresses(entry: Mapping[str, Any]) -> Iterator[str]:
    for key in ("baseURL", "api", "enterpriseUrl"):
        for holder in (entry.get("options") or {}, entry):
            if isinstance(holder.get(key), str):
                yield holder[key]


def _command(entry: Mapping[str, Any]) -> str:
    commands = list_insertions(parse(str(entry.get("template", ""))))
    return f"runs {'; '.join(commands)}" if commands else "puts its own words in place of yours"


DOES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "mcp": _mcp,
    "formatter": _program,
    "lsp": _program,
    "provider": _provider,
    "command": _command,
}
