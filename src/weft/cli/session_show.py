"""`weft session show`: print one whole session."""

import argparse
import sys
from collections.abc import Iterable

from weft.cli.arguments import add_place, add_session
from weft.cli.output import Paint, format_cost, format_time, format_tokens, sanitize, write_json
from weft.cli.session import make_reader, report_damage
from weft.cli.session_cost import add_up_costs
from weft.host.now import now as read_clock
from weft.model.display import (
    describe_failure,
    find_call_error,
    format_count,
    get_called_tool,
    shorten,
    strip_diff_header,
    strip_tags,
)
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import (
    AnyPart,
    AnyToolState,
    CompletedState,
    FilePart,
    PendingState,
    ReasoningPart,
    RetryPart,
    RunningState,
    SubtaskPart,
    TextPart,
    ToolPart,
)
from weft.model.session import SessionInfo
from weft.model.spending import Spending
from weft.model.verdict import find_verdict
from weft.session.revert_point import cut_at_revert


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument(
        "--format",
        choices=("default", "json"),
        default="default",
        help="json: in the format of OpenCode's export",
    )
    add_place(parser)


def show_session(args: argparse.Namespace) -> int:
    reader = make_reader(args)
    session = reader.get_session(args.session)
    messages = reader.store.list_messages(session.id)
    if args.format == "json":
        write_json({"info": session, "messages": messages})
    else:
        sessions = [session, *reader.list_descendants(session.id)]
        spending = add_up_costs(sessions, reader.store)[session.id]
        for line in format_transcript(session, messages, spending, Paint(sys.stdout), now=read_clock()):
            print(line)
    report_damage(reader)
    return 0


def format_transcript(
    session: SessionInfo, messages: list[MessageWithParts], spending: Spending, paint: Paint, *, now: int
) -> Iterable[str]:
    """Yield the lines of a session as a person reads it, with what it spent."""
    yield paint.bold(sanitize(session.title))
    yield paint.dim(
        f"{session.id} · {session.directory} · updated {format_time(session.time.updated, now=now)}"
    )
    history = cut_at_revert(session.revert, messages)
    for message in history.kept:
        yield ""
        yield from _format_message(message, paint)
    yield ""
    if history.removed:
        yield paint.yellow(
            f"{format_count(len(history.removed), 'message was', 'messages were')} undone; weft redo {session.id} brings {'it' if len(history.removed) == 1 else 'them'} back"
        )
    yield paint.dim(format_totals(messages, spending))


def _format_message(message: MessageWithParts, paint: Paint) -> Iterable[str]:
    match message.info:
        case UserMessage():
            for part in message.parts:
                if isinstance(part, TextPart) and not part.synthetic:
                    yield f"{paint.green('>')} {sanitize(part.text)}"
                if isinstance(part, FilePart):
                    yield f"{paint.green('>')} {paint.dim(sanitize(part.filename or part.url[:80]))}"
                if isinstance(part, SubtaskPart):
                    yield f"{paint.green('>')} {paint.dim(f'@{sanitize(part.agent)}')} {sanitize(part.description or part.prompt)}"
        case AssistantMessage(error=error):
            for part in message.parts:
                yield from _format_part(part, paint)
            if error is not None:
                yield f"{paint.red('error:')} {sanitize(describe_failure(error))}"


def _format_part(part: AnyPart, paint: Paint) -> Iterable[str]:
    match part:
        case TextPart(text=text) if text:
            yield sanitize(text)
        case ReasoningPart(text=text) if text:
            yield paint.dim(sanitize(text))
        case ToolPart(state=state) if (error := find_call_error(part)) is not None:
            head = f"{paint.blue('|')} {paint.bold(get_called_tool(part).capitalize())} {paint.red(sanitize(error))}"
            yield head + paint.dim(format_child(state))
        case ToolPart(tool=tool, state=CompletedState() as state):
            yield f"{paint.blue('|')} {paint.bold(tool.capitalize())} {paint.dim(sanitize(state.title) + format_child(state))}"
            diff = state.metadata.get("diff")
            output = (
                paint.diff(sanitize(strip_diff_header(diff)))
                if isinstance(diff, str)
                else paint.dim(sanitize(shorten(strip_tags(tool, state.output))))
            )
            yield from (f"  {line}" for line in output.splitlines())
            if isinstance(diff, str) and (verdict := find_verdict(state.metadata)) is not None:
                yield f"  {paint.yellow(sanitize(verdict.why))}"
        case ToolPart(tool=tool, state=PendingState() | RunningState() as state):
            head = f"{paint.blue('|')} {paint.bold(tool.capitalize())} {paint.yellow(str(state.__struct_config__.tag))}"
            yield head + paint.dim(format_child(state))
        case RetryPart(attempt=attempt, error=error):
            reason = sanitize(describe_failure(error))
            yield paint.yellow(f"Attempt {attempt} failed and was repeated: {reason}")
        case _:
            pass


def format_child(state: AnyToolState) -> str:
    """Return the child session that ran a call, as text to append; empty if none did."""
    metadata = None if isinstance(state, PendingState) else state.metadata
    child = (metadata or {}).get("sessionId")
    return f" · {sanitize(child)}" if isinstance(child, str) else ""


def format_totals(messages: list[MessageWithParts], spending: Spending) -> str:
    spent, family = spending.tree, " with its child sessions" if spending.tree != spending.own else ""
    return f"{format_count(len(messages), 'message')} · {format_tokens(spent)} · {format_cost(spent)}{family}"
