"""What a child session may do, how its progress is shown, and what its parent gets as the answer (pure)."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from weft.errors import DeadlineError, ToolError
from weft.model.agent import AgentInfo
from weft.model.event import Event, PartRemoved, PartUpdated
from weft.model.failure import AnyFailure
from weft.model.ids import PartID, SessionID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import CompletedState, ErrorState, ModelRef, TextPart, ToolPart
from weft.model.permission import Rule, Ruleset, Rulesets
from weft.model.session import SessionInfo, get_weft_data, with_weft_data
from weft.permission.rules import make_child_rules

NO_ANSWER = "The subagent ended without an answer."


def get_child_text(answer: MessageWithParts, child: SessionID) -> str:
    """Return the last text of a child's answer. Raise `ToolError` if the child failed: half an answer must not look whole.

    OpenCode returns the text of a failed child as if it had succeeded.
    """
    info = answer.info
    if not isinstance(info, AssistantMessage):
        raise ToolError(f"{NO_ANSWER} {_suggest_retry(child)}")
    text = _find_last_text(answer)
    if info.error is not None:
        before = f"\nBefore that it said: {text}" if text else ""
        raise ToolError(f"The subagent failed: {format_cause(info.error)}.{before}\n{_suggest_retry(child)}")
    return text or _list_errors(answer)


def to_deadline_error(child: SessionID, error: DeadlineError) -> ToolError:
    """Return the error that the parent's model reads if a child took too long."""
    message = str(error)
    return ToolError(f"{message[:1].upper()}{message[1:]}. {_suggest_retry(child)}")


def format_cause(failure: AnyFailure) -> str:
    """Return the message of a failure without its full stop, or its name if it has no message."""
    data = failure.data
    message = data.get("message", "") if isinstance(data, dict) else getattr(data, "message", "")
    name = str(failure.__struct_config__.tag)
    return (str(message) or name).rstrip(".")


def _suggest_retry(child: SessionID) -> str:
    return f"Go on with it by session_id {child}, or do without it."


def _find_last_text(answer: MessageWithParts) -> str:
    texts = [
        part.text for part in answer.parts if isinstance(part, TextPart) and part.text and not part.ignored
    ]
    return texts[-1] if texts else ""


def _list_errors(answer: MessageWithParts) -> str:
    failed = [
        f"{part.tool}: {part.state.error}"
        for part in answer.parts
        if isinstance(part, ToolPart) and isinstance(part.state, ErrorState)
    ]
    return "\n".join([NO_ANSWER, *failed])


class ChildProgress:
    """The progress of a child: the state of its tool calls, folded from its events."""

    def __init__(
        self, session: SessionID, model: ModelRef | None, history: Iterable[MessageWithParts] = ()
    ) -> None:
        self._session = session
        self._model = model
        self._calls: dict[PartID, dict[str, Any]] = {}
        self.reset(history)

    def reset(self, history: Iterable[MessageWithParts]) -> None:
        """Replace the state by that of the stored history."""
        self._calls = {
            part.id: to_call_entry(part)
            for message in history
            for part in message.parts
            if isinstance(part, ToolPart)
        }

    def feed(self, events: Iterable[Event]) -> bool:
        """Fold events, and return True if anything changed."""
        before = dict(self._calls)
        for event in events:
            match event:
                case PartUpdated(part=ToolPart() as part) if part.session_id == self._session:
                    self._calls[part.id] = to_call_entry(part)
                case PartRemoved(part_id=part_id):
                    self._calls.pop(part_id, None)
                case _:
                    pass
        return self._calls != before

    def metadata(self) -> dict[str, Any]:
        """Return the progress as the metadata of the `task` call, in OpenCode's form."""
        metadata: dict[str, Any] = {"summary": list(self._calls.values()), "sessionId": self._session}
        if self._model is not None:
            metadata["model"] = {"providerID": self._model.provider_id, "modelID": self._model.model_id}
        return metadata


def to_call_entry(part: ToolPart) -> dict[str, Any]:
    state: dict[str, Any] = {"status": part.state.__struct_config__.tag}
    if isinstance(part.state, CompletedState):
        state["title"] = part.state.title
    return {"id": part.id, "tool": part.tool, "state": state}


# By default a child does not see its parent's todo list, and does not start children of its own.
PARENT_ONLY_TOOLS = ("todowrite", "todoread", "task")


def list_denied(agent: AgentInfo, primary_tools: tuple[str, ...], *, deepest: bool) -> Ruleset:
    """Return the rules that deny an agent tools when it runs in a child session.

    If the agent's own rules mention a tool, they decide. But at the `deepest` level no child may start another. OpenCode
    has no such level, and denies the todo list even if the agent's rules allow it.
    """
    configured = {rule.permission for rule in agent.permission}
    denied = [tool for tool in PARENT_ONLY_TOOLS if tool not in configured]
    denied += ["task"] * (deepest and "task" not in denied)
    return tuple(Rule(permission=tool, pattern="*", action="deny") for tool in (*denied, *primary_tools))


def narrow_child(
    child: SessionInfo, parent: SessionInfo, denied: Ruleset, starter: AgentInfo | None
) -> SessionInfo:
    """Return the child with the rules that deny it tools, and with the limits of its ancestors. This is idempotent.

    Denied tools stay denied for good. The limits on files are those of the `starter`, the agent that starts the child this time.
    """
    data = get_weft_data(child)
    limits = (*get_weft_data(parent).limits, *to_file_rulesets(starter))
    rules = tuple(dict.fromkeys((*(child.permission or ()), *denied)))
    narrowed = replace(child, permission=make_child_rules(rules, parent))
    return with_weft_data(narrowed, replace(data, limits=tuple(dict.fromkeys(limits))))


def to_file_rulesets(agent: AgentInfo | None) -> Rulesets:
    """Return an agent's rules on changing files, if they deny any: a planning agent must not write through its child.

    Its other rules do not hold for the child, as in OpenCode: agents that may do little themselves and delegate everything are
    common. OpenCode 1.1.34 passes on no rules at all.
    """
    rules = tuple(rule for rule in (agent.permission if agent else ()) if rule.permission == "edit")
    return (rules,) if any(rule.action == "deny" for rule in rules) else ()
