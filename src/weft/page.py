"""Lay out a session as one HTML page that loads nothing from anywhere (pure)."""

import base64
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, Literal, NewType

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
from weft.model.readable import fault_of, name_of, plural, readable
from weft.model.share import Shown
from weft.model.wire import encode_pretty, to_plain

Html = NewType("Html", str)

NOTHING: Final = Html("")
_ESCAPES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "`": "&#96;"}
)
# What no page shows as itself: control characters, halves of surrogate pairs, and marks that turn text around so that
# it reads other than it is.
_ODD: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
_LINK: Final = re.compile(r"https?://[^\s\x00-\x20\"'<>`\\]{1,2000}", re.IGNORECASE)


def text(said: str) -> Html:
    """Anything anybody said, as text."""
    return Html(_ODD.sub("\ufffd", said.replace("\r\n", "\n").replace("\r", "\n")).translate(_ESCAPES))


def tag(name: str, /, *inner: Html, **attributes: str) -> Html:
    """An element. Names are literals of ours; values are escaped."""
    head = _opening_tag(name, attributes)
    return Html(f"<{head}>{''.join(inner)}</{name}>")


def void(name: str, /, **attributes: str) -> Html:
    """An element that holds nothing."""
    return Html(f"<{_opening_tag(name, attributes)}>")


def join(pieces: Iterable[Html]) -> Html:
    return Html("".join(pieces))


def link(address: str, *inner: Html) -> Html:
    """A link, if it leads to the web; the words alone if it leads anywhere else."""
    if _LINK.fullmatch(address) is None:
        return join(inner)
    return tag("a", *inner, href=address, rel="noopener noreferrer nofollow")


def _opening_tag(name: str, attributes: dict[str, str]) -> str:
    return name + "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items()
    )


_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})[^\n`]*")
_HEADING: Final = re.compile(r"(#{1,6})\s+(\S.*)")
_ITEM: Final = re.compile(r"\s{0,12}(?:[-*+]|(?P<number>\d{1,4})[.)])\s+(?P<said>\S.*)")
_INLINE: Final = re.compile(
    r"`(?P<code>[^`\n]{1,500})`"
    r"|\*\*(?P<bold>[^*\n]{1,500})\*\*"
    r"|\[(?P<words>[^\]\[\n]{1,300})\]\((?P<to>[^()\s]{1,2000})\)"
    r"|(?P<bare>https?://[^\s<>\"'`)\]]{1,2000}(?<![.,;:!?]))"
)
_TOP_LEVEL: Final = 2


def prose(said: str) -> Html:
    """Words, laid out."""
    return join(_blocks(said.replace("\r\n", "\n").split("\n")))


def _blocks(lines: list[str]) -> Iterator[Html]:
    waiting: list[str] = []
    items: list[re.Match[str]] = []
    at = 0
    while at < len(lines):
        line, fence = lines[at], _FENCE.fullmatch(lines[at])
        item, heading = _ITEM.fullmatch(line), _HEADING.fullmatch(line)
        if items and (item is None or _is_numbered(item) != _is_numbered(items[0])):
            yield _list(items)
            items = []
        if waiting and (fence or item or heading or not line.strip()):
            yield _paragraph(waiting)
            waiting = []
        if fence is not None:
            end = _end_of(lines, at + 1, fence[1])
            yield tag("pre", tag("code", text("\n".join(lines[at + 1 : end]))))
            at = end
        elif heading is not None:
            yield tag(f"h{min(6, len(heading[1]) + _TOP_LEVEL)}", inline(heading[2]))
        elif item is not None:
            items.append(item)
        elif line.strip():
            waiting.append(line)
        at += 1
    if items:
        yield _list(items)
    if waiting:
        yield _paragraph(waiting)


def _end_of(lines: list[str], at: int, fence: str) -> int:
    """The line that closes a block of code; the end of the text if none does."""
    for index in range(at, len(lines)):
        line = lines[index].strip()
        if len(line) >= len(fence) and not line.strip(fence[0]):
            return index
    return len(lines)


def _is_numbered(item: re.Match[str]) -> bool:
    return item["number"] is not None


def _list(items: list[re.Match[str]]) -> Html:
    inner = (tag("li", inline(item["said"])) for item in items)
    first: str | None = items[0]["number"]
    return tag("ul", *inner) if first is None else tag("ol", *inner, start=str(int(first)))


def _paragraph(lines: list[str]) -> Html:
    return tag("p", inline("\n".join(lines)))


def inline(said: str) -> Html:
    """One run of words: code, emphasis and links in it."""
    pieces: list[Html] = []
    end = 0
    for found in _INLINE.finditer(said):
        pieces.append(text(said[end : found.start()]))
        pieces.append(_piece(found))
        end = found.end()
    return join((*pieces, text(said[end:])))


def _piece(found: re.Match[str]) -> Html:
    match found.lastgroup:
        case "code":
            return tag("code", text(found["code"]))
        case "bold":
            return tag("strong", text(found["bold"]))
        case "bare":
            return link(found["bare"], text(found["bare"]))
        case _:
            return link(found["to"], text(found["words"]))


LONGEST: Final = 64 * 1024
LARGEST_PICTURE: Final = 4 * 1024 * 1024
# Kinds that are nothing but pictures: an SVG is a document.
_PICTURE: Final = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")


def part(shown: AnyPart) -> Html:
    match shown:
        case TextPart():
            return prose(cut(shown.text)) if shown.text.strip() and not shown.synthetic else NOTHING
        case ReasoningPart():
            return _folded(text("thought"), prose(cut(shown.text))) if shown.text.strip() else NOTHING
        case FilePart():
            return _file(shown)
        case ToolPart():
            return _call(shown)
        case SubtaskPart():
            named = text(f"task for {shown.agent}: {shown.description}")
            return _folded(named, prose(cut(shown.prompt)))
        case AgentPart():
            return _about(f"@{shown.name}")
        case CompactionPart():
            return _about("the conversation so far was summed up here")
        case RetryPart():
            return _about(f"attempt {shown.attempt} failed, and was made again")
        case StepStartPart() | StepFinishPart() | PatchPart() | SnapshotPart() | UnknownPart():
            return NOTHING


def cut(said: str) -> str:
    """The beginning of what is very long, and that it is."""
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}\n… {len(said) - LONGEST} characters more"


def _about(said: str) -> Html:
    return tag("p", text(said), class_="about")


def _folded(head: Html, *inner: Html) -> Html:
    return tag("details", tag("summary", head), *inner)


def _file(file: FilePart) -> Html:
    named = tag("p", text(f"{file.filename or 'a file'} ({file.mime})"), class_="about")
    if len(file.url) > LARGEST_PICTURE or _PICTURE.fullmatch(file.url) is None:
        return named
    return join((named, tag("p", void("img", src=file.url, alt=file.filename or "a picture"))))


def _call(call: ToolPart) -> Html:
    state = call.state
    title = getattr(state, "title", None) or ""
    failed = fault_of(call) is not None
    said = (name_of(call), "" if failed else title, "(failed)" if failed else _fate(state))
    head = tag("span", text(" ".join(filter(None, said))), class_="failed" if failed else "call")
    return _folded(head, *_told(call))


def _fate(state: AnyToolState) -> str:
    match state:
        case PendingState() | RunningState():
            return "(under way)"
        case CompletedState() | ErrorState():
            return ""


def _told(call: ToolPart) -> Iterator[Html]:
    state = call.state
    if state.input:
        yield tag("pre", text(cut(encode_pretty(state.input).decode("utf-8", "replace"))))
    match state:
        case CompletedState():
            if state.output:
                yield tag("pre", text(cut(readable(call.tool, state.output))))
            yield from (_file(file) for file in state.attachments or ())
        case ErrorState():
            yield tag("pre", text(cut(readable(call.tool, state.error))))
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

# Whatever changed, the page is asked for again and what differs put in place: it is the server that lays out. It is asked for
# whenever the stream opens, too: what happened before, or while the line was cut, is told by nobody. What was unfolded stays so,
# and what is as it was stays untouched: whoever reads, marks or walks through it by keys keeps their place.
SCRIPT: Final = """
const at=location.pathname;
let told,asked=0,again;
async function look(){
const mine=++asked,answer=await fetch(at,{cache:"no-store"}).catch(()=>null);
if(answer?.status==404){told.close();location.reload();return}
if(!answer?.ok){clearTimeout(again);again=setTimeout(look,2000);return}
const page=new DOMParser().parseFromString(await answer.text(),"text/html");
if(mine!=asked)return;
const folds=document.querySelectorAll("details");
page.querySelectorAll("details").forEach((each,i)=>{if(folds[i]?.open)each.open=true});
document.title=page.title;
for(const name of ["header","main","footer"]){
const old=document.querySelector(name),its=page.querySelector(name);
if(!old||!its)continue;
const fresh=[...its.children];
fresh.forEach((each,i)=>{const was=old.children[i];
if(!was)old.append(each);else if(!was.isEqualNode(each))was.replaceWith(each)});
while(old.children.length>fresh.length)old.lastElementChild.remove()}}
function follow(){
told=new EventSource(at+"/live");
for(const kind of ["open","changed","ended"])told.addEventListener(kind,look);
told.onerror=()=>{if(told.readyState==EventSource.CLOSED){look();setTimeout(follow,10000)}}}
follow();
"""


def _hash_of(source: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(source.encode()).digest()).decode()}'"


_STILL: Final = (
    f"default-src 'none'; style-src {_hash_of(STYLE)}; img-src data:; base-uri 'none'; form-action 'none'"
)
# In a file it stands in the page itself, where `frame-ancestors` counts for nothing.
FILE_POLICY: Final = _STILL
STILL_POLICY: Final = f"{_STILL}; frame-ancestors 'none'"
LIVE_POLICY: Final = f"{STILL_POLICY}; script-src {_hash_of(SCRIPT)}; connect-src 'self'"


MOST_MESSAGES: Final = 2000
REFRESH_SECONDS: Final = 15
_LATEST: Final = 253_402_300_799_000  # the last moment that a calendar has a name for

Kind = Literal["file", "still", "live"]


def to_page(shown: Shown, *, kind: Kind) -> bytes:
    """The document. `live` follows the session while somebody looks; `file` carries its own policy."""
    head = tag("head", *_document_head(shown, kind))
    body = tag("body", _header(shown), tag("main", _messages(shown)), _footer(shown), _script(kind))
    return _document(head, body)


def to_notice(said: str) -> bytes:
    """A document that says one sentence, for somebody who looks where nothing is shown."""
    head = tag("head", *_metas(), tag("title", text(said)), _style())
    return _document(head, tag("body", tag("main", tag("h1", text(said)))))


def _document(head: Html, body: Html) -> bytes:
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'.encode("utf-8", "replace")


def _metas() -> list[Html]:
    return [
        void("meta", charset="utf-8"),
        void("meta", name="viewport", content="width=device-width,initial-scale=1"),
        void("meta", name="referrer", content="no-referrer"),
        void("meta", name="robots", content="noindex,nofollow"),
    ]


def _style() -> Html:
    return Html(f"<style>{STYLE}</style>")


def _document_head(shown: Shown, kind: Kind) -> list[Html]:
    metas = _metas()
    if kind == "file":
        # Before anything that could be held against it.
        metas.insert(1, void("meta", http_equiv="Content-Security-Policy", content=FILE_POLICY))
    if kind == "live" and shown.busy:
        refresh = void("meta", http_equiv="refresh", content=str(REFRESH_SECONDS))
        metas.append(tag("noscript", refresh))
    return [*metas, tag("title", text(shown.parcel.info.title)), _style()]


def _script(kind: Kind) -> Html:
    return Html(f"<script>{SCRIPT}</script>") if kind == "live" else NOTHING


def _header(shown: Shown) -> Html:
    info = shown.parcel.info
    said = [f"begun {_when(info.time.created)}"]
    if info.summary is not None:
        changed = info.summary
        said.append(f"{plural(changed.files, 'file')} changed, +{changed.additions} -{changed.deletions}")
    return tag("header", tag("h1", text(info.title or "A session")), tag("p", text(" · ".join(said))))


def _footer(shown: Shown) -> Html:
    until = "" if shown.expires is None else f" It is shown until {_when(shown.expires)}."
    return tag("footer", tag("p", text(f"A session of weft, shown as it was shared.{until}")))


def _messages(shown: Shown) -> Html:
    messages = shown.parcel.messages
    earlier = len(messages) - MOST_MESSAGES
    note = (
        [
            tag(
                "p",
                text(f"{plural(earlier, 'earlier message is', 'earlier messages are')} not shown"),
                class_="about",
            )
        ]
        if earlier > 0
        else []
    )
    busy = [tag("p", text("at work …"), class_="about", role="status")] if shown.busy else []
    return join((*note, *(_message(each) for each in messages[-MOST_MESSAGES:]), *busy))


def _message(message: MessageWithParts) -> Html:
    inner = [made for each in message.parts if (made := part(each))]
    failure = message.info.error if isinstance(message.info, AssistantMessage) else None
    if failure is not None:
        inner.append(tag("p", text(cut(_failed(failure))), class_="failed"))
    if not inner:
        return NOTHING
    return tag(
        "article", tag("h2", text(_who(message.info)), class_="about"), *inner, class_=_role(message.info)
    )


def _failed(failure: AnyFailure) -> str:
    plain = to_plain(failure)
    data = plain.get("data")
    said = data.get("message") if isinstance(data, dict) else None
    return (
        f"{plain.get('name', 'failed')}: {said}"
        if isinstance(said, str) and said
        else str(plain.get("name", "failed"))
    )


def _role(info: AnyMessage) -> str:
    return "user" if isinstance(info, UserMessage) else "assistant"


def _who(info: AnyMessage) -> str:
    match info:
        case UserMessage():
            return f"asked {_when(info.time.created)}"
        case AssistantMessage():
            named = " ".join(filter(None, (info.agent, f"{info.provider_id}/{info.model_id}".strip("/"))))
            return f"{named} {_when(info.time.created)}"


def _when(ms: int) -> str:
    """In UTC: whoever looks may be anywhere."""
    if not 0 <= ms <= _LATEST:
        return "some time"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
