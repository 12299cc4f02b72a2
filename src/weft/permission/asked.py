"""What was asked, and what was answered, as it is kept until it has been used."""

from weft.model.ids import MessageID, PermissionID, ProjectID, QuestionID, SessionID
from weft.model.permission import PermissionRequest, Reply
from weft.model.question import QuestionRequest
from weft.model.wire import Wire

KEPT_MS = 7 * 24 * 3600 * 1000


class Answer(Wire, frozen=True, kw_only=True):
    """What a person said: to a permission `reply`, to questions the `answers` (a `reject` dismisses them)."""

    reply: Reply
    message: str = ""
    answers: tuple[tuple[str, ...], ...] = ()
    by: str = ""
    time: int = 0


class Asked(Wire, frozen=True, kw_only=True):
    """An open question, of one kind or the other: who asked, in which turn, and where in the tree of sessions.

    `owner` is the process that waits, or waited, for the answer.
    """

    permission: PermissionRequest | None = None
    question: QuestionRequest | None = None
    project_id: ProjectID
    root_id: SessionID
    turn_id: MessageID | None = None
    agent: str = ""
    owner: str = ""
    time: int
    answer: Answer | None = None

    @property
    def id(self) -> PermissionID | QuestionID:
        return self._request.id

    @property
    def session_id(self) -> SessionID:
        return self._request.session_id

    @property
    def _request(self) -> PermissionRequest | QuestionRequest:
        request = self.permission or self.question
        assert request is not None, "whatever is asked is a permission or a question"
        return request


def same(one: Asked, other: Asked) -> bool:
    """Whether both ask for the same thing in the same session, whatever call they came from.

    An answer given while nobody waited for it is used by the call that asks for just that again, and no other:
    patterns are compared as they are, not matched.
    """
    if one.session_id != other.session_id or one.agent != other.agent:
        return False
    if one.permission is not None and other.permission is not None:
        mine, theirs = one.permission, other.permission
        return (mine.permission, mine.patterns) == (theirs.permission, theirs.patterns)
    if one.question is not None and other.question is not None:
        return one.question.questions == other.question.questions
    return False
