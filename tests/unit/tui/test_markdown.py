"""Markdown in a terminal: where blocks end while text is streamed, and how each is rendered."""

import unicodedata
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import wcwidth

from weft.tui.markdown import MarkdownBlock, MarkdownSplitter, highlight, render_block
from weft.tui.text import Line, cut, measure, to_ansi, to_plain_text, wrap

SAMPLE = """# Title
Some **bold** text and `code`.

- one
- two
  - nested

1. first
1. second

   more of it

> said

| a | b |
|---|---|
| 1 | two |

```python
x = 1

y = 2
```
~~gone~~ [here](http://weft.test)
"""


def split_markdown(text: str) -> list[MarkdownBlock]:
    """Split a whole text into blocks."""
    splitter = MarkdownSplitter()
    return [*splitter.feed(text), *splitter.finish()]


def render(text: str, width: int = 40) -> list[str]:
    return [
        line
        for block in split_markdown(text)
        for line in to_plain_text(render_block(block, width)).split("\n")
    ]


def test_a_text_that_is_streamed_looks_as_it_will_when_it_has_settled() -> None:
    splitter = MarkdownSplitter()
    assert splitter.feed("one\n\ntw") == []
    tail = splitter.tail()
    assert tail is not None
    assert to_plain_text(render_block(tail, 40)).split("\n") == ["one", "", "tw"]


def test_a_text_is_rendered_block_by_block() -> None:
    assert render(SAMPLE) == [
        "Title",
        "Some bold text and code.",
        "",
        "• one",
        "• two",
        "  • nested",
        "",
        "1. first",
        "2. second",
        "   more of it",
        "",
        "│ said",
        "",
        "a │ b  ",
        "──┼────",
        "1 │ two",
        "",
        "```python",
        "x = 1",
        "",
        "y = 2",
        "```",
        "gone here (http://weft.test)",
    ]


def test_styles_become_colours_or_are_dropped() -> None:
    (block,) = split_markdown("a **b** `c`")
    (line,) = render_block(MarkdownBlock(kind="text", text=block.text, spaced=False), 40)
    assert line == [("", "a "), ("bold", "b"), ("", " "), ("ansicyan", "c")]
    assert to_ansi(line, colour=True) == "a \x1b[1mb\x1b[0m \x1b[36mc\x1b[0m"
    assert to_ansi(line, colour=False) == "a b c"


def test_code_is_coloured_and_never_wrapped() -> None:
    assert highlight("x = 'long'  # why", "python") == [
        [
            ("", "x"),
            ("", " "),
            ("", "="),
            ("", " "),
            ("ansigreen", "'"),
            ("ansigreen", "long"),
            ("ansigreen", "'"),
            ("", "  "),
            ("italic ansibrightblack", "# why"),
        ]
    ]
    assert render(f"```\n{'x' * 100}\n```", 20) == ["", "```", "x" * 100, "```"]
    assert highlight("plain", "no-such-language") == [[("", "plain")]]


@given(st.text(alphabet="ab `*#-1.|>\n~[](", max_size=200), st.integers(1, 7))
def test_blocks_do_not_depend_on_how_the_text_arrives(text: str, size: int) -> None:
    splitter = MarkdownSplitter()
    blocks = [block for at in range(0, len(text), size) for block in splitter.feed(text[at : at + size])]
    assert [*blocks, *splitter.finish()] == split_markdown(text)


@given(st.text(max_size=300))
def test_no_text_controls_the_terminal(text: str) -> None:
    shown = "".join(render(text))
    assert [char for char in shown if unicodedata.category(char) in ("Cc", "Cf")] == []


def test_an_open_block_is_available_before_it_ends() -> None:
    splitter = MarkdownSplitter()
    assert splitter.feed("first\n\nsec") == []
    assert splitter.tail() == MarkdownBlock(kind="text", text="first\n\nsec", spaced=False)
    (first,) = splitter.feed("ond\n")
    assert first == MarkdownBlock(kind="text", text="first", spaced=False)
    assert splitter.tail() == MarkdownBlock(kind="text", text="second\n", spaced=True)


def test_a_line_that_is_almost_a_fence_is_read_at_once() -> None:
    began = monotonic()
    assert MarkdownSplitter().feed(f"```{' ' * 50_000}`\n") == []
    assert monotonic() - began < 3


def test_a_long_fence_settles_in_pieces() -> None:
    blocks = split_markdown("```\n" + "\n".join(str(number) for number in range(100)) + "\n```\n")
    assert [(block.text.count("\n") + 1, block.opens, block.closes) for block in blocks] == [
        (40, True, False),
        (40, False, False),
        (20, False, True),
    ]


def test_a_table_that_is_too_wide_is_wrapped_inside_its_cells() -> None:
    assert render("| name | what |\n|---|---|\n| weft | the threads across |\n", 20) == [
        "name │ what         ",
        "─────┼──────────────",
        "weft │ the threads  ",
        "     │ across       ",
    ]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two", 3, ["one", "two"]),
        ("abcdef", 4, ["abcd", "ef"]),
        ("  indented words", 10, ["  indented", "words"]),
        ("漢字漢字", 4, ["漢字", "漢字"]),
        ("a\nb", 10, ["a", "b"]),
        ("", 10, [""]),
    ],
)
def test_text_is_wrapped_at_spaces_by_cell_width(text: str, width: int, lines: list[str]) -> None:
    assert to_plain_text(wrap([("", text)], width)).split("\n") == lines


def test_a_line_is_cut_by_cell_width() -> None:
    line: Line = [("bold", "漢字"), ("", "abc")]
    assert cut(line, 7) == line
    assert cut(line, 6) == [("bold", "漢字"), ("", "a"), ("dim", "…")]
    assert cut(line, 4) == [("bold", "漢"), ("dim", "…")]
    assert measure("漢字abc") == 7


def test_characters_measured_as_one_cell_have_that_width() -> None:
    narrow = [*map(chr, range(0x20, 0x7F)), *map(chr, range(0xA0, 0x300)), *"…–—‘’“”•→←↑↓⏎▌▐│─"]
    assert [char for char in narrow if wcwidth(char) != measure(char)] == []
    assert measure("".join(narrow)) == len(narrow)
    assert measure("e\u0301…") == 2
