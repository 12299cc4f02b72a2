"""What a run looks like while it goes on: words to stdout, everything about them to stderr; or JSON lines."""

import sys
from decimal import Decimal
from typing import Protocol

from weft.cli.paint import Paint, plain
from weft.host.clock import Clock
from weft.model.event import Event, PartGrew, PartUpdated, SessionFailed
from weft.model.failure import AnyFailure, AuthFailure, OtherFailure, OutputLengthFailure
from weft.model.ids import PartID, SessionID
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
from weft.model.wire import encode, to_plain

OUTPUT_LINES = 12
NAME_WIDTH = 7


class Screen(Protocol):
    """Shows what happens in one session; `end` is called once, when the run is over."""

    def feed(self, event: Event) -> None: ...

    def end(self) -> None: ...


class JsonLines:
    """One object a line, as OpenCode's `run --format json` prints them."""

    def __init__(self, session: SessionID, clock: Clock) -> None:
        self._session = session
        self._clock = clock

    def feed(self, event: Event) -> None:
        match event:
            case PartUpdated(part=StepStartPart() as part):
                self._line("step_start", part=part)
            case PartUpdated(part=StepFinishPart() as part):
                self._line("step_finish", part=part)
            case PartUpdated(part=ToolPart(state=CompletedState() | ErrorState()) as part):
                # OpenCode is silent about calls that failed; a script needs to know of them too.
                self._line("tool_use", part=part)
            case PartUpdated(part=TextPart(time=time) as part) if time is not None and time.end is not None:
                self._line("text", part=part)
            case SessionFailed(error=error):
                self._line("error", error=error)
            case _:
                pass

    def end(self) -> None:
        pass

    def _line(self, type: str, **more: AnyPart | AnyFailure | None) -> None:
        head = {"type": type, "timestamp": self._clock.now(), "sessionID": self._session}
        line = encode(head | {name: to_plain(value) for name, value in more.items()})
        sys.stdout.write(line.decode() + "\n")
        sys.stdout.flush()


class Terminal:
    """For a person: text as it is streamed, calls with what came of them, and at the end what it took."""

    def __init__(self) -> None:
        self._paint = Paint(sys.stderr)
        self._writing: PartID | None = None
        self._steps = 0
        self._cost = Decimal(0)
        self._priced = True
        self._tokens = [0, 0]

    def feed(self, event: Event) -> None:
        match event:
            case PartUpdated(part=TextPart(synthetic=False) | ReasoningPart() as part):
                self._words(part, event.delta)
            case PartGrew(part_id=part, delta=delta) if part == self._writing:
                self._write(delta)
            case PartUpdated(part=ToolPart(state=CompletedState() as state) as part):
                self._call(part, state)
            case PartUpdated(part=ToolPart(state=ErrorState(error=error)) as part):
                self._say(f"{self._head(part)} {self._paint.red(plain(error))}")
            case PartUpdated(part=StepFinishPart() as part):
                self._count(part)
            case SessionFailed(error=error) if error is not None:
                self._say(f"{self._paint.red('error:')} {plain(describe(error))}")
            case _:
                pass

    def end(self) -> None:
        self._close()
        cost = f"${self._cost:.4f}" + ("" if self._priced else " and more: the price of the model is unknown")
        spent = f"{self._tokens[0]:,} tokens in, {self._tokens[1]:,} out"
        self._say(self._paint.dim(f"{self._steps} step{'s' * (self._steps != 1)} · {spent} · {cost}"))

    # --- words ---

    def _words(self, part: TextPart | ReasoningPart, delta: str | None) -> None:
        if part.time is not None and part.time.end is not None:
            self._close()
        elif delta is not None and self._is_new(part):
            self._close()
            self._writing, self._thinking = part.id, isinstance(part, ReasoningPart)
            self._write(delta)

    def _is_new(self, part: AnyPart) -> bool:
        return part.id != self._writing

    def _write(self, text: str) -> None:
        if self._thinking:
            sys.stderr.write(self._paint.dim(plain(text)))
            sys.stderr.flush()
        else:
            sys.stdout.write(plain(text) if sys.stdout.isatty() else text)
            sys.stdout.flush()

    def _close(self) -> None:
        if self._writing is not None:
            stream = sys.stderr if self._thinking else sys.stdout
            stream.write("\n")
            stream.flush()
        self._writing = None

    _thinking = False

    # --- calls ---

    def _call(self, part: ToolPart, state: CompletedState) -> None:
        self._close()
        self._say(f"{self._head(part)} {self._paint.dim(plain(state.title))}")
        diff = state.metadata.get("diff")
        if isinstance(diff, str) and diff.strip():
            self._indented(self._paint.diff(plain(hunks(diff))))
        elif part.tool == "bash":
            self._indented(self._paint.dim(plain(shortened(state.output))))

    def _head(self, part: ToolPart) -> str:
        self._close()
        return f"{self._paint.blue('|')} {self._paint.bold(part.tool.capitalize().ljust(NAME_WIDTH))}"

    def _indented(self, text: str) -> None:
        if text.strip():
            self._say("\n".join(f"  {line}" for line in text.rstrip("\n").splitlines()))

    def _count(self, part: StepFinishPart) -> None:
        tokens = part.tokens
        self._steps += 1
        self._cost += part.cost
        self._priced &= part.priced
        self._tokens[0] += tokens.input + tokens.cache.read + tokens.cache.write
        self._tokens[1] += tokens.output + tokens.reasoning

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def hunks(diff: str) -> str:
    """A unified diff without the lines that name the file: the title has it already."""
    lines = diff.splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith("@@")), 0)
    return "\n".join(lines[first:])


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
