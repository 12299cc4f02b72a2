"""Convert pages to Markdown and to text."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.tool.html import to_markdown, to_text

PAGE = """<!doctype html><html><head><title>Loom</title><style>p {}</style></head><body>
<!-- nothing --><nav><a href="#top">Top</a></nav>
<h1>Weaving <em>by hand</em></h1>
<p>Read the <a href="/guide a/b">guide</a>, <b>then</b> run <code>weft</code>&nbsp;&amp; go.<br>Next line.</p>
<ul><li>one<li>two<ul><li>deep</li></ul></li><li><p>first</p><p>second</p></li></ul>
<ol start="3"><li>three</li><li>four</li></ol>
<pre><code>def f():
    return "&lt;"
</code></pre>
<blockquote><p>said</p><p>again</p></blockquote>
<table><thead><tr><th>A</th><th></th></tr></thead><tr><td>1<td><p>2|3</p></tr></table>
<script>alert("<p>no</p>")</script><svg><text>no</text></svg>
<img src="a.png" alt="A loom"><img src="data:image/png;base64,x"><hr>
<p></p><b></b>The end
</body></html>"""


def test_a_page_is_converted_to_markdown() -> None:
    assert to_markdown(PAGE, "https://loom.test/docs/") == "\n".join(
        [
            "Top",
            "",
            "# Weaving *by hand*",
            "",
            "Read the [guide](https://loom.test/guide%20a/b), **then** run `weft` & go.",
            "Next line.",
            "",
            "- one",
            "- two",
            "  - deep",
            "- first",
            "  second",
            "",
            "3. three",
            "4. four",
            "",
            "```",
            "def f():",
            '    return "<"',
            "```",
            "",
            "> said",
            ">",
            "> again",
            "",
            "| A |  |",
            "| --- | --- |",
            "| 1 | 2\\|3 |",
            "",
            "![A loom](https://loom.test/docs/a.png)",
            "",
            "---",
            "",
            "The end",
        ]
    )


def test_a_page_is_converted_to_text() -> None:
    assert to_text(PAGE).split("\n") == [
        "Top",
        "Weaving by hand",
        "Read the guide, then run weft & go.",
        "Next line.",
        "one",
        "two",
        "deep",
        "first",
        "second",
        "three",
        "four",
        "def f():",
        '    return "<"',
        "said",
        "again",
        "A",
        "1",
        "2|3",
        "The end",
    ]


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        ("<a href='x'>never closed", "[never closed](x)"),
        ("<a href=x></a>b", "b"),
        ('<a href="a>b">c</a>', "[c](a>b)"),
        ("<a title='1' HREF=x >c</A >", "[c](x)"),
        ("<p>a<p>b", "a\n\nb"),
        ("1 < 2 and <3", "1 < 2 and <3"),
        ("a<!-- never ends", "a"),
        ("a<script>never ends", "a"),
        ("</div></li></ul></pre></blockquote></a>a", "a"),
        ("<pre>a\n  b", "```\na\n  b"),
        ("<template><template>x</template>y</template>z", "z"),
        ("a<br/>b<hr/>c", "a\nb\n\n---\n\nc"),
        ("", ""),
    ],
)
def test_broken_html_is_read(html: str, markdown: str) -> None:
    assert to_markdown(html) == markdown


TAGS = "a b br code div h1 img li ol p pre script table td th tr ul blockquote head svg x !-- !DOCTYPE ?xml".split()  # noqa: SIM905
PIECES = st.lists(
    st.sampled_from(
        [f"<{tag}>" for tag in TAGS] + [f"</{tag}>" for tag in TAGS] + ["<", ">", '"', "'", "<a href="]
    )
    | st.text(max_size=5),
    max_size=40,
)


@given(PIECES)
def test_arbitrary_text_is_read(pieces: list[str]) -> None:
    page = "".join(pieces)
    assert isinstance(to_markdown(page, "http://a.test"), str)
    assert isinstance(to_text(page), str)


@pytest.mark.parametrize(
    "piece",
    ["<", "<a ", "<!--", "</", "<!", '<a href="', "<a href='\"", "<div>", "<a href=x>y", "&", "<script>"],
)
def test_a_page_made_to_be_slow_is_read_in_time(piece: str) -> None:
    """Each of these took the standard library's parser minutes at this length, or would have: longer than a test may take."""
    to_markdown(piece * (200_000 // len(piece)))


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        ("<html><head><title>T</title><body><p>The head was not closed", "The head was not closed"),
        ("<head><noscript><p>no</p></noscript><title>T</title></head><p>It was", "It was"),
        ('<svg width="1" /><p>After a picture', "After a picture"),
        ("<svg><path/><svg/></svg>After nested ones", "After nested ones"),
        ("<table><tr><td>A row</td>", "| A row |\n| --- |"),
        ("Before a <td>cell", "Before a\n| cell |\n| --- |"),
    ],
)
def test_text_after_markup_that_was_not_closed_is_kept(html: str, markdown: str) -> None:
    assert to_markdown(html) == markdown


@pytest.mark.parametrize("convert", [to_markdown, to_text])
def test_a_character_reference_of_thousands_of_digits_is_read(convert: Callable[[str], str]) -> None:
    assert convert(f"a &#{'1' * 5000}; b &#{'0' * 5000}65; c") == "a \ufffd b A c"
