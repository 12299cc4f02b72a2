"""HTTP routes for permission requests, questions, grants and the log of decisions."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

from msgspec import Meta, Struct

from weft.api import Api
from weft.errors import InvalidInputError
from weft.model.client_tool import ClientToolRequest
from weft.model.ids import GrantID, PermissionID, QuestionID
from weft.model.permission import (
    DEFAULT_GRANT_TERMS,
    Grant,
    GrantTerms,
    PermissionDecision,
    PermissionRequest,
    QuestionRequest,
    Reply,
)
from weft.model.wire import Wire
from weft.server.route import DirectoryCall, route
from weft.server.routes.sessions import SESSION

REQUEST = "/permission/{requestID}"
QUESTION = "/question/{requestID}"
MAX_MESSAGE_LENGTH = 100_000
MAX_ANSWERS = 1000
MAX_DECISIONS = 10_000

OpenRequest = TypeVar("OpenRequest", PermissionRequest, QuestionRequest, ClientToolRequest)
ListOpen = Callable[[Api], Awaitable[Sequence[PermissionRequest | QuestionRequest | ClientToolRequest]]]


class PermissionReplyInput(Wire, frozen=True, kw_only=True):
    reply: Reply
    message: str = ""


class ResponseInput(Wire, frozen=True, kw_only=True):
    response: Reply


class AnswersInput(Wire, frozen=True, kw_only=True):
    answers: tuple[tuple[str, ...], ...]


async def list_permissions(call: DirectoryCall) -> list[PermissionRequest]:
    """List the open permission requests."""
    return await list_open_requests(call, lambda api: api.list_permissions())


async def reply_permission(call: DirectoryCall) -> bool:
    """Answer a permission request: allow once, always, or reject."""
    answer: PermissionReplyInput = call.body
    if len(answer.message) > MAX_MESSAGE_LENGTH:
        raise InvalidInputError("message", f"longer than {MAX_MESSAGE_LENGTH} characters")
    id = PermissionID(call.path_params["requestID"])
    api = await choose_owner(call, lambda api: api.list_permissions(), id)
    await api.reply_permission(id, answer.reply, message=answer.message)
    return True


async def list_open_requests(
    call: DirectoryCall, list_open: Callable[[Api], Awaitable[Sequence[OpenRequest]]]
) -> list[OpenRequest]:
    """Return the open requests of this directory, and those of the sessions relayed to it."""
    requests = {request.id: request for request in await list_open(call.api)}
    for session, api in call.server.list_relayed(call.directory).items():
        requests |= {each.id: each for each in await list_open(api) if each.session_id == session}
    return list(requests.values())


async def choose_owner(call: DirectoryCall, list_open: ListOpen, id: str) -> Api:
    """Return the `Api` that owns an open request: that of this directory, or of a session relayed to it."""
    for session, api in call.server.list_relayed(call.directory).items():
        if any((each.id, each.session_id) == (id, session) for each in await list_open(api)):
            return api
    return call.api


async def respond_permission(call: DirectoryCall) -> bool:
    """Answer a permission request, as clients of the first generation do."""
    answer: ResponseInput = call.body
    await call.api.reply_permission(PermissionID(call.path_params["permissionID"]), answer.response)
    return True


async def list_questions(call: DirectoryCall) -> list[QuestionRequest]:
    """List the open questions."""
    return await list_open_requests(call, lambda api: api.list_questions())


async def reply_question(call: DirectoryCall) -> bool:
    """Answer a question: for each item, the labels that were chosen or the text that was typed."""
    input: AnswersInput = call.body
    if len(input.answers) > MAX_ANSWERS:
        raise InvalidInputError("answers", f"more than {MAX_ANSWERS}")
    id = QuestionID(call.path_params["requestID"])
    api = await choose_owner(call, lambda api: api.list_questions(), id)
    await api.reply_question(id, input.answers)
    return True


async def reject_question(call: DirectoryCall) -> bool:
    """Dismiss a question, which ends the run."""
    id = QuestionID(call.path_params["requestID"])
    api = await choose_owner(call, lambda api: api.list_questions(), id)
    await api.reject_question(id)
    return True


ROUTES = (
    route("GET", "/permission", "permission.list", list_permissions),
    route("POST", f"{REQUEST}/reply", "permission.reply", reply_permission, takes=PermissionReplyInput),
    route(
        "POST",
        f"{SESSION}/permissions/{{permissionID}}",
        "permission.respond",
        respond_permission,
        takes=ResponseInput,
        session_directory="required",
    ),
    route("GET", "/question", "question.list", list_questions),
    route("POST", f"{QUESTION}/reply", "question.reply", reply_question, takes=AnswersInput),
    route("POST", f"{QUESTION}/reject", "question.reject", reject_question),
)


# --- what OpenCode does not have ---


class GrantReplyInput(Wire, frozen=True, kw_only=True):
    """An answer; `grant` says how far an `always` reaches, and for how long."""

    reply: Reply
    message: Annotated[str, Meta(max_length=MAX_MESSAGE_LENGTH)] = ""
    grant: GrantTerms = DEFAULT_GRANT_TERMS


async def reply_with_grant(call: DirectoryCall) -> bool:
    """Answer a permission request: allow once, on given terms, or reject."""
    answer: GrantReplyInput = call.body
    id = PermissionID(call.path_params["requestID"])
    api = await choose_owner(call, lambda api: api.list_permissions(), id)
    await api.reply_permission(id, answer.reply, message=answer.message, grant=answer.grant)
    return True


async def list_grants(call: DirectoryCall) -> list[Grant]:
    """List the grants in force."""
    return await call.api.list_grants()


async def revoke_grant(call: DirectoryCall) -> bool:
    """Revoke a grant."""
    await call.api.revoke_grant(GrantID(call.path_params["grantID"]))
    return True


class DecisionsQuery(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_DECISIONS)] = 100


async def list_decisions(call: DirectoryCall) -> list[PermissionDecision]:
    """List the last decisions about permissions, newest first."""
    query: DecisionsQuery = call.query
    return await call.api.list_decisions(limit=query.limit)


WEFT_ROUTES = (
    route(
        "POST",
        "/weft/permission/{requestID}/reply",
        "weft.permission.reply",
        reply_with_grant,
        takes=GrantReplyInput,
    ),
    route("GET", "/weft/decision", "weft.decision.list", list_decisions, query=DecisionsQuery),
    route("GET", "/weft/grant", "weft.grant.list", list_grants),
    route("DELETE", "/weft/grant/{grantID}", "weft.grant.revoke", revoke_grant),
)
