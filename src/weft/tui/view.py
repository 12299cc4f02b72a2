"""What a terminal shows of a session, folded from its events (pure).

`SessionView.feed` takes events. `take_settled` returns what is final, each item once and in order; the rest is open: the end of
the text that is being streamed, the calls that are running, the requests that wait for an answer, and the status. Inline mode
and `weft run` both show this.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from weft.model.display import (
    describe_failure,
    find_call_error,
    get_called_tool,
    make_call_title,
    strip_diff_header,
    strip_tags,
)
from weft.model.event import (
    Event,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    PermissionAsked,
    PermissionReplied,
    QuestionAsked,
    QuestionRejected,
    QuestionReplied,
    SessionCompacted,
    SessionCreated,
    SessionDiffed,
    SessionFailed,
    SessionIdled,
    SessionUpdated,
    SessionWarned,
    StatusChanged,
    TodoUpdated,
)
from weft.model.failure import AbortedFailure, AnyFailure, BudgetFailure
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import (
    AnyPart,
    CompletedState,
    FilePart,
    OpenState,
    PatchPart,
    PendingState,
    ReasoningPart,
    RunningState,
    StepFinishPart,
    TextPart,
    ToolPart,
    count_used,
    list_patch_files,
)
from weft.model.permission import PermissionRequest, QuestionRequest, can_be_asked
from weft.model.session import Busy, Idle, Retry, SessionInfo, Todo, get_ledger, get_weft_data
from weft.model.spending import (
    Ledger,
    RunSpending,
    Spent,
    add_spent,
    max_spent,
    to_step_spent,
    total_spent,
)
from weft.model.transcript import SessionDescendants
from weft.tui.markdown import MarkdownBlock, MarkdownSplitter
from weft.tui.text import Line

NoticeKind = Literal["note", "retry", "warning", "error"]
INTERRUPTED: Final = "interrupted"


class PromptItem(Struct, frozen=True, kw_only=True):
    """A prompt of a person: its message, when it was sent (ms), and its text."""

    text: str
    message: MessageID | None = None
    time: int = 0


class AnswerItem(Struct, frozen=True, kw_only=True):
    """A settled block of an answer; `dimmed` if it is a summary for the model. `first` begins a text."""

    block: MarkdownBlock
    dimmed: bool = False
    first: bool = False


class ReasoningItem(Struct, frozen=True, kw_only=True):
    """What the model thought, and for how long (ms)."""

    text: str
    ms: int


class CallItem(Struct, frozen=True, kw_only=True):
    """A tool call that has ended. `exit` is the exit code of a command that failed.

    `child` says that a child session made the call; `session` is the child session that the call ran.
    """

    tool: str
    title: str
    ms: int
    error: str | None = None
    exit: int = 0
    diff: str = ""
    output: str = ""
    child: bool = False
    session: SessionID | None = None


class NoticeItem(Struct, frozen=True, kw_only=True):
    """A line about the run: a retry, a warning, a failure, or a note."""

    kind: NoticeKind
    text: str


class EndItem(Struct, frozen=True, kw_only=True):
    """The end of a run: what it spent, with its child sessions, and the files that it changed."""

    spent: Spent
    files: tuple[str, ...]


class LinesItem(Struct, frozen=True, kw_only=True):
    """Lines of the front end itself, such as a diff."""

    lines: list[Line]


class TableItem(Struct, frozen=True, kw_only=True):
    """A table of the front end itself. The first row is the header."""

    rows: list[tuple[str, ...]]


Item = PromptItem | AnswerItem | ReasoningItem | CallItem | NoticeItem | EndItem | LinesItem | TableItem


class RunningCall(Struct, frozen=True, kw_only=True):
    """A call that has been running since `start` (ms), or that the model is still writing (`start` is 0)."""

    tool: str
    title: str
    start: int
    child: bool = False
    session: SessionID | None = None


class ViewStatus(Struct, frozen=True, kw_only=True):
    """The state of a session. `context` are the tokens of the last request with its answer, `since` the start of the run (ms)."""

    state: Literal["idle", "busy", "retry"] = "idle"
    since: int = 0
    retry_at: int = 0
    agent: str = ""
    model: str = ""
    context: int = 0
    spent: Spent = Spent()
    title: str = ""


class SessionView:
    """Folds the events of one session and its child sessions.

    `base` is what the session has spent so far; without it, the history that is loaded is added up. `models` are those that were
    asked, in the order of their first use.
    """

    def __init__(self, session: SessionID, *, base: Spent | None = None) -> None:
        self.session = session
        self.status = ViewStatus(spent=base or Spent())
        self.todos: tuple[Todo, ...] = ()
        self.files: dict[str, None] = {}
        self.models: dict[str, None] = {}
        self._descendants = SessionDescendants(session)
        self._base = base
        # It also counts requests that are no steps, such as those for titles. None until the session is known.
        self._ledger: Ledger | None = None
        self._settled: list[Item] = []
        self._delayed: list[Item] = []
        self._prompts: dict[MessageID, UserMessage] = {}
        self._answers: dict[MessageID, AssistantMessage] = {}
        self._splitters: dict[PartID, MarkdownSplitter] = {}
        self._lengths: dict[PartID, int] = {}
        self._begun: set[PartID] = set()
        self._ended: set[PartID] = set()
        self._open_text: PartID | None = None
        self._dimmed: set[PartID] = set()
        self._reasoning: dict[PartID, str] = {}
        self._calls: dict[PartID, RunningCall] = {}
        self._requests: dict[str, PermissionRequest | QuestionRequest] = {}
        self._steps: dict[PartID, Spent] = {}
        self._run_spending = RunSpending()
        self._run_files: dict[str, None] = {}
        self._failed = ""

    # --- what is shown ---

    def take_settled(self) -> list[Item]:
        """Return what has settled since the last call, oldest first."""
        settled, self._settled = self._settled, []
        return settled

    @property
    def tail(self) -> MarkdownBlock | None:
        """The open block of the text that is being streamed, or None."""
        splitter = self._splitters.get(self._open_text) if self._open_text is not None else None
        return splitter.tail() if splitter is not None else None

    @property
    def is_tail_first(self) -> bool:
        """True if nothing of the text that is being streamed has settled."""
        return self._open_text is not None and self._open_text not in self._begun

    @property
    def reasoning(self) -> str:
        """The end of what the model is thinking now, or an empty text."""
        return next(reversed(self._reasoning.values()), "") if self._reasoning else ""

    @property
    def calls(self) -> list[RunningCall]:
        return list(self._calls.values())

    @property
    def waiting(self) -> list[PromptItem | NoticeItem]:
        """Prompts that were sent and notices, which are printed when the open text ends."""
        return [item for item in self._delayed if isinstance(item, PromptItem | NoticeItem)]

    @property
    def requests(self) -> list[PermissionRequest | QuestionRequest]:
        """The requests that wait for an answer, oldest first."""
        return list(self._requests.values())

    def find_agent(self, request: PermissionRequest) -> str:
        """Return the agent that asks for a permission; empty if it is not known."""
        answer = self._answers.get(request.tool.message_id) if request.tool is not None else None
        return answer.agent if answer is not None else ""

    @property
    def is_busy(self) -> bool:
        return self.status.state != "idle"

    # --- events ---

    def load(self, messages: Iterable[MessageWithParts], *, shown: int) -> int:
        """Take over a history, of which the last `shown` messages are shown. Return how many were left out."""
        history = list(messages)
        left_out = max(0, len(history) - shown)
        for number, message in enumerate(history):
            info, self._failed = message.info, ""
            failed = isinstance(info, AssistantMessage) and info.error is not None
            self._feed_own(MessageUpdated(info=replace(info, error=None) if failed else info))
            for part in message.parts:
                if number >= left_out or isinstance(part, StepFinishPart | PatchPart):
                    self._feed_own(PartUpdated(part=part))
            if failed:  # after what the answer had
                self._feed_own(MessageUpdated(info=info))
            if number < left_out:
                self._settled.clear()
        last = history[-1].info if history else None
        if isinstance(last, UserMessage) or (last is not None and last.time.completed is not None):
            self._end_text()
        if self._base is not None:
            self._steps.clear()
            self._update_spent()
        self._run_spending.restart()
        self._run_files.clear()
        return left_out

    def feed(self, event: Event) -> bool:
        """Apply an event. Return False if it is not about this session or its child sessions."""
        place = self._descendants.classify(event)
        if place == "own":
            self._feed_own(event)
        elif place == "below":
            self._feed_child(event)
        else:
            return False
        return True

    def add(self, item: Item) -> None:
        """Add an item of the front end itself, after the text that is being streamed."""
        (self._settled if self._open_text is None else self._delayed).append(item)

    def add_first(self, item: Item) -> None:
        """Add an item before everything that has settled and was not taken yet."""
        self._settled.insert(0, item)

    def add_request(self, request: PermissionRequest | QuestionRequest) -> None:
        if can_be_asked(request):
            self._requests[request.id] = request

    def drop_request(self, id: str) -> None:
        self._requests.pop(id, None)

    def _feed_own(self, event: Event) -> None:
        match event:
            case MessageUpdated(info=UserMessage() as info):
                self._prompts[info.id] = info
                if not self.is_busy:
                    self.status = replace(self.status, since=info.time.created)
                self._set_model(
                    info.agent, f"{info.model.provider_id}/{info.model.model_id}" if info.model else ""
                )
            case MessageUpdated(info=AssistantMessage() as info):
                self._feed_answer(info)
            case PartUpdated(part=part):
                self._feed_part(part)
            case PartGrew(field="text"):
                self._grow(event)
            case PartRemoved(part_id=id):
                self._calls.pop(id, None)
                self._reasoning.pop(id, None)
            case StatusChanged(status=status):
                self.set_status(status)
            case SessionIdled():
                self._end_run()
            case SessionUpdated(info=info):
                self.set_session(info)
            case SessionDiffed(diff=diff):
                self.files = dict.fromkeys(each.file for each in diff)
            case TodoUpdated(todos=todos):
                self.todos = todos
            case SessionCompacted():
                self.add(NoticeItem(kind="note", text="the conversation was compacted"))
            case SessionWarned(message=message):
                self.add(NoticeItem(kind="warning", text=message))
            case SessionFailed(error=error) if error is not None:
                self._fail(error)
            case _:
                self._feed_request(event)

    def _feed_child(self, event: Event) -> None:
        match event:
            case PartUpdated(part=ToolPart() as part):
                self._feed_call(part, child=True)
            case PartUpdated(part=StepFinishPart() as part):
                self._count(part)
            case PartUpdated(part=PatchPart() as part):
                self._feed_patch(part)
            case MessageUpdated(info=AssistantMessage() as answer):
                self._answers[answer.id] = answer
                self._run_spending.follow(answer.id, answer, is_open=answer.time.completed is None)
            case SessionCreated(info=info) | SessionUpdated(info=info):
                self._run_spending.record(info.id, get_ledger(info))
            case _:
                self._feed_request(event)

    def _feed_request(self, event: Event) -> None:
        match event:
            case PermissionAsked(request=permission):
                self.add_request(permission)
            case QuestionAsked(request=question):
                self.add_request(question)
            case PermissionReplied() | QuestionReplied() | QuestionRejected():
                self.drop_request(event.request_id)
            case _:
                pass

    def set_session(self, info: SessionInfo) -> None:
        self.status = replace(self.status, title=info.title)
        if self._ledger is not None and get_weft_data(info).spent is None:
            return  # another server records nothing
        self._ledger = get_ledger(info)
        self._run_spending.record(info.id, self._ledger)
        self._update_spent()

    def _set_model(self, agent: str, model: str) -> None:
        if model:
            self.models[model] = None
        self.status = replace(self.status, agent=agent or self.status.agent, model=model or self.status.model)

    def _feed_answer(self, info: AssistantMessage) -> None:
        if info.id not in self._answers:
            # The next prompt is not for the agent that writes a summary.
            agent = "" if info.summary else info.agent
            self._set_model(agent, f"{info.provider_id}/{info.model_id}" if info.model_id else "")
        self._answers[info.id] = info
        self._run_spending.follow(info.id, info, is_open=info.time.completed is None)
        if info.error is not None and info.time.completed is not None:
            self._fail(info.error)

    def _fail(self, failure: AnyFailure) -> None:
        """Report a failure once: it arrives with the answer and as an event of its own."""
        message = describe_failure(failure)
        if message == self._failed:
            return
        self._failed = message
        self._end_text()
        aborted = isinstance(failure, AbortedFailure)
        self.add(NoticeItem(kind="note" if aborted else "error", text=INTERRUPTED if aborted else message))
        if isinstance(failure, BudgetFailure) and failure.data.hint:
            self.add(NoticeItem(kind="note", text=failure.data.hint))

    def settle(self) -> None:
        """Settle everything: the session is not running."""
        self._end_text()
        self._calls.clear()
        self._reasoning.clear()

    def set_status(self, status: Idle | Busy | Retry) -> None:
        match status:
            case Idle():
                self.status = replace(self.status, state="idle", retry_at=0)
            case Busy():
                if self.status.state == "idle":
                    self._failed = ""
                self.status = replace(self.status, state="busy", retry_at=0)
            case Retry(message=message, next=until):
                self.status = replace(self.status, state="retry", retry_at=until)
                self.add(NoticeItem(kind="retry", text=f"attempt {status.attempt} failed: {message}"))

    def _end_run(self) -> None:
        self.settle()
        self.status = replace(self.status, state="idle", retry_at=0)
        spent = self._run_spending.total()
        if spent.steps:
            self.add(EndItem(spent=spent, files=tuple(self._run_files)))
        self._run_spending.restart()
        self._run_files, self._failed = {}, ""

    # --- parts ---

    def _feed_part(self, part: AnyPart) -> None:
        if part.message_id in self._prompts:
            self._feed_prompt_part(part)
            return
        match part:
            case TextPart(synthetic=False, ignored=False):
                self._feed_text(part)
            case ReasoningPart(ignored=False):
                self._feed_reasoning(part)
            case ToolPart():
                self._feed_call(part, child=False)
            case StepFinishPart(tokens=tokens):
                self._count(part)
                self.status = replace(self.status, context=count_used(tokens))
            case PatchPart():
                self._feed_patch(part)
            case _:
                pass

    def _feed_prompt_part(self, part: AnyPart) -> None:
        if part.id in self._ended:
            return
        self._ended.add(part.id)
        match part:
            case TextPart(synthetic=False, ignored=False, text=text):
                created = self._prompts[part.message_id].time.created
                self.add(PromptItem(text=text, message=part.message_id, time=created))
            case FilePart(filename=filename, url=url):
                name = filename or url.rpartition("/")[2][:60]
                self.add(NoticeItem(kind="note", text=f"attached {name}"))
            case _:
                pass

    def _feed_text(self, part: TextPart) -> None:
        if part.id in self._ended:
            return
        self._open(part.id, dimmed=self._is_summary(part.message_id))
        self._write(part.id, 0, part.text)
        if part.time is not None and part.time.end is not None:
            self._end_text()

    def _is_summary(self, message: MessageID) -> bool:
        info = self._answers.get(message)
        return info is not None and info.summary

    def _open(self, id: PartID, *, dimmed: bool) -> None:
        if self._open_text != id:
            self._end_text()
            self._open_text = id
            self._splitters.setdefault(id, MarkdownSplitter())
            if dimmed:
                self._dimmed.add(id)

    def _grow(self, event: PartGrew) -> None:
        id = event.part_id
        if id in self._reasoning:
            self._reasoning[id] = self._reasoning[id][: event.offset] + event.delta
        elif id in self._splitters and id not in self._ended:
            self._write(id, event.offset, event.delta)

    def _write(self, id: PartID, offset: int, text: str) -> None:
        """Add the new end of a text. Growth that is known already, or that leaves a gap, adds nothing: the whole text follows."""
        known = self._lengths.get(id, 0)
        new = text[known - offset :] if offset <= known else ""
        if new:
            self._lengths[id] = known + len(new)
            self._add_blocks(id, self._splitters[id].feed(new))

    def _add_blocks(self, id: PartID, blocks: Iterable[MarkdownBlock]) -> None:
        for block in blocks:
            first = id not in self._begun
            self._begun.add(id)
            self._settled.append(AnswerItem(block=block, dimmed=id in self._dimmed, first=first))

    def _end_text(self) -> None:
        """Settle the open text, and what was waiting for its end."""
        id, self._open_text = self._open_text, None
        if id is not None:
            self._ended.add(id)
            self._add_blocks(id, self._splitters.pop(id).finish())
        self._settled += self._delayed
        self._delayed = []

    def _feed_reasoning(self, part: ReasoningPart) -> None:
        if part.id in self._ended:
            return
        self._reasoning[part.id] = part.text
        if part.time.end is not None:
            self._ended.add(part.id)
            del self._reasoning[part.id]
            if part.text.strip():
                self.add(ReasoningItem(text=part.text, ms=part.time.end - part.time.start))

    # --- calls, files and cost ---

    def _feed_call(self, part: ToolPart, *, child: bool) -> None:
        if part.id in self._ended:
            return
        if isinstance(part.state, OpenState):
            self._calls[part.id] = _to_open_call(part, child=child)
            return
        self._calls.pop(part.id, None)
        self._ended.add(part.id)
        self.add(to_call_item(part, child=child))

    def _feed_patch(self, part: PatchPart) -> None:
        for file in list_patch_files(part):
            self._run_files[file] = None
            self.files[file] = None

    def _count(self, part: StepFinishPart) -> None:
        self._steps[part.id] = to_step_spent(part)
        self._run_spending.count(part)
        self._update_spent()

    def _update_spent(self) -> None:
        """Show the larger sum: steps are known before they are recorded, and other servers record nothing."""
        seen = add_spent((self._base or Spent(), *self._steps.values()))
        recorded = total_spent(self._ledger) if self._ledger is not None else Spent()
        self.status = replace(self.status, spent=max_spent(seen, recorded))


def _to_open_call(part: ToolPart, *, child: bool) -> RunningCall:
    match part.state:
        case RunningState(title=title, time=time):
            text = title or make_call_title(part.state.input)
            session = (part.state.metadata or {}).get("sessionId")
            return RunningCall(
                tool=get_called_tool(part),
                title=text,
                start=time.start,
                child=child,
                session=SessionID(session) if isinstance(session, str) else None,
            )
        case PendingState():
            return RunningCall(tool=get_called_tool(part), title="", start=0, child=child)
        case _:
            raise AssertionError("only open calls get here")


def to_call_item(part: ToolPart, *, child: bool = False) -> CallItem:
    """Return the item for a call that has ended."""
    state, error = part.state, find_call_error(part)
    assert not isinstance(state, OpenState), "only calls that have ended get here"
    diff = state.metadata.get("diff") if isinstance(state, CompletedState) else None
    session = state.metadata.get("sessionId") if isinstance(state, CompletedState) else None
    exit = state.metadata.get("exit") if isinstance(state, CompletedState) else None
    return CallItem(
        tool=get_called_tool(part),
        title=(state.title if isinstance(state, CompletedState) else "") or make_call_title(state.input),
        ms=max(0, state.time.end - state.time.start),
        error=error,
        exit=exit if isinstance(exit, int) else 0,
        diff=strip_diff_header(diff) if isinstance(diff, str) and diff.strip() and not child else "",
        output=strip_tags(part.tool, state.output) if isinstance(state, CompletedState) and not child else "",
        child=child,
        session=SessionID(session) if isinstance(session, str) else None,
    )


def find_context_share(status: ViewStatus, sizes: Mapping[str, int]) -> float | None:
    """Return how much of the context is in use, None if the size of the model's context is unknown."""
    size = sizes.get(status.model, 0)
    return status.context / size if size and status.context else None
