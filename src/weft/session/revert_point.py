"""Where a session is cut by an undo, what goes and what stays (pure)."""

from collections.abc import Iterable, Iterator, Sequence
from posixpath import join, normpath
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import AmbiguousError, NotFoundError
from weft.model.diff import FileFate, Patch, Tree
from weft.model.ids import MessageID, PartID
from weft.model.message import AnyMessage, AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import (
    AnyPart,
    CompactionPart,
    CompletedState,
    PatchPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
)
from weft.model.session import SessionRevert

COMMAND: Final = "bash"
UNKEPT: Final = "nothing was kept of it"
FOREIGN: Final = "it was changed by OpenCode, and only OpenCode has what it was like"


class Point(Struct, frozen=True, kw_only=True):
    """The first message that goes; if a part is named, that message stays, without the part and what follows it."""

    message_id: MessageID
    part_id: PartID | None = None


class Cut(Struct, frozen=True, kw_only=True):
    """A history in two: what stays and what goes. A message that was cut through is in both, with its share."""

    kept: tuple[MessageWithParts, ...]
    gone: tuple[MessageWithParts, ...] = ()


def find_point(
    history: Sequence[MessageWithParts], message_id: MessageID, part_id: PartID | None = None
) -> Point:
    """Where to cut. An answer goes with the prompt it answers; so does a part with nothing worth keeping before it."""
    prompt: MessageID | None = None
    for message in history:
        if isinstance(message.info, UserMessage):
            prompt = message.info.id
        if message.info.id == message_id:
            if part_id is not None and _says_something(_before(message.parts, part_id)):
                return Point(message_id=message_id, part_id=part_id)
            return Point(message_id=prompt or message_id)
    raise NotFoundError("message", message_id)


def _before(parts: Sequence[AnyPart], part_id: PartID) -> Sequence[AnyPart]:
    for place, part in enumerate(parts):
        if part.id == part_id:
            return parts[:place]
    raise NotFoundError("part", part_id)


def _says_something(parts: Iterable[AnyPart]) -> bool:
    return any(isinstance(part, TextPart | ToolPart) for part in parts)


def cut(history: Sequence[MessageWithParts], point: Point) -> Cut:
    """The history cut there; where there is no such point, all of it stays.

    OpenCode takes the whole message away, also where it was to stay up to a part. And of a turn that is cut at a later
    answer it undoes the files of that answer and of those after it alone, though it takes all of them away.
    """
    at = next((at for at, each in enumerate(history) if each.info.id == point.message_id), None)
    if at is None:
        return Cut(kept=tuple(history))
    if point.part_id is None:
        return Cut(kept=tuple(history[:at]), gone=tuple(history[at:]))
    stays, goes = _cut_through(history[at].parts, point.part_id)
    return Cut(
        kept=(*history[:at], replace(history[at], parts=stays)),
        gone=(replace(history[at], parts=goes), *history[at + 1 :]),
    )


def cut_at(revert: SessionRevert | None, history: Sequence[MessageWithParts]) -> Cut:
    """A session's history as it stands: without what it was taken back from."""
    if revert is None:
        return Cut(kept=tuple(history))
    return cut(history, Point(message_id=revert.message_id, part_id=revert.part_id))


def _cut_through(
    parts: Sequence[AnyPart], part_id: PartID
) -> tuple[tuple[AnyPart, ...], tuple[AnyPart, ...]]:
    """What a call did stays with the call, wherever it is told."""
    place = next((place for place, part in enumerate(parts) if part.id == part_id), len(parts))
    calls = {part.call_id for part in parts[:place] if isinstance(part, ToolPart)}
    stays = [at < place or _is_of(part, calls) for at, part in enumerate(parts)]
    return (
        tuple(part for part, there in zip(parts, stays, strict=True) if there),
        tuple(part for part, there in zip(parts, stays, strict=True) if not there),
    )


def _is_of(part: AnyPart, calls: set[str]) -> bool:
    return isinstance(part, PatchPart) and part.weft is not None and part.weft.call_id in calls


# --- what was done to files ---


def patches_in(messages: Iterable[MessageWithParts]) -> list[Patch]:
    """What was changed, oldest first."""
    return [part.weft.patch for part in _patches(messages) if part.weft is not None]


def foreign_in(messages: Iterable[MessageWithParts]) -> list[FileFate]:
    """The files that another program changed: nobody here knows what they were like."""
    files = {file for part in _patches(messages) if part.weft is None for file in part.files}
    return [FileFate(file=file, fate="uncovered", reason=FOREIGN) for file in sorted(files)]


def left_in(messages: Iterable[MessageWithParts]) -> dict[str, str]:
    """The files that OpenCode changed there, and for each the tree that OpenCode brings it back to: the first."""
    left: dict[str, str] = {}
    for part in _patches(messages):
        if part.weft is None:
            for file in part.files:
                left.setdefault(file, part.hash)
    return left


def untold_in(messages: Iterable[MessageWithParts]) -> list[FileFate]:
    """The files that tools changed while nothing was kept."""
    files: set[str] = set()
    for message in messages:
        told = {part.weft.call_id for part in _patches([message]) if part.weft is not None}
        for part in message.parts:
            if isinstance(part, ToolPart) and part.call_id not in told:
                files.update(_joined(message.info, file) for file in _changed_by(part))
    return [FileFate(file=file, fate="uncovered", reason=UNKEPT) for file in sorted(files)]


def _changed_by(part: ToolPart) -> Iterator[str]:
    """The files a call that went well says it changed."""
    match part:
        case ToolPart(tool="edit" | "write" | "multiedit", state=CompletedState(input=given)):
            named = [given.get("filePath")]
        case ToolPart(tool="apply_patch", state=CompletedState(metadata=metadata)):
            files = metadata.get("files")
            named = [file.get("filePath") for file in files if isinstance(file, dict)] if files else []
        case _:
            named = []
    yield from (name for name in named if isinstance(name, str))


def _joined(info: AnyMessage, file: str) -> str:
    path = info.path if isinstance(info, AssistantMessage) else None
    return normpath(join(path.cwd if path else "/", file))


def ran_commands(messages: Iterable[MessageWithParts]) -> bool:
    """Whether anything may have been done that nobody can follow to its end."""
    return any(
        isinstance(part, ToolPart) and part.tool == COMMAND for each in messages for part in each.parts
    )


def trees_of(patches: Iterable[Patch]) -> set[Tree]:
    return {tree for patch in patches for tree in (patch.hash, patch.until)}


def trees_in(messages: Iterable[MessageWithParts]) -> set[Tree]:
    """All snapshots of ours that are named there."""
    found: set[Tree] = set()
    for message in messages:
        ours = [part.weft.patch for part in _patches([message]) if part.weft is not None]
        found |= trees_of(ours)
        if ours:
            found.update(
                Tree(part.snapshot)
                for part in message.parts
                if isinstance(part, StepStartPart | StepFinishPart) and part.snapshot
            )
    return found


def _patches(messages: Iterable[MessageWithParts]) -> Iterator[PatchPart]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, PatchPart):
                yield part


def last_turn(history: Sequence[MessageWithParts]) -> MessageID | None:
    """The last prompt that is a person's own: what we said ourselves to go on with it is no turn."""
    return next((each.info.id for each in reversed(history) if _is_said(each)), None)


def _is_said(message: MessageWithParts) -> bool:
    ours = all(
        isinstance(part, CompactionPart) or (isinstance(part, TextPart) and part.synthetic)
        for part in message.parts
    )
    return isinstance(message.info, UserMessage) and not ours


def choose_message(history: Sequence[MessageWithParts], given: str) -> MessageID:
    """The one message that somebody means: by id, or by the beginning of one."""
    found = [each.info.id for each in history if each.info.id.startswith((given, f"msg_{given}"))]
    exact = [id for id in found if id == given]
    if exact or len(found) == 1:
        return (exact or found)[0]
    if found:
        raise AmbiguousError("message", given, found)
    raise NotFoundError("message", given, hint="see them all: weft session show")


def words_of(history: Sequence[MessageWithParts], id: MessageID) -> str:
    """The first line of what was said in a message."""
    for message in history:
        if message.info.id == id:
            texts = (part.text for part in message.parts if isinstance(part, TextPart) and not part.synthetic)
            return next((line.strip() for text in texts for line in text.splitlines() if line.strip()), "")
    return ""
