"""Fold session events into updates for an editor; send each piece once (pure)."""

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

from weft.acp.content import Block, from_file, words
from weft.acp.tool_calls import Call, Writes, told
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
)
from weft.model.permission import CallRef
from weft.model.session import Session, Todo

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
STATUS: Final[Mapping[str, PlanEntryStatus]] = {"in_progress": "in_progress", "completed": "completed"}
PRIORITY: Final[Mapping[str, PlanEntryPriority]] = {"high": "high", "low": "low"}
NOT_MADE: Final = "The call was not made: the answer it stood in was begun anew."


class Teller:
    """One session. `sizes` are the windows of models by `provider/model`; `worktree` is what diffs name files from."""

    def __init__(self, directory: str, worktree: str, sizes: Mapping[str, int]) -> None:
        self._directory = directory
        self._sizes = sizes
        self._answers: dict[MessageID, AssistantMessage] = {}
        self._told: dict[PartID, int] = {}
        self._thoughts: set[PartID] = set()
        self._calls: dict[PartID, ToolPart] = {}  # those under way
        self._done: set[PartID] = set()
        self._terminals: dict[CallRef, str] = {}
        self._title = ""
        self.usage: UsageUpdate | None = None
        self._writes = Writes(worktree)

    def feed(self, event: Event) -> list[Update]:
        match event:
            case MessageUpdated(info=AssistantMessage() as info):
                self._answers[info.id] = info
                return []
            case MessageUpdated(info=UserMessage() as prompt):
                return [*self._writes.corrected(prompt)]
            case PartUpdated(part=part) if part.message_id in self._answers:
                return list(self._answer(part))
            case PartGrew(field="text") if event.message_id in self._answers:
                return self._grown(event)
            case PartRemoved(part_id=id) if (gone := self._calls.pop(id, None)) is not None:
                return [_unmade(gone)]
            case TodoUpdated(todos=todos):
                return [to_plan(todos)]
            case SessionUpdated(info=info) if info.title != self._title:
                self._title = info.title
                return [to_info(info)]
            case SessionCompacted():
                return [thought("The conversation was summed up, to make room.\n")]
            case SessionWarned(message=message):
                return [thought(f"{message}\n")]
            case _:
                return []

    def replay(self, history: Iterable[MessageWithParts]) -> Iterator[Update]:
        """All that was said, once more. What comes of it later is told on from there."""
        for message in history:
            match message.info:
                case UserMessage():
                    yield from self._prompt(message)
                case AssistantMessage():
                    yield from self.catch_up([message])

    def pass_over(self, history: Iterable[MessageWithParts]) -> None:
        """The editor knows all of it, or does not want to."""
        for _ in self.catch_up(history):
            pass

    def catch_up(self, history: Iterable[MessageWithParts]) -> Iterator[Update]:
        """What is new in it: of what was told nothing is told again."""
        for message in history:
            if isinstance(message.info, AssistantMessage):
                self._answers[message.info.id] = message.info
                for part in message.parts:
                    yield from self._answer(part)

    def show_terminal(self, ref: CallRef, terminal: str) -> ToolCallProgress | None:
        """From now on a call is shown with this terminal. None if the editor was not told of the call."""
        self._terminals[ref] = terminal
        call = self.find_call(ref)
        return call.to_progress() if call is not None else None

    def find_call(self, ref: CallRef) -> Call | None:
        """The call that a question is about, if it was shown."""
        for part in self._calls.values():
            if (part.message_id, part.call_id) == (ref.message_id, ref.call_id):
                return Call(part=part, directory=self._directory, terminal=self._terminals.get(ref))
        return None

    # --- pieces ---

    def _prompt(self, message: MessageWithParts) -> Iterator[Update]:
        for part in message.parts:
            match part:
                case TextPart(synthetic=False, ignored=False, text=text):
                    yield _asked(words(text), message.info.id)
                case FilePart():
                    yield _asked(from_file(part), message.info.id)
                case _:
                    pass

    def _answer(self, part: AnyPart) -> Iterator[Update]:
        match part:
            case TextPart(synthetic=False, ignored=False) | ReasoningPart(ignored=False):
                yield from self._words(part)
            case ToolPart():
                yield from self._call(part)
            case RetryPart(attempt=attempt) if part.id not in self._told:
                self._told[part.id] = 0
                yield thought(f"Attempt {attempt} failed, and is made again.\n")
            case StepFinishPart(counted=True, tokens=tokens):
                yield from self._used(part.message_id, tokens)
            case _:
                pass

    def _words(self, part: TextPart | ReasoningPart) -> Iterator[Update]:
        # A summary is said to the model that goes on, and not to the person.
        if isinstance(part, ReasoningPart) or self._answers[part.message_id].summary:
            self._thoughts.add(part.id)
        before = self._told.get(part.id, 0)
        self._told[part.id] = max(before, len(part.text))
        if len(part.text) > before:
            yield self._chunk(part.id, part.message_id, part.text[before:])

    def _grown(self, grown: PartGrew) -> list[Update]:
        before = self._told.get(grown.part_id, 0)
        text = grown.delta[before - grown.offset :] if grown.offset <= before else ""
        if not text:
            return []  # it was told, or there is a gap before it, and the whole part comes at its end
        self._told[grown.part_id] = grown.offset + len(grown.delta)
        return [self._chunk(grown.part_id, grown.message_id, text)]

    def _chunk(self, id: PartID, message: MessageID, text: str) -> Update:
        if id in self._thoughts:
            return thought(text, message)
        return AgentMessageChunk(
            session_update="agent_message_chunk", content=words(text), message_id=message
        )

    def _call(self, part: ToolPart) -> Iterator[Update]:
        ref = CallRef(message_id=part.message_id, call_id=part.call_id)
        call = Call(part=part, directory=self._directory, terminal=self._terminals.get(ref))
        known = part.id in self._calls
        if part.id in self._done or self._calls.get(part.id) == part:
            return
        if isinstance(part.state, OpenState):
            self._calls[part.id] = part
        else:
            self._calls.pop(part.id, None)
            self._done.add(part.id)
            self._writes.note(call)
        yield call.to_progress() if known else call.to_start()

    def _used(self, message: MessageID, tokens: Tokens) -> Iterator[Update]:
        answer = self._answers[message]
        size = self._sizes.get(f"{answer.provider_id}/{answer.model_id}", 0)
        if size:
            self.usage = UsageUpdate(session_update="usage_update", used=total(tokens), size=size)
            yield self.usage


def total(tokens: Tokens) -> int:
    return tokens.input + tokens.output + tokens.reasoning + tokens.cache.read + tokens.cache.write


def thought(text: str, message: MessageID | None = None) -> AgentThoughtChunk:
    return AgentThoughtChunk(session_update="agent_thought_chunk", content=words(text), message_id=message)


def to_plan(todos: Iterable[Todo]) -> AgentPlanUpdate:
    entries = [
        PlanEntry(
            content=todo.content,
            status=STATUS.get(todo.status, "pending"),
            priority=PRIORITY.get(todo.priority, "medium"),
        )
        for todo in todos
        if todo.status != "cancelled"
    ]
    return AgentPlanUpdate(session_update="plan", entries=entries)


def to_info(session: Session) -> SessionInfoUpdate:
    return SessionInfoUpdate(
        session_update="session_info_update", title=session.title, updated_at=to_iso(session.time.updated)
    )


def to_iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _asked(block: Block, message: MessageID) -> UserMessageChunk:
    return UserMessageChunk(session_update="user_message_chunk", content=block, message_id=message)


def _unmade(part: ToolPart) -> ToolCallProgress:
    return ToolCallProgress(
        session_update="tool_call_update", tool_call_id=part.id, status="failed", content=[told(NOT_MADE)]
    )
