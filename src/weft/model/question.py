"""Question: what an agent asks the person, with answers to choose from."""

from weft.model.ids import QuestionID, SessionID
from weft.model.permission import CallRef
from weft.model.wire import Wire


class Option(Wire, frozen=True, kw_only=True):
    label: str
    description: str


class Question(Wire, frozen=True, kw_only=True):
    """One question; `multiple` answers may be chosen, `custom` ones typed."""

    question: str
    header: str
    options: tuple[Option, ...]
    multiple: bool = False
    custom: bool = True


class QuestionRequest(Wire, frozen=True, kw_only=True):
    id: QuestionID
    session_id: SessionID
    questions: tuple[Question, ...]
    tool: CallRef | None = None
