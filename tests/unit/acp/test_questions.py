"""What an editor shows of a permission request."""

from acp.schema import ContentToolCallContent

from weft.acp.questions import describe_reason
from weft.acp.tool_calls import to_text_content
from weft.model.ids import PermissionID, SessionID
from weft.model.permission import PermissionRequest


def describe(metadata: dict[str, object]) -> list[object]:
    request = PermissionRequest(
        id=PermissionID("per_1"),
        session_id=SessionID("ses_1"),
        permission="bash",
        patterns=("make",),
        metadata=metadata,
        always=(),
    )
    return list(describe_reason(request))


def test_an_editor_is_told_why_a_permission_is_asked_for() -> None:
    metadata: dict[str, object] = {"why": ["it may change files"], "mayWrite": ["make"], "command": "make"}
    [content] = describe(metadata)
    assert isinstance(content, ContentToolCallContent)
    assert content == to_text_content("asked because: it may change files\nmay change files: make")


def test_a_request_without_a_reason_has_no_text() -> None:
    assert describe({"command": "make"}) == []
