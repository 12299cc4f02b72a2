"""What has to be stored once it is known which project a directory belongs to. Pure."""

from collections.abc import Container

from msgspec.structs import replace

from weft.model.ids import GLOBAL_PROJECT, ProjectID
from weft.model.project import Place, Project, ProjectTime
from weft.project.facts import Adoption, Alias, Checkout, Facts, IdFile, Known, Resolution, Verdict


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
