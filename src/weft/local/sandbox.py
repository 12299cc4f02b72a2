"""Build the sandbox for tool processes from the configuration, and report what it can enforce."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from weft.config.load import LoadedConfig, load_config
from weft.config.schema import SANDBOX_MODES, SandboxMode
from weft.config.sources import ConfigScope
from weft.errors import ConfigError, WeftError
from weft.host.paths import Paths
from weft.host.processes import tool_environment
from weft.model.project import is_within
from weft.project.checkout import find_checkout, find_git_directories
from weft.sandbox.policy import NO_SANDBOX, Sandbox, SandboxPolicy
from weft.trust.decision import is_trusted

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.maintenance.environment import DoctorInput
    from weft.model.health import DoctorFinding

KEY = "experimental.weft.sandbox"
CONFIGURATION_NAMES = ("opencode.json", "opencode.jsonc", ".opencode")

# What programs need from the home directory: installed programs, packages and the git configuration, but no keys.
_HOME_TOOLS = """
.gitconfig .config/git/config .config/git/ignore .config/git/attributes
.local/bin .local/lib .local/share/uv .local/share/pnpm .local/share/mise .local/share/fnm .local/share/pipx
.asdf .bun/bin .bun/install .deno .fnm .nvm .pyenv .rbenv .rustup .sdkman .volta .ghcup .opam .dotnet .conda miniconda3
.cargo/bin .cargo/env .cargo/git .cargo/registry go/bin go/pkg .m2/repository .gradle/caches .gradle/wrapper
.nuget/packages .pub-cache .npm/_cacache .npm/_npx .nix-profile .local/state/nix
.cache/go-build .cache/node .cache/pip .cache/pre-commit .cache/uv .cache/yarn .cache/ms-playwright
"""
HOME_TOOLS = tuple(_HOME_TOOLS.split())
# Variables that name directories of installed programs.
INSTALL_VARIABLES = (
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYENV_ROOT",
    "NVM_DIR",
    "NVM_BIN",
    "VOLTA_HOME",
    "JAVA_HOME",
    "GOROOT",
)


class SandboxSettings(Struct, frozen=True, kw_only=True):
    """The configured sandbox. `hidden` are further directories that must not be seen."""

    mode: SandboxMode = "off"
    network: Literal["allow", "deny"] = "allow"
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


class SandboxState(Struct, frozen=True, kw_only=True):
    """The sandbox in use and, if the configured one is not available, the reason."""

    settings: SandboxSettings
    sandbox: Sandbox = NO_SANDBOX
    why: str = ""

    @property
    def warning(self) -> ConfigError | None:
        """A warning in one line if the configured sandbox is not available."""
        if self.settings.mode == "off" or not self.why:
            return None
        effect = "no command is run" if self.sandbox.refusal else "commands run without one"
        return ConfigError(KEY, f"the sandbox is not available, {effect}: {self.why}")


def read_sandbox_settings(loaded: LoadedConfig) -> SandboxSettings:
    """Read the settings. Person and project can both make the sandbox stricter; only the person adds paths."""
    own, all_ = (each.weft_settings.sandbox_settings for each in (loaded.trusted_config, loaded.config))
    modes = [each.mode or "off" for each in (own, all_)]
    return SandboxSettings(
        mode=max(modes, key=SANDBOX_MODES.index),
        network="deny" if "deny" in (own.network, all_.network) else "allow",
        readable=own.readable or (),
        writable=own.writable or (),
    )


def build_sandbox(settings: SandboxSettings, scope: ConfigScope) -> SandboxState:
    """Build the sandbox and try it out, as far as this machine supports it. Blocks."""
    if settings.mode == "off":
        return SandboxState(settings=settings)
    from weft.sandbox.backends import find_sandbox  # noqa: PLC0415  few configure a sandbox

    policy = to_sandbox_policy(settings, scope)
    inside = [path for path in policy.hidden if any(is_within(path, each) for each in policy.writable)]
    if inside:
        return _to_missing_sandbox(
            settings, f"{inside[0]} must be hidden, but is inside a writable directory"
        )
    found = find_sandbox(policy, tool_environment(scope.env))
    if found.sandbox is None:
        return _to_missing_sandbox(settings, found.why)
    if settings.mode == "required" and found.sandbox.lacks:
        return _to_missing_sandbox(settings, "; ".join(found.sandbox.lacks))
    return SandboxState(settings=settings, sandbox=found.sandbox)


def _to_missing_sandbox(settings: SandboxSettings, why: str) -> SandboxState:
    if settings.mode != "required":
        return SandboxState(settings=settings, why=why)
    refusal = (
        f"No command can be run: the settings require a sandbox ({KEY}), and it is not available: {why}."
    )
    return SandboxState(settings=settings, sandbox=Sandbox(refusal=refusal), why=why)


def to_sandbox_policy(settings: SandboxSettings, scope: ConfigScope) -> SandboxPolicy:
    home = scope.paths.os_home
    roots = _list_roots(scope)
    hidden = _drop_nested(_real(path) for path in (*_list_hidden(scope), *settings.hidden))
    writable = _drop_nested(
        _real(path) for path in (*roots, *_list_temporary(scope.env), *_expand_paths(settings.writable, home))
    )
    wanted = (
        *(os.path.join(home, name) for name in HOME_TOOLS),
        *_list_installed(scope.env),
        scope.paths.tool_output,
        *_expand_paths(settings.readable, home),
    )
    readable = dict.fromkeys(
        path
        for path in map(_real, wanted)
        if any(is_within(path, each) for each in hidden)
        and not any(is_within(each, path) for each in hidden)
        and not _contains_own_data(path, scope.paths)
    )
    return SandboxPolicy(
        hidden=hidden,
        readable=tuple(readable),
        writable=writable,
        protected=tuple(dict.fromkeys(_list_protected(scope))),
        network=settings.network == "allow",
    )


def _list_hidden(scope: ConfigScope) -> Iterator[str]:
    paths = scope.paths
    yield from (paths.os_home, paths.home, paths.data, paths.config, paths.state, paths.cache)
    if runtime := scope.env.get("XDG_RUNTIME_DIR"):
        yield runtime


def _contains_own_data(path: str, paths: Paths) -> bool:
    """Return True if weft's keys, sessions or grants are inside the path."""
    return any(is_within(_real(own), path) for own in (paths.data, paths.config, paths.state, paths.cache))


def _list_roots(scope: ConfigScope) -> list[str]:
    """Return the checkout and its repository, or the directory if there is no checkout."""
    if scope.worktree == os.sep:
        return [scope.directory]
    return [scope.worktree, scope.directory, *find_git_directories(scope.worktree)]


def _list_protected(scope: ConfigScope) -> Iterator[str]:
    """List files that would take effect outside the sandbox: git hooks, git settings and weft's configuration."""
    top = _real(scope.directory if scope.worktree == os.sep else scope.worktree)
    directory = _real(scope.directory)
    while True:
        yield from (os.path.join(directory, name) for name in CONFIGURATION_NAMES)
        if not is_within(directory, top) or directory == top:
            break
        directory = os.path.dirname(directory)
    if scope.worktree == os.sep or not os.path.lexists(os.path.join(top, ".git")):
        return
    own, shared = (_real(path) for path in find_git_directories(top))
    if not os.path.isdir(os.path.join(top, ".git")):
        yield os.path.join(top, ".git")
    yield from (os.path.join(shared, name) for name in ("hooks", "config"))
    yield os.path.join(own, "config.worktree")


def _list_temporary(env: Mapping[str, str]) -> tuple[str, ...]:
    configured = env.get("TMPDIR", "")
    if os.path.isabs(configured):
        return (configured,)
    from tempfile import gettempdir  # noqa: PLC0415  few commands run in a sandbox

    return gettempdir(), "/var/tmp"


def _list_installed(env: Mapping[str, str]) -> Iterator[str]:
    yield from (env[name] for name in INSTALL_VARIABLES if os.path.isabs(env.get(name, "")))
    for path in env.get("PATH", "").split(os.pathsep):
        if os.path.isabs(path):
            yield path
            # The rest of a virtual environment is next to its `bin`.
            if os.path.basename(path) == "bin" and os.path.exists(
                os.path.join(os.path.dirname(path), "pyvenv.cfg")
            ):
                yield os.path.dirname(path)


def _expand_paths(paths: Iterable[str], home: str) -> Iterator[str]:
    """Expand `~`. Ignore relative paths, because they have no defined base."""
    for path in paths:
        full = os.path.join(home, path[2:]) if path.startswith("~/") else path
        if os.path.isabs(full):
            yield full


def _drop_nested(paths: Iterable[str]) -> tuple[str, ...]:
    found = list(dict.fromkeys(paths))
    return tuple(path for path in found if not any(path != each and is_within(path, each) for each in found))


def _real(path: str) -> str:
    return os.path.realpath(path)


AREA = "sandbox"


def examine_sandbox(case: DoctorInput) -> list[DoctorFinding]:
    """Check the sandbox by running a command in it that does nothing. Blocks."""
    try:
        checkout = find_checkout(case.directory)
        scope = ConfigScope(
            directory=checkout.directory,
            worktree=checkout.top or "/",
            paths=case.paths,
            env=case.env,
            trusted=False,
        )
        trusted = is_trusted(case.paths, case.env, scope.worktree, scope.directory)
        settings = read_sandbox_settings(load_config(replace(scope, trusted=trusted)))
    except (WeftError, OSError):
        return []  # other checks report it
    return list(_list_findings(settings, scope))


def _list_findings(settings: SandboxSettings, scope: ConfigScope) -> Iterator[DoctorFinding]:
    from weft.model.health import DoctorFinding, FindingItem  # noqa: PLC0415  only the doctor needs it

    tried = replace(settings, mode="auto") if settings.mode == "off" else settings
    found = build_sandbox(tried, scope)
    if found.why:
        refused = settings.mode == "required"
        yield DoctorFinding(
            severity="problem" if refused else "warning" if settings.mode == "auto" else "note",
            area=AREA,
            what=f"the sandbox is not available: {found.why}",
            means="no command is run"
            if refused
            else "commands of the agent can reach everything that you can reach",
            repair="" if settings.mode == "off" else "install bubblewrap (bwrap)",
        )
        return
    state = (
        f"off, but available through {found.sandbox.kind}"
        if settings.mode == "off"
        else f"on, through {found.sandbox.kind}"
    )
    yield DoctorFinding(
        severity="note",
        area=AREA,
        what=f"commands of the agent in a sandbox: {state}",
        repair=f'set {KEY} to "auto"' if settings.mode == "off" else "",
        items=tuple(FindingItem(where=each, reason="not prevented") for each in found.sandbox.lacks),
    )
