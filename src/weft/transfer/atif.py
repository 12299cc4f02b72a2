"""A session as a trajectory in the Agent Trajectory Interchange Format, ATIF 1.7 (pure).

https://github.com/laude-institute/harbor/blob/main/docs/rfcs/0001-trajectory-format.md
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from weft.errors import InvalidInputError
from weft.model.display import bound_time
from weft.model.ids import SessionID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage, is_synthetic
from weft.model.part import (
    AnyPart,
    CompletedState,
    ErrorState,
    FilePart,
    ReasoningPart,
    SubtaskPart,
    TextPart,
    ToolPart,
    count_input,
)
from weft.model.session import SessionInfo
from weft.model.wire import to_plain
from weft.version import VERSION

SCHEMA_VERSION: Final = "ATIF-v1.7"
AGENT_NAME: Final = "weft"
COPIED_NOTE: Final = "Steps marked as copied context come from the session that this one was forked from; the totals leave them out."

Trajectory = dict[str, Any]
History = Sequence[MessageWithParts]


def to_trajectory(
    session: SessionInfo,
    history: History,
    children: Mapping[SessionID, tuple[SessionInfo, History]] | None = None,
) -> Trajectory:
    """Return a session and its child sessions as one document. `history` is what was not undone.

    Raise `InvalidInputError` if the session has no messages, since a trajectory has at least one step.
    """
    if not history:
        raise InvalidInputError("session", f"{session.id} has no messages, so it has no trajectory")
    embedded = [to_trajectory(child, messages) for child, messages in (children or {}).values() if messages]
    ids = {each["trajectory_id"] for each in embedded}
    steps = [_to_step(number, message, session, ids) for number, message in enumerate(history, 1)]
    answers = [message.info for message in history if isinstance(message.info, AssistantMessage)]
    agents = sorted({answer.agent for answer in answers if answer.agent})
    trajectory: Trajectory = {
        "schema_version": SCHEMA_VERSION,
        "session_id": session.id,
        "trajectory_id": session.id,
        "agent": _without_empty(
            {
                "name": AGENT_NAME,
                "version": session.version or VERSION,
                "model_name": next((_name_model(each) for each in answers if each.model_id), None),
                "extra": {"agents": agents} if agents else None,
            }
        ),
        "steps": steps,
        "final_metrics": _to_totals(session, answers, embedded, len(steps)),
        "extra": _without_empty(
            {"title": session.title, "directory": session.directory, "parent_session_id": session.parent_id}
        ),
    }
    if any(step.get("is_copied_context") for step in steps):
        trajectory["notes"] = COPIED_NOTE
    if embedded:
        trajectory["subagent_trajectories"] = embedded
    return trajectory


def _to_step(
    number: int, message: MessageWithParts, session: SessionInfo, embedded: set[str]
) -> dict[str, Any]:
    info = message.info
    step: dict[str, Any] = {"step_id": number, "timestamp": format_iso(info.time.created)}
    match info:
        case UserMessage():
            step["source"] = "system" if is_synthetic(message) else "user"
            step["message"] = _join_text(message.parts)
        case AssistantMessage():
            step |= _to_answer(info, message, embedded)
    if info.time.created < session.time.created:
        step["is_copied_context"] = True
    step["extra"] = _without_empty({"message_id": info.id, **(step.get("extra") or {})})
    return step


def _to_answer(info: AssistantMessage, message: MessageWithParts, embedded: set[str]) -> dict[str, Any]:
    calls = [part for part in message.parts if isinstance(part, ToolPart)]
    # An API may use an id twice. The result must name its own call.
    ids = [call.call_id for call in calls]
    names = [call.id if ids.count(call.call_id) > 1 else call.call_id for call in calls]
    # Texts that are ignored are those of attempts that failed: the model does not read them again.
    said = [part for part in message.parts if isinstance(part, TextPart) and not part.ignored]
    thought = [part for part in message.parts if isinstance(part, ReasoningPart) and not part.ignored]
    return _without_empty(
        {
            "source": "agent",
            "model_name": _name_model(info) if info.model_id else None,
            "message": "\n".join(part.text for part in said),
            "reasoning_content": "\n".join(part.text for part in thought),
            "tool_calls": [
                {"tool_call_id": name, "function_name": call.tool, "arguments": to_plain(call.state.input)}
                for name, call in zip(names, calls, strict=True)
            ],
            "observation": {
                "results": [_to_result(name, call, embedded) for name, call in zip(names, calls, strict=True)]
            }
            if calls
            else None,
            "metrics": _to_metrics(info),
            "llm_call_count": 1,
            "extra": _without_empty(
                {
                    "finish": info.finish,
                    "error": None if info.error is None else type(info.error).__struct_config__.tag,
                    "summary": info.summary or None,
                }
            ),
        },
        keep="message",
    )


def _to_result(name: str, call: ToolPart, embedded: set[str]) -> dict[str, Any]:
    content: str | None = None
    metadata: dict[str, Any] = {}
    match call.state:
        case CompletedState(output=output):
            content, metadata = output, call.state.metadata
        case ErrorState(error=error):
            content, metadata = error, call.state.metadata or {}
        case _:
            pass
    child = metadata.get("sessionId")
    ref = [{"trajectory_id": child, "session_id": child}] if child in embedded else None
    extra = {"status": "error"} if isinstance(call.state, ErrorState) else None
    return _without_empty(
        {
            "source_call_id": name,
            "content": content,
            "subagent_trajectory_ref": ref,
            "extra": extra,
        },
        keep="content" if content is not None else "",
    )


def _to_metrics(info: AssistantMessage) -> dict[str, Any]:
    tokens = info.tokens
    return {
        "prompt_tokens": count_input(tokens),
        "completion_tokens": tokens.output + tokens.reasoning,
        "cached_tokens": tokens.cache.read,
        "cost_usd": float(info.cost),
        "extra": {
            "cost_usd_exact": format(info.cost, "f"),
            "reasoning_tokens": tokens.reasoning,
            "cache_write_tokens": tokens.cache.write,
            "priced": info.priced,
        },
    }


def _to_totals(
    session: SessionInfo, answers: Iterable[AssistantMessage], embedded: Sequence[Trajectory], steps: int
) -> dict[str, Any]:
    own = [each for each in answers if each.time.created >= session.time.created]
    below = [each["final_metrics"] for each in embedded]
    cost = sum((each.cost for each in own), Decimal(0))
    cost += sum((Decimal(each["extra"]["total_cost_usd_exact"]) for each in below), Decimal(0))
    metrics = [_to_metrics(each) for each in own]
    return {
        "total_prompt_tokens": sum(each["prompt_tokens"] for each in metrics),
        "total_completion_tokens": sum(each["completion_tokens"] for each in metrics),
        "total_cached_tokens": sum(each["cached_tokens"] for each in metrics),
        "total_cost_usd": float(cost),
        "total_steps": steps,
        "extra": {"total_cost_usd_exact": format(cost, "f")},
    }


def _join_text(parts: Iterable[AnyPart]) -> str:
    texts: list[str] = []
    for part in parts:
        match part:
            case TextPart(text=text):
                texts.append(text)
            case SubtaskPart(prompt=prompt):
                texts.append(prompt)
            case FilePart(filename=name, url=url):
                shown = name or url.partition(",")[0]
                texts.append(f"[file: {shown}]")
            case _:
                pass
    return "\n".join(texts)


def _name_model(info: AssistantMessage) -> str:
    return f"{info.provider_id}/{info.model_id}"


def format_iso(time: int) -> str:
    """Return a time (ms) as ISO 8601 in UTC."""
    return (
        datetime.fromtimestamp(bound_time(time) / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def _without_empty(fields: dict[str, Any], *, keep: str = "") -> dict[str, Any]:
    """Leave out fields without a value, because the format has no null."""
    return {name: value for name, value in fields.items() if name == keep or value not in (None, "", [], {})}
