"""What fills the context of a model: the parts of the next request, and how many tokens each takes."""

from weft.model.part import ModelRef
from weft.model.wire import Wire, always


class ContextPart(Wire, frozen=True, kw_only=True):
    """Pieces of a request that belong together, and about how many tokens they have.

    `section` is system, tools, or the role of a message. `uncounted` of its `count` pieces are files, whose tokens are
    unknown.
    """

    section: str
    name: str
    tokens: int
    count: int = 1
    uncounted: int = always(0)


class ContextReport(Wire, frozen=True, kw_only=True):
    """The parts of the request that the next step of a session would send, in their order.

    `tokens` is about their sum, `limit` what fits. With `placeholder`, the next prompt is not known yet. With `overflows`, the
    conversation would be summarised first. Tools of MCP servers that are not connected are not included.
    """

    agent: str
    model: ModelRef
    tokens: int
    limit: int | None = None
    parts: tuple[ContextPart, ...]
    placeholder: bool = always(False)
    overflows: bool = always(False)
