"""What is asked on a plain terminal."""

from typing import Any

import pytest

from weft.cli.questions import PendingQuestions, format_permission
from weft.errors import StoreError
from weft.model.ids import PermissionID, QuestionID, SessionID
from weft.model.permission import PermissionRequest, QuestionRequest

REQUEST = PermissionRequest(
    id=PermissionID("per_1"),
    session_id=SessionID("ses_1"),
    permission="bash",
    patterns=("cd ..", "rm *.o"),
    metadata={"why": ["it may write outside of the project"], "mayWrite": ["rm *.o"]},
    always=("rm *",),
)


def test_a_permission_question_shows_its_parts_and_reasons() -> None:
    assert format_permission(REQUEST, "build") == [
        "? Allow bash?",
        "  • cd ..",
        "  • rm *.o",
        "    asked because: it may write outside of the project",
        "    may change files: rm *.o",
        "  allow [o]nce, [a]lways, for this [t]urn or [p]roject, or [r]eject (and say what instead)? ",
    ]


def test_a_question_about_a_directory_shows_the_command_and_the_source_of_the_rule() -> None:
    request = PermissionRequest(
        id=REQUEST.id,
        session_id=REQUEST.session_id,
        permission="external_directory",
        patterns=("/x/other/*",),
        metadata={"command": "touch /x/other/a"},
        always=(),
    )
    assert format_permission(request, "build") == [
        "? Allow external_directory?",
        "  • /x/other/*",
        "    asked because: a rule asks for it (weft permission explain --agent build)",
        "    command: touch /x/other/a",
        "  allow [o]nce, or [r]eject (and say what instead)? ",
    ]
    # The rules of a server are not here to be explained.
    assert format_permission(request, None)[2] == "    asked because: the server's rules ask for it"


def test_a_request_without_questions_is_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    engine_api: Any = None
    pending = PendingQuestions(engine_api)
    pending.add(QuestionRequest(id=QuestionID("que_1"), session_id=SessionID("ses_1"), questions=()))
    assert (pending.first_id, capsys.readouterr().err) == (None, "")


class FailingApi:
    """An `Api` that cannot store a reply."""

    async def reply_permission(self, request: str, *_: object, **__: object) -> None:
        raise StoreError(f"the reply to {request} cannot be written")


async def test_a_request_whose_reply_fails_is_still_open(capsys: pytest.CaptureFixture[str]) -> None:
    api: Any = FailingApi()
    pending = PendingQuestions(api)
    pending.add(REQUEST)
    asked = capsys.readouterr().err
    with pytest.raises(StoreError):
        await pending.answer("once")
    assert (pending.first_id, capsys.readouterr().err) == (REQUEST.id, asked)
