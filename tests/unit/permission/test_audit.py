"""The audit log: append-only, and every change to it is detected."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.permission.audit import AuditEntry, AuditFiles, ChainBreak, find_break, read_entries


def entry(number: int, **more: str) -> AuditEntry:
    return AuditEntry(time=number, what="allowed", permission="bash", patterns=(f"echo {number}",), **more)


def filled(directory: Path, count: int, **limits: int) -> AuditFiles:
    log = AuditFiles(str(directory), "project", **limits)  # type: ignore[arg-type]
    for number in range(1, count + 1):
        log.append([entry(number)])
    return log


def lines(log: AuditFiles) -> list[bytes]:
    return Path(log.path).read_bytes().splitlines(keepends=True)


def write(log: AuditFiles, kept: list[bytes]) -> None:
    Path(log.path).write_bytes(b"".join(kept))


def test_what_is_written_is_read_back_and_holds(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    assert list(read_entries(log)) == [(number, entry(number)) for number in (1, 2, 3)]
    assert find_break(log) == (3, None)


def test_no_log_is_a_log_that_holds(tmp_path: Path) -> None:
    assert find_break(AuditFiles(str(tmp_path), "project")) == (0, None)


def test_the_audit_log_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 1)
    for path in (log.path, log.end_path):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "log").st_mode) == 0o700


def test_a_changed_record_is_named(tmp_path: Path) -> None:
    log = filled(tmp_path, 5)
    kept = lines(log)
    write(log, [*kept[:2], kept[2].replace(b"echo 3", b"echo 9"), *kept[3:]])
    held, broken = find_break(log)
    assert held == 3
    assert broken is not None
    assert (broken.seq, broken.line) == (4, 4)
    assert "does not follow" in broken.reason


def test_the_last_record_cannot_be_changed_either_nor_healed_by_going_on(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    kept = lines(log)
    write(log, [*kept[:2], kept[2].replace(b"echo 3", b"echo 9")])
    assert find_break(log)[1] == ChainBreak(
        seq=3, file=log.path, line=3, reason="is not the one that was written"
    )
    log.append([entry(4)])
    broken = find_break(log)[1]
    assert broken is not None
    assert broken.seq == 4


def test_a_record_taken_out_is_missed(tmp_path: Path) -> None:
    log = filled(tmp_path, 5)
    kept = lines(log)
    write(log, kept[:1] + kept[2:])
    broken = find_break(log)[1]
    assert broken is not None
    assert (broken.seq, broken.line) == (3, 2)


@pytest.mark.parametrize("left", [0, 1, 4])
def test_a_log_that_was_cut_short_is_seen_to_be(tmp_path: Path, left: int) -> None:
    log = filled(tmp_path, 5)
    write(log, lines(log)[:left])
    held, broken = find_break(log)
    assert (held, broken and broken.seq) == (left, left + 1)
    log.append([entry(9)])
    assert find_break(log)[1] is not None


def test_a_log_whose_end_is_not_noted_any_more_is_told_of(tmp_path: Path) -> None:
    log = filled(tmp_path, 2)
    Path(log.end_path).unlink()
    assert find_break(log)[1] is not None


def test_an_invalid_record_is_named(tmp_path: Path) -> None:
    log = filled(tmp_path, 2)
    write(log, [lines(log)[0], b"nonsense\n"])
    broken = find_break(log)[1]
    assert broken is not None
    assert (broken.line, broken.reason) == (2, "is not a record")


def test_a_line_that_a_crash_cut_off_is_no_break(tmp_path: Path) -> None:
    log = filled(tmp_path, 2)
    with Path(log.path).open("ab") as file:
        file.write(b'{"seq":3,"pr')
    assert find_break(log) == (2, None)
    log.append([entry(3)])
    assert find_break(log) == (3, None)


def test_a_crash_before_the_end_was_noted_is_no_break(tmp_path: Path) -> None:
    log = filled(tmp_path, 2)
    noted = Path(log.end_path).read_bytes()
    log.append([entry(3)])
    Path(log.end_path).write_bytes(noted)
    assert find_break(log) == (3, None)
    log.append([entry(4)])
    assert find_break(log) == (4, None)


def test_files_are_turned_and_the_chain_goes_on(tmp_path: Path) -> None:
    log = filled(tmp_path, 40, file_bytes=1000, files=100)
    assert len(log.list_files()) > 3
    assert [number for number, _ in read_entries(log)] == list(range(1, 41))
    assert find_break(log) == (40, None)


def test_old_files_go_and_the_log_says_so(tmp_path: Path) -> None:
    log = filled(tmp_path, 60, file_bytes=1000, files=3)
    assert len(log.list_files()) <= 3
    held, broken = find_break(log)
    assert broken is None
    assert held < 60
    os.unlink(log.list_files()[0])
    broken = find_break(log)[1]
    assert broken is not None
    assert "known to have been dropped" in broken.reason


def test_secrets_are_redacted_in_the_log(tmp_path: Path) -> None:
    log = AuditFiles(str(tmp_path), "project", redact=lambda text: text.replace("s3cret", "[covered]"))
    log.append([AuditEntry(time=1, what="answered", patterns=("curl -u me:s3cret",), message="use s3cret")])
    [(_, found)] = read_entries(log)
    assert (found.patterns, found.message) == (("curl -u me:[covered]",), "use [covered]")


@given(st.data())
def test_any_change_of_any_byte_is_found(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    log = filled(tmp_path_factory.mktemp("log"), 4)
    raw = bytearray(Path(log.path).read_bytes())
    place = data.draw(st.integers(0, len(raw) - 2))
    raw[place] ^= data.draw(st.sampled_from([1, 2, 4, 8, 16]))
    Path(log.path).write_bytes(raw)
    assert find_break(log)[1] is not None
