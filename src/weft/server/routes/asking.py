"""HTTP for what agents ask: permissions and questions."""

from weft.errors import InvalidInputError
from weft.model.ids import PermissionID, QuestionID
from weft.model.permission import PermissionRequest, Reply
from weft.model.question import QuestionRequest
from weft.model.wire import Wire
from weft.server.route import Call, route
from weft.server.routes.sessions import SESSION

REQUEST = "/permission/{requestID}"
QUESTION = "/question/{requestID}"
LONGEST = 100_000
MOST_ANSWERS = 1000


class ReplyInput(Wire, frozen=True, kw_only=True):
    reply: Reply
    message: str = ""


class ResponseInput(Wire, frozen=True, kw_only=True):
    response: Reply


class AnswersInput(Wire, frozen=True, kw_only=True):
    answers: tuple[tuple[str, ...], ...]


async def list_permissions(call: Call) -> list[PermissionRequest]:
    """What agents want to be allowed."""
    return await call.api.list_permissions()


async def reply_permission(call: Call) -> bool:
    """Allow it, once or always, or not."""
    answer: ReplyInput = call.body
    if len(answer.message) > LONGEST:
        raise InvalidInputError("message", f"longer than {LONGEST} characters")
    await call.api.reply_permission(
        PermissionID(call.names["requestID"]), answer.reply, message=answer.message
    )
    return True


async def respond_permission(call: Call) -> bool:
    """The same as clients of the first generation say it."""
    answer: ResponseInput = call.body
    await call.api.reply_permission(PermissionID(call.names["permissionID"]), answer.response)
    return True


async def list_questions(call: Call) -> list[QuestionRequest]:
    """What agents want to know."""
    return await call.api.list_questions()


async def reply_question(call: Call) -> bool:
    """Answer a question: for each thing asked, what was chosen or typed."""
    given: AnswersInput = call.body
    if len(given.answers) > MOST_ANSWERS:
        raise InvalidInputError("answers", f"more than {MOST_ANSWERS}")
    await call.api.reply_question(QuestionID(call.names["requestID"]), given.answers)
    return True


async def reject_question(call: Call) -> bool:
    """Do not answer a question, which ends the run."""
    await call.api.reject_question(QuestionID(call.names["requestID"]))
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
    ),
    route("GET", "/question", "question.list", list_questions),
    route("POST", f"{QUESTION}/reply", "question.reply", reply_question, takes=AnswersInput),
    route("POST", f"{QUESTION}/reject", "question.reject", reject_question),
)
