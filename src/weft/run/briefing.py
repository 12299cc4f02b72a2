"""The briefing: what a session's model is told beside the conversation, made once and kept.

It outlives the process, and is the same in another one. What changes meanwhile is noted in the next prompt.
"""

import asyncio
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

from weft.context.notes import OURS, Note, as_told, list_notes
from weft.context.reminders import PLAN, is_reminded, plan_note
from weft.context.system import Basis, Environment
from weft.errors import DocumentError
from weft.host.files import make_directory
from weft.model.agent import Instruction
from weft.model.event import Event, PartUpdated
from weft.model.ids import Mint
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage, place_of
from weft.model.part import SubtaskPart, TextPart, ToolPart
from weft.model.project import Place
from weft.model.session import Session, own_of
from weft.model.transcript import Transcript
from weft.model.wire import from_plain, to_plain
from weft.run.kit import Kit
from weft.session.lifecycle import plan_path
from weft.store.contract import Key

PINNED = "notes pinned to this session"


async def brief(kit: Kit, session: Session, transcript: Transcript, prompt: UserMessage) -> Basis:
    """What the model is told first. What it is not yet told of is noted in the prompt, before it is first answered."""
    pinned = to_pinned(session)
    basis = await basis_of(kit, session)
    history, asked = transcript.messages(), transcript.find(prompt.id)
    if asked is not None and not is_answered(history, prompt):
        known = as_told(basis, history)
        notes = list_notes(known, await _look_around(kit, known.instructions, pinned))
        notes += await _on_plans(kit, session, history, asked)
        await _add(kit, transcript, prompt, notes)
    return basis


async def basis_of(kit: Kit, session: Session) -> Basis:
    """What the session's model was told first; looked up now, and kept, if it was told nothing yet."""
    if session.id in kit.bases:
        return kit.bases[session.id]
    keys = basis_keys(session)
    found = [to_basis(await kit.store.kept(key)) for key in keys]
    basis = next((each for each in found if each is not None), None) or await _look_around(
        kit, (), to_pinned(session)
    )
    if found[0] is None:
        await kit.store.keep(keys[0], to_plain(basis))
    kit.bases[session.id] = basis  # once told, it never changes
    return basis


def basis_keys(session: Session) -> list[Key]:
    """Where a session's basis is kept, and where else. A fork goes on with its original's: both begin alike."""
    origin = own_of(session).forked_from
    sessions = [session.id] if origin is None else [session.id, origin.session_id]
    return [("prompt", id) for id in sessions]


def to_basis(kept: Any) -> Basis | None:
    try:
        return None if kept is None else from_plain(kept, Basis, where="basis")
    except DocumentError:
        return None


async def _look_around(kit: Kit, known: Sequence[Instruction], pinned: tuple[Instruction, ...]) -> Basis:
    texts = {each.source: each.text for each in known}
    return Basis(
        environment=to_environment(kit.place, kit.platform, kit.clock.now()),
        instructions=(*await asyncio.to_thread(kit.instructions, texts), *pinned),
    )


def to_pinned(session: Session) -> tuple[Instruction, ...]:
    """What a person pinned to a session holds like an instruction: no compaction cuts it off."""
    notes = own_of(session).notes
    return (Instruction(source=PINNED, text="\n".join(f"- {note}" for note in notes)),) if notes else ()


def to_environment(place: Place, platform: str, now: int) -> Environment:
    # The day of whoever sits here, not that of Greenwich.
    today = datetime.fromtimestamp(now / 1000, UTC).astimezone()
    return Environment(
        directory=place.directory,
        git=place.project.vcs == "git",
        platform=platform,
        today=f"{today:%a %b %d %Y}",
    )


def is_answered(history: Sequence[MessageWithParts], prompt: UserMessage) -> bool:
    """Whether an answer to a prompt has come to its end: then the model has seen the prompt as it stands.

    That a part of it was handed to a child is no answer of a model's.
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


async def _on_plans(
    kit: Kit, session: Session, history: list[MessageWithParts], asked: MessageWithParts
) -> list[Note]:
    info = asked.info
    if not kit.plan_files or is_reminded(asked) or not isinstance(info, UserMessage):
        return []
    path = plan_path(session, kit.place, kit.plans)
    before = history[: place_of(info.id, (message.info.id for message in history))]
    note = plan_note(before, info, path, exists=await asyncio.to_thread(os.path.exists, path))
    if note is not None and info.agent == PLAN:
        await asyncio.to_thread(make_directory, os.path.dirname(path))
    return [] if note is None else [note]


async def _add(kit: Kit, transcript: Transcript, prompt: UserMessage, notes: list[Note]) -> None:
    events = to_events(notes, prompt, kit.mint)
    if events:
        await kit.journal.commit(*events, into=transcript)


def to_events(notes: Iterable[Note], prompt: UserMessage, mint: Mint) -> list[Event]:
    """The notes as parts of a prompt, behind those it has."""
    return [
        PartUpdated(
            part=TextPart(
                id=mint.part(),
                session_id=prompt.session_id,
                message_id=prompt.id,
                text=note.text,
                synthetic=True,
                metadata={OURS: note.about},
            )
        )
        for note in notes
    ]
