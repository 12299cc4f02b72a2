"""Build the sandbox for tool processes from configuration, and report what it can enforce."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from weft.config.load import Loaded, load_config
from weft.config.schema import Config, Experimental, Own, Sandboxing, Walled
from weft.config.sources import Situation
from weft.errors import ConfigError, WeftError
from weft.host.paths import Paths
from weft.host.processes import tool_environment
from weft.maintenance.environment import Case
from weft.maintenance.findings import Finding, Item
from weft.project.look import follow, look
from weft.sandbox.backends import find_sandbox
from weft.sandbox.policy import OPEN, Sandbox, Wall
from weft.trust.decision import is_trusted

KEY = "experimental.weft.sandbox"
STRICTNESS: tuple[Walled, ...] = ("off", "auto", "required")
CONFIGURATION = ("opencode.json", "opencode.jsonc", ".opencode")

# What programs need of a home to run at all: themselves, what they have installed, how git is set up. No keys.
_TOOLS = """
.gitconfig .config/git/config .config/git/ignore .config/git/attributes
.local/bin .local/lib .local/share/uv .local/share/pnpm .local/share/mise .local/share/fnm .local/share/pipx
.asdf .bun/bin .bun/install .deno .fnm .nvm .pyenv .rbenv .rustup .sdkman .volta .ghcup .opam .dotnet .conda miniconda3
.cargo/bin .cargo/env .cargo/git .cargo/registry go/bin go/pkg .m2/repository .gradle/caches .gradle/wrapper
.nuget/packages .pub-cache .npm/_cacache .npm/_npx .nix-profile .local/state/nix
.cache/go-build .cache/node .cache/pip .cache/pre-commit .cache/uv .cache/yarn .cache/ms-playwright
"""
TOOLS = tuple(_TOOLS.split())
# Where a program says that it is installed.
INSTALLED = (
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYENV_ROOT",
    "NVM_DIR",
    "NVM_BIN",
    "VOLTA_HOME",
    "JAVA_HOME",
    "GOROOT",
)


class Asked(Struct, frozen=True, kw_only=True):
    """What configuration asks for."""

    mode: Walled = "off"
    network: Literal["allow", "deny"] = "allow"
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()


class Standing(Struct, frozen=True, kw_only=True):
    """The wall that stands, and why there is none where one is asked for."""

    asked: Asked
    sandbox: Sandbox = OPEN
    why: str = ""

    @property
    def warning(self) -> ConfigError | None:
        """In one line: what was asked for and cannot be had."""
        if self.asked.mode == "off" or not self.why:
            return None
        goes_on = "no command is run" if self.sandbox.refusal else "commands run without one"
        return ConfigError(KEY, f"there is no sandbox here, {goes_on}: {self.why}")


def read_asked(loaded: Loaded) -> Asked:
    """The stricter of what the person says and what the project says; what may be reached is the person's to say."""
    own, all_ = _own(loaded.vouched), _own(loaded.config)
    modes = [each.mode or "off" for each in (own, all_)]
    return Asked(
        mode=max(modes, key=STRICTNESS.index),
        network="deny" if "deny" in (own.network, all_.network) else "allow",
        readable=own.readable or (),
        writable=own.writable or (),
    )


def _own(config: Config) -> Sandboxing:
    said = ((config.experimental or Experimental()).weft or Own()).sandbox
    return Sandboxing(mode=said) if isinstance(said, str) else said or Sandboxing()


def stand(asked: Asked, at: Situation) -> Standing:
    """Put up the wall that is asked for, as far as this machine lets us. Blocks: it is tried out."""
    if asked.mode == "off":
        return Standing(asked=asked)
    wall = to_wall(asked, at)
    inside = [path for path in wall.hidden if any(_is_in(path, each) for each in wall.writable)]
    if inside:
        return _without(asked, f"{inside[0]} is to be hidden, and lies where commands may write")
    found = find_sandbox(wall, tool_environment(at.env))
    if found.sandbox is None:
        return _without(asked, found.why)
    if asked.mode == "required" and found.sandbox.lacks:
        return _without(asked, "; ".join(found.sandbox.lacks))
    return Standing(asked=asked, sandbox=found.sandbox)


def _without(asked: Asked, why: str) -> Standing:
    if asked.mode != "required":
        return Standing(asked=asked, why=why)
    refusal = f"No command can be run: the settings require a sandbox ({KEY}), and there is none here: {why}."
    return Standing(asked=asked, sandbox=Sandbox(refusal=refusal), why=why)


def to_wall(asked: Asked, at: Situation) -> Wall:
    home = at.paths.os_home
    roots = _roots(at)
    hidden = _outermost(_real(path) for path in _hidden(at))
    writable = _outermost(
        _real(path) for path in (*roots, *_temporary(at.env), *_named(asked.writable, home))
    )
    wanted = (
        *(os.path.join(home, name) for name in TOOLS),
        *_installed(at.env),
        at.paths.tool_output,
        *_named(asked.readable, home),
    )
    readable = dict.fromkeys(
        path
        for path in map(_real, wanted)
        if any(_is_in(path, each) for each in hidden)
        and not any(_is_in(each, path) for each in hidden)
        and not _holds_ours(path, at.paths)
    )
    return Wall(
        hidden=hidden,
        readable=tuple(readable),
        writable=writable,
        kept=tuple(dict.fromkeys(_kept(at))),
        network=asked.network == "allow",
    )


def _hidden(at: Situation) -> Iterator[str]:
    paths = at.paths
    yield from (paths.os_home, paths.home, paths.data, paths.config, paths.state, paths.cache)
    if runtime := at.env.get("XDG_RUNTIME_DIR"):
        yield runtime


def _holds_ours(path: str, paths: Paths) -> bool:
    """Whether our own keys, sessions or grants lie there."""
    return any(_is_in(_real(own), path) for own in (paths.data, paths.config, paths.state, paths.cache))


def _roots(at: Situation) -> list[str]:
    """The checkout and its repository; without one the directory."""
    if at.worktree == os.sep:
        return [at.directory]
    return [at.worktree, at.directory, *follow(at.worktree)]


def _kept(at: Situation) -> Iterator[str]:
    """What would be run or obeyed outside of the wall: hooks and settings of git, and our own settings."""
    top = _real(at.directory if at.worktree == os.sep else at.worktree)
    directory = _real(at.directory)
    while True:
        yield from (os.path.join(directory, name) for name in CONFIGURATION)
        if not _is_in(directory, top) or directory == top:
            break
        directory = os.path.dirname(directory)
    if at.worktree == os.sep or not os.path.lexists(os.path.join(top, ".git")):
        return
    own, shared = (_real(path) for path in follow(top))
    if not os.path.isdir(os.path.join(top, ".git")):
        yield os.path.join(top, ".git")
    yield from (os.path.join(shared, name) for name in ("hooks", "config"))
    yield os.path.join(own, "config.worktree")


def _temporary(env: Mapping[str, str]) -> tuple[str, ...]:
    named = env.get("TMPDIR", "")
    return (named,) if os.path.isabs(named) else (tempfile.gettempdir(), "/var/tmp")


def _installed(env: Mapping[str, str]) -> Iterator[str]:
    yield from (env[name] for name in INSTALLED if os.path.isabs(env.get(name, "")))
    for path in env.get("PATH", "").split(os.pathsep):
        if os.path.isabs(path):
            yield path
            # A program in a `bin` of its own has the rest of it beside.
            if os.path.basename(path) == "bin" and os.path.exists(
                os.path.join(os.path.dirname(path), "pyvenv.cfg")
            ):
                yield os.path.dirname(path)


def _named(paths: Iterable[str], home: str) -> Iterator[str]:
    """As a person writes them; relative ones lead nowhere in particular, and are passed over."""
    for path in paths:
        full = os.path.join(home, path[2:]) if path.startswith("~/") else path
        if os.path.isabs(full):
            yield full


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    found = list(dict.fromkeys(paths))
    return tuple(path for path in found if not any(path != each and _is_in(path, each) for each in found))


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


def _real(path: str) -> str:
    return os.path.realpath(path)


AREA = "sandbox"


def examine_sandbox(case: Case) -> list[Finding]:
    """Blocks: a command that does nothing is run behind the wall, if one can be put up."""
    try:
        at = look(case.directory)
        situation = Situation(
            directory=at.directory, worktree=at.top or "/", paths=case.paths, env=case.env, trusted=False
        )
        trusted = is_trusted(case.paths, case.env, situation.worktree, at.directory)
        asked = read_asked(load_config(replace(situation, trusted=trusted)))
    except (WeftError, OSError):
        return []  # whatever that is, it has been found elsewhere
    return list(_findings(asked, situation))


def _findings(asked: Asked, situation: Situation) -> Iterator[Finding]:
    tried = replace(asked, mode="auto") if asked.mode == "off" else asked
    found = stand(tried, situation)
    if found.why:
        refused = asked.mode == "required"
        yield Finding(
            severity="problem" if refused else "warning" if asked.mode == "auto" else "note",
            area=AREA,
            what=f"there is no sandbox here: {found.why}",
            means="no command is run" if refused else "commands of the agent reach whatever you can reach",
            repair="" if asked.mode == "off" else "install bubblewrap (bwrap)",
        )
        return
    off = (
        f"off, and could be had by {found.sandbox.kind}"
        if asked.mode == "off"
        else f"by {found.sandbox.kind}"
    )
    yield Finding(
        severity="note",
        area=AREA,
        what=f"commands of the agent in a sandbox: {off}",
        repair=f'set {KEY} to "auto"' if asked.mode == "off" else "",
        items=tuple(Item(where=each, reason="not held off") for each in found.sandbox.lacks),
    )
