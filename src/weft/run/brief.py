"""The briefing of a session: the environment and the instructions in its system prompt.

It is made once and stored, so that it stays the same in another process. Later changes are noted in the next prompt.
"""

import asyncio
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

from weft.context.notes import WEFT_KEY, ContextNote, apply_history_notes, list_notes
from weft.context.reminders import PLAN_AGENT, has_plan_note, make_plan_note
from weft.context.system import Briefing, Environment
from weft.errors import DocumentError
from weft.host.files import make_directory
from weft.model.agent import Instruction
from weft.model.event import Event, PartUpdated
from weft.model.ids import Mint
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage, find_end
from weft.model.part import SubtaskPart, TextPart, ToolPart
from weft.model.project import Place
from weft.model.session import Session, get_weft_data
from weft.model.transcript import Transcript
from weft.model.wire import from_plain, to_plain
from weft.run.runtime import Runtime
from weft.session.lifecycle import get_plan_path
from weft.store.contract import Key

PINNED = "notes pinned to this session"


async def prepare_briefing(
    runtime: Runtime, session: Session, transcript: Transcript, prompt: UserMessage
) -> Briefing:
    """Return the briefing of a session. Before a prompt is first answered, add notes to it about what changed since."""
    pinned = to_pinned_instructions(session)
    briefing = await get_briefing(runtime, session)
    history, asked = transcript.messages(), transcript.find(prompt.id)
    if asked is not None and not is_answered(history, prompt):
        known = apply_history_notes(briefing, history)
        notes = list_notes(known, await _gather(runtime, known.instructions, pinned))
        notes += await _list_plan_notes(runtime, session, history, asked)
        await _store_notes(runtime, transcript, prompt, notes)
    return briefing


async def get_briefing(runtime: Runtime, session: Session) -> Briefing:
    """Return the stored briefing of a session, or make and store one."""
    if session.id in runtime.briefings:
        return runtime.briefings[session.id]
    keys = list_briefing_keys(session)
    found = [read_briefing(await runtime.store.find_value(key)) for key in keys]
    briefing = next((each for each in found if each is not None), None) or await _gather(
        runtime, (), to_pinned_instructions(session)
    )
    if found[0] is None:
        await runtime.store.put_value(keys[0], to_plain(briefing))
    runtime.briefings[session.id] = briefing  # it never changes
    return briefing


def list_briefing_keys(session: Session) -> list[Key]:
    """Return the store keys of a session's briefing, its own first. A fork shares that of its original."""
    origin = get_weft_data(session).forked_from
    sessions = [session.id] if origin is None else [session.id, origin.session_id]
    return [("prompt", id) for id in sessions]


def read_briefing(kept: Any) -> Briefing | None:
    try:
        return None if kept is None else from_plain(kept, Briefing, where="briefing")
    except DocumentError:
        return None


async def _gather(
    runtime: Runtime, known: Sequence[Instruction], pinned: tuple[Instruction, ...]
) -> Briefing:
    texts = {each.source: each.text for each in known}
    return Briefing(
        environment=to_environment(runtime.place, runtime.platform, runtime.clock.now()),
        instructions=(*await asyncio.to_thread(runtime.instructions, texts), *pinned),
    )


def to_pinned_instructions(session: Session) -> tuple[Instruction, ...]:
    """Return the pinned notes of a session as instructions, so that no compaction cuts them off."""
    notes = get_weft_data(session).notes
    return (Instruction(source=PINNED, text="\n".join(f"- {note}" for note in notes)),) if notes else ()


def to_environment(place: Place, platform: str, now: int) -> Environment:
    # The local day, not the UTC day.
    today = datetime.fromtimestamp(now / 1000, UTC).astimezone()
    return Environment(
        directory=place.directory,
        git=place.project.vcs == "git",
        platform=platform,
        today=f"{today:%a %b %d %Y}",
    )


def is_answered(history: Sequence[MessageWithParts], prompt: UserMessage) -> bool:
    """Return True if a model has completed an answer to the prompt, and so has seen it in its current form.

    A call that ran a subtask is no answer of a model.
    """
    asked = next((message for message in reversed(history) if message.info.id == prompt.id), None)
    handed = {part.id for part in (asked.parts if asked else ()) if isinstance(part, SubtaskPart)}
    after = takewhile(lambda message: message.info.id != prompt.id, reversed(history))
    return any(
        isinstance(answer := message.info, AssistantMessage)
        and answer.parent_id == prompt.id
        and answer.time.completed is not None
        and not answer.summary
        and not any(isinstance(part, ToolPart) and part.call_id in handed for part in message.parts)
        for message in after
    )


async def _list_plan_notes(
    runtime: Runtime, session: Session, history: list[MessageWithParts], asked: MessageWithParts
) -> list[ContextNote]:
    info = asked.info
    if not runtime.plan_files or has_plan_note(asked) or not isinstance(info, UserMessage):
        return []
    path = get_plan_path(session, runtime.place, runtime.plans)
    before = history[: find_end(info.id, (message.info.id for message in history))]
    note = make_plan_note(before, info, path, exists=await asyncio.to_thread(os.path.exists, path))
    if note is not None and info.agent == PLAN_AGENT:
        await asyncio.to_thread(make_directory, os.path.dirname(path))
    return [] if note is None else [note]


async def _store_notes(
    runtime: Runtime, transcript: Transcript, prompt: UserMessage, notes: list[ContextNote]
) -> None:
    events = to_note_events(notes, prompt, runtime.mint)
    if events:
        await runtime.journal.commit(*events, into=transcript)


def to_note_events(notes: Iterable[ContextNote], prompt: UserMessage, mint: Mint) -> list[Event]:
    """Return the events that append notes to a prompt."""
    return [
        PartUpdated(
            part=TextPart(
                id=mint.part(),
                session_id=prompt.session_id,
                message_id=prompt.id,
                text=note.text,
                synthetic=True,
                metadata={WEFT_KEY: note.about},
            )
        )
        for note in notes
    ]
