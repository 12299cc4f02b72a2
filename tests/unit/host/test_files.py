"""File primitives: atomic writes, exclusive locks, bounded reads."""

import os
import stat
import threading
from pathlib import Path

import pytest

from weft.host import files
from weft.host.files import (
    BATCH_SIZE,
    Disk,
    has_final_stamp,
    hold_lock,
    make_directory,
    read_bytes,
    read_file,
    share_lock,
    stamp_of,
    try_lock,
    walk_files,
    write_atomic,
)

# --- reading ---


@pytest.mark.parametrize("size", [0, 1, 16_383, 16_384, 100_000])
def test_a_file_is_read_completely(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    raw, found = read_file(str(path), limit=100_000)
    assert (raw, found.st_size) == (b"x" * size, size)
    assert read_bytes(str(path), limit=100_000) == b"x" * size


@pytest.mark.parametrize("size", [20, 20_000])
def test_a_file_over_the_limit_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    for read in (read_file, read_bytes):
        with pytest.raises(OSError, match=f"more than the {size - 1} allowed"):
            read(str(path), limit=size - 1)


def test_a_file_that_has_more_than_its_status_says_is_refused_over_the_limit() -> None:
    # The kernel says of its own files that they are empty.
    content = Path("/proc/self/mountinfo").read_bytes()
    assert read_file("/proc/self/mountinfo", limit=len(content))[0] == content
    with pytest.raises(OSError, match="more than the 10 allowed"):
        read_file("/proc/self/mountinfo", limit=10)


def test_a_special_file_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(OSError, match="not a regular file"):
            read_file(str(tmp_path / name), limit=10)
    with pytest.raises(OSError, match="not a regular file"):
        read_bytes(str(tmp_path / "pipe"), limit=10)
    with pytest.raises(IsADirectoryError):
        read_bytes(str(tmp_path), limit=10)
    with pytest.raises(FileNotFoundError):
        read_file(str(tmp_path / "none"), limit=10)


def test_a_recently_written_file_is_not_settled_and_an_old_one_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    assert not has_final_stamp(path.stat())
    os.utime(path, (1, 1))
    assert has_final_stamp(path.stat())
    assert stamp_of(path.stat()) == (1_000_000_000, 1, path.stat().st_ino)


# --- writing ---


@pytest.mark.parametrize("flush", [False, True])
def test_a_file_is_replaced_through_a_temporary_file(tmp_path: Path, flush: bool) -> None:
    path, temp = tmp_path / "deep/er/file", tmp_path / "temp/file"
    for raw in (b"one", b"two"):
        write_atomic(str(path), raw, temp=str(temp), flush=flush)
        assert path.read_bytes() == raw
    assert [each.name for each in path.parent.iterdir()] == ["file"]
    assert list(temp.parent.iterdir()) == []
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]


def test_a_file_that_cannot_be_replaced_stays_and_no_temporary_file_remains(tmp_path: Path) -> None:
    path, temp = tmp_path / "taken", tmp_path / "temp/file"
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomic(str(path), b"x", temp=str(temp))
    assert path.is_dir()
    assert list(temp.parent.iterdir()) == []


def test_missing_parent_directories_are_created(tmp_path: Path) -> None:
    deep = f"{tmp_path}/a/b/c"
    assert make_directory(deep) == [f"{tmp_path}/a", f"{tmp_path}/a/b", deep]
    assert make_directory(deep) == []
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_directory(f"{tmp_path}/file")


def test_moving_a_missing_file_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Disk().move(f"{tmp_path}/none", f"{tmp_path}/a/b")


def test_a_file_is_extended_from_a_given_byte_on(tmp_path: Path) -> None:
    path, disk = tmp_path / "a/file", Disk()
    disk.extend(str(path), 0, b"one\n")
    disk.extend(str(path), 4, b"two\nthree\n")
    disk.extend(str(path), 8, b"3\n")
    assert path.read_bytes() == b"one\ntwo\n3\n"


def test_removing_deletes_everything_below_but_never_the_target_of_a_link(tmp_path: Path) -> None:
    disk, outside, inside = Disk(), tmp_path / "outside", tmp_path / "inside/deep"
    outside.mkdir()
    (outside / "file").touch()
    inside.mkdir(parents=True)
    (inside / "link").symlink_to(outside)
    (inside / "file").touch()
    disk.remove(str(tmp_path / "inside"))
    disk.remove(str(tmp_path / "inside"))
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["file", "outside"]


def test_only_an_empty_directory_is_pruned(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    (tmp_path / "empty").mkdir()
    for name in ("full", "empty", "none"):
        Disk().prune(str(tmp_path / name))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["full"]


# --- locks ---


def test_a_lock_has_one_holder_at_a_time(tmp_path: Path) -> None:
    path = f"{tmp_path}/locks/one"
    with hold_lock(path), try_lock(path) as second:
        assert not second
    with try_lock(path) as free:
        assert free


def test_readers_share_a_lock_and_exclude_writers(tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"
    with share_lock(path) as none:
        assert none is None
    with hold_lock(path):
        pass
    with share_lock(path) as one, share_lock(path) as two, try_lock(path) as writer:
        assert None not in (one, two)
        assert not writer


def test_a_waiter_gets_the_current_lock_even_if_its_file_was_replaced(tmp_path: Path) -> None:
    path, held = f"{tmp_path}/lock", []

    def hold() -> None:
        with hold_lock(path), try_lock(path) as other:
            held.append(other)

    with hold_lock(path):
        waiting = threading.Thread(target=hold)
        waiting.start()
        os.unlink(path)
    waiting.join()
    assert held == [False]


def test_a_lock_excludes_other_threads(tmp_path: Path) -> None:
    path, count = f"{tmp_path}/lock", tmp_path / "count"
    count.write_text("0")

    def add() -> None:
        for _ in range(50):
            with hold_lock(path):
                count.write_text(str(int(count.read_text()) + 1))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count.read_text() == "200"


# --- many at once ---

SPEEDS = pytest.mark.parametrize("slow_seconds", [0, float("inf")], ids=["slow", "quick"])


@SPEEDS
@pytest.mark.parametrize("count", [BATCH_SIZE, BATCH_SIZE + 1, 3 * BATCH_SIZE])
def test_all_files_of_a_batch_are_written(
    tmp_path: Path, count: int, slow_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SLOW_WRITE_SECONDS", slow_seconds)
    contents = {f"{tmp_path}/{number % 7}/{number}": b"%d" % number for number in range(count)}
    Disk().prepare_many(list(contents.items()))
    found = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == contents


@SPEEDS
def test_an_unwritable_file_is_an_error(
    tmp_path: Path, slow_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SLOW_WRITE_SECONDS", slow_seconds)
    (tmp_path / "directory").mkdir()
    paths = [f"{tmp_path}/{number}" for number in range(2 * BATCH_SIZE)]
    paths[-5] = f"{tmp_path}/directory"
    with pytest.raises(IsADirectoryError):
        Disk().prepare_many([(path, b"x") for path in paths])


def test_a_walk_lists_files_below_and_skips_named_directories(tmp_path: Path) -> None:
    for name in ("a.txt", "src/b.txt", "src/deep/c.txt", ".git/config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = walk_files(str(tmp_path), skip=lambda name: name == ".git", seconds=60)
    assert sorted(found) == ["a.txt", "src/b.txt", "src/deep/c.txt"]


def test_a_walk_ends_when_its_time_is_up(tmp_path: Path) -> None:
    for name in ("a.txt", "src/b.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert list(walk_files(str(tmp_path), skip=str.isupper, seconds=0)) == ["a.txt"]
