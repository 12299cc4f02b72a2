"""HTTP for permissions and questions."""

from collections.abc import Awaitable, Callable, Sequence

from weft.api import Api
from weft.errors import InvalidInputError
from weft.model.ids import PermissionID, QuestionID
from weft.model.permission import PermissionRequest, QuestionRequest, Reply
from weft.model.wire import Wire
from weft.server.route import Call, route
from weft.server.routes.sessions import SESSION

REQUEST = "/permission/{requestID}"
QUESTION = "/question/{requestID}"
LONGEST = 100_000
MOST_ANSWERS = 1000

ListOpen = Callable[[Api], Awaitable[Sequence[PermissionRequest | QuestionRequest]]]


class ReplyInput(Wire, frozen=True, kw_only=True):
    reply: Reply
    message: str = ""


class ResponseInput(Wire, frozen=True, kw_only=True):
    response: Reply


class AnswersInput(Wire, frozen=True, kw_only=True):
    answers: tuple[tuple[str, ...], ...]


async def list_permissions(call: Call) -> list[PermissionRequest]:
    """What agents want to be allowed."""
    found = {each.id: each for each in await call.api.list_permissions()}
    for session, api in call.premises.list_relayed(call.directory).items():
        found |= {each.id: each for each in await api.list_permissions() if each.session_id == session}
    return list(found.values())


async def reply_permission(call: Call) -> bool:
    """Allow it, once or always, or not."""
    answer: ReplyInput = call.body
    if len(answer.message) > LONGEST:
        raise InvalidInputError("message", f"longer than {LONGEST} characters")
    id = PermissionID(call.names["requestID"])
    api = await find_asker(call, lambda api: api.list_permissions(), id)
    await api.reply_permission(id, answer.reply, message=answer.message)
    return True


async def find_asker(call: Call, list_open: ListOpen, id: str) -> Api:
    """Return who answers for an open question: this directory, or that of a session that is worked with from here."""
    for session, api in call.premises.list_relayed(call.directory).items():
        if any((each.id, each.session_id) == (id, session) for each in await list_open(api)):
            return api
    return call.api


async def respond_permission(call: Call) -> bool:
    """The same as clients of the first generation say it."""
    answer: ResponseInput = call.body
    await call.api.reply_permission(PermissionID(call.names["permissionID"]), answer.response)
    return True


async def list_questions(call: Call) -> list[QuestionRequest]:
    """What agents want to know."""
    found = {each.id: each for each in await call.api.list_questions()}
    for session, api in call.premises.list_relayed(call.directory).items():
        found |= {each.id: each for each in await api.list_questions() if each.session_id == session}
    return list(found.values())


async def reply_question(call: Call) -> bool:
    """Answer a question: for each thing asked, what was chosen or typed."""
    given: AnswersInput = call.body
    if len(given.answers) > MOST_ANSWERS:
        raise InvalidInputError("answers", f"more than {MOST_ANSWERS}")
    id = QuestionID(call.names["requestID"])
    api = await find_asker(call, lambda api: api.list_questions(), id)
    await api.reply_question(id, given.answers)
    return True


async def reject_question(call: Call) -> bool:
    """Do not answer a question, which ends the run."""
    id = QuestionID(call.names["requestID"])
    api = await find_asker(call, lambda api: api.list_questions(), id)
    await api.reject_question(id)
    return True


ROUTES = (
    route("GET", "/permission", "permission.list", list_permissions),
    route("POST", f"{REQUEST}/reply", "permission.reply", reply_permission, takes=ReplyInput),
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
