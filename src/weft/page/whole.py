"""A session as a page: values in, one HTML document out (pure). It asks for nothing from anywhere."""

from datetime import UTC, datetime
from typing import Final, Literal

from weft.model.around.share import Shown
from weft.model.failure import AnyFailure
from weft.model.message import AnyMessage, AssistantMessage, MessageWithParts, UserMessage
from weft.model.plural import plural
from weft.model.wire import to_plain
from weft.page.markup import NOTHING, Html, join, tag, text, void
from weft.page.parts import cut, part
from weft.page.style import FILE_POLICY, SCRIPT, STYLE

MOST_MESSAGES: Final = 2000
REFRESH_SECONDS: Final = 15
_LATEST: Final = 253_402_300_799_000  # the last moment that a calendar has a name for

Kind = Literal["file", "still", "live"]


def to_page(shown: Shown, *, kind: Kind) -> bytes:
    """The document. `live` follows the session while somebody looks; `file` carries its own policy."""
    head = tag("head", *_head(shown, kind))
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


def _head(shown: Shown, kind: Kind) -> list[Html]:
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
