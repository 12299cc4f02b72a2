"""Read sessions from a store for export, and import sessions into a store without losing data on either side."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import DocumentError, NotFoundError, StoreError, UnreadableError
from weft.journal import Journal
from weft.model.event import (
    Durable,
    MessageRemoved,
    MessageUpdated,
    PartRemoved,
    PartUpdated,
    SessionCreated,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import GLOBAL_PROJECT, MessageID, ProjectID, SessionID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import AnyPart, ReasoningPart, TextPart, ToolPart
from weft.model.project import Place
from weft.model.session import ForkedFrom, SessionInfo, get_owner, get_weft_data, with_owner, with_weft_data
from weft.model.spending import Ledger
from weft.model.transfer import ExportCounts, ImportResult, ImportVerdict, SessionExport, count_export
from weft.model.wire import from_plain, to_plain
from weft.store.contract import PartsByMessage, Store
from weft.transfer.document import hash_content
from weft.transfer.rebind import (
    IdRenamer,
    Rebind,
    choose_origin_checkout,
    find_rebinds,
    rebind_export,
    rebind_path,
)

StateRelation = Literal["same", "ahead", "behind", "apart"]


def compare_states(incoming: SessionExport, present: SessionExport) -> StateRelation:
    """Compare two states of a session. `apart` means that each has something that the other lacks."""
    incoming_messages, present_messages = _index_messages(incoming), _index_messages(present)
    ahead = all(_is_contained(message, incoming_messages) for message in present.messages)
    behind = all(_is_contained(message, present_messages) for message in incoming.messages)
    if ahead:
        return "same" if behind else "ahead"
    return "behind" if behind else "apart"


def find_first_difference(incoming: SessionExport, present: SessionExport) -> MessageWithParts | None:
    """Return the first message of `incoming` that `present` lacks or has with other content."""
    present_messages = _index_messages(present)
    return next(
        (message for message in incoming.messages if not _is_contained(message, present_messages)), None
    )


def _index_messages(export: SessionExport) -> dict[MessageID, MessageWithParts]:
    return {message.info.id: message for message in export.messages}


def _is_contained(earlier: MessageWithParts, messages: dict[MessageID, MessageWithParts]) -> bool:
    later = messages.get(earlier.info.id)
    return later is not None and has_grown_from(earlier, later)


def has_grown_from(earlier: MessageWithParts, later: MessageWithParts) -> bool:
    """Return True if the later message contains everything of the earlier one, and possibly more."""
    if earlier == later:
        return True
    parts = {part.id: part for part in later.parts}
    return _info_has_grown(earlier, later) and all(
        part.id in parts and _part_has_grown(part, parts[part.id]) for part in earlier.parts
    )


def _info_has_grown(earlier: MessageWithParts, later: MessageWithParts) -> bool:
    match earlier.info, later.info:
        case AssistantMessage(time=time), AssistantMessage() if time.completed is None:
            return True
        case (UserMessage(), UserMessage()) | (AssistantMessage(), AssistantMessage()):
            # A summary of changes is computed again and again, so it does not count as content.
            return _is_within(_without(earlier.info, "summary"), to_plain(later.info))
        case _:
            return False


def _part_has_grown(earlier: AnyPart, later: AnyPart) -> bool:
    match earlier, later:
        case (TextPart() | ReasoningPart()) as one, (TextPart() | ReasoningPart()) as other:
            is_open = one.time is None or one.time.end is None
            same_kind = type(one) is type(other)
            return same_kind and (one == other or (is_open and other.text.startswith(one.text)))
        case ToolPart(state=state) as one, ToolPart() as other:
            if state.__struct_config__.tag in ("pending", "running"):
                return one.call_id == other.call_id
            return _is_within(to_plain(one), to_plain(other))
        case _:
            return _is_within(to_plain(earlier), to_plain(later))


def _without(value: object, key: str) -> dict[str, Any]:
    return {name: item for name, item in to_plain(value).items() if name != key}


def _is_within(less: Any, more: Any) -> bool:
    """Return True if `more` contains everything of `less`; objects may have more keys."""
    if isinstance(less, dict) and isinstance(more, dict):
        return all(key in more and _is_within(item, more[key]) for key, item in less.items())
    return bool(less == more)


ProjectLookup = Callable[[str], Awaitable[ProjectID | None]]
IMPORTED_SUFFIX = " (imported)"


@runtime_checkable
class PrivateStore(Protocol):
    """A store of one principal. An id that it does not know may be somebody else's."""

    @property
    def owner(self) -> str: ...


class ImportOptions(Struct, frozen=True, kw_only=True):
    """How to import sessions.

    `find_project` returns the project of a directory, None if the directory does not exist here. With `adopt`, sessions without
    an existing directory move to the importing directory; otherwise they keep their own.
    """

    find_project: ProjectLookup
    rebinds: tuple[Rebind, ...] = ()
    adopt: bool = True
    dry_run: bool = False


class PlannedImport(NamedTuple):
    """What to store, and the verdict for the person. `present` is the stored session that is updated."""

    verdict: ImportVerdict
    export: SessionExport
    present: SessionExport | None


class StateDifference(NamedTuple):
    """The first difference of two states: a description that stays the same while the session grows, and its time."""

    why: str
    at: int


async def pack_session(store: Store, id: SessionID) -> SessionExport:
    """Read a session with everything that belongs to it. Raise `NotFoundError` if it does not exist."""
    return SessionExport(
        info=await store.get_session(id),
        messages=tuple(await store.list_messages(id)),
        todos=tuple(await store.list_todos(id)),
        diff=tuple(await store.list_diff(id)),
    )


class SessionImporter:
    """Imports sessions, each entirely or not at all. The children of a session that became a copy follow it."""

    def __init__(self, store: Store, journal: Journal, place: Place, options: ImportOptions) -> None:
        self._store = store
        self._journal = journal
        self._place = place
        self._options = options
        self._copies: dict[SessionID, SessionID] = {}

    async def receive(self, export: SessionExport, *, counted: ExportCounts | None = None) -> ImportResult:
        """Store a session, read it back, and compare. `counted` are the numbers that its source reports."""
        # These are facts of the source: a principal of the same name may be somebody else here, this copy was not moved away, and
        # the checkout of a git workspace did not come along.
        data = replace(get_weft_data(export.info), owner="", departed=None, workspace="", resumed=None)
        export = replace(export, info=with_weft_data(export.info, data))
        planned = await self._decide(export)
        if planned.verdict == "forked" or planned.export.info.id != export.info.id:
            self._copies[export.info.id] = planned.export.info.id
        changes, digest = list(_to_events(planned)), hash_content(planned.export)
        is_new = planned.present is None
        if (changes or is_new) and not self._options.dry_run:
            await self._check_message_owners(planned)
            if is_new:
                await self._journal.begin(planned.export.info, *changes)
            else:
                await self._journal.commit(*changes)
            await self._verify_stored(planned.export, digest)
        return ImportResult(
            id=planned.export.info.id,
            origin=export.info.id,
            title=planned.export.info.title,
            verdict=planned.verdict,
            before=counted or count_export(export),
            after=count_export(planned.export),
            digest=digest,
        )

    # --- planning ---

    async def _decide(self, export: SessionExport) -> PlannedImport:
        candidate, copied = export, False
        if isinstance(self._store, PrivateStore) and await self._find(export.info.id) is None:
            # Always the same new ids, whether or not somebody else has the old ones: the answer must not tell.
            candidate = IdRenamer(export, f"principal {self._store.owner}").rename()
        while (present := await self._find(candidate.info.id)) is not None:
            rebound = rebind_export(candidate, find_rebinds(candidate, present))
            planned = _combine(rebound, present)
            if planned is not None:
                return await self._move_to_project(planned)
            candidate, copied = (
                _make_copy(export, candidate.info.id, _describe_difference(rebound, present)),
                True,
            )
        return PlannedImport("forked" if copied else "new", await self._localize(candidate), None)

    async def _find(self, id: SessionID) -> SessionExport | None:
        try:
            return await pack_session(self._store, id)
        except UnreadableError as error:
            raise DocumentError(f"session {id}", "it is here already, and cannot be read") from error
        except NotFoundError:
            return None

    async def _localize(self, export: SessionExport) -> SessionExport:
        """Return the session with the directory, project and parent that it gets here."""
        rebinds, directory = self._options.rebinds, rebind_path(export.info.directory, self._options.rebinds)
        local_project = await self._options.find_project(directory) if directory else None
        project = export.info.project_id
        if local_project is not None:
            project = project if await self._is_known(project) else local_project
        elif self._options.adopt:
            rebinds = (*rebinds, Rebind(choose_origin_checkout(export), _get_checkout(self._place)))
            directory = await self._choose_directory(rebind_path(export.info.directory, rebinds))
            project = self._place.project.id
        elif not await self._is_known(project):
            project = await self._find_recorded_project(directory)
        rebound = rebind_export(export, rebinds)
        parent = export.info.parent_id
        info = replace(
            rebound.info,
            directory=directory,
            project_id=project,
            parent_id=None if parent is None else self._copies.get(parent, parent),
            share=None,  # only the original's owner can revoke the share
        )
        return replace(rebound, info=info)

    async def _choose_directory(self, directory: str) -> str:
        return directory if await self._options.find_project(directory) is not None else self._place.directory

    async def _is_known(self, project: ProjectID) -> bool:
        """Return True if this id names a project in the store. The global project does not count."""
        return project not in ("", GLOBAL_PROJECT) and await self._store.find_project(project) is not None

    async def _find_recorded_project(self, directory: str) -> ProjectID:
        """Return the recorded project whose checkout contains a directory, which need not exist any more."""
        projects = {
            checkout: project.id
            for project in await self._store.list_projects()
            for checkout in (project.worktree, *project.sandboxes)
            if checkout != "/" and f"{directory}/".startswith(f"{checkout.rstrip('/')}/")
        }
        return projects[max(projects, key=len)] if projects else GLOBAL_PROJECT

    async def _move_to_project(self, planned: PlannedImport) -> PlannedImport:
        """Move a session without a project to the project that its directory belongs to by now."""
        info = planned.export.info
        if info.project_id != GLOBAL_PROJECT or not info.directory:
            return planned
        project = await self._options.find_project(info.directory) or await self._find_recorded_project(
            info.directory
        )
        if project == GLOBAL_PROJECT:
            return planned
        return PlannedImport(
            "updated", replace(planned.export, info=replace(info, project_id=project)), planned.present
        )

    # --- storing ---

    async def _check_message_owners(self, planned: PlannedImport) -> None:
        if isinstance(self._store, PartsByMessage):
            ids = [message.info.id for message in planned.export.messages]
            for message, owner in (await self._store.owners(ids)).items():
                if owner != planned.export.info.id:
                    reason = f"message {message} belongs to session {owner} here"
                    raise DocumentError(planned.export.info.id, reason)

    async def _verify_stored(self, expected: SessionExport, digest: str) -> None:
        stored = await pack_session(self._store, expected.info.id)
        if hash_content(stored) != digest or stored.info != expected.info:
            raise StoreError(f"{expected.info.id} reads back differently from what was written")


def _combine(incoming: SessionExport, present: SessionExport) -> PlannedImport | None:
    """Combine two states of a session. Return None if something would be lost."""
    newer = incoming.info.time.updated > present.info.time.updated
    relation = compare_states(incoming, present)
    match relation:
        case "apart":
            return None
        case "behind":
            return PlannedImport("older", present, present)
        case "same" if not newer:
            return PlannedImport("same", present, present)
        case "same" | "ahead":
            merged = _merge(incoming, present) if newer else present
            messages = incoming.messages if relation == "ahead" else present.messages
            merged = replace(merged, messages=messages)
            verdict: ImportVerdict = "updated" if merged != present else "same"
            return PlannedImport(verdict, merged, present)


def _merge(incoming: SessionExport, present: SessionExport) -> SessionExport:
    """Update the stored session from a newer state. It keeps its location.

    Fields that the incoming state lacks may be unknown to its source, so they are kept: OpenCode exports no todos and no
    diff, and does not know weft's own fields.
    """
    plain: dict[str, Any] = {**to_plain(present.info), **to_plain(incoming.info)}
    info: SessionInfo = from_plain(plain, SessionInfo, where=present.info.id)
    info = replace(
        info,
        project_id=present.info.project_id,
        directory=present.info.directory,
        parent_id=present.info.parent_id,
        revert=incoming.info.revert,
        share=present.info.share,
    )
    info, data = with_owner(info, get_owner(present.info)), get_weft_data(present.info)
    info = with_weft_data(info, replace(get_weft_data(info), workspace=data.workspace, resumed=data.resumed))
    return SessionExport(
        info=info,
        messages=incoming.messages,
        todos=incoming.todos or present.todos,
        diff=incoming.diff or present.diff,
    )


def _describe_difference(incoming: SessionExport, present: SessionExport) -> StateDifference:
    first = find_first_difference(incoming, present)
    if first is None:
        return StateDifference(hash_content(incoming), incoming.info.time.created)
    is_known = any(message.info.id == first.info.id for message in present.messages)
    why = (
        f"{first.info.id} {hash_content(replace(incoming, messages=(first,)))}" if is_known else first.info.id
    )
    return StateDifference(why, first.info.time.created)


def _make_copy(export: SessionExport, beside: SessionID, difference: StateDifference) -> SessionExport:
    """Return the session with new ids. The spending before the difference counts in the original only."""
    copy = IdRenamer(export, f"{beside} {difference.why}").rename()
    weft_data = replace(
        get_weft_data(copy.info),
        forked_from=ForkedFrom(session_id=export.info.id),
        spent=Ledger(until=difference.at - 1),
    )
    title = copy.info.title.removesuffix(IMPORTED_SUFFIX) + IMPORTED_SUFFIX
    return replace(copy, info=with_weft_data(replace(copy.info, title=title), weft_data))


def _get_checkout(place: Place) -> str:
    return place.directory if place.worktree == "/" else place.worktree


def list_replacing_events(export: SessionExport, present: SessionExport | None) -> Iterator[Durable]:
    """Yield the events that store a session, and remove all that is left of its earlier state."""
    if present is None:
        yield SessionCreated(info=export.info)
    else:
        kept = {message.info.id: {part.id for part in message.parts} for message in export.messages}
        for message in present.messages:
            if message.info.id not in kept:
                yield MessageRemoved(session_id=export.info.id, message_id=message.info.id)
                continue
            for part in message.parts:
                if part.id not in kept[message.info.id]:
                    yield PartRemoved(session_id=export.info.id, message_id=message.info.id, part_id=part.id)
    yield from _to_events(PlannedImport("updated", export, present))


def _to_events(planned: PlannedImport) -> Iterator[Durable]:
    export, present = planned.export, planned.present
    if present is not None and export.info != present.info:
        yield SessionUpdated(info=export.info)
    present_messages = {} if present is None else {message.info.id: message for message in present.messages}
    for message in export.messages:
        yield from _to_message_events(message, present_messages.get(message.info.id))
    if export.todos != (() if present is None else present.todos):
        yield TodoUpdated(session_id=export.info.id, todos=export.todos)
    if export.diff != (() if present is None else present.diff):
        yield SessionDiffed(session_id=export.info.id, diff=export.diff)


def _to_message_events(message: MessageWithParts, present: MessageWithParts | None) -> Iterator[Durable]:
    if present is None or present.info != message.info:
        yield MessageUpdated(info=message.info)
    parts = {} if present is None else {part.id: part for part in present.parts}
    for part in message.parts:
        if parts.get(part.id) != part:
            yield PartUpdated(part=part)
