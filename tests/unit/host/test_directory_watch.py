"""Changes in a directory are reported by name when somebody asks, and whatever cannot be known is reported as unknown."""

import errno
import gc
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from given.reporting_directory import count_queues, open_reporting_directory, overflow_queue
from weft.host.directory_watch import (
    DirectoryWatcher,
    InotifyEvent,
    InotifyQueue,
    find_mounted_type,
    parse_events,
)


@pytest.fixture
def directory() -> Iterator[Path]:
    with open_reporting_directory() as made:
        watched = made / "parent/watched"
        watched.mkdir(parents=True)
        (watched / "a").write_text("old")
        (made / "parent/elsewhere").write_text("elsewhere")
        yield watched


@pytest.fixture
def watcher(directory: Path) -> Iterator[DirectoryWatcher]:
    made = DirectoryWatcher()
    assert made.start(str(directory))
    yield made
    made.close()


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("more")


# --- what is reported ---

CHANGES: dict[str, Callable[[Path], object]] = {
    "overwritten": lambda path: path.write_text("new"),
    "appended to": append,
    "truncated": lambda path: os.truncate(path, 0),
    "opened for writing, and closed": lambda path: os.close(os.open(path, os.O_RDWR)),
    "replaced": lambda path: (path.parent.parent / "elsewhere").rename(path),
    "moved away": lambda path: path.rename(path.parent.parent / "away"),
    "removed": lambda path: path.unlink(),
    "made unreadable": lambda path: path.chmod(0),
    "given another time": lambda path: os.utime(path, (1, 1)),
    "exchanged for a directory": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_reported_once(
    directory: Path, watcher: DirectoryWatcher, change: Callable[[Path], object]
) -> None:
    assert watcher.take_changes(str(directory)) == set()
    change(directory / "a")
    assert watcher.take_changes(str(directory)) == {"a"}
    assert watcher.take_changes(str(directory)) == set()


def test_new_entries_are_reported_however_they_are_made(directory: Path, watcher: DirectoryWatcher) -> None:
    outside = directory.parent / "elsewhere"
    (directory / "written").write_text("")
    (directory / "linked").hardlink_to(outside)
    (directory / "symbolic").symlink_to(outside)
    (directory / "made").mkdir()
    outside.rename(directory / "moved")
    assert watcher.take_changes(str(directory)) == {"written", "linked", "symbolic", "made", "moved"}


def test_reading_and_changes_elsewhere_are_not_reported(directory: Path, watcher: DirectoryWatcher) -> None:
    (directory / "a").read_text()
    (directory.parent / "elsewhere").write_text("new")
    assert watcher.take_changes(str(directory)) == set()


def test_several_directories_are_watched_at_once_with_one_queue(
    directory: Path, watcher: DirectoryWatcher
) -> None:
    other = directory.parent / "other"
    other.mkdir()
    before = count_queues()
    assert watcher.start(str(other))
    (directory / "b").write_text("")
    (other / "c").write_text("")
    assert watcher.take_changes(str(other)) == {"c"}
    assert watcher.take_changes(str(directory)) == {"b"}
    assert count_queues() == before


def test_names_that_are_not_text_are_reported(directory: Path, watcher: DirectoryWatcher) -> None:
    name = b"\xff\xfe"
    with open(os.path.join(os.fsencode(directory), name), "wb"):
        pass
    assert watcher.take_changes(str(directory)) == {os.fsdecode(name)}


# --- what is unknown ---


def replace_directory(path: Path) -> None:
    path.rename(path.parent / "away")
    path.mkdir()


def move_parent(path: Path) -> None:
    shutil.copytree(path.parent, f"{path.parent}.copy")
    path.parent.rename(f"{path.parent}.away")
    Path(f"{path.parent}.copy").rename(path.parent)


LOSSES: dict[str, Callable[[Path], object]] = {
    "removed": shutil.rmtree,
    "removed and made again": lambda path: (shutil.rmtree(path), path.mkdir()),
    "moved": lambda path: path.rename(path.parent / "away"),
    "replaced": replace_directory,
    "replaced with its parent": move_parent,
    "made unreadable": lambda path: path.chmod(0o300),
    "changed too often": overflow_queue,
}


@pytest.mark.parametrize("asks", [0, 1, 2])
@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_the_changes_of_a_directory_that_was_lost_are_unknown_until_it_is_watched_again(
    directory: Path, watcher: DirectoryWatcher, lose: Callable[[Path], object], asks: int
) -> None:
    lose(directory)
    for _ in range(asks):
        assert watcher.take_changes(str(directory)) is None
    directory.mkdir(exist_ok=True)
    directory.chmod(0o700)
    assert watcher.start(str(directory))
    (directory / "new").write_text("")
    assert watcher.take_changes(str(directory)) == {"new"}


def test_a_directory_is_watched_only_as_long_as_it_is_at_its_path(
    directory: Path, watcher: DirectoryWatcher
) -> None:
    assert watcher.is_watched(str(directory))
    directory.rename(directory.parent / "away")
    assert not watcher.is_watched(str(directory))


def test_nothing_is_known_of_a_directory_that_was_not_started(
    directory: Path, watcher: DirectoryWatcher
) -> None:
    assert watcher.take_changes(str(directory.parent)) is None


def test_a_directory_is_watched_by_one_of_its_paths(directory: Path, watcher: DirectoryWatcher) -> None:
    link = directory.parent / "link"
    link.symlink_to(directory)
    assert not watcher.start(str(link))
    assert watcher.start(str(directory))


# --- what cannot be watched ---


class FullQueue(InotifyQueue):
    """As many directories are watched as the system allows."""

    def add(self, path: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def refuse_queue() -> InotifyQueue:
    """As many queues are open as the system allows."""
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("open_queue", [FullQueue, refuse_queue])
def test_limits_of_the_system_are_not_an_error(
    directory: Path, open_queue: Callable[[], InotifyQueue]
) -> None:
    watcher = DirectoryWatcher(open_queue)
    assert not watcher.start(str(directory))
    assert watcher.take_changes(str(directory)) is None
    watcher.close()


def test_other_file_systems_and_missing_directories_are_not_watched(directory: Path) -> None:
    watcher = DirectoryWatcher()
    for path in ("/proc/self", str(directory / "none"), str(directory / "a")):
        assert not watcher.start(path)


@pytest.mark.parametrize("kind", ["ext4", "nfs4", "overlay", "fuse.sshfs", "9p", "virtiofs"])
def test_the_type_of_a_file_system_is_that_of_the_mount(tmp_path: Path, kind: str) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        (field,) = [
            line for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines() if "mnt_id" in line
        ]
        number = field.split()[1]
        lines = [
            f"1{number} 1 8:1 / / rw,relatime shared:1 - xfs /dev/sda1 rw",
            f"{number} 1 8:1 / /mnt/a\\040b rw,relatime shared:1 - {kind} /dev/sdb1 rw",
        ]
        (tmp_path / "mounts").write_text("\n".join(lines))
        assert find_mounted_type(fd, mounts=str(tmp_path / "mounts")) == kind
        (tmp_path / "mounts").write_text(lines[0])
        assert find_mounted_type(fd, mounts=str(tmp_path / "mounts")) == ""
        assert find_mounted_type(fd, mounts=str(tmp_path / "none")) == ""
    finally:
        os.close(fd)


# --- the end ---


def test_a_closed_watcher_knows_nothing_and_starts_nothing(
    directory: Path, watcher: DirectoryWatcher
) -> None:
    before = count_queues()
    watcher.close()
    assert count_queues() == before - 1
    assert watcher.take_changes(str(directory)) is None
    assert not watcher.start(str(directory))
    watcher.close()


def test_a_watcher_that_nobody_has_closes_its_queue(directory: Path) -> None:
    before = count_queues()
    watcher = DirectoryWatcher()
    assert watcher.start(str(directory))
    assert count_queues() == before + 1
    del watcher
    gc.collect()
    assert count_queues() == before


@given(
    st.lists(
        st.builds(
            InotifyEvent,
            st.integers(-1, 2**31 - 1),
            st.integers(0, 2**32 - 1),
            st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), max_size=80),
        )
    ),
    st.integers(0, 15),
)
def test_events_are_parsed_as_the_kernel_lays_them_out(events: list[InotifyEvent], padding: int) -> None:
    raw = b""
    for watch, mask, name in events:
        encoded = os.fsencode(name) + bytes(padding if name else 0)
        raw += struct.pack("iIII", watch, mask, 0, len(encoded)) + encoded
    assert list(parse_events(raw)) == events
