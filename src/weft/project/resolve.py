"""Find the project of a checkout, and say what has to be stored about it."""

import os
from collections.abc import Container, Iterable

from msgspec.structs import replace

from weft.errors import GitError
from weft.model.ids import GLOBAL_PROJECT, ProjectID
from weft.model.project import Place, Project, ProjectTime
from weft.model.session import Session
from weft.project.facts import (
    Adoption,
    Alias,
    Checkout,
    Facts,
    History,
    IdFile,
    Known,
    Resolution,
    Verdict,
    inside,
)
from weft.project.identify import identify, rivals, wants_roots
from weft.project.look import checkout_of, look_home, stands


def to_resolution(
    verdict: Verdict, facts: Facts, known: Known, *, standing: Container[str], now: int
) -> Resolution:
    """The place, and everything about it that the store does not have yet; `standing` sandboxes are still there."""
    at, stored = facts.checkout, known.projects.get(verdict.id)
    project = to_record(verdict, stored, standing, now)
    place = Place(project=project, directory=at.directory, worktree=verdict.worktree)
    if verdict.id == GLOBAL_PROJECT:
        # OpenCode turns the one global record to whichever repository without commits was opened last. For us it
        # belongs to none of them, and is written once.
        return Resolution(place=place, project=project if stored is None else None)
    alias = to_alias(verdict, at, known)
    changed = alias != known.aliases.get(verdict.id)
    return Resolution(
        place=place,
        project=project if project != stored else None,
        alias=alias if changed else None,
        id_file=_id_file(verdict, at),
        adoption=_adoption(verdict, at, known, project=project, changed=changed or stored is None),
    )


def to_record(verdict: Verdict, stored: Project | None, standing: Container[str], now: int) -> Project:
    """The project's record as it should be; the stored one itself if it is so already."""
    fresh = Project(
        id=verdict.id,
        worktree=verdict.main,
        vcs=verdict.vcs,
        time=ProjectTime(created=now, updated=now),
    )
    record = stored or fresh
    sandboxes = tuple(path for path in record.sandboxes if path in standing)
    if verdict.worktree not in (verdict.main, *sandboxes):
        sandboxes += (verdict.worktree,)
    wanted = replace(record, worktree=verdict.main, vcs=verdict.vcs, sandboxes=sandboxes)
    return record if wanted == record else replace(wanted, time=replace(record.time, updated=now))


def to_alias(verdict: Verdict, at: Checkout, known: Known) -> Alias:
    remembered = known.aliases.get(verdict.id) or Alias(worktree=verdict.main)
    if not verdict.at_home:
        return remembered
    return replace(
        remembered,
        worktree=at.main,
        common_dir=at.common_dir,
        inode=at.inode.number,
        roots=verdict.roots,
    )


def _id_file(verdict: Verdict, at: Checkout) -> IdFile | None:
    if not verdict.at_home or at.id == verdict.id:
        return None
    return IdFile(common_dir=at.common_dir, id=verdict.id)


def _adoption(
    verdict: Verdict, at: Checkout, known: Known, *, project: Project, changed: bool
) -> Adoption | None:
    wanted = [*([GLOBAL_PROJECT] if changed else []), *verdict.sources]
    sources = dict.fromkeys(id for id in wanted if id in known.projects and id != verdict.id)
    if not sources:
        return None
    tops = dict.fromkeys([verdict.worktree, verdict.main, *project.sandboxes])
    return Adoption(
        project=verdict.id,
        sources=tuple(sources),
        tops=tuple(tops),
        common_dir=at.common_dir if verdict.at_home else "",
        strangers=tuple(_homes_of_others(verdict.id, known)),
    )


def _homes_of_others(id: ProjectID, known: Known) -> list[str]:
    return [alias.worktree for other, alias in known.aliases.items() if other != id]


def resolve(at: Checkout, known: Known, *, git: History, now: int) -> Resolution:
    """The project a checkout belongs to. Nothing is written here: the caller stores what the resolution names."""
    roots = find_roots(at, git) if wants_roots(at, known) else None
    homes = {id: look_home(home, known.aliases.get(id)) for id, home in rivals(at, known, roots).items()}
    facts = Facts(checkout=at, roots=roots, homes=homes)
    verdict = identify(facts, known)
    recorded = known.projects.get(verdict.id)
    common_dir = at.common_dir if verdict.at_home else ""
    standing = {path for path in (recorded.sandboxes if recorded else ()) if stands(path, common_dir)}
    return to_resolution(verdict, facts, known, standing=standing, now=now)


def find_roots(at: Checkout, git: History) -> tuple[str, ...] | None:
    """The root commits, None where git cannot tell: it is not installed, or does not trust the owner of the files."""
    try:
        return tuple(git.root_commits(at.top))
    except GitError:
        return None


def find_settled(at: Checkout, project: Project | None, alias: Alias | None) -> Resolution | None:
    """The place, from the records of the one project its id file names; None if it takes a closer look."""
    if project is None or alias is None or not (at.id == project.id and _is_plain(at)):
        return None
    seen = alias.worktree == at.main and alias.common_dir == at.common_dir and alias.inode == at.inode.number
    recorded = project.worktree == at.main and project.vcs == "git"
    if not seen or not recorded or not all(stands(path, at.common_dir) for path in project.sandboxes):
        return None
    return Resolution(place=Place(project=project, directory=at.directory, worktree=at.top))


def _is_plain(at: Checkout) -> bool:
    # Deeper down there may be a project that lost its `.git`; in a linked checkout OpenCode may have gone astray.
    return at.sound and not at.git_file and at.directory == at.top == at.main


def adopted(adoption: Adoption, sessions: Iterable[Session]) -> list[Session]:
    """Those of the sessions that belong to the adopting project, as they should be stored."""
    verdicts: dict[str, bool] = {}
    taken: list[Session] = []
    for session in sessions:
        directory = session.directory
        if directory not in verdicts:
            verdicts[directory] = os.path.isabs(directory) and _belongs(adoption, directory)
        if verdicts[directory] and session.project_id in adoption.sources:
            taken.append(replace(session, project_id=adoption.project))
    return taken


def _belongs(adoption: Adoption, directory: str) -> bool:
    try:
        return takes(adoption, checkout_of(os.path.realpath(directory)))
    except (OSError, ValueError):
        return False


def takes(adoption: Adoption, at: Checkout) -> bool:
    """Whether work done at a place is the adopting project's: inside one of its checkouts, and in nobody else's."""
    # OpenCode adopts what was done in the very top directory alone, and whatever names no directory.
    tops = [top for top in adoption.tops if inside(at.directory, top)]
    if not tops:
        return False
    nearest = max(tops, key=len)
    if any(
        inside(at.directory, each) and each != nearest and inside(each, nearest)
        for each in adoption.strangers
    ):
        return False
    nested = at.top and at.common_dir != adoption.common_dir and inside(at.top, nearest)
    return not nested or at.top == nearest
