"""Examine the machine, the configuration and a store of files, without changing anything."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from weft.config.load import load_config
from weft.config.schema import Experimental, Own
from weft.config.sources import Situation
from weft.errors import IndexFailedError, WeftError
from weft.host.files import try_locked
from weft.host.git import Plumbing
from weft.maintenance.environment import Case, examine_configuration, examine_environment
from weft.maintenance.findings import (
    AREA,
    ASTRAY,
    BAD_INDEX,
    BEREFT,
    CUT_SHORT,
    HEADLESS,
    LEFT,
    LOST,
    MISPLACED,
    NEWER_HOME,
    ORPHANED,
    OUTDATED,
    OVERSIZED,
    STRANGE,
    TWINS,
    UNFINISHED,
    UNLABELLED,
    UNREADABLE,
    Finding,
    Item,
    about,
)
from weft.maintenance.migrate import Told
from weft.maintenance.stray_sessions import Surroundings, find_strays
from weft.maintenance.verify import PARENT_GONE, Fault, Reader, Verdict, open_reader, verify_tree
from weft.model.readable import plural
from weft.project.facts import alias_from_plain, alias_key
from weft.project.look import look
from weft.search.database import index_path, reading
from weft.snapshot.contract import MAX_BYTES
from weft.snapshot.objects import Objects, list_pins, list_sessions, measure
from weft.snapshot.place import Place, base_for, list_places
from weft.store.files.inventory import TWIN, list_names
from weft.store.files.leftovers import Leftover, Leftovers
from weft.store.files.lock import list_abandoned
from weft.store.files.reader import FORMAT, Tree
from weft.store.files.repair import find_oversized
from weft.store.files.trash import Trash

PROJECT_AREA = "projects"


def examine_projects(tree: Tree) -> list[Finding]:
    around = look_around_tree(tree)
    strays = find_strays(around)
    found: list[Finding] = []
    if strays:
        found.append(
            Finding(
                severity="warning",
                area=PROJECT_AREA,
                what=f"{plural(len(strays), 'session is', 'sessions are')} recorded elsewhere than in the project of the directory",
                means="they are not in that project's list",
                repair="weft session adopt --all",
                cure="adopt",
                items=tuple(
                    Item(where=stray.session.id, reason=f"belongs to {stray.project}") for stray in strays
                ),
            )
        )
    taken = {stray.session.id for stray in strays}
    left = Counter(session.project_id for session in around.sessions if session.id not in taken)
    unexplained = [id for id in around.recordless() if left[id]]
    if unexplained:
        found.append(
            Finding(
                severity="warning",
                area=PROJECT_AREA,
                what=f"{plural(len(unexplained), 'project has', 'projects have')} sessions and no record",
                means="weft session list --all shows them; a run in the directory they were held in makes the record",
                repair="weft project merge ID INTO",
                items=tuple(Item(where=id, reason=plural(left[id], "session")) for id in unexplained),
            )
        )
    return found


def look_around_tree(tree: Tree) -> Surroundings:
    projects = tree.list_projects()
    kept = {project.id: alias_from_plain(tree.kept(alias_key(project.id))) for project in projects}
    return Surroundings(
        projects=projects,
        aliases={id: alias for id, alias in kept.items() if alias is not None},
        sessions=tree.list_sessions(),
    )


SNAPSHOT_AREA = "undo"
MUCH = 0.8


def examine_undo(case: Case) -> list[Finding]:
    places = list_places(base_for(case.paths, f"file:{case.root}"))
    return [*_cut_short(places), *_lost(places, case.env), *_sizes(places, case), *_homeless(places)]


def _cut_short(places: list[Place]) -> Iterator[Finding]:
    found = [Item(where=place.root) for place in places if _is_cut_short(place)]
    if found:
        yield Finding(
            severity="problem",
            area=SNAPSHOT_AREA,
            what="taking files back was cut short",
            means="some files are as they were before the agent, others as it left them",
            repair="open weft in the directory: weft undo --dry-run settles it either way",
            items=tuple(found),
        )


def _is_cut_short(place: Place) -> bool:
    """Whether nobody is at it any more."""
    if not os.path.exists(place.intent):
        return False
    with try_locked(place.restore_lock) as mine:
        return mine and os.path.exists(place.intent)


def _lost(places: list[Place], env: Mapping[str, str]) -> Iterator[Finding]:
    found = [item for place in places for item in _lost_in(place, env)]
    if found:
        yield Finding(
            severity="warning",
            area=SNAPSHOT_AREA,
            what="what sessions need to be taken back is missing or damaged",
            means="what they did before that can no longer be undone; nothing else is affected",
            items=tuple(found),
        )


def _lost_in(place: Place, env: Mapping[str, str]) -> Iterator[Item]:
    objects = Objects(place, Plumbing(env, place.git_dir, place.home), 0)
    for session in list_sessions(place):
        missing = objects.missing(list_pins(place, session))
        if missing:
            yield Item(where=session, reason=f"{plural(len(missing), 'snapshot')} of {place.root}")


def _sizes(places: list[Place], case: Case) -> Iterator[Finding]:
    """Each directory may take up so much."""
    most = _budget(case)
    sizes = {place.root: measure(place.objects) for place in places}
    found = [
        Item(where=root, reason=f"{size >> 20} of {most >> 20} MB")
        for root, size in sizes.items()
        if size > most * MUCH
    ]
    if found:
        yield Finding(
            severity="warning",
            area=SNAPSHOT_AREA,
            what="snapshots have nearly used up the room they may take",
            means="when it is full, nothing more is kept, and new changes cannot be undone",
            repair="weft storage gc; or raise experimental.weft.snapshots.maxBytes",
            items=tuple(found),
        )


def _budget(case: Case) -> int:
    try:
        at = look(case.directory)
        situation = Situation(
            directory=at.directory, worktree=at.top or at.directory, paths=case.paths, env=case.env
        )
        config = load_config(situation).vouched
    except (WeftError, OSError):  # told elsewhere
        return MAX_BYTES
    own = (config.experimental or Experimental()).weft or Own()
    named = own.snapshots.max_bytes if own.snapshots else None
    return int(named) if named else MAX_BYTES


def _homeless(places: list[Place]) -> Iterator[Finding]:
    found = [
        Item(where=place.root, reason=f"{measure(place.home) >> 10} KB")
        for place in places
        if not os.path.isdir(place.root)
    ]
    if found:
        yield Finding(
            severity="note",
            area=SNAPSHOT_AREA,
            what="there are snapshots of directories that are gone",
            means="they go when the sessions that worked there go",
            items=tuple(found),
        )


# Long enough for whoever is writing to be done.
IDLE_MS = 10 * 60 * 1000
NO_DOCUMENTS = ("not a document", "not a directory", "its name is no id")


def examine(case: Case, *, told: Told = lambda _, __: None) -> list[Finding]:
    return [
        *_guarded("environment", lambda: examine_environment(case)),
        *_guarded("configuration", lambda: examine_configuration(case)),
        *_guarded(AREA, lambda: examine_store(case, told)),
        *_guarded("index", lambda: examine_index(case)),
        *_guarded("undo", lambda: examine_undo(case)),
    ]


def _guarded(area: str, look: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return look()
    except (WeftError, OSError, ValueError) as error:
        hint = error.hint if isinstance(error, WeftError) else ""
        return [Finding(severity="problem", area=area, what=str(error), repair=hint)]


def examine_store(case: Case, told: Told) -> list[Finding]:
    if not os.path.isdir(case.root):
        return [Finding(severity="note", area=AREA, what=f"there is no store at {case.root} yet")]
    reader = open_reader(case.root)
    # A newer format raises here: what we do not know we do not judge.
    outdated = [OUTDATED] if reader.tree.format() < FORMAT else []
    return [
        *outdated,
        *_newer_home(reader),
        *_guarded(AREA, lambda: _documents(verify_tree(reader, now=case.now, told=told))),
        *_guarded(AREA, lambda: _leftovers(reader, case)),
        *_guarded(AREA, lambda: about(OVERSIZED, _oversized(reader))),
        *_guarded(AREA, lambda: _dead_runs(reader)),
        *_guarded(AREA, lambda: about(UNLABELLED, _unlabelled(reader))),
        *_guarded("projects", lambda: examine_projects(reader.tree)),
    ]


def _documents(verdict: Verdict) -> list[Finding]:
    """What cannot be read, lies in the wrong place, or leads nowhere."""
    damage, misplaced, faults = verdict.damage, verdict.misplaced, verdict.faults
    return [
        *about(UNREADABLE, _items(each for each in damage if each.reason not in NO_DOCUMENTS)),
        *about(STRANGE, _items(each for each in damage if each.reason in NO_DOCUMENTS)),
        *about(TWINS, _items(each for each in misplaced if each.reason.startswith(TWIN))),
        *about(MISPLACED, _items(each for each in misplaced if not each.reason.startswith(TWIN))),
        *about(ORPHANED, _items(each for each in faults if each.reason.startswith(PARENT_GONE))),
        *about(ASTRAY, _items(each for each in faults if not each.reason.startswith(PARENT_GONE))),
    ]


def _leftovers(reader: Reader, case: Case) -> list[Finding]:
    """What nothing leads to any more, and what was never finished."""
    found = Leftovers(reader.tree, reader.inventory, before=case.now + 1).find()
    headless = [each for each in found if each.kind == "message"]
    sessions = {each.session for each in headless}
    lost = [each for each in found if each.kind in ("part", "diff", "todo") and each.session not in sessions]
    idle = Leftovers(reader.tree, reader.inventory, before=case.now - IDLE_MS).find()
    return [
        *about(HEADLESS, _paths(headless)),
        *about(LOST, _paths(lost)),
        *about(UNFINISHED, _paths(each for each in idle if each.kind in ("temp", "redo"))),
        *about(LEFT, _paths(each for each in idle if each.kind in ("lock", "lease", "growth", "backup"))),
    ]


def examine_index(case: Case) -> list[Finding]:
    """An index is brought up to date whenever it is used, and made if there is none: only a bad one is worth a word."""
    path = index_path(case.paths.cache, case.root)
    if not os.path.exists(path):
        return []
    try:
        with reading(path, case.root):
            return []
    except IndexFailedError as error:
        return about(BAD_INDEX, [Item(where=path, reason=str(error))])


def _oversized(reader: Reader) -> list[Item]:
    found = find_oversized(reader.tree, reader.inventory)
    return [Item(where=each.path, reason=f"{each.bytes} bytes") for each in found]


def _newer_home(reader: Reader) -> list[Finding]:
    database = reader.tree.find_newer_home()
    if database is None:
        return []
    repair = NEWER_HOME.repair.format(database)
    return [replace(NEWER_HOME, what=NEWER_HOME.what.format(database), repair=repair)]


def _dead_runs(reader: Reader) -> list[Finding]:
    layout = reader.tree.layout
    abandoned = list_abandoned(layout)
    gone = [id for id in abandoned if reader.tree.is_gone(id)]
    return [
        *about(CUT_SHORT, [Item(where=id) for id in abandoned if id not in gone]),
        *about(BEREFT, [Item(where=layout.run(id), reason=f"its session {id} is gone") for id in gone]),
    ]


def _unlabelled(reader: Reader) -> list[Item]:
    layout = reader.tree.layout
    known = {bundle.id for bundle in Trash(reader.tree).list_bundles()}
    return [Item(where=f"{layout.trash}/{name}") for name in list_names(layout.trash) if name not in known]


def _items(found: Iterable[Fault]) -> list[Item]:
    return [Item(where=each.where, reason=each.reason) for each in found]


def _paths(found: Iterable[Leftover]) -> list[Item]:
    return [Item(where=each.path, reason=each.reason) for each in found]
