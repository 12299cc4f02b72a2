"""Facts about this machine for diagnosis, and its browser."""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from weft.host.processes import Command, capture

NETWORKED = frozenset(
    (
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "ncpfs",
            "afs",
            "9p",
            "ceph",
            "glusterfs",
            "lustre",
            "gpfs",
        ),
        *(
            "fuse.sshfs",
            "fuse.rclone",
            "fuse.s3fs",
            "fuse.glusterfs",
            "fuse.davfs2",
            "davfs",
            "vboxsf",
            "drvfs",
        ),
    )
)
MOUNTS = "/proc/mounts"
SECONDS = 10.0
OTHERS = stat.S_IRWXG | stat.S_IRWXO

_OCTAL = re.compile(r"\\([0-7]{3})")


def git_version(env: Mapping[str, str]) -> str:
    """Such as `2.43.0`; "" if there is no git that runs."""
    try:
        ended = subprocess.run(
            ["git", "--version"],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    words = os.fsdecode(ended.stdout).split()
    return next((word for word in words if word[:1].isdigit()), "") if ended.returncode == 0 else ""


def free_space(path: str) -> int:
    """The bytes that may still be written where a path lies, or will lie."""
    found = os.statvfs(nearest(path))
    return found.f_bavail * found.f_frsize


def file_system(path: str, mounts: str = MOUNTS) -> str:
    """The kind of file system a path lies on, "" where nobody can tell."""
    real, best, kind = os.path.realpath(path), "", ""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return ""
    for line in lines:
        _, place, found, *_ = (*line.split(" "), "", "", "")
        place = _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), place)
        inside = real == place or real.startswith(place.rstrip("/") + "/")
        if place and inside and len(place) >= len(best):
            best, kind = place, found
    return kind


def open_to_others(path: str) -> int:
    """The permissions that others than the owner have, as bits; 0 for none, or for what is not there."""
    try:
        return os.stat(path).st_mode & OTHERS
    except OSError:
        return 0


def nearest(path: str) -> str:
    """The path, or the nearest directory above it that is there."""
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


OPEN_SECONDS: Final = 10.0


async def open_browser(url: str, env: Mapping[str, str]) -> bool:
    """Show a page, and say whether that worked. A browser in the terminal is not tried: it would take ours."""
    if not url.startswith(("https://", "http://")):
        return False
    program = _find_program(env)
    if program is None:
        return False
    command = Command(argv=(program, url), directory="/", environment=env, timeout=OPEN_SECONDS)
    try:
        return (await capture(command, limit=4096)).code == 0
    except OSError:
        return False


def _find_program(env: Mapping[str, str]) -> str | None:
    if sys.platform == "darwin":
        return shutil.which("open", path=env.get("PATH"))
    has_screen = env.get("DISPLAY") or env.get("WAYLAND_DISPLAY")
    return shutil.which("xdg-open", path=env.get("PATH")) if has_screen else None
