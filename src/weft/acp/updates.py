"""Fold session events into updates for an editor, each piece once (pure)."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    PlanEntry,
    PlanEntryPriority,
    PlanEntryStatus,
    SessionInfoUpdate,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)

from weft.acp.content import Block, to_file_block, to_text_block
from weft.acp.tool_calls import EditorToolCall, OverwriteTracker, to_text_content
from weft.model.display import bound_time
from weft.model.event import (
    Event,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    SessionCompacted,
    SessionUpdated,
    SessionWarned,
    TodoUpdated,
)
from weft.model.ids import MessageID, PartID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import (
    AnyPart,
    FilePart,
    OpenState,
    ReasoningPart,
    RetryPart,
    StepFinishPart,
    TextPart,
    Tokens,
    ToolPart,
    count_used,
)
from weft.model.permission import CallRef
from weft.model.session import SessionInfo, Todo

Update = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
)
PLAN_STATUSES: Final[Mapping[str, PlanEntryStatus]] = {"in_progress": "in_progress", "completed": "completed"}
PLAN_PRIORITIES: Final[Mapping[str, PlanEntryPriority]] = {"high": "high", "low": "low"}
CALL_DISCARDED: Final = "The call was not made: the answer was started again."


class UpdateStream:
    """The updates of one session. `sizes` are context windows by `provider/model`; diffs are relative to `worktree`."""

    def __init__(self, directory: str, worktree: str, sizes: Mapping[str, int]) -> None:
        self._directory = directory
        self._sizes = sizes
        self._answers: dict[MessageID, AssistantMessage] = {}
        self._sent_lengths: dict[PartID, int] = {}
        self._thoughts: set[PartID] = set()
        self._open_calls: dict[PartID, ToolPart] = {}
        self._finished_calls: set[PartID] = set()
        self._terminals: dict[CallRef, str] = {}
        self._title = ""
        self.usage: UsageUpdate | None = None
        self._overwrites = OverwriteTracker(worktree)

    def feed(self, event: Event) -> list[Update]:
        """Return the updates for an event."""
        match event:
            case MessageUpdated(info=AssistantMessage() as info):
                self._answers[info.id] = info
                return []
            case MessageUpdated(info=UserMessage() as prompt):
                return [*self._overwrites.list_corrections(prompt)]
            case PartUpdated(part=part) if part.message_id in self._answers:
                return list(self._on_part(part))
            case PartGrew(field="text") if event.message_id in self._answers:
                return self._on_growth(event)
            case PartRemoved(part_id=id) if (call := self._open_calls.pop(id, None)) is not None:
                return [_to_discarded(call)]
            case TodoUpdated(todos=todos):
                return [to_plan(todos)]
            case SessionUpdated(info=info) if info.title != self._title:
                self._title = info.title
                return [to_info(info)]
            case SessionCompacted():
                return [to_thought("The conversation was compacted.\n")]
            case SessionWarned(message=message):
                return [to_thought(f"{message}\n")]
            case _:
                return []

    def replay(self, history: Iterable[MessageWithParts]) -> Iterator[Update]:
        """Yield the whole conversation again. Later events continue from there."""
        for message in history:
            match message.info:
                case UserMessage():
                    yield from self._to_prompt(message)
                case AssistantMessage():
                    yield from self.catch_up([message])

    def mark_sent(self, history: Iterable[MessageWithParts]) -> None:
        """Mark a history as sent: the editor knows it."""
        for _ in self.catch_up(history):
            pass

    def catch_up(self, history: Iterable[MessageWithParts]) -> Iterator[Update]:
        """Yield what is new in a history."""
        for message in history:
            if isinstance(message.info, AssistantMessage):
                self._answers[message.info.id] = message.info
                for part in message.parts:
                    yield from self._on_part(part)

    def show_terminal(self, ref: CallRef, terminal: str) -> ToolCallProgress | None:
        """Show a call with this terminal from now on. Return None if the editor does not know the call."""
        self._terminals[ref] = terminal
        call = self.find_call(ref)
        return call.to_progress() if call is not None else None

    def find_call(self, ref: CallRef) -> EditorToolCall | None:
        """Return the call that a request is about, None if it was not shown."""
        for part in self._open_calls.values():
            if (part.message_id, part.call_id) == (ref.message_id, ref.call_id):
                return EditorToolCall(part=part, directory=self._directory, terminal=self._terminals.get(ref))
        return None

    # --- parts ---

    def _to_prompt(self, message: MessageWithParts) -> Iterator[Update]:
        for part in message.parts:
            match part:
                case TextPart(synthetic=False, ignored=False, text=text):
                    yield _to_user_chunk(to_text_block(text), message.info.id)
                case FilePart():
                    yield _to_user_chunk(to_file_block(part), message.info.id)
                case _:
                    pass

    def _on_part(self, part: AnyPart) -> Iterator[Update]:
        match part:
            case TextPart(synthetic=False, ignored=False) | ReasoningPart(ignored=False):
                yield from self._on_text(part)
            case ToolPart():
                yield from self._on_call(part)
            case RetryPart(attempt=attempt) if part.id not in self._sent_lengths:
                self._sent_lengths[part.id] = 0
                yield to_thought(f"Attempt {attempt} failed and is repeated.\n")
            case StepFinishPart(counted=True, tokens=tokens):
                yield from self._update_usage(part.message_id, tokens)
            case _:
                pass

    def _on_text(self, part: TextPart | ReasoningPart) -> Iterator[Update]:
        # A summary is for the model that continues, not for the person.
        if isinstance(part, ReasoningPart) or self._answers[part.message_id].summary:
            self._thoughts.add(part.id)
        before = self._sent_lengths.get(part.id, 0)
        self._sent_lengths[part.id] = max(before, len(part.text))
        if len(part.text) > before:
            yield self._to_chunk(part.id, part.message_id, part.text[before:])

    def _on_growth(self, event: PartGrew) -> list[Update]:
        before = self._sent_lengths.get(event.part_id, 0)
        text = event.delta[before - event.offset :] if event.offset <= before else ""
        if not text:
            return []  # already sent, or text is missing before it; the whole part follows at its end
        self._sent_lengths[event.part_id] = event.offset + len(event.delta)
        return [self._to_chunk(event.part_id, event.message_id, text)]

    def _to_chunk(self, id: PartID, message: MessageID, text: str) -> Update:
        if id in self._thoughts:
            return to_thought(text, message)
        return AgentMessageChunk(
            session_update="agent_message_chunk", content=to_text_block(text), message_id=message
        )

    def _on_call(self, part: ToolPart) -> Iterator[Update]:
        ref = CallRef(message_id=part.message_id, call_id=part.call_id)
        call = EditorToolCall(part=part, directory=self._directory, terminal=self._terminals.get(ref))
        is_known = part.id in self._open_calls
        if part.id in self._finished_calls or self._open_calls.get(part.id) == part:
            return
        if isinstance(part.state, OpenState):
            self._open_calls[part.id] = part
        else:
            self._open_calls.pop(part.id, None)
            self._finished_calls.add(part.id)
            self._overwrites.record(call)
        yield call.to_progress() if is_known else call.to_start()

    def _update_usage(self, message: MessageID, tokens: Tokens) -> Iterator[Update]:
        answer = self._answers[message]
        size = self._sizes.get(f"{answer.provider_id}/{answer.model_id}", 0)
        if size:
            self.usage = UsageUpdate(session_update="usage_update", used=count_used(tokens), size=size)
            yield self.usage


def to_thought(text: str, message: MessageID | None = None) -> AgentThoughtChunk:
    return AgentThoughtChunk(
        session_update="agent_thought_chunk", content=to_text_block(text), message_id=message
    )


def to_plan(todos: Iterable[Todo]) -> AgentPlanUpdate:
    entries = [
        PlanEntry(
            content=todo.content,
            status=PLAN_STATUSES.get(todo.status, "pending"),
            priority=PLAN_PRIORITIES.get(todo.priority, "medium"),
        )
        for todo in todos
        if todo.status != "cancelled"
    ]
    return AgentPlanUpdate(session_update="plan", entries=entries)


def to_info(session: SessionInfo) -> SessionInfoUpdate:
    return SessionInfoUpdate(
        session_update="session_info_update", title=session.title, updated_at=to_iso(session.time.updated)
    )


def to_iso(ms: int) -> str:
    return (
        datetime.fromtimestamp(bound_time(ms) / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def _to_user_chunk(block: Block, message: MessageID) -> UserMessageChunk:
    return UserMessageChunk(session_update="user_message_chunk", content=block, message_id=message)


def _to_discarded(part: ToolPart) -> ToolCallProgress:
    return ToolCallProgress(
        session_update="tool_call_update",
        tool_call_id=part.id,
        status="failed",
        content=[to_text_content(CALL_DISCARDED)],
    )
