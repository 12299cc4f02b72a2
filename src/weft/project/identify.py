"""Identify the project of a checkout. Pure.

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
    ProjectAlias,
    ProjectIdentity,
    is_inside,
    is_valid_id,
    normalise_path,
)


def identify(facts: CheckoutFacts, known: KnownProjects) -> ProjectIdentity:
    """Return the project of a checkout; the global project if there is none."""
    at = facts.checkout
    return (
        _identify_by_path(at, known)
        or (_identify_by_git(facts, known) if at.sound else None)
        or _identify_global(at)
    )


def needs_roots(at: Checkout, known: KnownProjects) -> bool:
    """Return True if git has to be asked for root commits, because neither the id file nor the place is sufficient."""
    if not at.sound or is_valid_id(at.id, known) or _identify_by_path(at, known) is not None:
        return False
    own = find_own(at, known)
    return own is None or not _is_same_inode(at, known.aliases.get(own))


def list_rivals(at: Checkout, known: KnownProjects, roots: tuple[str, ...] | None) -> dict[ProjectID, str]:
    """Return projects that this might be although they were last seen elsewhere, with the place to inspect."""
    named = [ProjectID(at.id)] if is_valid_id(at.id, known) else []
    return {
        id: home for id in [*named, *_list_with_roots(known, roots or ())] if (home := _find_home(id, known))
    }


def find_own(at: Checkout, known: KnownProjects) -> ProjectID | None:
    """Return the project that was last seen in this place."""
    here = [id for id, alias in known.aliases.items() if _is_home(at, alias)]
    here = here or [
        id for id, path in _list_recorded_paths(known) if normalise_path(path) == normalise_path(at.main)
    ]

    def preference(id: ProjectID) -> tuple[bool, bool, int, str]:
        return id == at.id, _is_same_inode(at, known.aliases.get(id)), _find_update_time(id, known), id

    return max(here, key=preference, default=None)


# --- by path: a directory stays a project even without its `.git` ---


def _identify_by_path(at: Checkout, known: KnownProjects) -> ProjectIdentity | None:
    owner = _deepest_home(at, known)
    if owner is None:
        return None
    id, path = owner
    main = _find_home(id, known) or path
    record = known.projects.get(id)
    broken = at.top == path or (record is not None and path != main and record.vcs == "git")
    outer = [ProjectID(at.id)] if at.sound and at.id else []
    return ProjectIdentity(
        id=id,
        worktree=path,
        main=main,
        vcs="git" if broken else at.fake_vcs,
        sources=(GLOBAL_PROJECT, *outer),
        at_home=False,
    )


def _deepest_home(at: Checkout, known: KnownProjects) -> tuple[ProjectID, str] | None:
    """Return the nearest directory, going up, that is known as a project's, unless a working `.git` is nearer."""
    paths = [(id, alias.worktree) for id, alias in known.aliases.items()]
    paths += _list_recorded_paths(known)
    paths += [
        (id, path) for id, it in known.projects.items() for path in it.sandboxes if id != GLOBAL_PROJECT
    ]
    if at.common_dir and not at.sound:
        paths += [(id, at.top) for id, alias in known.aliases.items() if alias.common_dir == at.common_dir]
    near = [(id, path) for id, path in paths if is_inside(at.directory, path) and _is_nearer(path, at)]
    return max(
        near, key=lambda each: (len(each[1]), _find_update_time(each[0], known), each[0]), default=None
    )


def _is_nearer(path: str, at: Checkout) -> bool:
    if not at.top:
        return True
    return is_inside(path, at.top) and not (at.sound and is_inside(at.top, path))


def _list_recorded_paths(known: KnownProjects) -> list[tuple[ProjectID, str]]:
    """Return projects that only OpenCode has seen, with their place.

    OpenCode's records of bare repositories name a directory of unrelated files. Those records always list a sandbox, so
    records with sandboxes are skipped.
    """
    return [
        (id, project.worktree)
        for id, project in known.projects.items()
        if id != GLOBAL_PROJECT
        and id not in known.aliases
        and not project.sandboxes
        and project.worktree != "/"
    ]


# --- by git ---


def _identify_by_git(facts: CheckoutFacts, known: KnownProjects) -> ProjectIdentity | None:
    at, own = facts.checkout, find_own(facts.checkout, known)
    if is_valid_id(at.id, known):
        return _identify_by_id_file(facts, known, own)
    if own is not None and _is_unchanged(facts, own, known):
        return _to_identity(facts, known, own)
    return _identify_by_roots(facts, known) if facts.roots else None


def _identify_by_id_file(
    facts: CheckoutFacts, known: KnownProjects, own: ProjectID | None
) -> ProjectIdentity:
    named = ProjectID(facts.checkout.id)
    if own == named:
        return _to_identity(facts, known, named)
    if own is None:
        copied = _lives_elsewhere(facts, named, known, claimed=True)
        return _make_separate_id(facts, known, named) if copied else _to_identity(facts, known, named)
    return (
        _to_identity(facts, known, own, named)
        if _outranks(facts, known, own)
        else _to_identity(facts, known, named)
    )


def _outranks(facts: CheckoutFacts, known: KnownProjects, own: ProjectID) -> bool:
    """Return True if the project last seen here is meant, although the id file names another one."""
    at, alias, named = facts.checkout, known.aliases.get(own), ProjectID(facts.checkout.id)
    if _lives_elsewhere(facts, named, known, claimed=True):
        return True
    if _is_same_inode(at, known.aliases.get(named)):
        return False
    # Either the same directory, or a clone in its place that OpenCode then named by its root commit.
    renamed = not known.has(named) or _is_here(facts, named, known)
    return (renamed and _is_same_inode(at, alias)) or (alias is not None and named in alias.roots)


def _identify_by_roots(facts: CheckoutFacts, known: KnownProjects) -> ProjectIdentity:
    roots = facts.roots or ()
    first, related = ProjectID(roots[0]), _list_with_roots(known, roots)
    here = [id for id in related if _is_here(facts, id, known)]
    gone = [id for id in related if not _lives_elsewhere(facts, id, known, claimed=False)]
    for vacant in (here, gone):
        if first in vacant:
            return _to_identity(facts, known, first)
        if len(vacant) == 1:
            return _to_identity(facts, known, vacant[0], first)
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
    at = facts.checkout
    for attempt in count():
        named = "\0".join([contested, at.common_dir, str(attempt)])
        digest = _sha1(os.fsencode(named))
        if not known.has(digest):
            return _to_identity(facts, known, ProjectID(digest), contested)
    raise AssertionError("counting has no end")


def _to_identity(
    facts: CheckoutFacts, known: KnownProjects, id: ProjectID, *sources: ProjectID
) -> ProjectIdentity:
    at, alias = facts.checkout, known.aliases.get(id)
    remembered = alias.roots if alias else ()
    roots = facts.roots or remembered or tuple(each for each in sources if each != id)
    return ProjectIdentity(
        id=id,
        worktree=at.top,
        main=at.main,
        vcs="git",
        roots=roots,
        sources=(*sources, *_list_other_ids(at, known, roots)),
    )


def _list_other_ids(at: Checkout, known: KnownProjects, roots: tuple[str, ...]) -> list[ProjectID]:
    """Return ids under which OpenCode records sessions in this checkout, because it reads no id file there."""
    if not at.git_file:
        return []
    listed = [id for id, project in known.projects.items() if at.top in project.sandboxes]
    return [*listed, *(ProjectID(root) for root in roots)]


def _identify_global(at: Checkout) -> ProjectIdentity:
    if at.top:
        return ProjectIdentity(id=GLOBAL_PROJECT, worktree=at.top, main=at.top, vcs="git")
    return ProjectIdentity(id=GLOBAL_PROJECT, worktree="/", main="/", vcs=at.fake_vcs)


# --- evidence ---


def _is_home(at: Checkout, alias: ProjectAlias) -> bool:
    return alias.common_dir == at.common_dir or normalise_path(alias.worktree) == normalise_path(at.main)


def _is_same_inode(at: Checkout, alias: ProjectAlias | None) -> bool:
    return alias is not None and alias.inode != "" and alias.inode == at.inode.number


def _is_unchanged(facts: CheckoutFacts, own: ProjectID, known: KnownProjects) -> bool:
    """Return True if this place still has the repository that was seen here, and not another one in its place."""
    at, alias = facts.checkout, known.aliases.get(own)
    if alias is None or not alias.inode or _is_same_inode(at, alias):
        return True
    # The roots of a shallow clone are where its history was cut off, so they do not identify it.
    return facts.roots is None or at.shallow or own in _list_with_roots(known, facts.roots)


def _is_here(facts: CheckoutFacts, id: ProjectID, known: KnownProjects) -> bool:
    at, alias, home = facts.checkout, known.aliases.get(id), facts.homes.get(id)
    if home is not None and home.exists and (home.inode == at.inode or home.common_dir == at.common_dir):
        return True
    if alias is not None:
        return _is_home(at, alias)
    # The second path is what OpenCode takes for the main checkout of a submodule or bare repository.
    return id in known.projects and known.projects[id].worktree in (at.main, os.path.dirname(at.common_dir))


def _lives_elsewhere(facts: CheckoutFacts, id: ProjectID, known: KnownProjects, *, claimed: bool) -> bool:
    """Return True if a project still exists in another place. `claimed` means that our id file names it."""
    home, alias = facts.homes.get(id), known.aliases.get(id)
    if home is None or not home.exists or _is_here(facts, id, known):
        return False
    if home.id:
        return home.id == id
    if alias is not None and alias.inode:
        return alias.inode == home.inode.number
    return not claimed


def _list_with_roots(known: KnownProjects, roots: tuple[str, ...]) -> list[ProjectID]:
    wanted = set(roots)
    ids = {*known.projects, *known.aliases} - {GLOBAL_PROJECT}
    return sorted(
        id for id in ids if id in wanted or (id in known.aliases and wanted & {*known.aliases[id].roots})
    )


def _find_home(id: ProjectID, known: KnownProjects) -> str:
    if id in known.aliases:
        return known.aliases[id].worktree
    return known.projects[id].worktree if id in known.projects else ""


def _find_update_time(id: ProjectID, known: KnownProjects) -> int:
    return known.projects[id].time.updated if id in known.projects else 0
