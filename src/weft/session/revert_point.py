"""Find where an undo cuts a session, and what it removes and keeps (pure)."""

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
NO_SNAPSHOT: Final = "there is no snapshot of it"
ONLY_OPENCODE_SNAPSHOT: Final = "OpenCode changed it, and only OpenCode has a snapshot of it"


class RevertPoint(Struct, frozen=True, kw_only=True):
    """The first message to remove. If a part is given, the message stays, without this part and those after it."""

    message_id: MessageID
    part_id: PartID | None = None


class HistoryCut(Struct, frozen=True, kw_only=True):
    """The two parts of a history. A message that is cut at a part is in both, with some of its parts."""

    kept: tuple[MessageWithParts, ...]
    gone: tuple[MessageWithParts, ...] = ()


def find_point(
    history: Sequence[MessageWithParts], message_id: MessageID, part_id: PartID | None = None
) -> RevertPoint:
    """Return where to cut. An answer is removed with its prompt, and so is a part without text or calls before it."""
    prompt: MessageID | None = None
    for message in history:
        if isinstance(message.info, UserMessage):
            prompt = message.info.id
        if message.info.id == message_id:
            if part_id is not None and _has_content(_list_before(message.parts, part_id)):
                return RevertPoint(message_id=message_id, part_id=part_id)
            return RevertPoint(message_id=prompt or message_id)
    raise NotFoundError("message", message_id)


def _list_before(parts: Sequence[AnyPart], part_id: PartID) -> Sequence[AnyPart]:
    for place, part in enumerate(parts):
        if part.id == part_id:
            return parts[:place]
    raise NotFoundError("part", part_id)


def _has_content(parts: Iterable[AnyPart]) -> bool:
    return any(isinstance(part, TextPart | ToolPart) for part in parts)


def cut_history(history: Sequence[MessageWithParts], point: RevertPoint) -> HistoryCut:
    """Cut the history at a point. All of it is kept if there is no such point.

    OpenCode removes the whole message even if it should stay up to a part. And if it cuts a turn at a later answer, it removes
    all answers of the turn, but restores only the files of that answer and those after it.
    """
    at = next((at for at, each in enumerate(history) if each.info.id == point.message_id), None)
    if at is None:
        return HistoryCut(kept=tuple(history))
    if point.part_id is None:
        return HistoryCut(kept=tuple(history[:at]), gone=tuple(history[at:]))
    stays, goes = _cut_through(history[at].parts, point.part_id)
    return HistoryCut(
        kept=(*history[:at], replace(history[at], parts=stays)),
        gone=(replace(history[at], parts=goes), *history[at + 1 :]),
    )


def cut_at_revert(revert: SessionRevert | None, history: Sequence[MessageWithParts]) -> HistoryCut:
    """Cut the history where the session was undone."""
    if revert is None:
        return HistoryCut(kept=tuple(history))
    return cut_history(history, RevertPoint(message_id=revert.message_id, part_id=revert.part_id))


def _cut_through(
    parts: Sequence[AnyPart], part_id: PartID
) -> tuple[tuple[AnyPart, ...], tuple[AnyPart, ...]]:
    """Split the parts of a message. The file changes of a call stay with the call, wherever their part is."""
    place = next((place for place, part in enumerate(parts) if part.id == part_id), len(parts))
    calls = {part.call_id for part in parts[:place] if isinstance(part, ToolPart)}
    stays = [at < place or _is_of(part, calls) for at, part in enumerate(parts)]
    return (
        tuple(part for part, there in zip(parts, stays, strict=True) if there),
        tuple(part for part, there in zip(parts, stays, strict=True) if not there),
    )


def _is_of(part: AnyPart, calls: set[str]) -> bool:
    return isinstance(part, PatchPart) and part.weft is not None and part.weft.call_id in calls


# --- file changes ---


def list_patches(messages: Iterable[MessageWithParts]) -> list[Patch]:
    """Return the file changes in messages, oldest first."""
    return [part.weft.patch for part in _iterate_patches(messages) if part.weft is not None]


def list_foreign_files(messages: Iterable[MessageWithParts]) -> list[FileFate]:
    """Return the files that OpenCode changed. weft has no snapshots of them."""
    files = {file for part in _iterate_patches(messages) if part.weft is None for file in part.files}
    return [FileFate(file=file, fate="uncovered", reason=ONLY_OPENCODE_SNAPSHOT) for file in sorted(files)]


def find_opencode_trees(messages: Iterable[MessageWithParts]) -> dict[str, str]:
    """Return the files that OpenCode changed, each with the tree that OpenCode restores it from: the first."""
    left: dict[str, str] = {}
    for part in _iterate_patches(messages):
        if part.weft is None:
            for file in part.files:
                left.setdefault(file, part.hash)
    return left


def list_unrecorded_files(messages: Iterable[MessageWithParts]) -> list[FileFate]:
    """Return the files that tools changed while no snapshots were taken."""
    files: set[str] = set()
    for message in messages:
        recorded = {part.weft.call_id for part in _iterate_patches([message]) if part.weft is not None}
        for part in message.parts:
            if isinstance(part, ToolPart) and part.call_id not in recorded:
                files.update(_to_absolute(message.info, file) for file in _list_changed(part))
    return [FileFate(file=file, fate="uncovered", reason=NO_SNAPSHOT) for file in sorted(files)]


def _list_changed(part: ToolPart) -> Iterator[str]:
    """Yield the files that a successful call reports as changed."""
    match part:
        case ToolPart(tool="edit" | "write" | "multiedit", state=CompletedState(input=given)):
            named = [given.get("filePath")]
        case ToolPart(tool="apply_patch", state=CompletedState(metadata=metadata)):
            files = metadata.get("files")
            named = [file.get("filePath") for file in files if isinstance(file, dict)] if files else []
        case _:
            named = []
    yield from (name for name in named if isinstance(name, str))


def _to_absolute(info: AnyMessage, file: str) -> str:
    path = info.path if isinstance(info, AssistantMessage) else None
    return normpath(join(path.cwd if path else "/", file))


def has_commands(messages: Iterable[MessageWithParts]) -> bool:
    """Return True if shell commands ran, whose effects cannot be fully known."""
    return any(
        isinstance(part, ToolPart) and part.tool == COMMAND for each in messages for part in each.parts
    )


def get_patch_trees(patches: Iterable[Patch]) -> set[Tree]:
    return {tree for patch in patches for tree in (patch.hash, patch.until)}


def get_history_trees(messages: Iterable[MessageWithParts]) -> set[Tree]:
    """Return all of weft's snapshots that the messages name."""
    found: set[Tree] = set()
    for message in messages:
        ours = [part.weft.patch for part in _iterate_patches([message]) if part.weft is not None]
        found |= get_patch_trees(ours)
        if ours:
            found.update(
                Tree(part.snapshot)
                for part in message.parts
                if isinstance(part, StepStartPart | StepFinishPart) and part.snapshot
            )
    return found


def _iterate_patches(messages: Iterable[MessageWithParts]) -> Iterator[PatchPart]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, PatchPart):
                yield part


def find_last_turn(history: Sequence[MessageWithParts]) -> MessageID | None:
    """Return the last prompt that weft did not write itself."""
    return next((each.info.id for each in reversed(history) if _is_request(each)), None)


def _is_request(message: MessageWithParts) -> bool:
    ours = all(
        isinstance(part, CompactionPart) or (isinstance(part, TextPart) and part.synthetic)
        for part in message.parts
    )
    return isinstance(message.info, UserMessage) and not ours


def choose_message(history: Sequence[MessageWithParts], given: str) -> MessageID:
    """Return the message that an id or the beginning of an id names. Raise `AmbiguousError` or `NotFoundError`."""
    found = [each.info.id for each in history if each.info.id.startswith((given, f"msg_{given}"))]
    exact = [id for id in found if id == given]
    if exact or len(found) == 1:
        return (exact or found)[0]
    if found:
        raise AmbiguousError("message", given, found)
    raise NotFoundError("message", given, hint="list them: weft session show")


def get_first_line(history: Sequence[MessageWithParts], id: MessageID) -> str:
    """Return the first line of text in a message."""
    for message in history:
        if message.info.id == id:
            texts = (part.text for part in message.parts if isinstance(part, TextPart) and not part.synthetic)
            return next((line.strip() for text in texts for line in text.splitlines() if line.strip()), "")
    return ""
