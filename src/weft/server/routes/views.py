"""HTTP routes for our page: messages and changes of files as HTML, and links that log a browser in."""

import asyncio
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from weft.errors import NotFoundError
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.part import AnyPart
from weft.model.permission import PermissionRequest, QuestionRequest
from weft.model.session import AnyStatus
from weft.model.wire import Wire
from weft.page.code import DiffStyle, compare_texts, render_diff
from weft.page.html import clean
from weft.page.view import MessageView, render_details, to_message_view
from weft.server.page_login import LINK_SECONDS, LOGIN_PATH
from weft.server.route import DirectoryCall, HttpOperation, ServerCall, route
from weft.server.routes.runs import read_message_id
from weft.server.routes.sessions import read_session_id
from weft.server.routes.weft_sessions import SESSION
from weft.version import VERSION

MESSAGE = f"{SESSION}/message/{{messageID}}"
PART = f"{MESSAGE}/part/{{partID}}"
PART_FILE = f"{PART}/file"
SESSION_PAGE = f"{SESSION}/page"
MAX_MESSAGES = 200


class ViewQuery(Struct, frozen=True, kw_only=True):
    """The last `limit` messages, or the last `limit` before a message."""

    limit: Annotated[int, Meta(ge=1, le=MAX_MESSAGES)] = 40
    before: str | None = None


class DiffViewQuery(Struct, frozen=True, kw_only=True):
    """The changes of a session, or of one prompt; in one column or side by side, or without `lines` only their counts."""

    message: MessageID | None = field(default=None, name="messageID")
    style: DiffStyle = "unified"
    lines: bool = True


class StyleQuery(Struct, frozen=True, kw_only=True):
    style: DiffStyle = "unified"


class MessagePage(Wire, frozen=True, kw_only=True):
    """Messages, oldest first. If there are earlier ones, `before` is where they end."""

    messages: tuple[MessageView, ...]
    before: MessageID | None = None


class HtmlView(Wire, frozen=True, kw_only=True):
    """Rendered HTML. Everything in it is escaped, and it loads nothing."""

    html: str


class DiffView(Wire, frozen=True, kw_only=True):
    """The change of one file, with its lines as HTML."""

    file: str
    additions: int
    deletions: int
    html: str


class PageStatus(Wire, frozen=True, kw_only=True):
    """What a page shows of all sessions: those that are not idle, and the open requests. `directory` is the server's own."""

    status: dict[SessionID, AnyStatus]
    permissions: tuple[PermissionRequest, ...]
    questions: tuple[QuestionRequest, ...]
    directory: str
    version: str


class LoginLink(Wire, frozen=True, kw_only=True):
    """A ticket that logs a browser in once. It belongs behind `/#login=`, where no log and no other site sees it."""

    ticket: str
    seconds: int


async def list_views(call: DirectoryCall) -> MessagePage:
    """Return messages of a session as our page shows them, oldest first."""
    query: ViewQuery = call.query
    before = MessageID(query.before) if query.before else None
    # One more than requested tells whether there are more.
    messages = await call.api.list_messages(read_session_id(call), limit=query.limit + 1, before=before)
    has_more = len(messages) > query.limit
    shown = messages[1:] if has_more else messages
    views = tuple(to_message_view(message, call.server.blocks) for message in shown)
    return MessagePage(messages=views, before=shown[0].info.id if has_more else None)


async def get_view(call: DirectoryCall) -> MessageView:
    """Return one message as our page shows it."""
    message = await call.api.get_message(read_session_id(call), read_message_id(call))
    return to_message_view(message, call.server.blocks)


async def get_part(call: DirectoryCall) -> AnyPart:
    """Return the part that a path names. Raise `NotFoundError` if the message does not have it."""
    message = await call.api.get_message(read_session_id(call), read_message_id(call))
    id = PartID(call.path_params["partID"])
    for part in message.parts:
        if part.id == id:
            return part
    raise NotFoundError("part", id)


async def get_details(call: DirectoryCall) -> HtmlView:
    """Return what a part contains as HTML, for when it is opened."""
    query: StyleQuery = call.query
    return HtmlView(html=render_details(await get_part(call), call.server.blocks, query.style))


async def list_diff_views(call: DirectoryCall) -> list[DiffView]:
    """Return the changes that a session, or one of its prompts, made to files, as HTML."""
    query: DiffViewQuery = call.query
    diffs = await call.api.list_diff(read_session_id(call), message=query.message)

    def render() -> list[DiffView]:
        return [
            DiffView(
                file=clean(diff.file),
                additions=diff.additions,
                deletions=diff.deletions,
                html=render_diff(compare_texts(diff.before, diff.after), query.style) if query.lines else "",
            )
            for diff in diffs
        ]

    return await asyncio.to_thread(render)


async def get_page_status(call: ServerCall) -> PageStatus:
    """Return what runs and what waits for a person, in every directory that is open."""
    statuses: dict[SessionID, AnyStatus] = {}
    permissions: dict[str, PermissionRequest] = {}
    questions: dict[str, QuestionRequest] = {}
    for api in call.server.list_apis():
        statuses |= await api.list_status()
        permissions |= {each.id: each for each in await api.list_permissions()}
        questions |= {each.id: each for each in await api.list_questions()}
    return PageStatus(
        status=statuses,
        permissions=tuple(permissions.values()),
        questions=tuple(questions.values()),
        directory=call.server.default_directory,
        version=VERSION,
    )


async def make_login_link(call: ServerCall) -> LoginLink:
    """Make a ticket that logs a browser in to our page, once."""
    return LoginLink(ticket=call.server.tickets.issue(LOGIN_PATH, LINK_SECONDS), seconds=LINK_SECONDS)


ROUTES = (
    route("GET", f"{SESSION}/view", "weft.view.list", list_views, query=ViewQuery),
    HttpOperation(
        method="GET",
        path=SESSION_PAGE,
        name="weft.view.page",
        about="Return a whole session as one HTML file that loads nothing",
        returns=str,
        media="text/html",
    ),
    route("GET", f"{MESSAGE}/view", "weft.view.get", get_view),
    route("GET", f"{PART}/view", "weft.view.details", get_details, query=StyleQuery),
    HttpOperation(
        method="GET",
        path=PART_FILE,
        name="weft.view.file",
        about="Return the content of an attached file",
        returns=bytes,
        media="application/octet-stream",
    ),
    route(
        "GET",
        f"{SESSION}/diff/view",
        "weft.view.diff",
        list_diff_views,
        query=DiffViewQuery,
        session_directory="preferred",
    ),
    HttpOperation(
        method="GET",
        path="/weft/view/event",
        name="weft.view.events",
        about="Stream events as our page shows them, with the messages of the sessions in `?session=`",
        returns=dict[str, Any],
        media="text/event-stream",
    ),
    route("GET", "/weft/view/status", "weft.view.status", get_page_status),
    route("POST", "/weft/login-link", "weft.login.link", make_login_link),
)
