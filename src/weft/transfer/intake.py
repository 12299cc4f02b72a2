"""Pack sessions out of a store, and take them into one without losing what either side has."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import DocumentError, NotFoundError, StoreError
from weft.journal import Journal
from weft.model.event import (
    Durable,
    MessageUpdated,
    PartUpdated,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import GLOBAL_PROJECT, MessageID, ProjectID, SessionID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.parcel import Counts, Parcel, Received, Verdict, count
from weft.model.part import AnyPart, ReasoningPart, TextPart, ToolPart
from weft.model.project import Place
from weft.model.session import ForkedFrom, Session, own_of, with_own
from weft.model.spending import Ledger
from weft.model.wire import from_plain, to_plain
from weft.store.contract import Store
from weft.transfer.document import digest
from weft.transfer.rebind import Rebind, Renaming, checkout, moved, rebinds_between, rebound

Relation = Literal["same", "ahead", "behind", "apart"]


def relate(incoming: Parcel, present: Parcel) -> Relation:
    """Where `incoming` stands, seen from `present`. Only when apart would one have to lose something for the other."""
    there, here = _by_id(incoming), _by_id(present)
    ahead = all(_is_in(message, there) for message in present.messages)
    behind = all(_is_in(message, here) for message in incoming.messages)
    if ahead:
        return "same" if behind else "ahead"
    return "behind" if behind else "apart"


def parting(incoming: Parcel, present: Parcel) -> MessageWithParts | None:
    """The first message of `incoming` that what is here does not hold, or holds in other words."""
    here = _by_id(present)
    return next((message for message in incoming.messages if not _is_in(message, here)), None)


def _by_id(parcel: Parcel) -> dict[MessageID, MessageWithParts]:
    return {message.info.id: message for message in parcel.messages}


def _is_in(earlier: MessageWithParts, messages: dict[MessageID, MessageWithParts]) -> bool:
    later = messages.get(earlier.info.id)
    return later is not None and has_grown_from(earlier, later)


def has_grown_from(earlier: MessageWithParts, later: MessageWithParts) -> bool:
    """Whether all that the earlier one says is in the later one, which may have gone on from there."""
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
            # What a prompt led to is worked out again and again: it is no part of what was said.
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
    """Whether everything `less` says `more` says too; objects may have more keys."""
    if isinstance(less, dict) and isinstance(more, dict):
        return all(key in more and _is_within(item, more[key]) for key, item in less.items())
    return bool(less == more)


Home = Callable[[str], Awaitable[ProjectID | None]]
IMPORTED = " (imported)"


@runtime_checkable
class Claims(Protocol):
    """A store that files messages by id alone can say whose they are; in others they cannot be mixed up."""

    async def owners(self, messages: Sequence[MessageID]) -> dict[MessageID, SessionID]: ...


class Terms(Struct, frozen=True, kw_only=True):
    """On what terms sessions are taken in.

    `home` gives the project of a directory, None if the directory is not on this machine. With `adopt`, what has no
    directory here comes to live where we stand; else it stays bound to where it was.
    """

    home: Home
    rebinds: tuple[Rebind, ...] = ()
    adopt: bool = True
    dry_run: bool = False


class Taking(NamedTuple):
    """What is to be stored, and why; `present` is what it is added to."""

    verdict: Verdict
    parcel: Parcel
    present: Parcel | None


class Apart(NamedTuple):
    """What set two states apart, in words that stay the same while the incoming one goes on, and when that was."""

    why: str
    at: int


async def pack(store: Store, id: SessionID) -> Parcel:
    """A session with all that belongs to it. `NotFoundError` if there is none."""
    return Parcel(
        info=await store.get_session(id),
        messages=tuple(await store.list_messages(id)),
        todos=tuple(await store.list_todos(id)),
        diff=tuple(await store.list_diff(id)),
    )


class Intake:
    """Takes sessions in, each one whole or not at all. It remembers which became a copy, for their children's sake."""

    def __init__(self, store: Store, journal: Journal, place: Place, terms: Terms) -> None:
        self._store = store
        self._journal = journal
        self._place = place
        self._terms = terms
        self._copies: dict[SessionID, SessionID] = {}

    async def receive(self, parcel: Parcel, *, counted: Counts | None = None) -> Received:
        """Store it, read it again, and compare. `counted` is what its source says it holds."""
        taking = await self._decide(parcel)
        if taking.verdict == "forked" or taking.parcel.info.id != parcel.info.id:
            self._copies[parcel.info.id] = taking.parcel.info.id
        changes, digested = list(_changes(taking)), digest(taking.parcel)
        is_new = taking.present is None
        if (changes or is_new) and not self._terms.dry_run:
            await self._refuse_strangers(taking)
            if is_new:
                await self._journal.begin(taking.parcel.info, *changes)
            else:
                await self._journal.commit(*changes)
            await self._check(taking.parcel, digested)
        return Received(
            id=taking.parcel.info.id,
            origin=parcel.info.id,
            title=taking.parcel.info.title,
            verdict=taking.verdict,
            before=counted or count(parcel),
            after=count(taking.parcel),
            digest=digested,
        )

    # --- deciding ---

    async def _decide(self, parcel: Parcel) -> Taking:
        candidate, copied = parcel, False
        while (present := await self._find(candidate.info.id)) is not None:
            here = rebound(candidate, rebinds_between(candidate, present))
            taking = _join(here, present)
            if taking is not None:
                return await self._brought_home(taking)
            candidate, copied = _copy(parcel, candidate.info.id, _parting(here, present)), True
        return Taking("forked" if copied else "new", await self._bound(candidate), None)

    async def _find(self, id: SessionID) -> Parcel | None:
        try:
            return await pack(self._store, id)
        except NotFoundError:
            return None

    async def _bound(self, parcel: Parcel) -> Parcel:
        """The parcel as it is to live here: its directory, its project, its parent."""
        rebinds, directory = self._terms.rebinds, moved(parcel.info.directory, self._terms.rebinds)
        home = await self._terms.home(directory) if directory else None
        project = parcel.info.project_id
        if home is not None:
            project = project if await self._is_known(project) else home
        elif self._terms.adopt:
            rebinds = (*rebinds, Rebind(checkout(parcel), _top(self._place)))
            directory = await self._adopted(moved(parcel.info.directory, rebinds))
            project = self._place.project.id
        elif not await self._is_known(project):
            project = await self._find_recorded(directory)
        bound = rebound(parcel, rebinds)
        parent = parcel.info.parent_id
        info = replace(
            bound.info,
            directory=directory,
            project_id=project,
            parent_id=None if parent is None else self._copies.get(parent, parent),
            share=None,  # where it came from is where it can be taken back
        )
        return replace(bound, info=info)

    async def _adopted(self, directory: str) -> str:
        return directory if await self._terms.home(directory) is not None else self._place.directory

    async def _is_known(self, project: ProjectID) -> bool:
        """Return whether a session says by this id which project it is of. What is in no repository says nothing."""
        return project not in ("", GLOBAL_PROJECT) and await self._store.find_project(project) is not None

    async def _find_recorded(self, directory: str) -> ProjectID:
        """Return the project that is on record with a checkout around a directory, which may be gone by now."""
        tops = {
            top: project.id
            for project in await self._store.list_projects()
            for top in (project.worktree, *project.sandboxes)
            if top != "/" and f"{directory}/".startswith(f"{top.rstrip('/')}/")
        }
        return tops[max(tops, key=len)] if tops else GLOBAL_PROJECT

    async def _brought_home(self, taking: Taking) -> Taking:
        """A session that lies under no project moves to the one that its directory belongs to by now."""
        info = taking.parcel.info
        if info.project_id != GLOBAL_PROJECT or not info.directory:
            return taking
        project = await self._terms.home(info.directory) or await self._find_recorded(info.directory)
        if project == GLOBAL_PROJECT:
            return taking
        return Taking(
            "updated", replace(taking.parcel, info=replace(info, project_id=project)), taking.present
        )

    # --- doing ---

    async def _refuse_strangers(self, taking: Taking) -> None:
        if isinstance(self._store, Claims):
            ids = [message.info.id for message in taking.parcel.messages]
            for message, owner in (await self._store.owners(ids)).items():
                if owner != taking.parcel.info.id:
                    reason = f"message {message} belongs to session {owner} here"
                    raise DocumentError(taking.parcel.info.id, reason)

    async def _check(self, meant: Parcel, digested: str) -> None:
        stored = await pack(self._store, meant.info.id)
        if digest(stored) != digested or stored.info != meant.info:
            raise StoreError(f"{meant.info.id} does not read back as it was written")


def _join(incoming: Parcel, present: Parcel) -> Taking | None:
    """One out of two states of a session, if nothing is lost by that."""
    newer = incoming.info.time.updated > present.info.time.updated
    relation = relate(incoming, present)
    match relation:
        case "apart":
            return None
        case "behind":
            return Taking("older", present, present)
        case "same" if not newer:
            return Taking("same", present, present)
        case "same" | "ahead":
            merged = _merged(incoming, present) if newer else present
            messages = incoming.messages if relation == "ahead" else present.messages
            merged = replace(merged, messages=messages)
            verdict: Verdict = "updated" if merged != present else "same"
            return Taking(verdict, merged, present)


def _merged(incoming: Parcel, present: Parcel) -> Parcel:
    """The one here, brought up to the newer one that came. It goes on living where it lives.

    What the incoming one does not mention may be unknown where it comes from: OpenCode exports no todos and no diff,
    and knows nothing of what we keep beside its own fields.
    """
    plain: dict[str, Any] = {**to_plain(present.info), **to_plain(incoming.info)}
    info: Session = from_plain(plain, Session, where=present.info.id)
    info = replace(
        info,
        project_id=present.info.project_id,
        directory=present.info.directory,
        parent_id=present.info.parent_id,
        revert=incoming.info.revert,
        share=present.info.share,
    )
    return Parcel(
        info=info,
        messages=incoming.messages,
        todos=incoming.todos or present.todos,
        diff=incoming.diff or present.diff,
    )


def _parting(incoming: Parcel, present: Parcel) -> Apart:
    first = parting(incoming, present)
    if first is None:
        return Apart(digest(incoming), incoming.info.time.created)
    known = any(message.info.id == first.info.id for message in present.messages)
    why = f"{first.info.id} {digest(replace(incoming, messages=(first,)))}" if known else first.info.id
    return Apart(why, first.info.time.created)


def _copy(parcel: Parcel, beside: SessionID, apart: Apart) -> Parcel:
    """The parcel under other names. What the two have in common was paid for in the other one."""
    copy = Renaming(parcel, f"{beside} {apart.why}").parcel()
    own = replace(
        own_of(copy.info),
        forked_from=ForkedFrom(session_id=parcel.info.id),
        spent=Ledger(until=apart.at - 1),
    )
    title = copy.info.title.removesuffix(IMPORTED) + IMPORTED
    return replace(copy, info=with_own(replace(copy.info, title=title), own))


def _top(place: Place) -> str:
    return place.directory if place.worktree == "/" else place.worktree


def _changes(taking: Taking) -> Iterator[Durable]:
    parcel, present = taking.parcel, taking.present
    if present is not None and parcel.info != present.info:
        yield SessionUpdated(info=parcel.info)
    known = {} if present is None else {message.info.id: message for message in present.messages}
    for message in parcel.messages:
        yield from _message_changes(message, known.get(message.info.id))
    if parcel.todos != (() if present is None else present.todos):
        yield TodoUpdated(session_id=parcel.info.id, todos=parcel.todos)
    if parcel.diff != (() if present is None else present.diff):
        yield SessionDiffed(session_id=parcel.info.id, diff=parcel.diff)


def _message_changes(message: MessageWithParts, known: MessageWithParts | None) -> Iterator[Durable]:
    if known is None or known.info != message.info:
        yield MessageUpdated(info=message.info)
    parts = {} if known is None else {part.id: part for part in known.parts}
    for part in message.parts:
        if parts.get(part.id) != part:
            yield PartUpdated(part=part)
