"""Render a shared session as one HTML page that loads nothing (pure)."""

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, Literal

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
from weft.model.wire import to_plain
from weft.page.code import compare_texts, render_diff
from weft.page.html import EMPTY, Html, escape, join, tag, void
from weft.page.markdown import render_markdown
from weft.page.view import render_input

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
                _render_details(
                    tag("span", escape("thought"), class_="about"), render_markdown(shorten(part.text))
                )
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


_MARKS: Final = {"done": "✓", "failed": "✗", "running": "●"}


def _render_call(call: ToolPart) -> Html:
    kind = "failed" if find_call_error(call) is not None else _get_kind(call.state)
    title = (getattr(call.state, "title", None) or "") if kind != "failed" else ""
    words = " ".join(filter(None, (title, "" if kind == "done" else kind)))
    head = (
        tag("span", escape(_MARKS[kind]), class_=kind),
        tag("b", escape(get_called_tool(call))),
        tag("span", escape(words), class_="failed" if kind == "failed" else "about"),
    )
    return _render_details(Html(" ".join(head)), *_render_call_content(call))


def _get_kind(state: AnyToolState) -> str:
    match state:
        case PendingState() | RunningState():
            return "running"
        case CompletedState() | ErrorState():
            return "done"


def _render_call_content(call: ToolPart) -> Iterator[Html]:
    state, input = call.state, dict(call.state.input)
    old, new = input.get("oldString"), input.get("newString")
    if isinstance(old, str) and isinstance(new, str):
        yield render_diff(compare_texts(shorten(old), shorten(new)))
        input = {name: value for name, value in input.items() if name not in ("oldString", "newString")}
    if input:
        yield render_input(
            {name: shorten(value) if isinstance(value, str) else value for name, value in input.items()}
        )
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
:root{color-scheme:light dark;--ground:#fbfaf8;--surface:#fff;--sunken:#f3f1ec;--line:#e2ded6;--ink:#211f1c;--dim:#625d55;--accent:#0b6b63;--bad:#a62020;--bad-soft:#fcebe9;--good:#1d6b34;--good-soft:#e3f4e6;
--c:#6b665d;--k:#8a2577;--s:#1d6b34;--n:#0f5f9c;--f:#1f55b5;--t:#8a4b00;--b:#0b6b63;--mono:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
@media(prefers-color-scheme:dark){:root{--ground:#171615;--surface:#201f1d;--sunken:#121110;--line:#35322e;--ink:#eceae6;--dim:#aaa499;--accent:#5ec9bd;--bad:#f59088;--bad-soft:#3a1c1a;--good:#7fd394;--good-soft:#15301c;
--c:#9b958a;--k:#dd9bd0;--s:#8fd3a0;--n:#86bdf0;--f:#9db9f5;--t:#ecb56f;--b:#5ec9bd}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:52rem;padding:2rem 1.2rem;background:var(--ground);color:var(--ink);font:1rem/1.62 ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;overflow-wrap:anywhere}
header{border-bottom:1px solid var(--line);margin-bottom:1.2rem}
h1{font-size:1.5rem;line-height:1.3;letter-spacing:-.012em;margin:0}
h3{font-size:1.15rem;margin:1.1rem 0 .4rem}
h4,h5,h6{font-size:1rem;margin:1rem 0 .3rem}
header p,footer,.about{color:var(--dim);font-size:.86rem;font-weight:normal;margin:.7em 0}
span.about{margin:0}
a{color:var(--accent);text-underline-offset:.18em}
article p{margin:.7rem 0}
article{margin:1rem 0;padding:0}
article.user{background:var(--surface);border:1px solid var(--line);border-radius:14px;padding:.1rem 1.1rem}
article.user p{white-space:pre-line}
pre{margin:.6rem 0;background:var(--sunken);border:1px solid var(--line);border-radius:10px;padding:.7rem .9rem;overflow:auto;max-height:34rem;white-space:pre-wrap;font:.83rem/1.5 var(--mono)}
figure{margin:.8rem 0;border:1px solid var(--line);border-radius:10px;overflow:hidden;background:var(--sunken)}
figcaption{font-size:.76rem;color:var(--dim);padding:.25rem .9rem;border-bottom:1px solid var(--line)}
figure pre{margin:0;border:0;border-radius:0;white-space:pre}
code{font:.9em var(--mono)}
:not(pre)>code{background:var(--sunken);border:1px solid var(--line);border-radius:5px;padding:.08em .32em}
pre code{font-size:inherit}
code .c{color:var(--c);font-style:italic}code .k{color:var(--k)}code .s{color:var(--s)}code .n{color:var(--n)}code .f{color:var(--f)}code .t,code .d,code .v{color:var(--t)}code .b{color:var(--b)}
.table{overflow-x:auto}
table{border-collapse:collapse;font-size:.92rem}
th,td{border-bottom:1px solid var(--line);padding:.34rem .9rem .34rem 0;text-align:left;vertical-align:top}
.right{text-align:right}.center{text-align:center}
blockquote{margin:.7rem 0;border-left:3px solid var(--line);padding-left:.9rem;color:var(--dim)}
hr{border:0;border-top:1px solid var(--line)}
details{margin:.5rem 0;border:1px solid var(--line);border-radius:10px;background:var(--surface);padding:.34rem .8rem;font-size:.9rem}
details+details{margin-top:-.5rem}details:has(+details){border-radius:10px 10px 0 0;border-bottom:0}details+details{border-radius:0 0 10px 10px}details+details:has(+details){border-radius:0}
summary{cursor:pointer;list-style:none}summary::-webkit-details-marker{display:none}summary b{font-weight:600;margin-right:.3rem}
.done{color:var(--good)}
.again{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}article:has(>.again){margin-top:-.5rem}
dl.input{display:grid;grid-template-columns:auto 1fr;gap:.15rem .9rem;margin:.6rem 0}dl.input dt{color:var(--dim)}dl.input dd{margin:0;font:.95em var(--mono);white-space:pre-wrap;max-height:16rem;overflow:auto}
.diff-box{overflow:auto;max-height:40rem;margin:.6rem 0}table.diff{width:100%;font:.82rem/1.5 var(--mono)}table.diff td{border:0;padding:0 .5rem}table.diff .line{white-space:pre-wrap;width:100%}table.diff .num{color:var(--dim);text-align:right}
table.diff tr.add td{background:var(--good-soft)}table.diff tr.del td{background:var(--bad-soft)}table.diff tr.add .num,table.diff tr.del .num{color:var(--ink)}
.failed{color:var(--bad)}
img{max-width:100%;max-height:30rem;border-radius:10px}
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


def render_file(title: str, *body: Html) -> bytes:
    """Render a page with this title and content as a file, which contains its own policy."""
    policy = void("meta", http_equiv="Content-Security-Policy", content=FILE_POLICY)
    first, *metas = _list_metas()
    head = tag("head", first, policy, *metas, tag("title", escape(title)), _render_style())
    return _render_document(head, tag("body", *body))


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
    shown = messages[-MAX_MESSAGES:]
    previous = [None, *(each.info for each in shown)]
    return join(
        (
            *note,
            *(_render_message(each, previous=info) for each, info in zip(shown, previous, strict=False)),
            *busy,
        )
    )


def _render_message(message: MessageWithParts, *, previous: AnyMessage | None) -> Html:
    inner = [html for each in message.parts if (html := render_part(each))]
    failure = message.info.error if isinstance(message.info, AssistantMessage) else None
    if failure is not None:
        inner.append(tag("p", escape(shorten(_format_failure(failure))), class_="failed"))
    if not inner:
        return EMPTY
    return tag(
        "article",
        tag("h2", escape(_format_author(message.info)), class_=_get_heading(message.info, previous)),
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


def _get_heading(info: AnyMessage, previous: AnyMessage | None) -> str:
    """Return the class of a heading. If the same agent and model continue, only screen readers get the heading."""
    if not isinstance(info, AssistantMessage) or not isinstance(previous, AssistantMessage):
        return "about"
    return "again" if (info.agent, info.model_id) == (previous.agent, previous.model_id) else "about"


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
