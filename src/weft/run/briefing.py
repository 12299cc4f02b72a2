"""The briefing of a session: the environment and the instructions in its system prompt.

It is made once and stored, so that it stays the same in another process. Later changes are noted in the next prompt.
"""

import asyncio
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Protocol

from weft.context.notes import (
    PLAN_AGENT,
    WEFT_KEY,
    ContextNote,
    apply_history_notes,
    has_plan_note,
    list_move_notes,
    list_notes,
    list_resume_notes,
    make_plan_note,
)
from weft.context.system import Briefing, Environment
from weft.errors import DocumentError
from weft.host.files import make_directory
from weft.model.agent import Instruction, ReadInstructions
from weft.model.event import Event, PartUpdated
from weft.model.ids import Mint
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage, find_end
from weft.model.part import SubtaskPart, TextPart, ToolPart
from weft.model.project import Place, get_root
from weft.model.session import SessionInfo, get_weft_data
from weft.model.transcript import Transcript
from weft.model.wire import from_plain, to_plain
from weft.run.runtime import Runtime
from weft.session.lifecycle import briefing_key, get_plan_path
from weft.store.contract import Key

PINNED_SOURCE = "notes pinned to this session"


class BriefingSettings(Protocol):
    """The part of a `Runtime` that goes into a briefing and the notes about it."""

    @property
    def place(self) -> Place: ...

    @property
    def platform(self) -> str: ...

    @property
    def instructions(self) -> ReadInstructions: ...

    @property
    def plans(self) -> str: ...

    @property
    def plan_files(self) -> bool: ...


async def prepare_briefing(
    runtime: Runtime, session: SessionInfo, transcript: Transcript, prompt: UserMessage
) -> Briefing:
    """Return the briefing of a session. If its prompt has no answer yet, append notes to the prompt about what changed since."""
    briefing = await get_briefing(runtime, session)
    history, message = transcript.messages(), transcript.find(prompt.id)
    if message is not None and not was_seen(history, prompt):
        current = apply_history_notes(briefing, history)
        notes = list_session_notes(session, runtime.place, history)
        # A briefing that this run made is up to date: no need to read all instructions again.
        if session.id not in runtime.new_briefings or current is not briefing or get_weft_data(session).notes:
            now = runtime.clock.now()
            notes += list_notes(
                current, await asyncio.to_thread(make_briefing, runtime, session, now, current.instructions)
            )
        runtime.new_briefings.discard(session.id)
        if runtime.plan_files:
            plan_notes = await asyncio.to_thread(list_plan_notes, runtime, session, history, message)
            notes += plan_notes
            if plan_notes and prompt.agent == PLAN_AGENT:
                path = get_plan_path(session, runtime.place, runtime.plans)
                await asyncio.to_thread(make_directory, os.path.dirname(path))
        await _store_notes(runtime, transcript, prompt, notes)
    return briefing


async def get_briefing(runtime: Runtime, session: SessionInfo) -> Briefing:
    """Return the stored briefing of a session, or make and store one."""
    if session.id in runtime.briefings:
        return runtime.briefings[session.id]
    keys = list_briefing_keys(session)
    stored = [read_briefing(await runtime.store.find_value(key)) for key in keys]
    briefing = next((each for each in stored if each is not None), None)
    if briefing is None:
        briefing = await asyncio.to_thread(make_briefing, runtime, session, runtime.clock.now())
        runtime.new_briefings.add(session.id)
    if stored[0] is None:
        await runtime.store.put_value(keys[0], to_plain(briefing))
    runtime.briefings[session.id] = briefing  # it never changes
    return briefing


def list_briefing_keys(session: SessionInfo) -> list[Key]:
    """Return the store keys of a session's briefing, its own first. A fork begins with that of its original."""
    origin = get_weft_data(session).forked_from
    sessions = [session.id] if origin is None else [session.id, origin.session_id]
    return [briefing_key(id) for id in sessions]


def read_briefing(stored: Any) -> Briefing | None:
    """Return the briefing in a stored value, or None if there is none or it is damaged."""
    try:
        return None if stored is None else from_plain(stored, Briefing, where="briefing")
    except DocumentError:
        return None


def make_briefing(
    settings: BriefingSettings, session: SessionInfo, now: int, earlier: Iterable[Instruction] = ()
) -> Briefing:
    """Return a briefing of the current state. It reads files. Texts of the `earlier` instructions need not be fetched again."""
    earlier_texts = {each.source: each.text for each in earlier}
    return Briefing(
        environment=to_environment(settings.place, settings.platform, now),
        instructions=(*settings.instructions(earlier_texts), *to_pinned_instructions(session)),
    )


def to_pinned_instructions(session: SessionInfo) -> tuple[Instruction, ...]:
    """Return the pinned notes of a session as instructions, so that no compaction cuts them off."""
    notes = get_weft_data(session).notes
    return (
        (Instruction(source=PINNED_SOURCE, text="\n".join(f"- {note}" for note in notes)),) if notes else ()
    )


def to_environment(place: Place, platform: str, now: int) -> Environment:
    # The local day, not the UTC day.
    today = datetime.fromtimestamp(now / 1000, UTC).astimezone()
    return Environment(
        directory=place.directory,
        git=place.project.vcs == "git",
        platform=platform,
        today=f"{today:%a %b %d %Y}",
    )


def was_seen(history: Sequence[MessageWithParts], prompt: UserMessage) -> bool:
    """Return True if a model has completed an answer to the prompt, and so has seen it in its current form.

    An answer that only holds the call of a subtask does not count: no model made it.
    """
    prompt_message = next((message for message in reversed(history) if message.info.id == prompt.id), None)
    subtask_ids = {
        part.id for part in (prompt_message.parts if prompt_message else ()) if isinstance(part, SubtaskPart)
    }
    later_messages = takewhile(lambda message: message.info.id != prompt.id, reversed(history))
    return any(
        isinstance(answer := message.info, AssistantMessage)
        and answer.parent_id == prompt.id
        and answer.time.completed is not None
        and not answer.summary
        and not any(isinstance(part, ToolPart) and part.call_id in subtask_ids for part in message.parts)
        for message in later_messages
    )


def list_session_notes(
    session: SessionInfo, place: Place, history: Sequence[MessageWithParts]
) -> list[ContextNote]:
    """Return the notes that a session came from another machine, unless the history has them."""
    data = get_weft_data(session)
    return [
        *list_move_notes(data.arrived, get_root(place), history),
        *list_resume_notes(data.resumed, history),
    ]


def list_plan_notes(
    settings: BriefingSettings,
    session: SessionInfo,
    history: Sequence[MessageWithParts],
    prompt: MessageWithParts,
) -> list[ContextNote]:
    """Return the note for a prompt about the file of the plan, unless the prompt has it. It looks whether the file exists."""
    info = prompt.info
    if not settings.plan_files or has_plan_note(prompt) or not isinstance(info, UserMessage):
        return []
    path = get_plan_path(session, settings.place, settings.plans)
    earlier_messages = history[: find_end(info.id, (message.info.id for message in history))]
    note = make_plan_note(earlier_messages, info, path, exists=os.path.exists(path))
    return [] if note is None else [note]


async def _store_notes(
    runtime: Runtime, transcript: Transcript, prompt: UserMessage, notes: list[ContextNote]
) -> None:
    events = make_note_events(notes, prompt, runtime.mint)
    if events:
        await runtime.journal.commit(*events, into=transcript)


def make_note_events(notes: Iterable[ContextNote], prompt: UserMessage, mint: Mint) -> list[Event]:
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
