"""Find the project of a checkout, and compute what has to be stored about it."""

import os
from collections.abc import Container, Iterable

from msgspec.structs import replace

from weft.errors import GitError
from weft.model.ids import GLOBAL_PROJECT, ProjectID
from weft.model.project import Place, Project, ProjectTime
from weft.model.session import SessionInfo
from weft.project.checkout import inspect_checkout, inspect_last_location, is_still_checkout
from weft.project.facts import (
    Adoption,
    Checkout,
    CheckoutFacts,
    IdFile,
    KnownProjects,
    LastSeen,
    ProjectIdentity,
    Resolution,
    RootCommits,
    is_inside,
)
from weft.project.identify import identify, list_candidates, needs_roots


def to_resolution(
    identity: ProjectIdentity,
    facts: CheckoutFacts,
    known: KnownProjects,
    *,
    existing_sandboxes: Container[str],
    now: int,
) -> Resolution:
    """Return the place, and everything about it that the store lacks. `existing_sandboxes` are those that still exist."""
    checkout, stored = facts.checkout, known.projects.get(identity.id)
    project = to_record(identity, stored, existing_sandboxes, now)
    place = Place(project=project, directory=checkout.directory, worktree=identity.worktree)
    if identity.id == GLOBAL_PROJECT:
        # OpenCode changes the global record to the repository without commits that was opened last. For us it belongs to no
        # repository and is written once.
        return Resolution(place=place, project=project if stored is None else None)
    seen = to_last_seen(identity, checkout, known)
    changed = seen != known.last_seen.get(identity.id)
    return Resolution(
        place=place,
        project=project if project != stored else None,
        last_seen=seen if changed else None,
        id_file=_choose_id_file(identity, checkout),
        adoption=_choose_adoption(
            identity, checkout, known, project=project, changed=changed or stored is None
        ),
    )


def to_record(
    identity: ProjectIdentity, stored: Project | None, existing_sandboxes: Container[str], now: int
) -> Project:
    """Return the record that the project should have; the stored one itself if nothing changes."""
    new = Project(
        id=identity.id,
        worktree=identity.main,
        vcs=identity.vcs,
        time=ProjectTime(created=now, updated=now),
    )
    record = stored or new
    sandboxes = tuple(path for path in record.sandboxes if path in existing_sandboxes)
    if identity.worktree not in (identity.main, *sandboxes):
        sandboxes += (identity.worktree,)
    updated = replace(record, worktree=identity.main, vcs=identity.vcs, sandboxes=sandboxes)
    return record if updated == record else replace(updated, time=replace(record.time, updated=now))


def to_last_seen(identity: ProjectIdentity, checkout: Checkout, known: KnownProjects) -> LastSeen:
    recorded = known.last_seen.get(identity.id) or LastSeen(worktree=identity.main)
    if not identity.has_repository:
        return recorded
    return replace(
        recorded,
        worktree=checkout.main,
        common_dir=checkout.common_dir,
        inode=checkout.inode.number,
        roots=identity.roots,
    )


def _choose_id_file(identity: ProjectIdentity, checkout: Checkout) -> IdFile | None:
    if not identity.has_repository or checkout.id == identity.id:
        return None
    return IdFile(common_dir=checkout.common_dir, id=identity.id)


def _choose_adoption(
    identity: ProjectIdentity, checkout: Checkout, known: KnownProjects, *, project: Project, changed: bool
) -> Adoption | None:
    ids = [*([GLOBAL_PROJECT] if changed else []), *identity.sources]
    sources = dict.fromkeys(id for id in ids if id in known.projects and id != identity.id)
    if not sources:
        return None
    tops = dict.fromkeys([identity.worktree, identity.main, *project.sandboxes])
    return Adoption(
        project=identity.id,
        sources=tuple(sources),
        tops=tuple(tops),
        common_dir=checkout.common_dir if identity.has_repository else "",
        other_tops=tuple(_list_other_homes(identity.id, known)),
    )


def _list_other_homes(id: ProjectID, known: KnownProjects) -> list[str]:
    return [seen.worktree for other, seen in known.last_seen.items() if other != id]


def resolve(checkout: Checkout, known: KnownProjects, *, git: RootCommits, now: int) -> Resolution:
    """Return the project of a checkout. Nothing is written: the caller stores what the resolution contains."""
    roots = find_roots(checkout, git) if needs_roots(checkout, known) else None
    last_locations = {
        id: inspect_last_location(worktree, known.last_seen.get(id))
        for id, worktree in list_candidates(checkout, known, roots).items()
    }
    facts = CheckoutFacts(checkout=checkout, roots=roots, last_locations=last_locations)
    identity = identify(facts, known)
    stored = known.projects.get(identity.id)
    common_dir = checkout.common_dir if identity.has_repository else ""
    existing_sandboxes = {
        path for path in (stored.sandboxes if stored else ()) if is_still_checkout(path, common_dir)
    }
    return to_resolution(identity, facts, known, existing_sandboxes=existing_sandboxes, now=now)


def find_roots(checkout: Checkout, git: RootCommits) -> tuple[str, ...] | None:
    """Return the root commits; None if git cannot tell, because it is missing or does not trust the files' owner."""
    try:
        return tuple(git.root_commits(checkout.top))
    except GitError:
        return None


def find_stored(checkout: Checkout, project: Project | None, seen: LastSeen | None) -> Resolution | None:
    """Resolve a checkout quickly from the records of the project in its id file. Return None if that is not certain."""
    if project is None or seen is None or not (checkout.id == project.id and _is_plain(checkout)):
        return None
    is_current = (
        seen.worktree == checkout.main
        and seen.common_dir == checkout.common_dir
        and seen.inode == checkout.inode.number
    )
    is_record_current = project.worktree == checkout.main and project.vcs == "git"
    if (
        not is_current
        or not is_record_current
        or not all(is_still_checkout(path, checkout.common_dir) for path in project.sandboxes)
    ):
        return None
    return Resolution(place=Place(project=project, directory=checkout.directory, worktree=checkout.top))


def _is_plain(checkout: Checkout) -> bool:
    # A subdirectory may be a project that lost its `.git`. In a linked checkout OpenCode may have used another id.
    return checkout.is_valid and not checkout.git_file and checkout.directory == checkout.top == checkout.main


def adopt_sessions(adoption: Adoption, sessions: Iterable[SessionInfo]) -> list[SessionInfo]:
    """Return the sessions that belong to the adopting project, with the new project id."""
    belongs_by_directory: dict[str, bool] = {}
    adopted: list[SessionInfo] = []
    for session in sessions:
        directory = session.directory
        if directory not in belongs_by_directory:
            belongs_by_directory[directory] = os.path.isabs(directory) and _belongs(adoption, directory)
        if belongs_by_directory[directory] and session.project_id in adoption.sources:
            adopted.append(replace(session, project_id=adoption.project))
    return adopted


def _belongs(adoption: Adoption, directory: str) -> bool:
    try:
        return covers_checkout(adoption, inspect_checkout(os.path.realpath(directory)))
    except (OSError, ValueError):
        return False


def covers_checkout(adoption: Adoption, checkout: Checkout) -> bool:
    """Return True if a directory is inside one of the adopting project's checkouts, and in no other project's."""
    # OpenCode adopts only sessions in the top directory itself, and those without a directory.
    tops = [top for top in adoption.tops if is_inside(checkout.directory, top)]
    if not tops:
        return False
    nearest = max(tops, key=len)
    if any(
        is_inside(checkout.directory, other) and other != nearest and is_inside(other, nearest)
        for other in adoption.other_tops
    ):
        return False
    is_nested = (
        checkout.top and checkout.common_dir != adoption.common_dir and is_inside(checkout.top, nearest)
    )
    return not is_nested or checkout.top == nearest
