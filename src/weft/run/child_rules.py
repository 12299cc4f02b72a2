"""What a child session may do, how its progress is shown, and what its answer comes to (pure)."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from weft.errors import DeadlineError, ToolError
from weft.model.agent import Agent
from weft.model.event import Event, PartRemoved, PartUpdated
from weft.model.failure import AnyFailure
from weft.model.ids import PartID, SessionID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import CompletedState, ErrorState, ModelRef, TextPart, ToolPart
from weft.model.permission import Limits, Rule, Ruleset
from weft.model.session import Session, own_of, with_own
from weft.session.tree import child_rules

NO_WORDS = "The subagent ended without an answer."


def words_of(answer: MessageWithParts, child: SessionID) -> str:
    """Its last words. A child that failed is an error, so that nobody takes half an answer for a whole one.

    OpenCode gives the words of a failed child as if nothing had happened.
    """
    info = answer.info
    if not isinstance(info, AssistantMessage):
        raise ToolError(f"{NO_WORDS} {_again(child)}")
    said = _last_text(answer)
    if info.error is not None:
        before = f"\nBefore that it said: {said}" if said else ""
        raise ToolError(f"The subagent failed: {to_reason(info.error)}.{before}\n{_again(child)}")
    return said or _in_place_of_words(answer)


def late(child: SessionID, error: DeadlineError) -> ToolError:
    said = str(error)
    return ToolError(f"{said[:1].upper()}{said[1:]}. {_again(child)}")


def to_reason(failure: AnyFailure) -> str:
    data = failure.data
    said = data.get("message", "") if isinstance(data, dict) else getattr(data, "message", "")
    name = str(failure.__struct_config__.tag)
    return (str(said) or name).rstrip(".")


def _again(child: SessionID) -> str:
    return f"Go on with it by session_id {child}, or do without it."


def _last_text(answer: MessageWithParts) -> str:
    texts = [
        part.text for part in answer.parts if isinstance(part, TextPart) and part.text and not part.ignored
    ]
    return texts[-1] if texts else ""


def _in_place_of_words(answer: MessageWithParts) -> str:
    failed = [
        f"{part.tool}: {part.state.error}"
        for part in answer.parts
        if isinstance(part, ToolPart) and isinstance(part.state, ErrorState)
    ]
    return "\n".join([NO_WORDS, *failed])


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


# A parent's list is its own to keep, and who is handed a task does not hand it on.
PARENTS_ALONE = ("todowrite", "todoread", "task")


def denied_below(agent: Agent, primary_tools: tuple[str, ...], *, deepest: bool) -> Ruleset:
    """What an agent is denied in a child beyond its own rules.

    An agent whose rules speak of a thing by name has been thought about, and keeps it; but at the `deepest` level
    nobody hands a task on. OpenCode sets no such level, and denies the list whatever the rules say.
    """
    named = {rule.permission for rule in agent.permission}
    denied = [each for each in PARENTS_ALONE if each not in named]
    denied += ["task"] * (deepest and "task" not in denied)
    return tuple(Rule(permission=each, pattern="*", action="deny") for each in (*denied, *primary_tools))


def narrow(child: Session, parent: Session, denied: Ruleset, sender: Agent | None) -> Session:
    """The child with all that it is denied, and with all that those above it are. Done again, it changes nothing.

    What is denied stays denied; whose rules on files hold is a matter of who sends it this time.
    """
    own = own_of(child)
    above = (*own_of(parent).limits, *files_withheld(sender))
    given = tuple(dict.fromkeys((*(child.permission or ()), *denied)))
    narrowed = replace(child, permission=child_rules(given, parent))
    return with_own(narrowed, replace(own, limits=tuple(dict.fromkeys(above))))


def files_withheld(agent: Agent | None) -> Limits:
    """What an agent's rules say of changing files, if they withhold any: who plans must not write by another's hand.

    Of its other rules the child is free, as in OpenCode: an agent that may do little and hands all on is a common
    arrangement. OpenCode 1.1.34 passes on nothing at all.
    """
    rules = tuple(rule for rule in (agent.permission if agent else ()) if rule.permission == "edit")
    return (rules,) if any(rule.action == "deny" for rule in rules) else ()
