"""Find the project of a checkout, and compute what has to be stored about it."""

import os
from collections.abc import Container, Iterable

from msgspec.structs import replace

from weft.errors import GitError
from weft.model.ids import GLOBAL_PROJECT, ProjectID
from weft.model.project import Place, Project, ProjectTime
from weft.model.session import Session
from weft.project.checkout import inspect_checkout, inspect_last_place, is_still_checkout
from weft.project.facts import (
    Adoption,
    Checkout,
    CheckoutFacts,
    History,
    IdFile,
    KnownProjects,
    ProjectAlias,
    ProjectIdentity,
    Resolution,
    is_inside,
)
from weft.project.identify import identify, list_rivals, needs_roots


def to_resolution(
    identity: ProjectIdentity,
    facts: CheckoutFacts,
    known: KnownProjects,
    *,
    standing: Container[str],
    now: int,
) -> Resolution:
    """Return the place, and everything about it that the store lacks. `standing` are the sandboxes that still exist."""
    at, stored = facts.checkout, known.projects.get(identity.id)
    project = to_record(identity, stored, standing, now)
    place = Place(project=project, directory=at.directory, worktree=identity.worktree)
    if identity.id == GLOBAL_PROJECT:
        # OpenCode changes the global record to the repository without commits that was opened last. For us it belongs to no
        # repository and is written once.
        return Resolution(place=place, project=project if stored is None else None)
    alias = to_alias(identity, at, known)
    changed = alias != known.aliases.get(identity.id)
    return Resolution(
        place=place,
        project=project if project != stored else None,
        alias=alias if changed else None,
        id_file=_choose_id_file(identity, at),
        adoption=_choose_adoption(identity, at, known, project=project, changed=changed or stored is None),
    )


def to_record(
    identity: ProjectIdentity, stored: Project | None, standing: Container[str], now: int
) -> Project:
    """Return the record that the project should have; the stored one itself if nothing changes."""
    fresh = Project(
        id=identity.id,
        worktree=identity.main,
        vcs=identity.vcs,
        time=ProjectTime(created=now, updated=now),
    )
    record = stored or fresh
    sandboxes = tuple(path for path in record.sandboxes if path in standing)
    if identity.worktree not in (identity.main, *sandboxes):
        sandboxes += (identity.worktree,)
    wanted = replace(record, worktree=identity.main, vcs=identity.vcs, sandboxes=sandboxes)
    return record if wanted == record else replace(wanted, time=replace(record.time, updated=now))


def to_alias(identity: ProjectIdentity, at: Checkout, known: KnownProjects) -> ProjectAlias:
    remembered = known.aliases.get(identity.id) or ProjectAlias(worktree=identity.main)
    if not identity.at_home:
        return remembered
    return replace(
        remembered,
        worktree=at.main,
        common_dir=at.common_dir,
        inode=at.inode.number,
        roots=identity.roots,
    )


def _choose_id_file(identity: ProjectIdentity, at: Checkout) -> IdFile | None:
    if not identity.at_home or at.id == identity.id:
        return None
    return IdFile(common_dir=at.common_dir, id=identity.id)


def _choose_adoption(
    identity: ProjectIdentity, at: Checkout, known: KnownProjects, *, project: Project, changed: bool
) -> Adoption | None:
    wanted = [*([GLOBAL_PROJECT] if changed else []), *identity.sources]
    sources = dict.fromkeys(id for id in wanted if id in known.projects and id != identity.id)
    if not sources:
        return None
    tops = dict.fromkeys([identity.worktree, identity.main, *project.sandboxes])
    return Adoption(
        project=identity.id,
        sources=tuple(sources),
        tops=tuple(tops),
        common_dir=at.common_dir if identity.at_home else "",
        strangers=tuple(_list_other_homes(identity.id, known)),
    )


def _list_other_homes(id: ProjectID, known: KnownProjects) -> list[str]:
    return [alias.worktree for other, alias in known.aliases.items() if other != id]


def resolve(at: Checkout, known: KnownProjects, *, git: History, now: int) -> Resolution:
    """Return the project of a checkout. Nothing is written: the caller stores what the resolution contains."""
    roots = find_roots(at, git) if needs_roots(at, known) else None
    homes = {
        id: inspect_last_place(home, known.aliases.get(id))
        for id, home in list_rivals(at, known, roots).items()
    }
    facts = CheckoutFacts(checkout=at, roots=roots, homes=homes)
    identity = identify(facts, known)
    recorded = known.projects.get(identity.id)
    common_dir = at.common_dir if identity.at_home else ""
    standing = {
        path for path in (recorded.sandboxes if recorded else ()) if is_still_checkout(path, common_dir)
    }
    return to_resolution(identity, facts, known, standing=standing, now=now)


def find_roots(at: Checkout, git: History) -> tuple[str, ...] | None:
    """Return the root commits; None if git cannot tell, because it is missing or does not trust the files' owner."""
    try:
        return tuple(git.root_commits(at.top))
    except GitError:
        return None


def find_settled(at: Checkout, project: Project | None, alias: ProjectAlias | None) -> Resolution | None:
    """Resolve a checkout quickly from the records of the project in its id file. Return None if that is not certain."""
    if project is None or alias is None or not (at.id == project.id and _is_plain(at)):
        return None
    seen = alias.worktree == at.main and alias.common_dir == at.common_dir and alias.inode == at.inode.number
    recorded = project.worktree == at.main and project.vcs == "git"
    if (
        not seen
        or not recorded
        or not all(is_still_checkout(path, at.common_dir) for path in project.sandboxes)
    ):
        return None
    return Resolution(place=Place(project=project, directory=at.directory, worktree=at.top))


def _is_plain(at: Checkout) -> bool:
    # A subdirectory may be a project that lost its `.git`. In a linked checkout OpenCode may have used another id.
    return at.sound and not at.git_file and at.directory == at.top == at.main


def adopt_sessions(adoption: Adoption, sessions: Iterable[Session]) -> list[Session]:
    """Return the sessions that belong to the adopting project, with the new project id."""
    decided: dict[str, bool] = {}
    taken: list[Session] = []
    for session in sessions:
        directory = session.directory
        if directory not in decided:
            decided[directory] = os.path.isabs(directory) and _belongs(adoption, directory)
        if decided[directory] and session.project_id in adoption.sources:
            taken.append(replace(session, project_id=adoption.project))
    return taken


def _belongs(adoption: Adoption, directory: str) -> bool:
    try:
        return covers_checkout(adoption, inspect_checkout(os.path.realpath(directory)))
    except (OSError, ValueError):
        return False


def covers_checkout(adoption: Adoption, at: Checkout) -> bool:
    """Return True if a directory is inside one of the adopting project's checkouts, and in no other project's."""
    # OpenCode adopts only sessions in the top directory itself, and those without a directory.
    tops = [top for top in adoption.tops if is_inside(at.directory, top)]
    if not tops:
        return False
    nearest = max(tops, key=len)
    if any(
        is_inside(at.directory, each) and each != nearest and is_inside(each, nearest)
        for each in adoption.strangers
    ):
        return False
    nested = at.top and at.common_dir != adoption.common_dir and is_inside(at.top, nearest)
    return not nested or at.top == nearest
