"""Truncate the output of tools, and store it."""

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from weft.testing.clock import HandClock
from weft.testing.ids import seeded_mint
from weft.tool.contract import ToolResult
from weft.tool.spill import MAX_OUTPUT_AGE_MS, Spill
from weft.tool.truncate import TruncatedText, truncate, truncate_result


def make_spill(directory: Path, clock: HandClock) -> Spill:
    return Spill(str(directory / "tool-output"), seeded_mint(clock.now))


def read_stored(path: str) -> tuple[str, str, int]:
    file = Path(path)
    return file.name[:5], file.read_text(), file.stat().st_mode & 0o777


def add_foreign_file(spill: Spill) -> int:
    """Add a file that is not ours, and return when ours was written (ms)."""
    (kept,) = Path(spill.directory).iterdir()
    (kept.parent / "other").write_text("not ours")
    return int(kept.stat().st_mtime * 1000)


def test_a_short_output_is_unchanged() -> None:
    assert truncate("a\nb", lines=2, size=3) == TruncatedText(preview="a\nb")


def test_lines_beyond_the_limit_are_counted() -> None:
    text = "\n".join(f"line {number}" for number in range(100))
    assert truncate(text, lines=10) == TruncatedText(
        preview="\n".join(text.split("\n")[:10]), removed=90, unit="lines"
    )


def test_a_first_line_that_is_too_long_leaves_nothing() -> None:
    assert truncate("x" * 1000, size=100) == TruncatedText(preview="", removed=1000, unit="bytes")


def test_bytes_are_counted_and_not_characters() -> None:
    assert truncate("éé\néé", size=8) == TruncatedText(preview="éé", removed=5, unit="bytes")


@given(st.text(), st.integers(1, 5), st.integers(1, 50))
def test_output_is_limited_by_lines_and_by_bytes(text: str, lines: int, size: int) -> None:
    short = truncate(text, lines=lines, size=size)
    assert short.preview == "" or short.preview.count("\n") < lines
    assert len(short.preview.encode(errors="replace")) <= size
    assert text.startswith(short.preview)


async def test_a_long_output_is_cut_and_stored_in_a_file(tmp_path: Path) -> None:
    text = "\n".join(str(number) for number in range(2500))
    result = await truncate_result(
        ToolResult(title="t", output=text, metadata={"a": 1}), make_spill(tmp_path, HandClock())
    )
    path = result.metadata["outputPath"]
    assert result.metadata == {"a": 1, "truncated": True, "outputPath": path}
    assert read_stored(path) == ("tool_", text, 0o600)
    preview, rest = result.output.split("\n\n...500 lines truncated...\n\n")
    assert preview == "\n".join(str(number) for number in range(2000))
    assert rest.startswith(
        f"The tool call succeeded but the output was truncated. Full output saved to: {path}\n"
    )


async def test_a_short_output_is_marked_as_complete(tmp_path: Path) -> None:
    short = ToolResult(title="", output="x")
    assert (await truncate_result(short, make_spill(tmp_path, HandClock()))).metadata == {"truncated": False}


async def test_an_output_truncated_by_its_tool_is_not_truncated_again(tmp_path: Path) -> None:
    long = ToolResult(title="", output="x\n" * 3000, metadata={"truncated": True})
    assert await truncate_result(long, make_spill(tmp_path, HandClock())) is long


async def test_stored_outputs_are_removed_after_a_week(tmp_path: Path) -> None:
    spill = make_spill(tmp_path, HandClock())
    assert await spill.remove_old(0) == 0
    await spill.store("x")
    written = add_foreign_file(spill)
    assert await spill.remove_old(written + MAX_OUTPUT_AGE_MS - 10) == 0
    assert await spill.remove_old(written + MAX_OUTPUT_AGE_MS + 10) == 1
    assert os.listdir(spill.directory) == ["other"]
