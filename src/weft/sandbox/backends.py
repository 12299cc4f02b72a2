"""Find a way to enforce a sandbox policy on this system by trying bubblewrap, then Landlock."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from weft.sandbox import launch
from weft.sandbox.launch import RUNTIME_DIRECTORY, RUNTIME_READABLE
from weft.sandbox.policy import Sandbox, SandboxPolicy


def find_bubblewrap(path: str) -> str | None:
    """Return the path of bubblewrap, or None.

    A relative entry of PATH is ignored, because it may lead into the project.
    """
    found = shutil.which("bwrap", path=path)
    return found if found and os.path.isabs(found) else None


def build_bubblewrap_command(program: str, policy: SandboxPolicy) -> tuple[str, ...]:
    """Return the words to put before a command."""
    network = () if policy.network else ("--unshare-net",)
    return (
        *(program, "--die-with-parent", "--unshare-pid", "--unshare-ipc", *network),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *(word for words in _list_mounts(policy) for word in words),
        "--",
    )


def _list_mounts(policy: SandboxPolicy) -> Iterator[tuple[str, ...]]:
    """Yield mount options, parents first: a mount hides everything that was mounted below it earlier."""
    hidden = [path for path in (*policy.hidden, RUNTIME_DIRECTORY) if os.path.isdir(path)]
    parents = dict.fromkeys(os.path.dirname(path) for path in policy.kept)
    wanted: dict[str, tuple[str, ...]] = {path: ("--tmpfs", path) for path in hidden}
    wanted |= {path: ("--ro-bind-try", path, path) for path in (*RUNTIME_READABLE, *policy.readable)}
    # A directory that contains a mount can be moved away and recreated. A mount itself cannot, so mount the parent,
    # too.
    wanted |= {path: ("--bind-try", path, path) for path in (*parents, *policy.writable)}
    wanted |= {path: ("--ro-bind-try", path, path) for path in policy.kept}
    yield from (wanted[path] for path in sorted(wanted, key=lambda path: (path.count("/"), path)))
    # Last, when every mount point exists. Files written to a tmpfs would silently vanish with the command.
    yield from (("--remount-ro", path) for path in hidden)


TRIAL_SECONDS = 10.0
NO_OP = ("/bin/sh", "-c", ":")
NOT_ENFORCED_WITHOUT_MOUNTS = (
    "hooks and settings of the repository can be changed",
    "permissions of files elsewhere can be changed",
    "sockets of other programs, such as Docker's, can be reached",
)


class SandboxSearch(Struct, frozen=True, kw_only=True):
    """The sandbox that was found, or the reason why there is none."""

    sandbox: Sandbox | None = None
    why: str = ""


def find_sandbox(policy: SandboxPolicy, environment: Mapping[str, str]) -> SandboxSearch:
    """Return the best sandbox that works here. This blocks: it runs a command that does nothing in each candidate."""
    if not sys.platform.startswith("linux"):
        return SandboxSearch(why="there is none for this system yet")
    tried = (_try_bubblewrap(policy, environment), _try_landlock(policy, environment))
    found = next((each for each in tried if each.sandbox), None)
    return found or SandboxSearch(why="; ".join(each.why for each in tried))


def _try_bubblewrap(policy: SandboxPolicy, environment: Mapping[str, str]) -> SandboxSearch:
    program = find_bubblewrap(environment.get("PATH", ""))
    if program is None:
        return SandboxSearch(why="bubblewrap is not installed")
    before = build_bubblewrap_command(program, policy)
    ended = _run_trial((*before, *NO_OP), environment)
    if ended is None or ended.returncode != 0:
        return SandboxSearch(why=f"bubblewrap does not work here ({_describe_failure(ended)})")
    return SandboxSearch(sandbox=Sandbox(kind="bubblewrap", before=before, kept=policy.kept))


def _try_landlock(policy: SandboxPolicy, environment: Mapping[str, str]) -> SandboxSearch:
    ended = _run_trial(_build_launch_command(policy, mounted=False), environment)
    if ended is None or ended.returncode != 0:
        return SandboxSearch(why=f"Landlock does not work here ({_describe_failure(ended)})")
    report: dict[str, Any] = json.loads(ended.stdout)
    mounted = bool(report["mounted"])
    before, lacks = (
        _build_launch_command(policy, mounted=mounted),
        () if mounted else NOT_ENFORCED_WITHOUT_MOUNTS,
    )
    return SandboxSearch(sandbox=Sandbox(kind="landlock", before=before, lacks=lacks, kept=policy.kept))


def _build_launch_command(policy: SandboxPolicy, *, mounted: bool) -> tuple[str, ...]:
    plain = {
        "hidden": policy.hidden,
        "readable": policy.readable,
        "writable": policy.writable,
        "kept": policy.kept,
        "network": policy.network,
        "mounted": mounted,
    }
    # Isolated mode and no site packages, so that neither the project nor the person's settings influence the launcher.
    return sys.executable, "-I", "-S", launch.__file__, json.dumps(plain)


def _run_trial(
    argv: tuple[str, ...], environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[bytes] | None":
    try:
        return subprocess.run(
            argv,
            cwd="/",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def _describe_failure(ended: "subprocess.CompletedProcess[bytes] | None") -> str:
    if ended is None:
        return "it cannot be started"
    words = os.fsdecode(ended.stderr).strip().splitlines()
    return words[-1].removeprefix("weft: ") if words else f"it ended with {ended.returncode}"
