"""`weft session show`: one session, whole, as people or programs read it."""

import argparse
import os
import sys
from collections.abc import Iterable

from weft.cli.paint import Paint, plain, write_json
from weft.cli.screen import describe, hunks, shortened
from weft.cli.sessions import told, warn_of_damage
from weft.cli.spent import dollars, tokens
from weft.host.now import now as read_clock
from weft.local.reader import Reading
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import (
    AnyPart,
    AnyToolState,
    CompletedState,
    FilePart,
    PendingState,
    ReasoningPart,
    RunningState,
    SubtaskPart,
    TextPart,
    ToolPart,
)
from weft.model.readable import fault_of, name_of, plural, readable
from weft.model.session import Session
from weft.model.spending import add_up
from weft.session.revert_point import cut_at
from weft.session.totals import to_spent
from weft.store.files.messages import Messages


def show_session(chosen: argparse.Namespace) -> int:
    reading = Reading(chosen.dir, os.environ, store=chosen.store)
    session = reading.get_session(chosen.session)
    messages = Messages(reading.tree).list_messages(session.id)
    if chosen.format == "json":
        write_json({"info": session, "messages": messages})
    else:
        for line in transcript(session, messages, Paint(sys.stdout), now=read_clock()):
            print(line)
    warn_of_damage(reading)
    return 0


def transcript(
    session: Session, messages: list[MessageWithParts], paint: Paint, *, now: int
) -> Iterable[str]:
    """A session as lines to read."""
    yield paint.bold(plain(session.title))
    yield paint.dim(f"{session.id} · {session.directory} · updated {told(session.time.updated, now=now)}")
    parted = cut_at(session.revert, messages)
    for message in parted.kept:
        yield ""
        yield from _message(message, paint)
    yield ""
    if parted.gone:
        yield paint.yellow(
            f"{plural(len(parted.gone), 'message was', 'messages were')} taken back; weft redo {session.id} brings {'it' if len(parted.gone) == 1 else 'them'} back"
        )
    yield paint.dim(totals(messages))


def _message(message: MessageWithParts, paint: Paint) -> Iterable[str]:
    match message.info:
        case UserMessage():
            for part in message.parts:
                if isinstance(part, TextPart) and not part.synthetic:
                    yield f"{paint.green('>')} {plain(part.text)}"
                if isinstance(part, FilePart):
                    yield f"{paint.green('>')} {paint.dim(plain(part.filename or part.url[:80]))}"
                if isinstance(part, SubtaskPart):
                    yield f"{paint.green('>')} {paint.dim(f'@{plain(part.agent)}')} {plain(part.description or part.prompt)}"
        case AssistantMessage(error=error):
            for part in message.parts:
                yield from _part(part, paint)
            if error is not None:
                yield f"{paint.red('error:')} {plain(describe(error))}"


def _part(part: AnyPart, paint: Paint) -> Iterable[str]:
    match part:
        case TextPart(text=text) if text:
            yield plain(text)
        case ReasoningPart(text=text) if text:
            yield paint.dim(plain(text))
        case ToolPart(state=state) if (fault := fault_of(part)) is not None:
            head = f"{paint.blue('|')} {paint.bold(name_of(part).capitalize())} {paint.red(plain(fault))}"
            yield head + paint.dim(child_of(state))
        case ToolPart(tool=tool, state=CompletedState() as state):
            yield f"{paint.blue('|')} {paint.bold(tool.capitalize())} {paint.dim(plain(state.title) + child_of(state))}"
            diff = state.metadata.get("diff")
            shown = (
                paint.diff(plain(hunks(diff)))
                if isinstance(diff, str)
                else paint.dim(plain(shortened(readable(tool, state.output))))
            )
            yield from (f"  {line}" for line in shown.splitlines())
        case ToolPart(tool=tool, state=PendingState() | RunningState() as state):
            head = f"{paint.blue('|')} {paint.bold(tool.capitalize())} {paint.yellow(str(state.__struct_config__.tag))}"
            yield head + paint.dim(child_of(state))
        case _:
            pass


def child_of(state: AnyToolState) -> str:
    """The session that a call was handed to, if it was."""
    metadata = None if isinstance(state, PendingState) else state.metadata
    child = (metadata or {}).get("sessionId")
    return f" · {plain(child)}" if isinstance(child, str) else ""


def totals(messages: list[MessageWithParts]) -> str:
    answers = [message.info for message in messages if isinstance(message.info, AssistantMessage)]
    spent = add_up(to_spent(each) for each in answers)
    return f"{plural(len(messages), 'message')} · {tokens(spent)} · {dollars(spent)}"
