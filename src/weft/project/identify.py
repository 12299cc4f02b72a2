"""Identify the project of a checkout (pure).

The id of a project is OpenCode's, the first root commit, so that both programs see the same sessions. But a root commit
is weak evidence: it changes when history is rewritten, and clones share it. So stronger evidence comes first: the id
file in the repository, and the place (path, git directory, inode) where the project was last seen. A root commit counts
only if no other checkout uses that id: two existing clones never become one project.
"""

import os
from importlib import import_module
from itertools import count

from weft.model.ids import GLOBAL_PROJECT, ProjectID
from weft.project.facts import (
    Checkout,
    CheckoutFacts,
    KnownProjects,
    LastSeen,
    ProjectIdentity,
    is_inside,
    is_valid_id,
    normalise_path,
)


def identify(facts: CheckoutFacts, known: KnownProjects) -> ProjectIdentity:
    """Return the project of a checkout; the global project if there is none."""
    checkout = facts.checkout
    return (
        _identify_by_path(checkout, known)
        or (_identify_by_git(facts, known) if checkout.is_valid else None)
        or _identify_as_global(checkout)
    )


def needs_roots(checkout: Checkout, known: KnownProjects) -> bool:
    """Return True if git has to be asked for root commits, because neither the id file nor the place is sufficient."""
    if (
        not checkout.is_valid
        or is_valid_id(checkout.id, known)
        or _identify_by_path(checkout, known) is not None
    ):
        return False
    project_here = find_project_here(checkout, known)
    return project_here is None or not _is_same_inode(checkout, known.last_seen.get(project_here))


def list_candidates(
    checkout: Checkout, known: KnownProjects, roots: tuple[str, ...] | None
) -> dict[ProjectID, str]:
    """Return the projects that this may be although they were last seen elsewhere, with the worktree to inspect."""
    from_id_file = [ProjectID(checkout.id)] if is_valid_id(checkout.id, known) else []
    return {
        id: worktree
        for id in [*from_id_file, *_list_projects_with_roots(known, roots or ())]
        if (worktree := _find_last_worktree(id, known))
    }


def find_project_here(checkout: Checkout, known: KnownProjects) -> ProjectID | None:
    """Return the project that was last seen in this place."""
    ids = [id for id, seen in known.last_seen.items() if _was_seen_here(checkout, seen)]
    ids = ids or [
        id
        for id, path in _list_recorded_paths(known)
        if normalise_path(path) == normalise_path(checkout.main)
    ]

    def rank(id: ProjectID) -> tuple[bool, bool, int, str]:
        return (
            id == checkout.id,
            _is_same_inode(checkout, known.last_seen.get(id)),
            _find_update_time(id, known),
            id,
        )

    return max(ids, key=rank, default=None)


# --- by path: a directory stays a project even without its `.git` ---


def _identify_by_path(checkout: Checkout, known: KnownProjects) -> ProjectIdentity | None:
    nearest = _find_nearest_directory(checkout, known)
    if nearest is None:
        return None
    id, path = nearest
    main = _find_last_worktree(id, known) or path
    record = known.projects.get(id)
    had_git = checkout.top == path or (record is not None and path != main and record.vcs == "git")
    enclosing = [ProjectID(checkout.id)] if checkout.is_valid and checkout.id else []
    return ProjectIdentity(
        id=id,
        worktree=path,
        main=main,
        vcs="git" if had_git else checkout.fake_vcs,
        sources=(GLOBAL_PROJECT, *enclosing),
        has_repository=False,
    )


def _find_nearest_directory(checkout: Checkout, known: KnownProjects) -> tuple[ProjectID, str] | None:
    """Return the nearest directory, going up, that a project is known to use. Return None if a valid `.git` is nearer."""
    paths = [(id, seen.worktree) for id, seen in known.last_seen.items()]
    paths += _list_recorded_paths(known)
    paths += [
        (id, path)
        for id, project in known.projects.items()
        for path in project.sandboxes
        if id != GLOBAL_PROJECT
    ]
    if checkout.common_dir and not checkout.is_valid:
        paths += [
            (id, checkout.top)
            for id, seen in known.last_seen.items()
            if seen.common_dir == checkout.common_dir
        ]
    candidates = [
        (id, path) for id, path in paths if is_inside(checkout.directory, path) and _is_nearer(path, checkout)
    ]
    return max(
        candidates,
        key=lambda candidate: (len(candidate[1]), _find_update_time(candidate[0], known), candidate[0]),
        default=None,
    )


def _is_nearer(path: str, checkout: Checkout) -> bool:
    if not checkout.top:
        return True
    return is_inside(path, checkout.top) and not (checkout.is_valid and is_inside(checkout.top, path))


def _list_recorded_paths(known: KnownProjects) -> list[tuple[ProjectID, str]]:
    """Return projects that only OpenCode has seen, with their place.

    OpenCode's records of bare repositories name a directory of unrelated files. Those records always list a sandbox, so
    records with sandboxes are skipped.
    """
    return [
        (id, project.worktree)
        for id, project in known.projects.items()
        if id != GLOBAL_PROJECT
        and id not in known.last_seen
        and not project.sandboxes
        and project.worktree != "/"
    ]


# --- by git ---


def _identify_by_git(facts: CheckoutFacts, known: KnownProjects) -> ProjectIdentity | None:
    checkout, project_here = facts.checkout, find_project_here(facts.checkout, known)
    if is_valid_id(checkout.id, known):
        return _identify_by_id_file(facts, known, project_here)
    if project_here is not None and _is_unchanged(facts, project_here, known):
        return _to_identity(facts, known, project_here)
    return _identify_by_roots(facts, known) if facts.roots else None


def _identify_by_id_file(
    facts: CheckoutFacts, known: KnownProjects, project_here: ProjectID | None
) -> ProjectIdentity:
    named = ProjectID(facts.checkout.id)
    if project_here == named:
        return _to_identity(facts, known, named)
    if project_here is None:
        copied = _exists_elsewhere(facts, named, known, named_by_id_file=True)
        return _make_separate_id(facts, known, named) if copied else _to_identity(facts, known, named)
    return (
        _to_identity(facts, known, project_here, named)
        if _overrides_id_file(facts, known, project_here)
        else _to_identity(facts, known, named)
    )


def _overrides_id_file(facts: CheckoutFacts, known: KnownProjects, project_here: ProjectID) -> bool:
    """Return True if this is `project_here`, the project last seen here, although the id file names another one."""
    checkout, seen, named = facts.checkout, known.last_seen.get(project_here), ProjectID(facts.checkout.id)
    if _exists_elsewhere(facts, named, known, named_by_id_file=True):
        return True
    if _is_same_inode(checkout, known.last_seen.get(named)):
        return False
    # Either the same directory, or a clone in its place that OpenCode then named by its root commit.
    renamed = not known.has(named) or _is_here(facts, named, known)
    return (renamed and _is_same_inode(checkout, seen)) or (seen is not None and named in seen.roots)


def _identify_by_roots(facts: CheckoutFacts, known: KnownProjects) -> ProjectIdentity:
    roots = facts.roots or ()
    first, related = ProjectID(roots[0]), _list_projects_with_roots(known, roots)
    seen_here = [id for id in related if _is_here(facts, id, known)]
    gone = [id for id in related if not _exists_elsewhere(facts, id, known, named_by_id_file=False)]
    for candidates in (seen_here, gone):
        if first in candidates:
            return _to_identity(facts, known, first)
        if len(candidates) == 1:
            return _to_identity(facts, known, candidates[0], first)
    return (
        _make_separate_id(facts, known, first)
        if known.has(first) and first not in gone
        else _to_identity(facts, known, first)
    )


def _sha1(text: bytes) -> str:
    hashlib = import_module("hashlib")  # late: it loads OpenSSL, and few directories need it
    digest: str = hashlib.sha1(text, usedforsecurity=False).hexdigest()
    return digest


def _make_separate_id(facts: CheckoutFacts, known: KnownProjects, contested: ProjectID) -> ProjectIdentity:
    """Make a separate id for a checkout with the same root commit or id file as one that exists elsewhere."""
    # In OpenCode all clones of a repository share one project, and each opening moves it to another directory.
    checkout = facts.checkout
    for attempt in count():
        seed = "\0".join([contested, checkout.common_dir, str(attempt)])
        digest = _sha1(os.fsencode(seed))
        if not known.has(digest):
            return _to_identity(facts, known, ProjectID(digest), contested)
    raise AssertionError("counting has no end")


def _to_identity(
    facts: CheckoutFacts, known: KnownProjects, id: ProjectID, *sources: ProjectID
) -> ProjectIdentity:
    checkout, seen = facts.checkout, known.last_seen.get(id)
    recorded_roots = seen.roots if seen else ()
    roots = facts.roots or recorded_roots or tuple(source for source in sources if source != id)
    return ProjectIdentity(
        id=id,
        worktree=checkout.top,
        main=checkout.main,
        vcs="git",
        roots=roots,
        sources=(*sources, *_list_other_ids(checkout, known, roots)),
    )


def _list_other_ids(checkout: Checkout, known: KnownProjects, roots: tuple[str, ...]) -> list[ProjectID]:
    """Return ids under which OpenCode records sessions in this checkout, because it reads no id file there."""
    if not checkout.git_file:
        return []
    listed = [id for id, project in known.projects.items() if checkout.top in project.sandboxes]
    return [*listed, *(ProjectID(root) for root in roots)]


def _identify_as_global(checkout: Checkout) -> ProjectIdentity:
    if checkout.top:
        return ProjectIdentity(id=GLOBAL_PROJECT, worktree=checkout.top, main=checkout.top, vcs="git")
    return ProjectIdentity(id=GLOBAL_PROJECT, worktree="/", main="/", vcs=checkout.fake_vcs)


# --- evidence ---


def _was_seen_here(checkout: Checkout, seen: LastSeen) -> bool:
    return seen.common_dir == checkout.common_dir or normalise_path(seen.worktree) == normalise_path(
        checkout.main
    )


def _is_same_inode(checkout: Checkout, seen: LastSeen | None) -> bool:
    return seen is not None and seen.inode != "" and seen.inode == checkout.inode.number


def _is_unchanged(facts: CheckoutFacts, project_here: ProjectID, known: KnownProjects) -> bool:
    """Return True if the repository that was seen here is still here, and no other has taken its place."""
    checkout, seen = facts.checkout, known.last_seen.get(project_here)
    if seen is None or not seen.inode or _is_same_inode(checkout, seen):
        return True
    # The roots of a shallow clone are where its history was cut off, so they do not identify it.
    return (
        facts.roots is None
        or checkout.shallow
        or project_here in _list_projects_with_roots(known, facts.roots)
    )


def _is_here(facts: CheckoutFacts, id: ProjectID, known: KnownProjects) -> bool:
    checkout, seen, location = facts.checkout, known.last_seen.get(id), facts.last_locations.get(id)
    if (
        location is not None
        and location.exists
        and (location.inode == checkout.inode or location.common_dir == checkout.common_dir)
    ):
        return True
    if seen is not None:
        return _was_seen_here(checkout, seen)
    # The second path is what OpenCode takes for the main checkout of a submodule or bare repository.
    return id in known.projects and known.projects[id].worktree in (
        checkout.main,
        os.path.dirname(checkout.common_dir),
    )


def _exists_elsewhere(
    facts: CheckoutFacts, id: ProjectID, known: KnownProjects, *, named_by_id_file: bool
) -> bool:
    """Return True if a project still exists in another place. `named_by_id_file` says that the id file here names it."""
    location, seen = facts.last_locations.get(id), known.last_seen.get(id)
    if location is None or not location.exists or _is_here(facts, id, known):
        return False
    if location.id:
        return location.id == id
    if seen is not None and seen.inode:
        return seen.inode == location.inode.number
    return not named_by_id_file


def _list_projects_with_roots(known: KnownProjects, roots: tuple[str, ...]) -> list[ProjectID]:
    commits = set(roots)
    ids = {*known.projects, *known.last_seen} - {GLOBAL_PROJECT}
    return sorted(
        id
        for id in ids
        if id in commits or (id in known.last_seen and commits & {*known.last_seen[id].roots})
    )


def _find_last_worktree(id: ProjectID, known: KnownProjects) -> str:
    if id in known.last_seen:
        return known.last_seen[id].worktree
    return known.projects[id].worktree if id in known.projects else ""


def _find_update_time(id: ProjectID, known: KnownProjects) -> int:
    return known.projects[id].time.updated if id in known.projects else 0
