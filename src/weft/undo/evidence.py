"""Find out what became of the calls that were under way when a process died, and settle them with a verdict."""

import asyncio
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from weft.host.machine import find_boot_time, identify_machine
from weft.host.process_family import end_marked
from weft.host.processes import CommandRecord, claim_record
from weft.model.diff import Patch
from weft.model.event import Event
from weft.model.ids import SessionID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import PatchPart, RunningState, ToolPart
from weft.model.verdict import CallEvidence, CommandTrace, FileIntent, find_evidence
from weft.session.settle import list_open_calls, to_settling_events
from weft.session.verdict import CallFindings, judge_call
from weft.tool.files import make_temporary_prefix
from weft.undo.context import UndoContext
from weft.undo.recovery import recover_file_changes

# The evidence comes from the store, which may hold sessions of others: nothing else is ended, created or removed.
_TOKEN: Final = re.compile(r"[0-9a-f]{32}")
_RECORD: Final = re.compile(r"tool_\w+\.exit")
_TEMPORARY: Final = re.compile(r"[0-9a-f]{12}\.tmp")


async def settle_calls(
    undo_context: UndoContext, session: SessionID
) -> tuple[list[MessageWithParts], list[Event]]:
    """Return the history of a session whose run died, and the events that close all that is open, with a verdict on each call.

    End what is left of its commands first, and store the file changes that were recorded but not stored.
    """
    history = list(await undo_context.store.list_messages(session))
    calls = [part for message in history for part in list_open_calls(message)]
    if not calls:
        return history, to_settling_events(history)
    records = {part.id: await asyncio.to_thread(_end_command, _get_evidence(part)) for part in calls}
    # A verdict depends on these changes, and nobody may have recovered them yet: opening a directory settles dead runs first, and
    # the process may have died after we opened the directory.
    is_recovered = not await recover_file_changes(undo_context)
    history = list(await undo_context.store.list_messages(session))
    booted = find_boot_time(undo_context.clock.now())
    verdicts = {}
    for message in history:
        directory = (
            message.info.path.cwd if isinstance(message.info, AssistantMessage) and message.info.path else "/"
        )
        # The snapshots of this directory know nothing of changes in another one.
        is_scanned = is_recovered and _get_call_root(message) == undo_context.totals.root
        for part in list_open_calls(message):
            findings = await asyncio.to_thread(
                _examine, part, message, records.get(part.id), is_scanned=is_scanned
            )
            restarted = booted is not None and message.info.time.created < booted
            verdicts[part.id] = judge_call(part, replace(findings, restarted=restarted), directory)
    return history, to_settling_events(history, verdicts)


async def needs_other_directory(undo_context: UndoContext, session: SessionID) -> bool:
    """Return True if the file changes of an open call are recorded for another directory that still exists.

    Opening that directory settles the session with a better verdict than we can give.
    """
    history = await undo_context.store.list_messages(session)
    roots = {_get_call_root(message) for message in history if list_open_calls(message)}
    others = roots - {undo_context.totals.root}
    return await asyncio.to_thread(lambda: any(map(os.path.isdir, others)))


def _get_call_root(message: MessageWithParts) -> str:
    """Return the root of the directory in which the calls of an answer ran; "" if that is not known."""
    path = message.info.path if isinstance(message.info, AssistantMessage) else None
    return "" if path is None else os.path.realpath(path.cwd if path.root == "/" else path.root)


def _get_evidence(part: ToolPart) -> CallEvidence:
    found = find_evidence(part.state.metadata) if isinstance(part.state, RunningState) else None
    return found or CallEvidence()


def _end_command(evidence: CallEvidence) -> CommandRecord | None:
    """End the remaining processes of a command. Return the record of its supervisor from before that, None if it cannot be read."""
    command = evidence.command
    if command is None or evidence.machine != identify_machine() or not _TOKEN.fullmatch(command.token):
        return None
    # Read the record first: a supervisor would record our ending of the command as the command's own end.
    record = _read_record(command)
    end_marked(command.token)
    return record


def _read_record(command: CommandTrace) -> CommandRecord | None:
    if not _RECORD.fullmatch(os.path.basename(command.record)):
        return None
    try:
        return claim_record(command.record)
    except OSError:
        return None


def _examine(
    part: ToolPart, message: MessageWithParts, record: CommandRecord | None, *, is_scanned: bool
) -> CallFindings:
    evidence = _get_evidence(part)
    here = evidence.machine == identify_machine()
    own, others = _list_patches(message, part.call_id), _list_patches(message, "")
    if here:
        _remove_temporaries(evidence.files)
    return CallFindings(
        here=here,
        contents=dict(_digest_files(evidence.files)) if here else {},
        began=record.began if record else None,
        code=record.code if record else None,
        changed=tuple(dict.fromkeys(file for patch in (*own, *others) for file in patch.files)),
        seen=is_scanned and evidence.covered and not any(patch.uncovered for patch in (*own, *others)),
        shared=bool(others),
    )


def _list_patches(message: MessageWithParts, call_id: str) -> list[Patch]:
    return [
        part.weft.patch
        for part in message.parts
        if isinstance(part, PatchPart) and part.weft is not None and part.weft.call_id == call_id
    ]


def _digest_files(files: Iterable[FileIntent]) -> Iterable[tuple[str, str | None]]:
    """Yield a digest of each file, None for a missing one. Leave out what cannot be read."""
    for file in files:
        try:
            with open(file.path, "rb", opener=_open_unblocked) as opened:
                yield file.path, hashlib.file_digest(opened, "sha256").hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            yield file.path, None
        except OSError:
            pass


def _open_unblocked(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _remove_temporaries(files: Sequence[FileIntent]) -> None:
    """Remove the temporary files into which a tool wrote new content, and which it did not rename into place any more."""
    for file in files:
        parent, name = os.path.split(file.path)
        prefix = make_temporary_prefix(name)
        with suppress(OSError):
            for found in os.listdir(parent):
                if found.startswith(prefix) and _TEMPORARY.fullmatch(found, len(prefix)):
                    os.unlink(os.path.join(parent, found))
