"""What a run looks like while it goes on: words to stdout, everything about them to stderr; or JSON lines."""

import sys
from datetime import UTC, datetime
from typing import Any, Protocol

from weft.cli.ending import Ending, to_result
from weft.cli.paint import Paint, plain, write_json, write_json_line
from weft.cli.spent import dollars, tokens
from weft.host.clock import Clock
from weft.model.event import (
    Event,
    MessageUpdated,
    PartGrew,
    PartUpdated,
    SessionFailed,
    SessionWarned,
    StatusChanged,
)
from weft.model.failure import AnyFailure, AuthFailure, BudgetFailure, OtherFailure, OutputLengthFailure
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage
from weft.model.part import (
    AnyPart,
    CompletedState,
    ErrorState,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
)
from weft.model.readable import fault_of, name_of, plural, readable
from weft.model.session import Retry
from weft.model.spending import Spent, add_up
from weft.model.wire import encode, to_plain
from weft.session.totals import to_spent

OUTPUT_LINES = 12
TITLE_WIDTH = 80
NAME_WIDTH = 7


class Screen(Protocol):
    """Shows what happens in one session, and shortly in those below it; `end` is called once, when the run is over."""

    def feed(self, event: Event) -> None: ...

    def feed_below(self, event: Event) -> None: ...

    def tell_value(self, value: Any) -> None: ...

    def end(self, ending: Ending) -> None: ...


class JsonLines:
    """One object a line, as OpenCode's `run --format json` prints them; with `thinking`, what the model thought, too."""

    def __init__(self, session: SessionID, clock: Clock, *, thinking: bool = False) -> None:
        self._session = session
        self._thinking = thinking
        self._clock = clock
        self._begun: set[PartID] = set()

    def feed(self, event: Event) -> None:
        match event:
            case PartUpdated(part=StepStartPart() as part):
                if part.id not in self._begun:  # it is told again when the files of that moment are known
                    self._line("step_start", part=part)
                self._begun.add(part.id)
            case PartUpdated(part=StepFinishPart() as part):
                self._line("step_finish", part=part)
            case PartUpdated(part=ToolPart(state=CompletedState() | ErrorState()) as part):
                # OpenCode is silent about calls that failed; a script needs to know of them too.
                self._line("tool_use", part=part)
            case PartUpdated(part=TextPart(time=time) as part) if time is not None and time.end is not None:
                self._line("text", part=part)
            case PartUpdated(part=ReasoningPart(time=time) as part) if (
                self._thinking and time.end is not None
            ):
                self._line("reasoning", part=part)
            case SessionFailed(error=error):
                self._line("error", error=error)
            case SessionWarned(message=message):
                self._line("warning", message=message)
                print(f"warning: {plain(message)}", file=sys.stderr, flush=True)
            case _:
                pass

    def feed_below(self, event: Event) -> None:
        """Nothing, as in OpenCode: what a child did stands in the `task` call of its parent."""

    def tell_value(self, value: Any) -> None:
        """Nothing: it stands in the object at the end."""

    def end(self, ending: Ending) -> None:
        """The last line is the whole of it: whoever wants only the outcome reads no other."""
        self._line("result", **to_result(ending))

    def _line(self, type: str, **more: Any) -> None:
        head = {"type": type, "timestamp": self._clock.now(), "sessionID": self._session}
        write_json_line(head | {name: to_plain(value) for name, value in more.items()})


class Terminal:
    """For a person: text as it is streamed, calls with what came of them, and at the end what it took.

    Where a value is wanted, the words go `aside`: it stands alone on stdout.
    """

    def __init__(self, *, aside: bool = False) -> None:
        self._paint = Paint(sys.stderr)
        self._aside = aside
        self._writing: PartID | None = None
        self._spent: list[Spent] = []
        self._waiting: list[str] = []
        self._summaries: set[MessageID] = set()

    def feed(self, event: Event) -> None:
        match event:
            case MessageUpdated(info=AssistantMessage(id=id, summary=True)):
                self._summaries.add(id)
            case PartUpdated(part=TextPart(synthetic=False) | ReasoningPart() as part):
                self._words(part, event.delta)
            case PartGrew(part_id=part, delta=delta) if part == self._writing:
                self._write(delta)
            case PartUpdated(part=ToolPart(state=CompletedState() | ErrorState()) as part):
                self._call(part)
            case PartUpdated(part=StepFinishPart() as part):
                self._count(part)
            case StatusChanged(status=Retry(message=message, next=until)):
                self._close()
                self._say(self._paint.yellow(f"again at {to_hour(until)}: {plain(message)}"))
            case SessionWarned(message=message):
                self._close()
                self._say(f"{self._paint.yellow('warning:')} {plain(message)}")
            case SessionFailed(error=error) if error is not None:
                self._close()
                self._say(f"{self._paint.red('error:')} {plain(describe(error))}")
            case _:
                pass

    def feed_below(self, event: Event) -> None:
        """A line for each call of a child, and what it took is counted. Its words are for whoever sent it."""
        match event:
            case PartUpdated(part=ToolPart(state=CompletedState() | ErrorState()) as part):
                fault = fault_of(part)
                done = self._paint.dim(plain(titled(part)))
                self._below(part, done if fault is None else self._paint.red(plain(shortened(fault))))
            case PartUpdated(part=StepFinishPart() as part):
                self._count(part)
            case _:
                pass

    def tell_value(self, value: Any) -> None:
        self._close()
        write_json(value)
        sys.stdout.flush()

    def end(self, ending: Ending) -> None:
        self._close()
        if ending.error is not None and ending.course.failure is None:
            # Nobody told of it: the server was gone when it happened.
            self._say(f"{self._paint.red('error:')} {plain(describe(ending.error))}")
        if isinstance(ending.error, BudgetFailure):
            self._say(f"       {ending.error.data.hint}")
        spent, steps = add_up(self._spent), plural(len(self._spent), "step")
        self._say(self._paint.dim(f"{steps} · {tokens(spent)} · {dollars(spent)}"))

    # --- words ---

    def _words(self, part: TextPart | ReasoningPart, delta: str | None) -> None:
        if part.time is not None and part.time.end is not None:
            self._close()
        elif delta is not None and self._is_new(part):
            self._close()
            # A summary made on the way is for the model: whoever reads stdout asked for something else.
            self._thinking = isinstance(part, ReasoningPart) or part.message_id in self._summaries
            self._writing = part.id
            self._write(delta)

    def _is_new(self, part: AnyPart) -> bool:
        return part.id != self._writing

    def _write(self, text: str) -> None:
        if self._thinking or self._aside:
            sys.stderr.write(self._paint.dim(plain(text)))
            sys.stderr.flush()
        else:
            sys.stdout.write(plain(text) if sys.stdout.isatty() else text)
            sys.stdout.flush()

    def _close(self) -> None:
        if self._writing is not None:
            stream = sys.stderr if self._thinking or self._aside else sys.stdout
            stream.write("\n")
            stream.flush()
        self._writing = None
        for line in self._waiting:
            self._say(line)
        self._waiting.clear()

    _thinking = False

    # --- calls ---

    def _call(self, part: ToolPart) -> None:
        self._close()
        fault = fault_of(part)
        if fault is not None or not isinstance(part.state, CompletedState):
            self._say(f"{self._head(part)} {self._paint.red(plain(fault or ''))}")
            return
        self._say(f"{self._head(part)} {self._paint.dim(plain(titled(part)))}")
        diff = part.state.metadata.get("diff")
        if isinstance(diff, str) and diff.strip():
            self._indented(self._paint.diff(plain(hunks(diff))))
        elif part.tool == "bash":
            self._indented(self._paint.dim(plain(shortened(readable(part.tool, part.state.output)))))

    def _below(self, part: ToolPart, what: str) -> None:
        line = f"  {self._paint.dim(f'· {name_of(part).capitalize().ljust(NAME_WIDTH)}')} {what}"
        # A child works while its parent may still be speaking: its lines wait for the end of the sentence.
        if self._writing is None:
            self._say(line)
        else:
            self._waiting.append(line)

    def _head(self, part: ToolPart) -> str:
        self._close()
        return f"{self._paint.blue('|')} {self._paint.bold(name_of(part).capitalize().ljust(NAME_WIDTH))}"

    def _indented(self, text: str) -> None:
        if text.strip():
            self._say("\n".join(f"  {line}" for line in text.rstrip("\n").splitlines()))

    def _count(self, part: StepFinishPart) -> None:
        self._spent.append(to_spent(part))

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def to_hour(ms: int) -> str:
    """The time of day, by the clock of whoever sits here."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC).astimezone():%H:%M:%S}"


def hunks(diff: str) -> str:
    """A unified diff without the lines that name the file: the title has it already."""
    lines = diff.splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith("@@")), 0)
    return "\n".join(lines[first:])


def titled(part: ToolPart) -> str:
    """What was done, in a line; tools of MCP servers do not say, and are shown by what they were given."""
    state = part.state
    title = state.title if isinstance(state, CompletedState) else ""
    if title or not state.input:
        return title
    given = encode(state.input).decode()
    return given if len(given) <= TITLE_WIDTH else given[: TITLE_WIDTH - 1] + "…"


def shortened(text: str) -> str:
    lines = text.strip("\n").splitlines()
    if len(lines) <= OUTPUT_LINES:
        return "\n".join(lines)
    return "\n".join([*lines[:OUTPUT_LINES], f"… {len(lines) - OUTPUT_LINES} more lines"])


def describe(failure: AnyFailure) -> str:
    """A failure in words."""
    match failure:
        case OutputLengthFailure():
            return "the answer was cut off at its limit"
        case OtherFailure(data=data):
            return str((data or {}).get("message", "something went wrong"))
        case AuthFailure(data=data):
            return f"{data.provider_id}: {data.message}"
        case _:
            return failure.data.message
