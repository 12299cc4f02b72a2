"""Markdown as HTML: every text is escaped, and text that is streamed is rendered as it would be at once."""

import itertools
import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from weft.page.markdown import MarkdownStream, render_blocks, render_markdown

PIECES = [
    "# Head\n", "word ", "**bold** ", "`code` ", "- item\n", "  - nested\n", "1. first\n", "2. second\n", "10", ". ", "\n", "\n\n",
    "```py\n", "```\n", "x = 1\n", "~~~\n", "> quote\n", "a | b\n", "--|-:\n", "1 | 2\n", "---\n", "===\n", "    code\n", "\t", "  ",
    "[x](https://e.test/a)", "[y](javascript:alert(1))", "<b>raw</b>", "<script>alert(1)</script>", "![i](https://e.test/p.png)",
    "https://e.test/bare.", "[ref]: https://e.test\n", "[ref]", "\r\n", "\r", "- [ ] todo\n", "- [x] done\n", "&amp;", "\u202e", "\x1b[31m", "*", "_",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
# What the renderer may write. Everything else in its output is text.
TAGS = {
    "p",
    "h3",
    "h4",
    "h5",
    "h6",
    "ul",
    "ol",
    "li",
    "pre",
    "code",
    "strong",
    "em",
    "s",
    "a",
    "span",
    "div",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "blockquote",
    "hr",
    "br",
    "figure",
    "figcaption",
}
ATTRIBUTES = {"class", "href", "rel", "start", "tabindex", "role"}


class Elements(HTMLParser):
    """The elements and links of a piece of HTML, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name == "href"]
        if tag not in ("hr", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "an element ends that is not the last that began"

    def handle_data(self, data: str) -> None:
        self.text += data


def stream(text: str, cuts: list[int]) -> list[str]:
    """Render a text that arrives in pieces."""
    stream = MarkdownStream()
    blocks: list[str] = []
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        stream.feed(text[start:end])
        blocks += stream.settle()
        stream.tail()
        assert stream.settled == len(blocks)
    return [*blocks, *stream.finish()]


@given(texts, st.lists(st.integers(0, 1000), max_size=12))
def test_streamed_text_is_rendered_like_complete_text(text: str, cuts: list[int]) -> None:
    assert stream(text, cuts) == list(render_blocks(text))


@given(st.one_of(texts, st.text(max_size=200)))
def test_no_text_creates_an_element(text: str) -> None:
    seen = Elements(render_markdown(text))
    assert seen.tags <= TAGS
    assert seen.attributes <= ATTRIBUTES
    assert seen.open == []
    assert all(re.fullmatch(r"https?://[^\s\"'<>`\\]+", link, re.IGNORECASE) for link in seen.links)


@given(texts)
def test_every_open_block_is_complete_html(text: str) -> None:
    stream = MarkdownStream()
    for letter in text:
        stream.feed(letter)
        assert all(Elements(block).open == [] for block in stream.settle())
        assert Elements(stream.tail().html or "").open == []


def test_common_markdown_is_rendered() -> None:
    text = "# Loom\n\nwarp *and* **weft** ~~gone~~\n\n- one\n- `two`\n\na | b\n--|-:\n1 | 2\n\n> said"
    assert render_blocks(text) == (
        "<h3>Loom</h3>",
        "<p>warp <em>and</em> <strong>weft</strong> <s>gone</s></p>",
        "<ul><li>one</li><li><code>two</code></li></ul>",
        (
            '<div class="table" tabindex="0" role="group"><table><thead><tr><th>a</th><th class="right">b</th></tr></thead>'
            '<tbody><tr><td>1</td><td class="right">2</td></tr></tbody></table></div>'
        ),
        "<blockquote><p>said</p></blockquote>",
    )


def test_code_is_highlighted_and_labelled() -> None:
    assert render_markdown("```python\nreturn 1 < 2\n```") == (
        '<figure class="code"><figcaption>python</figcaption><pre tabindex="0"><code><span class="k">return</span> '
        '<span class="n">1</span> &lt; <span class="n">2</span></code></pre></figure>'
    )


def test_a_link_shows_its_target() -> None:
    assert render_markdown("[bank.test](https://evil.test/x)") == (
        '<p><a href="https://evil.test/x" rel="noopener noreferrer nofollow">bank.test</a><span class="about"> (evil.test)</span></p>'
    )
    for honest in ("evil.test", "https://evil.test/x", "EVIL.test docs", "evil.test.", "<https://evil.test>"):
        source = honest if honest.startswith("<") else f"[{honest}](https://evil.test/x)"
        assert "about" not in render_markdown(source), honest
    for misleading in (
        "https://evil.test.bank.test",
        "https://bank.test/evil.test",
        "notevil.test",
        "evil.test@bank.test",
        "evil.test．bank.test",
    ):
        assert " (evil.test)</span>" in render_markdown(f"[{misleading}](https://evil.test/x)"), misleading
    assert render_markdown("see https://e.test/a.") == (
        '<p>see <a href="https://e.test/a" rel="noopener noreferrer nofollow">https://e.test/a</a>.</p>'
    )
    assert Elements(render_markdown("[a](javascript:x) [b](data:text/html,x) [c](//evil.test)")).links == []


def test_an_image_inside_of_a_link_is_no_link_of_its_own() -> None:
    assert render_markdown("[![built](https://i.test/b.png)](https://e.test/)") == (
        '<p><a href="https://e.test/" rel="noopener noreferrer nofollow">[image: built]</a><span class="about"> (e.test)</span></p>'
    )


def test_misleading_text_is_marked() -> None:
    assert render_markdown("a\u202eb\u200bc\x1b[31md\U000e0041") == "<p>a\ufffdb\ufffdc\ufffd[31md\ufffd</p>"


def test_a_list_keeps_its_numbers() -> None:
    assert render_markdown("3. warp\n4. weft") == '<ol start="3"><li>warp</li><li>weft</li></ol>'


def test_only_added_code_is_sent_while_a_block_grows() -> None:
    stream = MarkdownStream("```py\nx = 1\n")
    assert "x = 1" in (stream.tail().html or "")
    stream.feed("y = ")
    stream.feed("2\n")
    tail = stream.tail()
    # The end of the last line is not shown, so it is sent with the line that follows it.
    assert (tail.html, tail.append) == (None, "\ny = 2\n")
    stream.feed("```\n\nend\n")
    assert [Elements(block).text for block in stream.settle()] == ["pyx = 1\ny = 2"]
    assert stream.tail().html == "<p>end</p>"


def test_a_long_text_is_cut_with_a_notice() -> None:
    assert render_blocks("a" * 400_010)[-1] == '<p class="about">… 10 characters more</p>'
