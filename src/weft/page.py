"""Render a session as one HTML page that loads nothing (pure)."""

import base64
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, Literal, NewType

from weft.model.display import find_call_error, format_count, get_called_tool, strip_tags
from weft.model.failure import AnyFailure
from weft.model.message import AnyMessage, AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import (
    AgentPart,
    AnyPart,
    AnyToolState,
    CompactionPart,
    CompletedState,
    ErrorState,
    FilePart,
    PatchPart,
    PendingState,
    ReasoningPart,
    RetryPart,
    RunningState,
    SnapshotPart,
    StepFinishPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    ToolPart,
    UnknownPart,
)
from weft.model.share import SharedSession
from weft.model.wire import encode_pretty, to_plain

Html = NewType("Html", str)

EMPTY: Final = Html("")
_ESCAPES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "`": "&#96;"}
)
# Characters that must not appear: control characters, lone surrogates, and marks that reverse the direction of text
# so that it reads differently.
_FORBIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)
_LINK: Final = re.compile(r"https?://[^\s\x00-\x20\"'<>`\\]{1,2000}", re.IGNORECASE)


def escape(text: str) -> Html:
    """Return any text as HTML."""
    return Html(_FORBIDDEN.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n")).translate(_ESCAPES))


def tag(name: str, /, *inner: Html, **attributes: str) -> Html:
    """Return an element. Names are our own literals; values are escaped."""
    head = _opening_tag(name, attributes)
    return Html(f"<{head}>{''.join(inner)}</{name}>")


def void(name: str, /, **attributes: str) -> Html:
    """Return an element without content."""
    return Html(f"<{_opening_tag(name, attributes)}>")


def join(pieces: Iterable[Html]) -> Html:
    return Html("".join(pieces))


def to_link(address: str, *inner: Html) -> Html:
    """Return a link to a web address; for any other address, only its text."""
    if _LINK.fullmatch(address) is None:
        return join(inner)
    return tag("a", *inner, href=address, rel="noopener noreferrer nofollow")


def _opening_tag(name: str, attributes: dict[str, str]) -> str:
    return name + "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items()
    )


_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})[^\n`]*")
_HEADING: Final = re.compile(r"(#{1,6})\s+(\S.*)")
_ITEM: Final = re.compile(r"\s{0,12}(?:[-*+]|(?P<number>\d{1,4})[.)])\s+(?P<text>\S.*)")
_INLINE: Final = re.compile(
    r"`(?P<code>[^`\n]{1,500})`"
    r"|\*\*(?P<bold>[^*\n]{1,500})\*\*"
    r"|\[(?P<label>[^\]\[\n]{1,300})\]\((?P<url>[^()\s]{1,2000})\)"
    r"|(?P<bare>https?://[^\s<>\"'`)\]]{1,2000}(?<![.,;:!?]))"
)
_HEADING_OFFSET: Final = 2  # `#` becomes `h3`: the title of the page is `h1`, that of a message `h2`


def render_markdown(text: str) -> Html:
    """Render text with the basic Markdown that models write."""
    return join(_render_blocks(text.replace("\r\n", "\n").split("\n")))


def _render_blocks(lines: list[str]) -> Iterator[Html]:
    paragraph: list[str] = []
    items: list[re.Match[str]] = []
    index = 0
    while index < len(lines):
        line, fence = lines[index], _FENCE.fullmatch(lines[index])
        item, heading = _ITEM.fullmatch(line), _HEADING.fullmatch(line)
        if items and (item is None or _is_numbered(item) != _is_numbered(items[0])):
            yield _render_list(items)
            items = []
        if paragraph and (fence or item or heading or not line.strip()):
            yield _render_paragraph(paragraph)
            paragraph = []
        if fence is not None:
            end = _find_fence_end(lines, index + 1, fence[1])
            yield tag("pre", tag("code", escape("\n".join(lines[index + 1 : end]))))
            index = end
        elif heading is not None:
            yield tag(f"h{min(6, len(heading[1]) + _HEADING_OFFSET)}", render_inline(heading[2]))
        elif item is not None:
            items.append(item)
        elif line.strip():
            paragraph.append(line)
        index += 1
    if items:
        yield _render_list(items)
    if paragraph:
        yield _render_paragraph(paragraph)


def _find_fence_end(lines: list[str], start: int, fence: str) -> int:
    """Return the line that closes a code block, or the end of the text."""
    for index in range(start, len(lines)):
        line = lines[index].strip()
        if len(line) >= len(fence) and not line.strip(fence[0]):
            return index
    return len(lines)


def _is_numbered(item: re.Match[str]) -> bool:
    return item["number"] is not None


def _render_list(items: list[re.Match[str]]) -> Html:
    inner = (tag("li", render_inline(item["text"])) for item in items)
    first: str | None = items[0]["number"]
    return tag("ul", *inner) if first is None else tag("ol", *inner, start=str(int(first)))


def _render_paragraph(lines: list[str]) -> Html:
    return tag("p", render_inline("\n".join(lines)))


def render_inline(text: str) -> Html:
    """Render code, emphasis and links within a line of text."""
    pieces: list[Html] = []
    end = 0
    for match in _INLINE.finditer(text):
        pieces.append(escape(text[end : match.start()]))
        pieces.append(_render_match(match))
        end = match.end()
    return join((*pieces, escape(text[end:])))


def _render_match(inline: re.Match[str]) -> Html:
    match inline.lastgroup:
        case "code":
            return tag("code", escape(inline["code"]))
        case "bold":
            return tag("strong", escape(inline["bold"]))
        case "bare":
            return to_link(inline["bare"], escape(inline["bare"]))
        case _:
            return to_link(inline["url"], escape(inline["label"]))


MAX_TEXT_LENGTH: Final = 64 * 1024
MAX_PICTURE_LENGTH: Final = 4 * 1024 * 1024
# Types that contain only a picture: an SVG is a document.
_PICTURE: Final = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")


def render_part(part: AnyPart) -> Html:
    match part:
        case TextPart():
            return render_markdown(shorten(part.text)) if part.text.strip() and not part.synthetic else EMPTY
        case ReasoningPart():
            return (
                _render_details(escape("thought"), render_markdown(shorten(part.text)))
                if part.text.strip()
                else EMPTY
            )
        case FilePart():
            return _render_file(part)
        case ToolPart():
            return _render_call(part)
        case SubtaskPart():
            label = escape(f"task for {part.agent}: {part.description}")
            return _render_details(label, render_markdown(shorten(part.prompt)))
        case AgentPart():
            return _render_note(f"@{part.name}")
        case CompactionPart():
            return _render_note("the conversation was compacted here")
        case RetryPart():
            return _render_note(f"attempt {part.attempt} failed and was repeated")
        case StepStartPart() | StepFinishPart() | PatchPart() | SnapshotPart() | UnknownPart():
            return EMPTY


def shorten(text: str) -> str:
    """Return the beginning of a very long text, and how much is missing."""
    return (
        text
        if len(text) <= MAX_TEXT_LENGTH
        else f"{text[:MAX_TEXT_LENGTH]}\n… {len(text) - MAX_TEXT_LENGTH} characters more"
    )


def _render_note(text: str) -> Html:
    return tag("p", escape(text), class_="about")


def _render_details(head: Html, *inner: Html) -> Html:
    return tag("details", tag("summary", head), *inner)


def _render_file(file: FilePart) -> Html:
    caption = tag("p", escape(f"{file.filename or 'a file'} ({file.mime})"), class_="about")
    if len(file.url) > MAX_PICTURE_LENGTH or _PICTURE.fullmatch(file.url) is None:
        return caption
    return join((caption, tag("p", void("img", src=file.url, alt=file.filename or "a picture"))))


def _render_call(call: ToolPart) -> Html:
    state = call.state
    title = getattr(state, "title", None) or ""
    failed = find_call_error(call) is not None
    words = (get_called_tool(call), "" if failed else title, "(failed)" if failed else _format_state(state))
    head = tag("span", escape(" ".join(filter(None, words))), class_="failed" if failed else "call")
    return _render_details(head, *_render_call_content(call))


def _format_state(state: AnyToolState) -> str:
    match state:
        case PendingState() | RunningState():
            return "(running)"
        case CompletedState() | ErrorState():
            return ""


def _render_call_content(call: ToolPart) -> Iterator[Html]:
    state = call.state
    if state.input:
        yield tag("pre", escape(shorten(encode_pretty(state.input).decode("utf-8", "replace"))))
    match state:
        case CompletedState():
            if state.output:
                yield tag("pre", escape(shorten(strip_tags(call.tool, state.output))))
            yield from (_render_file(file) for file in state.attachments or ())
        case ErrorState():
            yield tag("pre", escape(shorten(strip_tags(call.tool, state.error))))
        case PendingState() | RunningState():
            pass


STYLE: Final = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--dim:#5f5f5f;--bad:#b22}
@media(prefers-color-scheme:dark){:root{--dim:#a8a8a8;--bad:#f77}}
body{margin:0 auto;max-width:56rem;padding:1.5rem;font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
header{border-bottom:1px solid var(--line);margin-bottom:1rem}
h1{font-size:1.4rem;margin:0}
h3,h4,h5,h6{font-size:1rem;margin:.8rem 0 .3rem}
header p,footer,.about{color:var(--dim);font-size:.85rem;font-weight:normal;margin:1em 0}
article p,li{white-space:pre-wrap}
article{margin:1rem 0;padding:.1rem 1rem;border-left:3px solid var(--line)}
article.user{background:var(--soft);border-left-color:#47c}
article.assistant{border-left-color:#4a7}
pre{background:var(--soft);padding:.6rem;overflow-x:auto;white-space:pre-wrap;font:.85rem/1.4 ui-monospace,monospace}
code{font:.9em ui-monospace,monospace}
details{margin:.5rem 0;border:1px solid var(--line);padding:.3rem .6rem}
summary{cursor:pointer}
.failed{color:var(--bad)}
img{max-width:100%;max-height:30rem}
"""

# After a change the script fetches the page again and replaces the elements that differ, so that only the server
# renders. It also fetches when the stream opens, because earlier changes are not reported. Open details stay open and
# unchanged elements stay untouched, so that readers keep their place and their selection.
SCRIPT: Final = """
const at=location.pathname;
let stream,lastFetch=0,retry;
async function refresh(){
const fetchNumber=++lastFetch,response=await fetch(at,{cache:"no-store"}).catch(()=>null);
if(response?.status==404){stream.close();location.reload();return}
if(!response?.ok){clearTimeout(retry);retry=setTimeout(refresh,2000);return}
const page=new DOMParser().parseFromString(await response.text(),"text/html");
if(fetchNumber!=lastFetch)return;
const oldDetails=document.querySelectorAll("details");
page.querySelectorAll("details").forEach((each,i)=>{if(oldDetails[i]?.open)each.open=true});
document.title=page.title;
for(const name of ["header","main","footer"]){
const old=document.querySelector(name),fetched=page.querySelector(name);
if(!old||!fetched)continue;
const children=[...fetched.children];
children.forEach((each,i)=>{const existing=old.children[i];
if(!existing)old.append(each);else if(!existing.isEqualNode(each))existing.replaceWith(each)});
while(old.children.length>children.length)old.lastElementChild.remove()}}
function follow(){
stream=new EventSource(at+"/live");
for(const kind of ["open","changed","ended"])stream.addEventListener(kind,refresh);
stream.onerror=()=>{if(stream.readyState==EventSource.CLOSED){refresh();setTimeout(follow,10000)}}}
follow();
"""


def _hash_source(source: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(source.encode()).digest()).decode()}'"


_BASE_POLICY: Final = (
    f"default-src 'none'; style-src {_hash_source(STYLE)}; img-src data:; base-uri 'none'; form-action 'none'"
)
# A file contains the policy in the page itself, where `frame-ancestors` has no effect.
FILE_POLICY: Final = _BASE_POLICY
STATIC_POLICY: Final = f"{_BASE_POLICY}; frame-ancestors 'none'"
LIVE_POLICY: Final = f"{STATIC_POLICY}; script-src {_hash_source(SCRIPT)}; connect-src 'self'"


MAX_MESSAGES: Final = 2000
REFRESH_SECONDS: Final = 15
_MAX_TIME_MS: Final = 253_402_300_799_000  # the last moment that a date can represent

PageKind = Literal["file", "live"]


def render_page(session: SharedSession, *, kind: PageKind) -> bytes:
    """Render a session. A `live` page follows the session while it is open; a `file` contains its own policy."""
    head = tag("head", *_list_head(session, kind))
    body = tag(
        "body",
        _render_header(session),
        tag("main", _render_messages(session)),
        _render_footer(session),
        _render_script(kind),
    )
    return _render_document(head, body)


def render_notice(text: str) -> bytes:
    """Render a page with one sentence, for an address where nothing is shown."""
    head = tag("head", *_list_metas(), tag("title", escape(text)), _render_style())
    return _render_document(head, tag("body", tag("main", tag("h1", escape(text)))))


def _render_document(head: Html, body: Html) -> bytes:
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'.encode("utf-8", "replace")


def _list_metas() -> list[Html]:
    return [
        void("meta", charset="utf-8"),
        void("meta", name="viewport", content="width=device-width,initial-scale=1"),
        void("meta", name="referrer", content="no-referrer"),
        void("meta", name="robots", content="noindex,nofollow"),
    ]


def _render_style() -> Html:
    return Html(f"<style>{STYLE}</style>")


def _list_head(session: SharedSession, kind: PageKind) -> list[Html]:
    metas = _list_metas()
    if kind == "file":
        # Before everything that the policy applies to.
        metas.insert(1, void("meta", http_equiv="Content-Security-Policy", content=FILE_POLICY))
    if kind == "live" and session.busy:
        refresh = void("meta", http_equiv="refresh", content=str(REFRESH_SECONDS))
        metas.append(tag("noscript", refresh))
    return [*metas, tag("title", escape(session.export.info.title)), _render_style()]


def _render_script(kind: PageKind) -> Html:
    return Html(f"<script>{SCRIPT}</script>") if kind == "live" else EMPTY


def _render_header(session: SharedSession) -> Html:
    info = session.export.info
    facts = [f"begun {_format_time(info.time.created)}"]
    if info.summary is not None:
        summary = info.summary
        facts.append(
            f"{format_count(summary.files, 'file')} changed, +{summary.additions} -{summary.deletions}"
        )
    return tag("header", tag("h1", escape(info.title or "A session")), tag("p", escape(" · ".join(facts))))


def _render_footer(session: SharedSession) -> Html:
    until = "" if session.expires is None else f" It is shown until {_format_time(session.expires)}."
    return tag("footer", tag("p", escape(f"A session of weft, shown as it was shared.{until}")))


def _render_messages(session: SharedSession) -> Html:
    messages = session.export.messages
    earlier = len(messages) - MAX_MESSAGES
    note = (
        [
            tag(
                "p",
                escape(f"{format_count(earlier, 'earlier message is', 'earlier messages are')} not shown"),
                class_="about",
            )
        ]
        if earlier > 0
        else []
    )
    busy = [tag("p", escape("working …"), class_="about", role="status")] if session.busy else []
    return join((*note, *(_render_message(each) for each in messages[-MAX_MESSAGES:]), *busy))


def _render_message(message: MessageWithParts) -> Html:
    inner = [html for each in message.parts if (html := render_part(each))]
    failure = message.info.error if isinstance(message.info, AssistantMessage) else None
    if failure is not None:
        inner.append(tag("p", escape(shorten(_format_failure(failure))), class_="failed"))
    if not inner:
        return EMPTY
    return tag(
        "article",
        tag("h2", escape(_format_author(message.info)), class_="about"),
        *inner,
        class_=_get_role(message.info),
    )


def _format_failure(failure: AnyFailure) -> str:
    plain = to_plain(failure)
    data = plain.get("data")
    message = data.get("message") if isinstance(data, dict) else None
    return (
        f"{plain.get('name', 'failed')}: {message}"
        if isinstance(message, str) and message
        else str(plain.get("name", "failed"))
    )


def _get_role(info: AnyMessage) -> str:
    return "user" if isinstance(info, UserMessage) else "assistant"


def _format_author(info: AnyMessage) -> str:
    match info:
        case UserMessage():
            return f"asked {_format_time(info.time.created)}"
        case AssistantMessage():
            author = " ".join(filter(None, (info.agent, f"{info.provider_id}/{info.model_id}".strip("/"))))
            return f"{author} {_format_time(info.time.created)}"


def _format_time(ms: int) -> str:
    """Format a time in UTC: readers may be anywhere."""
    if not 0 <= ms <= _MAX_TIME_MS:
        return "some time"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
