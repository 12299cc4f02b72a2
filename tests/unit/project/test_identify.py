"""Identify the project of a checkout from given facts."""

from typing import Any

import pytest
from msgspec.structs import replace

from weft.model.ids import GLOBAL_PROJECT, ProjectID
from weft.model.project import Project, ProjectTime
from weft.project.facts import (
    Checkout,
    CheckoutFacts,
    Inode,
    KnownProjects,
    LastLocation,
    LastSeen,
    ProjectIdentity,
    is_inside,
    normalise_path,
)
from weft.project.identify import find_project_here, identify, list_candidates, needs_roots

X, Y, Z = (ProjectID(letter * 40) for letter in "abc")
NOBODY = KnownProjects(projects={}, last_seen={})

HERE = Checkout(
    directory="/home/loom",
    top="/home/loom",
    main="/home/loom",
    common_dir="/home/loom/.git",
    is_valid=True,
    inode=Inode(number="7", device="1"),
)
PLAIN = Checkout(directory="/home/loom/src")


def record(id: ProjectID, worktree: str, **more: Any) -> Project:
    return Project(id=id, worktree=worktree, vcs="git", time=ProjectTime(created=1, updated=1), **more)


def known_after(
    id: ProjectID, worktree: str, *, inode: str = "7", roots: tuple[str, ...] = ()
) -> KnownProjects:
    """Return what is known after a project was seen in a directory."""
    seen = LastSeen(worktree=worktree, common_dir=f"{worktree}/.git", inode=inode, roots=roots)
    return KnownProjects(projects={id: record(id, worktree)}, last_seen={id: seen})


def known_to_opencode(*projects: Project) -> KnownProjects:
    """Return what is known if only OpenCode has recorded projects."""
    return KnownProjects(projects={project.id: project for project in projects}, last_seen={})


def home(id: str = "", *, inode: str = "8") -> LastLocation:
    return LastLocation(
        exists=True, common_dir="/elsewhere/.git", id=id, inode=Inode(number=inode, device="1")
    )


def id_of(
    known: KnownProjects,
    at: Checkout = HERE,
    roots: tuple[str, ...] | None = None,
    **last_locations: LastLocation,
) -> ProjectID:
    named = {ProjectID(letter * 40): found for letter, found in last_locations.items()}
    return identify(CheckoutFacts(checkout=at, roots=roots, last_locations=named), known).id


def test_the_first_root_commit_names_a_new_project() -> None:
    assert identify(CheckoutFacts(checkout=HERE, roots=(X, Y)), NOBODY) == ProjectIdentity(
        id=X, worktree="/home/loom", main="/home/loom", vcs="git", roots=(X, Y)
    )


@pytest.mark.parametrize("roots", [None, ()])
def test_without_a_root_commit_a_repository_is_global(roots: tuple[str, ...] | None) -> None:
    assert identify(CheckoutFacts(checkout=HERE, roots=roots), NOBODY) == ProjectIdentity(
        id=GLOBAL_PROJECT, worktree="/home/loom", main="/home/loom", vcs="git"
    )


def test_without_a_repository_everything_is_global_and_vcs_may_be_faked() -> None:
    faked = replace(PLAIN, fake_vcs="git")

    assert identify(CheckoutFacts(checkout=PLAIN), NOBODY) == ProjectIdentity(
        id=GLOBAL_PROJECT, worktree="/", main="/", vcs=None
    )
    assert identify(CheckoutFacts(checkout=faked), NOBODY).vcs == "git"


def test_git_is_called_only_if_files_do_not_suffice() -> None:
    assert needs_roots(HERE, NOBODY)
    assert needs_roots(replace(HERE, id="silly"), NOBODY)
    assert needs_roots(HERE, known_after(X, "/home/loom", inode="8"))
    assert not needs_roots(replace(HERE, id=X), NOBODY)
    assert not needs_roots(HERE, known_after(X, "/home/loom"))
    assert not needs_roots(PLAIN, NOBODY)


def test_an_id_file_is_trusted_if_it_names_a_commit_or_a_known_project() -> None:
    silly = ProjectID("proj_1")
    at = replace(HERE, id=silly)

    assert id_of(NOBODY, at, roots=(Y,)) == Y
    assert id_of(known_to_opencode(record(silly, "/gone")), at) == silly
    assert id_of(NOBODY, replace(HERE, id=X)) == X


def test_the_known_path_beats_a_new_root_commit() -> None:
    assert id_of(known_after(X, "/home/loom"), roots=(Y,)) == X


def test_other_roots_in_the_same_path_are_another_project() -> None:
    known = known_after(X, "/home/loom", inode="6")

    assert id_of(known, roots=(Y,)) == Y
    assert id_of(known, roots=(X, Y)) == X
    assert id_of(known, roots=None) == X
    assert id_of(known, replace(HERE, shallow=True), roots=(Y,)) == X


def test_a_copied_id_file_is_not_trusted_while_the_original_exists() -> None:
    known, at = known_after(X, "/elsewhere", inode="8"), replace(HERE, id=X)

    assert list_candidates(at, known, None) == {X: "/elsewhere"}
    assert id_of(known, at, a=LastLocation()) == X
    assert id_of(known, at, a=home(Y)) == X
    assert id_of(known, at, a=home(inode="9")) == X
    copy = identify(CheckoutFacts(checkout=at, last_locations={X: home(X)}), known)
    assert copy.id not in (X, GLOBAL_PROJECT)
    assert copy.sources == (X,)
    assert id_of(known, at, a=home(X)) == copy.id


def test_a_second_clone_gets_an_unused_id() -> None:
    known = known_after(X, "/elsewhere", inode="8")
    first = id_of(known, roots=(X,), a=home(X))
    known = KnownProjects(
        projects={**known.projects, first: record(first, "/third")},
        last_seen={**known.last_seen, first: LastSeen(worktree="/third", inode="3", roots=(X,))},
    )
    last_locations = {X: home(X), first: home(first)}

    second = identify(CheckoutFacts(checkout=HERE, roots=(X,), last_locations=last_locations), known).id

    assert len({X, first, second}) == 3
    assert [len(first), len(second)] == [40, 40]


def test_a_root_commit_identifies_the_only_missing_project() -> None:
    known = known_after(Z, "/elsewhere", roots=(X,))

    assert id_of(known, roots=(X,), c=LastLocation()) == Z
    assert id_of(known, roots=(X,), c=home(Z)) == X


def test_if_two_projects_are_missing_neither_is_chosen() -> None:
    known = KnownProjects(
        projects={},
        last_seen={id: LastSeen(worktree=f"/gone/{id}", inode="1", roots=(X,)) for id in (Y, Z)},
    )

    assert id_of(known, roots=(X,), b=LastLocation(), c=LastLocation()) == X


def test_the_same_directory_by_another_name_is_not_a_copy() -> None:
    known, at = known_after(X, "/home/LOOM"), replace(HERE, id=X)
    same = LastLocation(exists=True, common_dir="/home/LOOM/.git", id=X, inode=HERE.inode)

    assert id_of(known, at, a=same) == X


def test_a_repository_created_again_and_named_by_opencode_keeps_its_project() -> None:
    known = known_after(X, "/home/loom")
    known = KnownProjects(projects={**known.projects, Y: record(Y, "/home/loom")}, last_seen=known.last_seen)
    here = LastLocation(exists=True, common_dir=HERE.common_dir, id=Y, inode=HERE.inode)

    verdict = identify(CheckoutFacts(checkout=replace(HERE, id=Y), last_locations={Y: here}), known)

    assert (verdict.id, verdict.sources) == (X, (Y,))


def test_a_repository_moved_to_the_path_of_another_keeps_its_id() -> None:
    known, other = known_after(X, "/home/loom", inode="6"), known_after(Y, "/elsewhere")
    both = KnownProjects(
        projects={**known.projects, **other.projects}, last_seen={**known.last_seen, **other.last_seen}
    )

    assert id_of(both, replace(HERE, id=Y), b=LastLocation()) == Y


def test_a_second_clone_that_is_cloned_again_keeps_its_project() -> None:
    second, first = (
        known_after(Z, "/home/loom", inode="6", roots=(X,)),
        known_after(X, "/elsewhere", inode="5"),
    )
    both = KnownProjects(
        projects={**second.projects, **first.projects}, last_seen={**second.last_seen, **first.last_seen}
    )
    named_by_opencode = replace(HERE, id=X)

    assert id_of(both, named_by_opencode, a=LastLocation()) == Z
    moved_here = replace(named_by_opencode, inode=Inode(number="5", device="1"))
    assert id_of(both, moved_here, a=LastLocation()) == X


def test_a_directory_that_lost_its_git_keeps_its_project_in_subdirectories_too() -> None:
    for known in (known_after(X, "/home/loom"), known_to_opencode(record(X, "/home/loom"))):
        assert identify(CheckoutFacts(checkout=PLAIN), known) == ProjectIdentity(
            id=X,
            worktree="/home/loom",
            main="/home/loom",
            vcs=None,
            sources=(GLOBAL_PROJECT,),
            has_repository=False,
        )
    assert id_of(known_after(X, "/home/loo"), PLAIN) == GLOBAL_PROJECT


def test_the_parent_of_a_bare_repository_is_not_its_worktree() -> None:
    bare = record(X, "/home", sandboxes=("/home/linked",))

    assert id_of(known_to_opencode(bare), PLAIN) == GLOBAL_PROJECT
    assert id_of(known_to_opencode(bare), replace(PLAIN, directory="/home/linked/src")) == X


def test_the_root_directory_is_never_a_worktree() -> None:
    known = known_to_opencode(record(X, "/"), record(GLOBAL_PROJECT, "/home/loom"))

    assert id_of(known, PLAIN) == GLOBAL_PROJECT
    assert find_project_here(HERE, known) is None


def test_the_nearer_of_a_repository_and_a_known_path_wins() -> None:
    below = replace(HERE, directory="/home/loom/inner/src", id=Y)
    inner = replace(
        below, top="/home/loom/inner", main="/home/loom/inner", common_dir="/home/loom/inner/.git"
    )

    assert id_of(known_after(X, "/home/loom/inner"), below) == X
    assert id_of(known_after(X, "/home/loom"), inner) == Y


def test_windows_paths_are_compared_in_normal_form() -> None:
    assert len({normalise_path(path) for path in (r"C:\x\y", "C:/x/y", r"c:\x\y", "c:/x/y")}) == 1
    assert is_inside(r"C:\x\y", "c:/x")
    assert not is_inside(r"C:\xy", "c:/x")
    assert is_inside("/x", "/")
    assert normalise_path(r"/odd\name") == r"/odd\name"
