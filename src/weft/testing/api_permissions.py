"""What every `Api` must do with questions that are not open, and grants that are not there."""

from collections.abc import Awaitable, Callable

from weft.api import Api
from weft.errors import NotFoundError
from weft.model.ids import GrantID, PermissionID, QuestionID

NO_PERMISSION = PermissionID("per_00000000000000000000000000")
NO_QUESTION = QuestionID("que_00000000000000000000000000")
NO_GRANT = GrantID("gra_00000000000000000000000000")


async def nothing_is_asked_and_nothing_granted_before_an_agent_works(api: Api) -> None:
    assert await api.list_permissions() == []
    assert await api.list_questions() == []
    assert await api.list_grants() == []


async def an_answer_to_what_is_not_open_is_not_found(api: Api) -> None:
    for asked in (
        api.reply_permission(NO_PERMISSION, "once"),
        api.reply_permission(NO_PERMISSION, "always"),
        api.reply_permission(NO_PERMISSION, "reject", message="no"),
        api.reply_question(NO_QUESTION, (("Yes",),)),
        api.reject_question(NO_QUESTION),
        api.revoke_grant(NO_GRANT),
    ):
        await _refused(NotFoundError, asked)


async def an_id_of_another_kind_answers_nothing(api: Api) -> None:
    for asked in (
        api.reply_permission(PermissionID(NO_QUESTION), "once"),
        api.reply_question(QuestionID(NO_PERMISSION), ()),
        api.reject_question(QuestionID("que_../../x")),
        api.revoke_grant(GrantID("")),
    ):
        await _refused(NotFoundError, asked)


PERMISSION_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    nothing_is_asked_and_nothing_granted_before_an_agent_works,
    an_answer_to_what_is_not_open_is_not_found,
    an_id_of_another_kind_answers_nothing,
)


async def _refused(kind: type[Exception], asked: Awaitable[object]) -> None:
    try:
        await asked
    except kind:
        return
    raise AssertionError(f"this should have raised {kind.__name__}")
