"""The names of tools, prompts and resources of MCP servers."""

import re

from hypothesis import given
from hypothesis import strategies as st

from weft.tool.mcp.entry import MAX_NAME_LENGTH, cut_middle, make_prompt_key, make_tool_key, to_single_line
from weft.tool.mcp.sdk.transport import LineReader


@given(st.lists(st.tuples(st.text(max_size=80), st.text(max_size=80)), max_size=12))
def test_every_tool_has_a_unique_name_that_every_api_accepts(named: list[tuple[str, str]]) -> None:
    taken: set[str] = set()
    for server, tool in named:
        key = make_tool_key(server, tool, taken)
        assert re.fullmatch(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_LENGTH}}}", key)
        assert key not in taken
        taken.add(key)


def test_names_are_those_of_opencode_if_possible() -> None:
    assert make_tool_key("my server", "get/thing.now", ()) == "my_server_get_thing_now"
    assert make_prompt_key("a:b", "c d", ()) == "a_b:c_d"
    assert make_tool_key("apply", "patch", {"apply_patch"}) == "apply_patch_2"


def test_foreign_text_is_reduced_to_one_line() -> None:
    assert to_single_line("a\x1b[31m\nb\u202ec\x00", 50) == "a [31m b c"
    assert to_single_line("x" * 100, 10) == "x" * 9 + "…"


def test_a_long_reason_is_shortened_in_the_middle() -> None:
    assert cut_middle("short\nreason", 40) == "short reason"
    assert (
        cut_middle("it ended: " + "x" * 100 + "\nno such key", 40)
        == "it ended:  … xxxxxxxxxxxxxxx no such key"
    )
    assert len(cut_middle("x" * 10_000, 40)) == 40


@given(st.lists(st.binary(max_size=30).filter(lambda raw: b"\n" not in raw)), st.integers(1, 20))
def test_lines_do_not_depend_on_how_their_bytes_are_split(lines: list[bytes], size: int) -> None:
    raw = b"".join(line + b"\n" for line in lines)
    reader = LineReader()
    pieces = [raw[start : start + size] for start in range(0, len(raw), size)]
    found = [line for piece in pieces for line in reader.feed(piece)]
    assert found == [line.strip() for line in lines if line.strip()]
