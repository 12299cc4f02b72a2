"""Examine the machine, the configuration and a store of files. Nothing is changed.

This is asked when something is broken already, so whatever stands in the way of looking becomes a finding itself.
"""

import os
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from weft.errors import IndexFailedError, WeftError
from weft.index.place import index_path, reading
from weft.session.care.ailments import (
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
    about,
)
from weft.session.care.environment import Case, examine_configuration, examine_environment
from weft.session.care.faults import PARENT_GONE, Fault
from weft.session.care.finding import Finding, Item
from weft.session.care.projects import examine_projects
from weft.session.care.tally import Told
from weft.session.care.undo import examine_undo
from weft.session.care.verify import Reader, Verdict, open_reader, verify_tree
from weft.store.files_care.heap import list_names
from weft.store.files_care.leftovers import Leftover, Leftovers
from weft.store.files_care.places import TWIN
from weft.store.files_care.summaries import find_oversized
from weft.store.lease import list_abandoned
from weft.store.trash import Trash
from weft.store.tree import FORMAT

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
