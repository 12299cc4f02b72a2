"""HTTP routes for permission requests and questions."""

from collections.abc import Awaitable, Callable, Sequence

from weft.api import Api
from weft.errors import InvalidInputError
from weft.model.client_tool import ClientToolRequest
from weft.model.ids import PermissionID, QuestionID
from weft.model.permission import PermissionRequest, QuestionRequest, Reply
from weft.model.wire import Wire
from weft.server.route import DirectoryCall, route
from weft.server.routes.sessions import SESSION

REQUEST = "/permission/{requestID}"
QUESTION = "/question/{requestID}"
MAX_MESSAGE_LENGTH = 100_000
MAX_ANSWERS = 1000

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
    requests = {request.id: request for request in await call.api.list_permissions()}
    for session, api in call.server.list_relayed(call.directory).items():
        requests |= {
            request.id: request for request in await api.list_permissions() if request.session_id == session
        }
    return list(requests.values())


async def reply_permission(call: DirectoryCall) -> bool:
    """Answer a permission request: allow once, always, or reject."""
    answer: PermissionReplyInput = call.body
    if len(answer.message) > MAX_MESSAGE_LENGTH:
        raise InvalidInputError("message", f"longer than {MAX_MESSAGE_LENGTH} characters")
    id = PermissionID(call.path_params["requestID"])
    api = await choose_owner(call, lambda api: api.list_permissions(), id)
    await api.reply_permission(id, answer.reply, message=answer.message)
    return True


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
    requests = {request.id: request for request in await call.api.list_questions()}
    for session, api in call.server.list_relayed(call.directory).items():
        requests |= {
            request.id: request for request in await api.list_questions() if request.session_id == session
        }
    return list(requests.values())


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
        home="needs",
    ),
    route("GET", "/question", "question.list", list_questions),
    route("POST", f"{QUESTION}/reply", "question.reply", reply_question, takes=AnswersInput),
    route("POST", f"{QUESTION}/reject", "question.reject", reject_question),
)
