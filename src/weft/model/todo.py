"""Todo: one item of the list an agent keeps for its work."""

from weft.model.wire import Wire


class Todo(Wire, frozen=True, kw_only=True):
    """Status is pending, in_progress, completed or cancelled; priority high, medium or low. Nobody enforces it."""

    content: str
    status: str
    priority: str
    id: str = ""
