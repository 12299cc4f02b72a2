"""A temporary file is readable by its owner alone, and is always removed."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from weft.host.private_files import open_temporary


@pytest.fixture(autouse=True)
def temp_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def read_with_mode(path: str) -> tuple[bytes, int]:
    return Path(path).read_bytes(), Path(path).stat().st_mode & 0o777


async def test_a_temporary_file_has_its_content_until_it_is_closed(temp_directory: Path) -> None:
    async with open_temporary("x-", b"words") as path:
        (name,) = os.listdir(temp_directory)
        assert path == str(temp_directory / name)
        assert name.startswith("x-")
        assert read_with_mode(path) == (b"words", 0o600)
    assert os.listdir(temp_directory) == []


async def test_cancelling_the_write_leaves_no_file_behind(temp_directory: Path) -> None:
    async def use() -> None:
        async with open_temporary("x-", b"w" * 1_000_000):
            raise AssertionError("cancelled before it was written")

    using = asyncio.ensure_future(use())
    await asyncio.sleep(0)  # it has begun to write
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert os.listdir(temp_directory) == []


async def test_an_unwritable_file_is_an_error(temp_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temp_directory / "nowhere"))
    with pytest.raises(FileNotFoundError):
        async with open_temporary("x-", b"words"):
            pass
