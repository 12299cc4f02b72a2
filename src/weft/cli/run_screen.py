"""Show a run as it happens: with a live region on a terminal, else text to stdout and the rest to stderr, or JSON lines."""

import os
import sys
from datetime import UTC, datetime
from typing import Any, Protocol

from weft.cli.outcome import RunOutcome, to_result
from weft.cli.output import Paint, format_cost, format_tokens, sanitize, write_json, write_json_line
from weft.host.clock import Clock
from weft.model.display import (
    bound_time,
    describe_failure,
    find_call_error,
    format_call,
    format_count,
    get_called_tool,
    shorten,
    strip_diff_header,
    strip_tags,
)
from weft.model.event import (
    Event,
    MessageUpdated,
    PartGrew,
    PartUpdated,
    SessionFailed,
    SessionWarned,
    StatusChanged,
)
from weft.model.failure import BudgetFailure
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage
from weft.model.part import (
    CompletedState,
    ErrorState,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
)
from weft.model.session import Retry, SessionInfo
from weft.model.wire import to_plain

NAME_WIDTH = 7


class RunScreen(Protocol):
    """Shows the events of one session (`feed`) and, briefly, those of its child sessions (`feed_child`).

    `show_value` shows a structured answer. `end` is called once, when the run is over.
    """

    def feed(self, event: Event) -> None: ...

    def feed_child(self, event: Event) -> None: ...

    def show_value(self, value: Any) -> None: ...

    def end(self, outcome: RunOutcome) -> None: ...


class JsonScreen:
    """Prints one JSON object per line, as OpenCode's `run --format json` does; with `thinking`, reasoning too."""

    def __init__(self, session: SessionID, clock: Clock, *, thinking: bool = False) -> None:
        self._session = session
        self._thinking = thinking
        self._clock = clock
        self._started_steps: set[PartID] = set()

    def feed(self, event: Event) -> None:
        match event:
            case PartUpdated(part=StepStartPart() as part):
                if part.id not in self._started_steps:  # it is sent again with the snapshot of the files
                    self._print_line("step_start", part=part)
                self._started_steps.add(part.id)
            case PartUpdated(part=StepFinishPart() as part):
                self._print_line("step_finish", part=part)
            case PartUpdated(part=ToolPart(state=CompletedState() | ErrorState()) as part):
                # OpenCode prints nothing for calls that failed; a script needs to know about them.
                self._print_line("tool_use", part=part)
            case PartUpdated(part=TextPart(time=time) as part) if time is not None and time.end is not None:
                self._print_line("text", part=part)
            case PartUpdated(part=ReasoningPart(time=time) as part) if (
                self._thinking and time.end is not None
            ):
                self._print_line("reasoning", part=part)
            case SessionFailed(error=error):
                self._print_line("error", error=error)
            case SessionWarned(message=message):
                self._print_line("warning", message=message)
                print(f"warning: {sanitize(message)}", file=sys.stderr, flush=True)
            case _:
                pass

    def feed_child(self, event: Event) -> None:
        """Print nothing, as OpenCode does: the `task` call of the parent has the result of the child."""

    def show_value(self, value: Any) -> None:
        """Print nothing: the last object has the value."""

    def end(self, outcome: RunOutcome) -> None:
        """Print the whole result as the last line, so that a script needs to read no other."""
        self._print_line("result", **to_result(outcome))

    def _print_line(self, type: str, **fields: Any) -> None:
        head = {"type": type, "timestamp": self._clock.now(), "sessionID": self._session}
        write_json_line(head | {name: to_plain(value) for name, value in fields.items()})


class TextScreen:
    """Prints plain text where there is no terminal: the answer to stdout as it is streamed, all else to stderr.

    With `text_to_stderr`, on a terminal too, the answer is printed to stderr, because stdout is for the structured value alone.
    """

    def __init__(self, *, text_to_stderr: bool = False) -> None:
        self._paint = Paint(sys.stderr)
        self._text_to_stderr = text_to_stderr
        self._streamed_part: PartID | None = None
        self._is_line_open = False  # some of its text was written
        self._begun_parts: set[PartID] = set()
        self._answers: set[MessageID] = set()
        self._dimmed = False
        self._delayed_lines: list[str] = []
        self._summaries: set[MessageID] = set()

    def feed(self, event: Event) -> None:
        match event:
            case MessageUpdated(info=AssistantMessage(id=id, summary=is_summary)):
                self._answers.add(id)
                if is_summary:
                    self._summaries.add(id)
            case PartUpdated(part=TextPart(synthetic=False) | ReasoningPart() as part):
                self._write_part(part, event.delta)
            case PartGrew(part_id=part, delta=delta) if part == self._streamed_part:
                self._write(delta)
            case PartUpdated(part=ToolPart(state=CompletedState() | ErrorState()) as part):
                self._print_call(part)
            case StatusChanged(status=Retry(message=message, next=until)):
                self._end_text()
                self._print(self._paint.yellow(f"retry at {format_time_of_day(until)}: {sanitize(message)}"))
            case SessionWarned(message=message):
                self._print_between_texts(f"{self._paint.yellow('warning:')} {sanitize(message)}")
            case SessionFailed(error=error) if error is not None:
                self._end_text()
                self._print(f"{self._paint.red('error:')} {sanitize(describe_failure(error))}")
            case _:
                pass

    def feed_child(self, event: Event) -> None:
        """Print a line for each call of a child session. Its text is for its parent."""
        match event:
            case PartUpdated(part=ToolPart(state=CompletedState() | ErrorState()) as part):
                error = find_call_error(part)
                title = self._paint.dim(sanitize(format_call(part)))
                self._print_child_call(
                    part, title if error is None else self._paint.red(sanitize(shorten(error)))
                )
            case _:
                pass

    def show_value(self, value: Any) -> None:
        self._end_text()
        write_json(value)
        sys.stdout.flush()

    def end(self, outcome: RunOutcome) -> None:
        self._end_text()
        if outcome.error is not None and outcome.tally.failure is None:
            # No event reported it: the connection to the server was lost when it happened.
            self._print(f"{self._paint.red('error:')} {sanitize(describe_failure(outcome.error))}")
        if isinstance(outcome.error, BudgetFailure):
            self._print(f"       {outcome.error.data.hint}")
        spent = outcome.tally.spent
        steps = format_count(spent.steps, "step")
        self._print(self._paint.dim(f"{steps} · {format_tokens(spent)} · {format_cost(spent)}"))

    # --- text ---

    def _write_part(self, part: TextPart | ReasoningPart, delta: str | None) -> None:
        if delta is None and part.message_id in self._answers and not part.ignored:
            delta = part.text  # events were missed, or the server announces a text before its first piece
        if delta is not None and part.id not in self._begun_parts:
            self._end_text()
            # The summary of a compaction is for the model, not for the reader of stdout.
            self._dimmed = isinstance(part, ReasoningPart) or part.message_id in self._summaries
            self._streamed_part = part.id
            self._begun_parts.add(part.id)
            if delta:
                self._write(delta)
        if part.time is not None and part.time.end is not None:
            self._end_text()

    def _write(self, text: str) -> None:
        self._is_line_open = True
        if self._dimmed or self._text_to_stderr:
            sys.stderr.write(self._paint.dim(sanitize(text)))
            sys.stderr.flush()
        else:
            sys.stdout.write(sanitize(text) if sys.stdout.isatty() else text)
            sys.stdout.flush()

    def _end_text(self) -> None:
        if self._is_line_open:
            stream = sys.stderr if self._dimmed or self._text_to_stderr else sys.stdout
            stream.write("\n")
            stream.flush()
        self._streamed_part, self._is_line_open = None, False
        for line in self._delayed_lines:
            self._print(line)
        self._delayed_lines.clear()

    # --- calls ---

    def _print_call(self, part: ToolPart) -> None:
        error = find_call_error(part)
        if error is not None or not isinstance(part.state, CompletedState):
            self._print_between_texts(f"{self._format_head(part)} {self._paint.red(sanitize(error or ''))}")
            return
        self._print_between_texts(f"{self._format_head(part)} {self._paint.dim(sanitize(format_call(part)))}")
        diff = part.state.metadata.get("diff")
        if isinstance(diff, str) and diff.strip():
            self._print_indented(self._paint.diff(sanitize(strip_diff_header(diff))))
        elif part.tool == "bash":
            self._print_indented(self._paint.dim(sanitize(shorten(strip_tags(part.tool, part.state.output)))))

    def _print_child_call(self, part: ToolPart, what: str) -> None:
        name = self._paint.dim(f"· {get_called_tool(part).capitalize().ljust(NAME_WIDTH)}")
        self._print_between_texts(f"  {name} {what}")

    def _format_head(self, part: ToolPart) -> str:
        return f"{self._paint.blue('|')} {self._paint.bold(get_called_tool(part).capitalize().ljust(NAME_WIDTH))}"

    def _print_indented(self, text: str) -> None:
        if text.strip():
            self._print_between_texts("\n".join(f"  {line}" for line in text.rstrip("\n").splitlines()))

    def _print_between_texts(self, text: str) -> None:
        """Print this now, or when the text that is being streamed ends: calls run and warnings come while the model writes."""
        if self._streamed_part is None:
            self._print(text)
        else:
            self._delayed_lines.append(text)

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def make_screen(session: SessionInfo, clock: Clock, *, plain: bool = False, undo: bool = True) -> RunScreen:
    """Return the screen for a person: on a terminal with Markdown, and with a live region unless it is `plain`.

    With `undo`, the end names the command that undoes the changes.
    """
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return TextScreen()
    from weft.cli.run_live_screen import LiveScreen  # noqa: PLC0415  piped output needs no Markdown

    plain = plain or os.environ.get("TERM", "dumb") == "dumb"
    return LiveScreen(session, clock, plain=plain, undo=undo)


def format_time_of_day(ms: int) -> str:
    """Format the time of day in the local time zone."""
    return f"{datetime.fromtimestamp(bound_time(ms) / 1000, UTC).astimezone():%H:%M:%S}"
