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
    CompletedState,
    ErrorState,
    PatchPart,
    PendingState,
    RunningState,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
)
from weft.model.permission import EDIT_TOOLS
from weft.model.session import SessionRevert
from weft.model.verdict import READING_TOOLS, find_verdict
from weft.session.settle import ABORTED, is_interrupted

SHELL_TOOL: Final = "bash"
# Tools that change nothing but the session and the files that they announce. What any other tool did, undo may not see.
CONFINED_TOOLS: Final = (
    READING_TOOLS | EDIT_TOOLS | {"todowrite", "batch", "plan_enter", "plan_exit", "StructuredOutput"}
)

NO_SNAPSHOT: Final = "there is no snapshot of it"
ONLY_OPENCODE_SNAPSHOT: Final = "OpenCode changed it, and only OpenCode has a snapshot of it"

# The message to undo back to, and the part of it, if not all of it is undone.
RevertTarget = tuple[MessageID, PartID | None]


class RevertScope(Struct, frozen=True, kw_only=True):
    """Which files to restore: all, or only `files` (absolute paths). With `dry_run`, nothing is changed."""

    files: tuple[str, ...] | None = None
    dry_run: bool = False


WHOLE_REVERT: Final = RevertScope()


class RevertPoint(Struct, frozen=True, kw_only=True):
    """The first message to remove. If a part is given, the message stays, without this part and those after it."""

    message_id: MessageID
    part_id: PartID | None = None


class HistoryCut(Struct, frozen=True, kw_only=True):
    """The two parts of a history. A message that is cut at a part is in both, with some of its parts."""

    kept: tuple[MessageWithParts, ...]
    removed: tuple[MessageWithParts, ...] = ()


def get_point(
    history: Sequence[MessageWithParts], message_id: MessageID, part_id: PartID | None = None
) -> RevertPoint:
    """Return where to cut. A whole answer is removed together with its prompt. So is a part if no text or call comes before it.

    Raise `NotFoundError` if the message or the part does not exist.
    """
    prompt: MessageID | None = None
    for message in history:
        if isinstance(message.info, UserMessage):
            prompt = message.info.id
        if message.info.id == message_id:
            if part_id is not None and _has_content(_get_parts_before(message.parts, part_id)):
                return RevertPoint(message_id=message_id, part_id=part_id)
            return RevertPoint(message_id=prompt or message_id)
    raise NotFoundError("message", message_id)


def _get_parts_before(parts: Sequence[AnyPart], part_id: PartID) -> Sequence[AnyPart]:
    for index, part in enumerate(parts):
        if part.id == part_id:
            return parts[:index]
    raise NotFoundError("part", part_id)


def _has_content(parts: Iterable[AnyPart]) -> bool:
    return any(isinstance(part, TextPart | ToolPart) for part in parts)


def cut_history(history: Sequence[MessageWithParts], point: RevertPoint) -> HistoryCut:
    """Cut the history at a point. All of it is kept if there is no such point.

    OpenCode removes the whole message even if it should stay up to a part. And if it cuts a turn at a later answer, it removes
    all answers of the turn, but restores only the files of that answer and those after it.
    """
    index = next(
        (index for index, message in enumerate(history) if message.info.id == point.message_id), None
    )
    if index is None:
        return HistoryCut(kept=tuple(history))
    if point.part_id is None:
        return HistoryCut(kept=tuple(history[:index]), removed=tuple(history[index:]))
    kept, removed = _split_parts(history[index].parts, point.part_id)
    return HistoryCut(
        kept=(*history[:index], replace(history[index], parts=kept)),
        removed=(replace(history[index], parts=removed), *history[index + 1 :]),
    )


def cut_at_revert(revert: SessionRevert | None, history: Sequence[MessageWithParts]) -> HistoryCut:
    """Cut the history where the session was undone."""
    if revert is None:
        return HistoryCut(kept=tuple(history))
    return cut_history(history, RevertPoint(message_id=revert.message_id, part_id=revert.part_id))


def _split_parts(
    parts: Sequence[AnyPart], part_id: PartID
) -> tuple[tuple[AnyPart, ...], tuple[AnyPart, ...]]:
    """Split the parts of a message. The file changes of a call stay with the call, wherever their part is."""
    cut = next((index for index, part in enumerate(parts) if part.id == part_id), len(parts))
    calls = {part.call_id for part in parts[:cut] if isinstance(part, ToolPart)}
    is_kept = [index < cut or _is_change_of(part, calls) for index, part in enumerate(parts)]
    return (
        tuple(part for part, kept in zip(parts, is_kept, strict=True) if kept),
        tuple(part for part, kept in zip(parts, is_kept, strict=True) if not kept),
    )


def _is_change_of(part: AnyPart, calls: set[str]) -> bool:
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
    trees: dict[str, str] = {}
    for part in _iterate_patches(messages):
        if part.weft is None:
            for file in part.files:
                trees.setdefault(file, part.hash)
    return trees


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
        case ToolPart(tool="edit" | "write" | "multiedit", state=CompletedState(input=input)):
            paths = [input.get("filePath")]
        case ToolPart(tool="apply_patch", state=CompletedState(metadata=metadata)):
            files = metadata.get("files")
            paths = [file.get("filePath") for file in files if isinstance(file, dict)] if files else []
        case _:
            paths = []
    yield from (path for path in paths if isinstance(path, str))


def _to_absolute(info: AnyMessage, file: str) -> str:
    path = info.path if isinstance(info, AssistantMessage) else None
    return normpath(join(path.cwd if path else "/", file))


def may_reach_outside(messages: Iterable[MessageWithParts]) -> bool:
    """Return True if calls ran, or may have run, whose effects cannot be fully known: commands, child sessions, tools of servers and plugins."""
    return any(
        isinstance(part, ToolPart) and part.tool not in CONFINED_TOOLS and _may_have_run(part)
        for message in messages
        for part in message.parts
    )


def _may_have_run(part: ToolPart) -> bool:
    """Return False for a call that is known not to have run.

    A command reports its output from the start, so a failed one without a report did not run. If it was cut short, it may have.
    """
    match part.state:
        case PendingState():
            return False
        case RunningState() | CompletedState():
            return True
        case ErrorState(error=error, metadata=metadata) as state:
            if (verdict := find_verdict(metadata)) is not None:
                return verdict.kind != "not-started"
            return (
                part.tool != SHELL_TOOL or metadata is not None or is_interrupted(state) or error == ABORTED
            )


def get_patch_trees(patches: Iterable[Patch]) -> set[Tree]:
    return {tree for patch in patches for tree in (patch.before, patch.after)}


def get_history_trees(messages: Iterable[MessageWithParts]) -> set[Tree]:
    """Return all of weft's snapshots that the messages name."""
    trees: set[Tree] = set()
    for message in messages:
        patches = [part.weft.patch for part in _iterate_patches([message]) if part.weft is not None]
        trees |= get_patch_trees(patches)
        if patches:
            trees.update(
                Tree(part.snapshot)
                for part in message.parts
                if isinstance(part, StepStartPart | StepFinishPart) and part.snapshot
            )
    return trees


def _iterate_patches(messages: Iterable[MessageWithParts]) -> Iterator[PatchPart]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, PatchPart):
                yield part


def choose_message(history: Sequence[MessageWithParts], prefix: str) -> MessageID:
    """Return the message that an id or the beginning of an id names. Raise `AmbiguousError` or `NotFoundError`."""
    ids = [message.info.id for message in history if message.info.id.startswith((prefix, f"msg_{prefix}"))]
    exact = [id for id in ids if id == prefix]
    if exact or len(ids) == 1:
        return (exact or ids)[0]
    if ids:
        raise AmbiguousError("message", prefix, ids)
    raise NotFoundError("message", prefix, hint="list them: weft session show ID --format json")


def find_first_line(history: Sequence[MessageWithParts], id: MessageID) -> str:
    """Return the first line of text in a message, "" if it has none."""
    for message in history:
        if message.info.id == id:
            texts = (part.text for part in message.parts if isinstance(part, TextPart) and not part.synthetic)
            return next((line.strip() for text in texts for line in text.splitlines() if line.strip()), "")
    return ""
