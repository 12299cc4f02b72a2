"""How a child is getting on, as the part of the call that sent it tells: its calls, one after the other."""

from collections.abc import Iterable
from typing import Any

from weft.model.event import Event, PartRemoved, PartUpdated
from weft.model.ids import PartID, SessionID
from weft.model.message import MessageWithParts
from weft.model.part import CompletedState, ModelRef, ToolPart


class Progress:
    """What the calls of a child have come to so far, folded from what is told of it."""

    def __init__(
        self, session: SessionID, model: ModelRef | None, history: Iterable[MessageWithParts] = ()
    ) -> None:
        self._session = session
        self._model = model
        self._calls: dict[PartID, dict[str, Any]] = {}
        self.take(history)

    def take(self, history: Iterable[MessageWithParts]) -> None:
        """Begin anew, from what is stored."""
        self._calls = {
            part.id: to_entry(part)
            for message in history
            for part in message.parts
            if isinstance(part, ToolPart)
        }

    def feed(self, events: Iterable[Event]) -> bool:
        """Take in what happened; gives whether there is news in it."""
        before = dict(self._calls)
        for event in events:
            match event:
                case PartUpdated(part=ToolPart() as part) if part.session_id == self._session:
                    self._calls[part.id] = to_entry(part)
                case PartRemoved(part_id=part_id):
                    self._calls.pop(part_id, None)
                case _:
                    pass
        return self._calls != before

    def metadata(self) -> dict[str, Any]:
        told: dict[str, Any] = {"summary": list(self._calls.values()), "sessionId": self._session}
        if self._model is not None:
            told["model"] = {"providerID": self._model.provider_id, "modelID": self._model.model_id}
        return told


def to_entry(part: ToolPart) -> dict[str, Any]:
    state: dict[str, Any] = {"status": part.state.__struct_config__.tag}
    if isinstance(part.state, CompletedState):
        state["title"] = part.state.title
    return {"id": part.id, "tool": part.tool, "state": state}
