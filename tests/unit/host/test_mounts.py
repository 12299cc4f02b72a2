"""Mounted file systems: which are shared between machines."""

from pathlib import Path

import pytest

from weft.host.mounts import find_network_file_system

MOUNTS = """22 1 0:20 / / rw shared:1 - ext4 /dev/vda rw
30 22 0:25 / /home rw - nfs4 server:/home rw
31 30 0:26 / /home/me/local rw shared:7 master:2 - xfs /dev/vdb rw
32 22 0:27 / /mnt/with\\040space rw - cifs //server/share rw
33 22 0:28 / /mnt/ssh rw - fuse.sshfs me@host: rw
34 22 0:29 / /mnt/c rw - 9p drvfs rw
35 22 0:30 / /mnt/disk rw - fuseblk /dev/sdb1 rw
36 22 0:31 / /mnt/twice rw - nfs server:/x rw
37 22 0:32 / /mnt/twice rw - tmpfs tmpfs rw
38 22 0:33 / /mnt/union rw - fuse.mergerfs a:b rw
39 22 0:34 / /mnt/d rw - drvfs D: rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/a.db", ""),
        ("/home/me/a.db", "nfs4"),
        ("/homework/a.db", ""),
        ("/home/me/local/a.db", ""),
        ("/mnt/with space/a.db", "cifs"),
        ("/mnt/ssh/a.db", "fuse.sshfs"),
        ("/mnt/c/a.db", "9p"),
        ("/mnt/disk/a.db", ""),
        ("/mnt/twice/a.db", ""),
        ("/mnt/union/a.db", "fuse.mergerfs"),
        ("/mnt/d/a.db", "drvfs"),
    ],
)
def test_a_network_file_system_is_recognised(tmp_path: Path, path: str, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert find_network_file_system(path, str(mounts)) == kind


def test_the_file_system_of_a_link_is_that_of_its_target(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    (tmp_path / "link").symlink_to("/mnt/ssh")
    assert find_network_file_system(str(tmp_path / "link/a.db"), str(mounts)) == "fuse.sshfs"


def test_a_broken_or_missing_list_of_mounts_says_nothing(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("nonsense\n\n1 2 - \n")
    assert find_network_file_system("/srv/a.db", str(mounts)) == ""
    assert find_network_file_system("/srv/a.db", str(tmp_path / "none")) == ""
