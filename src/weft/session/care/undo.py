"""Snapshots, as far as undoing depends on them: what is missing of them, was cut short, or takes up too much."""

import os
from collections.abc import Iterator, Mapping

from weft.config.load import load_config
from weft.config.schema import Experimental, Own
from weft.config.sources import Situation
from weft.errors import WeftError
from weft.host.files import try_locked
from weft.host.git import Plumbing
from weft.model.plural import plural
from weft.project.look import look
from weft.session.care.environment import Case
from weft.session.care.finding import Finding, Item
from weft.snapshot.contract import MAX_BYTES
from weft.snapshot.objects import Objects, measure
from weft.snapshot.pins import list_pins, list_sessions
from weft.snapshot.place import Place, list_places
from weft.snapshot.settings import base_for

AREA = "undo"
MUCH = 0.8


def examine_undo(case: Case) -> list[Finding]:
    places = list_places(base_for(case.paths, f"file:{case.root}"))
    return [*_cut_short(places), *_lost(places, case.env), *_sizes(places, case), *_homeless(places)]


def _cut_short(places: list[Place]) -> Iterator[Finding]:
    found = [Item(where=place.root) for place in places if _is_cut_short(place)]
    if found:
        yield Finding(
            severity="problem",
            area=AREA,
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
            area=AREA,
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
            area=AREA,
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
            area=AREA,
            what="there are snapshots of directories that are gone",
            means="they go when the sessions that worked there go",
            items=tuple(found),
        )
