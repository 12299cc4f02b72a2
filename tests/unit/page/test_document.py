"""Pages of shared sessions: all content is text, nothing executes, and nothing is fetched."""

import base64
import re
from collections.abc import Iterator
from decimal import Decimal
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from given.examples import examples
from given.session_exports import AT, MODEL, export, info, with_parts, with_text
from weft.model.failure import unknown_failure
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage, AssistantTime, MessageWithParts, UserMessage
from weft.model.part import (
    AgentPart,
    AnyPart,
    CallTime,
    CompletedState,
    ErrorState,
    FilePart,
    Moment,
    ReasoningPart,
    RetryPart,
    RunningState,
    Span,
    StepFinishPart,
    SubtaskPart,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.model.share import SharedSession
from weft.model.transfer import SessionExport
from weft.page.document import (
    FILE_POLICY,
    LIVE_POLICY,
    MAX_TEXT_LENGTH,
    SCRIPT,
    STYLE,
    PageKind,
    render_page,
)
from weft.page.html import escape, to_link

OURS = {
    "html head body main header footer article p h1 h2 h3 h4 h5 h6 ul ol li pre code strong a b img span details summary dl dt dd",
    "div table thead tbody tr th td blockquote em s hr br figure figcaption",
    "title style script meta noscript",
}
TAGS = frozenset(" ".join(OURS).split())
ATTRIBUTES = frozenset(
    [
        "class",
        "href",
        "rel",
        "src",
        "alt",
        "charset",
        "name",
        "content",
        "http-equiv",
        "lang",
        "start",
        "role",
        "tabindex",
        "aria-label",
        "colspan",
    ]
)
HOSTILE = [
    "<script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</style><script>x</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)' autofocus='",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "java\nscript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "data:image/svg+xml;base64,PHN2Zy8+",
    'data:image/png;base64,AAAA" onload="x',
    "[click](javascript:alert(1))",
    '[click](https://e.test/"onmouseover=x)',
    "**<b onclick=x>**",
    "```\n</code></pre><script>x</script>\n```",
    "# <svg/onload=x>",
    "- <iframe srcdoc='<script>x</script>'>",
    "https://e.test/<script>",
    "<!--<script>x",
    "]]><script>x</script>",
    "&lt;script&gt;&#60;script&#62;",
    "\x00<scr\x00ipt>",
    "\ud800<b>\udfff",
    "\u202egnp.exe",
    "`<a href=javascript:x>`",
    "<base href=//evil.test>",
    "<meta http-equiv=refresh content='0;url=//evil.test'>",
    "<style>@import '//evil.test'</style>",
    "<plaintext>",
]
words = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=60),
    st.lists(
        st.sampled_from([*HOSTILE, "\n", "[", "](", ")", "`", "```", "<", '"', "https://", "\ud83d"]),
        max_size=6,
    ).map("".join),
)


class ParsedPage(HTMLParser):
    """The elements of a page with their attributes, and the content of scripts and styles."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
        self.odd: list[str] = []
        self._in = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), "an attribute twice"
        self._in = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        if tag == self._in:
            self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in:
            self.raw.append((self._in, data))

    def handle_comment(self, data: str) -> None:
        self.odd.append(data)

    def unknown_decl(self, data: str) -> None:
        self.odd.append(data)

    def handle_pi(self, data: str) -> None:
        self.odd.append(data)


def parse_page(page: bytes) -> ParsedPage:
    seen = ParsedPage()
    seen.feed(page.decode())
    seen.close()
    return seen


def faults(page: bytes, kind: PageKind) -> Iterator[str]:
    """Return everything on a page that is not ours."""
    seen = parse_page(page)
    yield from (f"odd: {odd!r}" for odd in seen.odd)
    raw = {"style": STYLE} | ({"script": SCRIPT} if kind == "live" else {})
    if dict(seen.raw) != raw or len(seen.raw) != len(raw):
        yield f"style or script: {seen.raw!r}"
    for tag, attributes in seen.elements:
        if tag not in TAGS:
            yield f"element {tag}"
        yield from (f"attribute {name} of {tag}" for name in attributes if name not in ATTRIBUTES)
        address = attributes.get("href") or ""
        if tag == "a" and not re.fullmatch(r"https?://[^\s\"'<>`\\]+", address, re.IGNORECASE):
            yield f"link to {address!r}"
        picture = attributes.get("src")
        if picture is not None and not re.fullmatch(
            r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}", picture
        ):
            yield f"picture from {picture[:80]!r}"
    metas = [each for tag, each in seen.elements if tag == "meta"]
    if sum("http-equiv" in each for each in metas) != (kind == "file"):
        yield f"metas {metas}"


@st.composite
def sessions(draw: st.DrawFn) -> SessionExport:
    """Generate sessions that are hostile in every field that a person, a model or a file can fill."""
    say = lambda: draw(words)  # noqa: E731
    session, asked, answered = SessionID("ses_1"), MessageID("msg_1"), MessageID("msg_2")
    ids: dict[str, Any] = {"session_id": session, "message_id": answered}
    file = FilePart(id=PartID("prt_f"), **ids, mime=say(), filename=say(), url=say())
    time = CallTime(start=AT, end=AT)
    inputs = {say(): say(), "nested": {"a": [say()]}}
    done = CompletedState(
        input=inputs, output=say(), title=say(), metadata={say(): say()}, time=time, attachments=(file,)
    )
    parts: list[AnyPart] = [
        TextPart(id=PartID("prt_1"), **ids, text=say()),
        ReasoningPart(id=PartID("prt_2"), **ids, text=say(), time=Span(start=AT, end=AT)),
        file,
        ToolPart(id=PartID("prt_3"), **ids, call_id=say(), tool=say(), state=done),
        ToolPart(
            id=PartID("prt_4"),
            **ids,
            call_id=say(),
            tool=say(),
            state=ErrorState(input={}, error=say(), time=time),
        ),
        ToolPart(
            id=PartID("prt_5"),
            **ids,
            call_id="c",
            tool=say(),
            state=RunningState(input=inputs, title=say(), time=Span(start=AT)),
        ),
        AgentPart(id=PartID("prt_6"), **ids, name=say()),
        SubtaskPart(id=PartID("prt_7"), **ids, prompt=say(), description=say(), agent=say()),
        RetryPart(
            id=PartID("prt_8"), **ids, attempt=1, error=unknown_failure(say()), time=Moment(created=AT)
        ),
        StepFinishPart(id=PartID("prt_9"), **ids, reason=say(), cost=Decimal(0), tokens=Tokens()),
    ]
    user = UserMessage(id=asked, session_id=session, time=Moment(created=AT), agent=say(), model=MODEL)
    answer = AssistantMessage(
        id=answered,
        session_id=session,
        time=AssistantTime(created=draw(st.integers(-(10**15), 10**18))),
        error=unknown_failure(say()),
        model_id=say(),
        provider_id=say(),
        agent=say(),
        mode=say(),
    )
    first = TextPart(id=PartID("prt_0"), session_id=session, message_id=asked, text=say())
    return SessionExport(
        info=replace(info(session, directory=say()), title=say(), slug=say()),
        messages=(
            MessageWithParts(info=user, parts=(first,)),
            MessageWithParts(info=answer, parts=tuple(parts)),
        ),
    )


@examples(150)
@given(sessions(), st.sampled_from(["file", "live"]))
def test_conversation_text_never_becomes_markup(session: SessionExport, kind: PageKind) -> None:
    page = render_page(SharedSession(id="x", export=session), kind=kind)
    assert list(faults(page, kind)) == []


def test_the_checks_of_this_file_can_fail() -> None:
    page = render_page(SharedSession(id="x", export=export()), kind="file").decode()
    assert list(faults(page.encode(), "file")) == []
    for planted in (
        "<script>alert(1)</script>",
        '<p onclick="x">',
        '<a href="javascript:x">',
        '<img src="https://evil.test/x.png">',
        "<iframe></iframe>",
        "<!-- hidden -->",
        '<meta http-equiv="refresh" content="0">',
    ):
        assert list(faults(page.replace("<main>", f"<main>{planted}").encode(), "file")), planted


def test_every_message_of_a_page_has_a_heading() -> None:
    page = render_page(SharedSession(id="x", export=export(), busy=True), kind="file").decode()
    assert re.findall(r"<h[12].*?>", page) == ["<h1>"] + ['<h2 class="about">'] * page.count("<article")
    assert '<p class="about" role="status">working …</p>' in page


@pytest.mark.parametrize(
    "address", ["javascript:x", "data:text/html,x", "//e.test", "file:///etc", "https://a b", "mailto:a@b"]
)
def test_only_web_addresses_become_links(address: str) -> None:
    assert to_link(address, escape("words")) == "words"


def test_images_are_shown_and_other_files_are_named() -> None:
    def page_of(url: str, mime: str) -> str:
        ids: dict[str, Any] = {"session_id": export().info.id, "message_id": export().messages[0].info.id}
        file = FilePart(id=PartID("prt_f"), **ids, mime=mime, filename="loom", url=url)
        return render_page(SharedSession(id="x", export=with_parts(export(), file)), kind="file").decode()

    png = "data:image/png;base64,AAAA"
    assert f'<img src="{png}" alt="loom">' in page_of(png, "image/png")
    for url in ("data:image/svg+xml;base64,AAAA", "https://e.test/x.png", "data:image/png,AAAA"):
        page = page_of(url, "image/png")
        assert "<img" not in page
        assert "loom (image/png)" in page


def test_policies_allow_only_our_own_style_and_script() -> None:
    def hash_of(source: str) -> str:
        return f"'sha256-{base64.b64encode(sha256(source.encode()).digest()).decode()}'"

    def rules(policy: str) -> dict[str, str]:
        return dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))

    still = {
        "default-src": "'none'",
        "style-src": hash_of(STYLE),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert rules(FILE_POLICY) == still
    more = {"script-src": hash_of(SCRIPT), "connect-src": "'self'", "frame-ancestors": "'none'"}
    assert rules(LIVE_POLICY) == still | more
    live = render_page(SharedSession(id="x", export=export()), kind="live").decode()
    assert (f"<style>{STYLE}</style>" in live, f"<script>{SCRIPT}</script>" in live) == (True, True)


def test_a_page_in_a_file_contains_its_policy_and_no_script() -> None:
    page = render_page(SharedSession(id="x", export=export(), busy=True), kind="file")
    metas = [each for tag, each in parse_page(page).elements if tag == "meta"]
    assert {"http-equiv": "Content-Security-Policy", "content": FILE_POLICY} in metas
    assert b"<script" not in page


def test_a_live_page_reloads_without_script_while_the_session_runs() -> None:
    refresh = '<noscript><meta http-equiv="refresh" content="15"></noscript>'
    busy, idle = (
        render_page(SharedSession(id="x", export=export(), busy=is_busy), kind="live").decode()
        for is_busy in (True, False)
    )
    assert (refresh in busy, refresh in idle) == (True, False)


def test_very_long_content_is_cut_with_a_notice() -> None:
    page = render_page(
        SharedSession(id="x", export=with_text(export(), "a" * (MAX_TEXT_LENGTH + 7))), kind="file"
    ).decode()
    assert "a\n… 7 characters more" in page
    assert "a" * (MAX_TEXT_LENGTH + 1) not in page
