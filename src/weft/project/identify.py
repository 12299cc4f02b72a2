"""Which project a checkout is, decided from facts alone.

A project's id is OpenCode's, its first root commit, so that both programs see the same sessions; but a root commit is
weak evidence. It changes when history is rewritten, and clones share it. So strong evidence goes first: the id file
in the repository, and the place (path, git directory, inode) where we last saw the project. A root commit counts only
when the place it would take is empty: two live clones never become one project.
"""

import os
from importlib import import_module
from itertools import count

from weft.model.ids import GLOBAL_PROJECT, ProjectID
from weft.project.facts import Alias, Checkout, Facts, Known, Verdict, inside, is_named, spelled


def identify(facts: Facts, known: Known) -> Verdict:
    at = facts.checkout
    return _by_path(at, known) or (_by_git(facts, known) if at.sound else None) or _nowhere(at)


def wants_roots(at: Checkout, known: Known) -> bool:
    """Whether git has to be asked: neither the id file nor the place tells enough."""
    if not at.sound or is_named(at.id, known) or _by_path(at, known) is not None:
        return False
    own = find_own(at, known)
    return own is None or not _is_same_inode(at, known.aliases.get(own))


def rivals(at: Checkout, known: Known, roots: tuple[str, ...] | None) -> dict[ProjectID, str]:
    """The projects this might be although they were last seen elsewhere, and where: somebody has to go and look."""
    named = [ProjectID(at.id)] if is_named(at.id, known) else []
    return {id: home for id in [*named, *_with_roots(known, roots or ())] if (home := _home(id, known))}


def find_own(at: Checkout, known: Known) -> ProjectID | None:
    """The project last seen in this very place."""
    here = [id for id, alias in known.aliases.items() if _is_home(at, alias)]
    here = here or [id for id, path in _paths_on_record(known) if spelled(path) == spelled(at.main)]

    def preference(id: ProjectID) -> tuple[bool, bool, int, str]:
        return id == at.id, _is_same_inode(at, known.aliases.get(id)), _updated(id, known), id

    return max(here, key=preference, default=None)


# --- by path: what was a project stays one, also without its `.git` ---


def _by_path(at: Checkout, known: Known) -> Verdict | None:
    owner = _deepest_home(at, known)
    if owner is None:
        return None
    id, path = owner
    main = _home(id, known) or path
    record = known.projects.get(id)
    broken = at.top == path or (record is not None and path != main and record.vcs == "git")
    outer = [ProjectID(at.id)] if at.sound and at.id else []
    return Verdict(
        id=id,
        worktree=path,
        main=main,
        vcs="git" if broken else at.fake_vcs,
        sources=(GLOBAL_PROJECT, *outer),
        at_home=False,
    )


def _deepest_home(at: Checkout, known: Known) -> tuple[ProjectID, str] | None:
    """The nearest path upward that is a project's by memory alone: nearer than any `.git` that works."""
    paths = [(id, alias.worktree) for id, alias in known.aliases.items()]
    paths += _paths_on_record(known)
    paths += [
        (id, path) for id, it in known.projects.items() for path in it.sandboxes if id != GLOBAL_PROJECT
    ]
    if at.common_dir and not at.sound:
        paths += [(id, at.top) for id, alias in known.aliases.items() if alias.common_dir == at.common_dir]
    near = [(id, path) for id, path in paths if inside(at.directory, path) and _is_nearer(path, at)]
    return max(near, key=lambda each: (len(each[1]), _updated(each[0], known), each[0]), default=None)


def _is_nearer(path: str, at: Checkout) -> bool:
    if not at.top:
        return True
    return inside(path, at.top) and not (at.sound and inside(at.top, path))


def _paths_on_record(known: Known) -> list[tuple[ProjectID, str]]:
    """Projects only OpenCode has seen, and where. Its records of bare repositories name a directory full of
    strangers; those always list a sandbox, so records that do are not believed."""
    return [
        (id, project.worktree)
        for id, project in known.projects.items()
        if id != GLOBAL_PROJECT
        and id not in known.aliases
        and not project.sandboxes
        and project.worktree != "/"
    ]


# --- by git ---


def _by_git(facts: Facts, known: Known) -> Verdict | None:
    at, own = facts.checkout, find_own(facts.checkout, known)
    if is_named(at.id, known):
        return _by_id_file(facts, known, own)
    if own is not None and _is_still(facts, own, known):
        return _verdict(facts, known, own)
    return _by_roots(facts, known) if facts.roots else None


def _by_id_file(facts: Facts, known: Known, own: ProjectID | None) -> Verdict:
    named = ProjectID(facts.checkout.id)
    if own == named:
        return _verdict(facts, known, named)
    if own is None:
        copied = _lives_elsewhere(facts, named, known, claimed=True)
        return _separate(facts, known, named) if copied else _verdict(facts, known, named)
    return (
        _verdict(facts, known, own, named) if _outranks(facts, known, own) else _verdict(facts, known, named)
    )


def _outranks(facts: Facts, known: Known, own: ProjectID) -> bool:
    """Whether the project last seen here is meant, although the id file names another."""
    at, alias, named = facts.checkout, known.aliases.get(own), ProjectID(facts.checkout.id)
    if _lives_elsewhere(facts, named, known, claimed=True):
        return True
    if _is_same_inode(at, known.aliases.get(named)):
        return False
    # The same directory, or a clone in its place, which OpenCode then named by its root commit.
    renamed = not known.has(named) or _is_here(facts, named, known)
    return (renamed and _is_same_inode(at, alias)) or (alias is not None and named in alias.roots)


def _by_roots(facts: Facts, known: Known) -> Verdict:
    roots = facts.roots or ()
    first, related = ProjectID(roots[0]), _with_roots(known, roots)
    here = [id for id in related if _is_here(facts, id, known)]
    gone = [id for id in related if not _lives_elsewhere(facts, id, known, claimed=False)]
    for vacant in (here, gone):
        if first in vacant:
            return _verdict(facts, known, first)
        if len(vacant) == 1:
            return _verdict(facts, known, vacant[0], first)
    return (
        _separate(facts, known, first)
        if known.has(first) and first not in gone
        else _verdict(facts, known, first)
    )


def _sha1(text: bytes) -> str:
    hashlib = import_module("hashlib")  # late: few directories need it, and it loads OpenSSL
    digest: str = hashlib.sha1(text, usedforsecurity=False).hexdigest()
    return digest


def _separate(facts: Facts, known: Known, contested: ProjectID) -> Verdict:
    """An id of its own for what has the same root, or the same id file, as something that lives elsewhere."""
    # OpenCode lets all clones of a repository share one project, and each opening moves it to another directory.
    at = facts.checkout
    for attempt in count():
        named = "\0".join([contested, at.common_dir, str(attempt)])
        digest = _sha1(os.fsencode(named))
        if not known.has(digest):
            return _verdict(facts, known, ProjectID(digest), contested)
    raise AssertionError("counting has no end")


def _verdict(facts: Facts, known: Known, id: ProjectID, *sources: ProjectID) -> Verdict:
    at, alias = facts.checkout, known.aliases.get(id)
    remembered = alias.roots if alias else ()
    roots = facts.roots or remembered or tuple(each for each in sources if each != id)
    return Verdict(
        id=id,
        worktree=at.top,
        main=at.main,
        vcs="git",
        roots=roots,
        sources=(*sources, *_strays(at, known, roots)),
    )


def _strays(at: Checkout, known: Known, roots: tuple[str, ...]) -> list[ProjectID]:
    """Ids under which OpenCode records what is done in this checkout, as long as it reads no id file there."""
    if not at.git_file:
        return []
    listed = [id for id, project in known.projects.items() if at.top in project.sandboxes]
    return [*listed, *(ProjectID(root) for root in roots)]


def _nowhere(at: Checkout) -> Verdict:
    if at.top:
        return Verdict(id=GLOBAL_PROJECT, worktree=at.top, main=at.top, vcs="git")
    return Verdict(id=GLOBAL_PROJECT, worktree="/", main="/", vcs=at.fake_vcs)


# --- evidence ---


def _is_home(at: Checkout, alias: Alias) -> bool:
    return alias.common_dir == at.common_dir or spelled(alias.worktree) == spelled(at.main)


def _is_same_inode(at: Checkout, alias: Alias | None) -> bool:
    return alias is not None and alias.inode != "" and alias.inode == at.inode.number


def _is_still(facts: Facts, own: ProjectID, known: Known) -> bool:
    """Whether what is in this place now is what we saw here, not something put where it used to be."""
    at, alias = facts.checkout, known.aliases.get(own)
    if alias is None or not alias.inode or _is_same_inode(at, alias):
        return True
    # A shallow clone's roots are where it was cut off, and say nothing about whose history it is.
    return facts.roots is None or at.shallow or own in _with_roots(known, facts.roots)


def _is_here(facts: Facts, id: ProjectID, known: Known) -> bool:
    at, alias, home = facts.checkout, known.aliases.get(id), facts.homes.get(id)
    if home is not None and home.exists and (home.inode == at.inode or home.common_dir == at.common_dir):
        return True
    if alias is not None:
        return _is_home(at, alias)
    # The second is what OpenCode takes for the main checkout of a submodule or a bare repository.
    return id in known.projects and known.projects[id].worktree in (at.main, os.path.dirname(at.common_dir))


def _lives_elsewhere(facts: Facts, id: ProjectID, known: Known, *, claimed: bool) -> bool:
    """Whether a project is still where it was last seen, and that is not here. `claimed`: our id file names it."""
    home, alias = facts.homes.get(id), known.aliases.get(id)
    if home is None or not home.exists or _is_here(facts, id, known):
        return False
    if home.id:
        return home.id == id
    if alias is not None and alias.inode:
        return alias.inode == home.inode.number
    return not claimed


def _with_roots(known: Known, roots: tuple[str, ...]) -> list[ProjectID]:
    wanted = set(roots)
    ids = {*known.projects, *known.aliases} - {GLOBAL_PROJECT}
    return sorted(
        id for id in ids if id in wanted or (id in known.aliases and wanted & {*known.aliases[id].roots})
    )


def _home(id: ProjectID, known: Known) -> str:
    if id in known.aliases:
        return known.aliases[id].worktree
    return known.projects[id].worktree if id in known.projects else ""


def _updated(id: ProjectID, known: Known) -> int:
    return known.projects[id].time.updated if id in known.projects else 0
