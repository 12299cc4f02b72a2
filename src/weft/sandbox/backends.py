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
    """Return the arguments to put before a command, so that bubblewrap runs it under the policy."""
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
    parents = dict.fromkeys(os.path.dirname(path) for path in policy.protected)
    mounts: dict[str, tuple[str, ...]] = {path: ("--tmpfs", path) for path in hidden}
    mounts |= {path: ("--ro-bind-try", path, path) for path in (*RUNTIME_READABLE, *policy.readable)}
    # A directory that contains a mount can be moved away and recreated. A mount itself cannot, so mount the parent,
    # too.
    mounts |= {path: ("--bind-try", path, path) for path in (*parents, *policy.writable)}
    mounts |= {path: ("--ro-bind-try", path, path) for path in policy.protected}
    yield from (mounts[path] for path in sorted(mounts, key=lambda path: (path.count("/"), path)))
    # Files written to a hidden directory would silently vanish with the command, so it becomes read-only. This comes last,
    # because the mount points in it must be created before.
    yield from (("--remount-ro", path) for path in hidden)


PROBE_SECONDS = 10.0
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
    """Return the best sandbox that works here: bubblewrap, else Landlock.

    This blocks: it runs a command that does nothing in each candidate, until one works.
    """
    if not sys.platform.startswith("linux"):
        return SandboxSearch(why="there is none for this system yet")
    reasons: list[str] = []
    for try_candidate in (_try_bubblewrap, _try_landlock):
        found = try_candidate(policy, environment)
        if found.sandbox is not None:
            return found
        reasons.append(found.why)
    return SandboxSearch(why="; ".join(reasons))


def _try_bubblewrap(policy: SandboxPolicy, environment: Mapping[str, str]) -> SandboxSearch:
    program = find_bubblewrap(environment.get("PATH", ""))
    if program is None:
        return SandboxSearch(why="bubblewrap is not installed")
    prefix = build_bubblewrap_command(program, policy)
    probe = _run_probe((*prefix, *NO_OP), environment)
    if probe is None or probe.returncode != 0:
        return SandboxSearch(why=f"bubblewrap does not work here ({_describe_failure(probe)})")
    return SandboxSearch(sandbox=Sandbox(kind="bubblewrap", prefix=prefix, protected=policy.protected))


def _try_landlock(policy: SandboxPolicy, environment: Mapping[str, str]) -> SandboxSearch:
    probe = _run_probe(_build_launch_command(policy, needs_mounts=False), environment)
    if probe is None or probe.returncode != 0:
        return SandboxSearch(why=f"Landlock does not work here ({_describe_failure(probe)})")
    report: dict[str, Any] = json.loads(probe.stdout)
    mounted = bool(report["mounted"])
    prefix, lacks = (
        _build_launch_command(policy, needs_mounts=mounted),
        () if mounted else NOT_ENFORCED_WITHOUT_MOUNTS,
    )
    return SandboxSearch(
        sandbox=Sandbox(kind="landlock", prefix=prefix, lacks=lacks, protected=policy.protected)
    )


def _build_launch_command(policy: SandboxPolicy, *, needs_mounts: bool) -> tuple[str, ...]:
    launch_policy = {
        "hidden": policy.hidden,
        "readable": policy.readable,
        "writable": policy.writable,
        "protected": policy.protected,
        "network": policy.network,
        "needs_mounts": needs_mounts,
    }
    # Isolated mode and no site packages, so that neither the project nor the person's settings influence the launcher.
    return sys.executable, "-I", "-S", launch.__file__, json.dumps(launch_policy)


def _run_probe(
    argv: tuple[str, ...], environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[bytes] | None":
    try:
        return subprocess.run(
            argv,
            cwd="/",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def _describe_failure(probe: "subprocess.CompletedProcess[bytes] | None") -> str:
    if probe is None:
        return "it does not start, or hangs"
    lines = os.fsdecode(probe.stderr).strip().splitlines()
    return lines[-1].removeprefix("weft: ") if lines else f"it ended with {probe.returncode}"
