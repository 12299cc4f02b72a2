"""Mounted file systems: which are shared between machines."""

import os
import re
from typing import Final

from weft.model.project import is_within

# Locks and shared memory do not hold between the machines that use these.
NETWORK_TYPES: Final = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "drvfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
    ]
)
NETWORK_FUSE_TYPES: Final = frozenset(
    ["ceph", "davfs2", "glusterfs", "gvfsd-fuse", "mergerfs", "rclone", "s3fs", "sshfs", "vmhgfs-fuse"]
)
MOUNTS_FILE = "/proc/self/mountinfo"


def find_network_file_system(path: str, mounts: str = MOUNTS_FILE) -> str:
    """Return the type of the file system of a path if it is shared between machines, such as `nfs4`; "" if not, or unknown.

    The mount with the longest path that contains the real path counts, and of several at one path the last.
    """
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return ""  # not Linux, or not allowed
    real, longest, type = os.path.realpath(path), -1, ""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 4 and after:  # noqa: PLR2004  the mount point is the fifth field
            point = _unescape(fields[4])
            if is_within(real, point) and len(point) >= longest:
                longest, type = len(point), after.split(" ")[0]
    base, _, fuse = type.partition(".")
    is_network = type in NETWORK_TYPES or (base in ("fuse", "fuseblk") and fuse in NETWORK_FUSE_TYPES)
    return type if is_network else ""


def _unescape(text: str) -> str:
    """Replace the octal escapes of spaces, tabs, newlines and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)
