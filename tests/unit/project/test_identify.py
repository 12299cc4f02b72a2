"""Which project a checkout is, from made-up facts."""

from typing import Any

import pytest
from msgspec.structs import replace

from weft.model.ids import GLOBAL_PROJECT, ProjectID
from weft.model.project import Project, ProjectTime
from weft.project.facts import Alias, Checkout, Facts, Home, Inode, Known, Verdict, inside, spelled
from weft.project.identify import find_own, identify, rivals, wants_roots

X, Y, Z = (ProjectID(letter * 40) for letter in "abc")
NOBODY = Known(projects={}, aliases={})

HERE = Checkout(
    directory="/home/loom",
    top="/home/loom",
    main="/home/loom",
    common_dir="/home/loom/.git",
    sound=True,
    inode=Inode(number="7", device="1"),
)
PLAIN = Checkout(directory="/home/loom/src")


def record(id: ProjectID, worktree: str, **more: Any) -> Project:
    return Project(id=id, worktree=worktree, vcs="git", time=ProjectTime(created=1, updated=1), **more)


def seen(id: ProjectID, worktree: str, *, inode: str = "7", roots: tuple[str, ...] = ()) -> Known:
    """What we know after having seen a project in a directory."""
    alias = Alias(worktree=worktree, common_dir=f"{worktree}/.git", inode=inode, roots=roots)
    return Known(projects={id: record(id, worktree)}, aliases={id: alias})


def recorded(*projects: Project) -> Known:
    """What we know when only OpenCode has been at work."""
    return Known(projects={project.id: project for project in projects}, aliases={})


def home(id: str = "", *, inode: str = "8") -> Home:
    return Home(exists=True, common_dir="/elsewhere/.git", id=id, inode=Inode(number=inode, device="1"))


def id_of(
    known: Known, at: Checkout = HERE, roots: tuple[str, ...] | None = None, **homes: Home
) -> ProjectID:
    named = {ProjectID(letter * 40): found for letter, found in homes.items()}
    return identify(Facts(checkout=at, roots=roots, homes=named), known).id


def test_the_first_root_commit_names_a_new_project() -> None:
    assert identify(Facts(checkout=HERE, roots=(X, Y)), NOBODY) == Verdict(
        id=X, worktree="/home/loom", main="/home/loom", vcs="git", roots=(X, Y)
    )


@pytest.mark.parametrize("roots", [None, ()])
def test_without_a_root_commit_a_repository_is_global(roots: tuple[str, ...] | None) -> None:
    assert identify(Facts(checkout=HERE, roots=roots), NOBODY) == Verdict(
        id=GLOBAL_PROJECT, worktree="/home/loom", main="/home/loom", vcs="git"
    )


def test_without_a_repository_everything_is_global_and_vcs_may_be_faked() -> None:
    faked = replace(PLAIN, fake_vcs="git")

    assert identify(Facts(checkout=PLAIN), NOBODY) == Verdict(
        id=GLOBAL_PROJECT, worktree="/", main="/", vcs=None
    )
    assert identify(Facts(checkout=faked), NOBODY).vcs == "git"


def test_git_is_asked_only_where_files_do_not_tell() -> None:
    assert wants_roots(HERE, NOBODY)
    assert wants_roots(replace(HERE, id="silly"), NOBODY)
    assert wants_roots(HERE, seen(X, "/home/loom", inode="8"))
    assert not wants_roots(replace(HERE, id=X), NOBODY)
    assert not wants_roots(HERE, seen(X, "/home/loom"))
    assert not wants_roots(PLAIN, NOBODY)


def test_an_id_file_is_believed_if_it_names_a_commit_or_somebody_we_know() -> None:
    silly = ProjectID("proj_1")
    at = replace(HERE, id=silly)

    assert id_of(NOBODY, at, roots=(Y,)) == Y
    assert id_of(recorded(record(silly, "/gone")), at) == silly
    assert id_of(NOBODY, replace(HERE, id=X)) == X


def test_the_place_beats_a_new_root_commit() -> None:
    assert id_of(seen(X, "/home/loom"), roots=(Y,)) == X


def test_another_directory_with_other_roots_in_the_same_place_is_another_project() -> None:
    known = seen(X, "/home/loom", inode="6")

    assert id_of(known, roots=(Y,)) == Y
    assert id_of(known, roots=(X, Y)) == X
    assert id_of(known, roots=None) == X
    assert id_of(known, replace(HERE, shallow=True), roots=(Y,)) == X


def test_a_copy_of_an_id_file_is_not_believed_while_its_owner_lives() -> None:
    known, at = seen(X, "/elsewhere", inode="8"), replace(HERE, id=X)

    assert rivals(at, known, None) == {X: "/elsewhere"}
    assert id_of(known, at, a=Home()) == X
    assert id_of(known, at, a=home(Y)) == X
    assert id_of(known, at, a=home(inode="9")) == X
    copy = identify(Facts(checkout=at, homes={X: home(X)}), known)
    assert copy.id not in (X, GLOBAL_PROJECT)
    assert copy.sources == (X,)
    assert id_of(known, at, a=home(X)) == copy.id


def test_a_second_clone_gets_an_id_that_nobody_has() -> None:
    known = seen(X, "/elsewhere", inode="8")
    first = id_of(known, roots=(X,), a=home(X))
    known = Known(
        projects={**known.projects, first: record(first, "/third")},
        aliases={**known.aliases, first: Alias(worktree="/third", inode="3", roots=(X,))},
    )
    homes = {X: home(X), first: home(first)}

    second = identify(Facts(checkout=HERE, roots=(X,), homes=homes), known).id

    assert len({X, first, second}) == 3
    assert [len(first), len(second)] == [40, 40]


def test_a_root_commit_takes_the_place_of_one_project_that_is_gone() -> None:
    known = seen(Z, "/elsewhere", roots=(X,))

    assert id_of(known, roots=(X,), c=Home()) == Z
    assert id_of(known, roots=(X,), c=home(Z)) == X


def test_of_two_that_are_gone_neither_is_taken() -> None:
    known = Known(
        projects={},
        aliases={id: Alias(worktree=f"/gone/{id}", inode="1", roots=(X,)) for id in (Y, Z)},
    )

    assert id_of(known, roots=(X,), b=Home(), c=Home()) == X


def test_the_same_directory_by_another_name_is_not_a_copy() -> None:
    known, at = seen(X, "/home/LOOM"), replace(HERE, id=X)
    same = Home(exists=True, common_dir="/home/LOOM/.git", id=X, inode=HERE.inode)

    assert id_of(known, at, a=same) == X


def test_a_repository_made_anew_and_named_by_opencode_stays_what_it_was() -> None:
    known = seen(X, "/home/loom")
    known = Known(projects={**known.projects, Y: record(Y, "/home/loom")}, aliases=known.aliases)
    here = Home(exists=True, common_dir=HERE.common_dir, id=Y, inode=HERE.inode)

    verdict = identify(Facts(checkout=replace(HERE, id=Y), homes={Y: here}), known)

    assert (verdict.id, verdict.sources) == (X, (Y,))


def test_a_repository_moved_onto_anothers_place_brings_its_own_id() -> None:
    known, other = seen(X, "/home/loom", inode="6"), seen(Y, "/elsewhere")
    both = Known(projects={**known.projects, **other.projects}, aliases={**known.aliases, **other.aliases})

    assert id_of(both, replace(HERE, id=Y), b=Home()) == Y


def test_a_second_clone_removed_and_cloned_again_is_still_the_second() -> None:
    second, first = seen(Z, "/home/loom", inode="6", roots=(X,)), seen(X, "/elsewhere", inode="5")
    both = Known(projects={**second.projects, **first.projects}, aliases={**second.aliases, **first.aliases})
    named_by_opencode = replace(HERE, id=X)

    assert id_of(both, named_by_opencode, a=Home()) == Z
    moved_here = replace(named_by_opencode, inode=Inode(number="5", device="1"))
    assert id_of(both, moved_here, a=Home()) == X


def test_what_lost_its_git_is_still_itself_deep_inside_too() -> None:
    for known in (seen(X, "/home/loom"), recorded(record(X, "/home/loom"))):
        assert identify(Facts(checkout=PLAIN), known) == Verdict(
            id=X,
            worktree="/home/loom",
            main="/home/loom",
            vcs=None,
            sources=(GLOBAL_PROJECT,),
            at_home=False,
        )
    assert id_of(seen(X, "/home/loo"), PLAIN) == GLOBAL_PROJECT


def test_the_parent_of_a_bare_repository_is_not_its_home() -> None:
    bare = record(X, "/home", sandboxes=("/home/linked",))

    assert id_of(recorded(bare), PLAIN) == GLOBAL_PROJECT
    assert id_of(recorded(bare), replace(PLAIN, directory="/home/linked/src")) == X


def test_nobodys_home_is_the_root_or_the_global_project() -> None:
    known = recorded(record(X, "/"), record(GLOBAL_PROJECT, "/home/loom"))

    assert id_of(known, PLAIN) == GLOBAL_PROJECT
    assert find_own(HERE, known) is None


def test_the_nearer_of_a_repository_and_a_remembered_path_wins() -> None:
    below = replace(HERE, directory="/home/loom/inner/src", id=Y)
    inner = replace(
        below, top="/home/loom/inner", main="/home/loom/inner", common_dir="/home/loom/inner/.git"
    )

    assert id_of(seen(X, "/home/loom/inner"), below) == X
    assert id_of(seen(X, "/home/loom"), inner) == Y


def test_windows_spells_one_path_in_many_ways() -> None:
    assert len({spelled(path) for path in (r"C:\x\y", "C:/x/y", r"c:\x\y", "c:/x/y")}) == 1
    assert inside(r"C:\x\y", "c:/x")
    assert not inside(r"C:\xy", "c:/x")
    assert inside("/x", "/")
    assert spelled(r"/odd\name") == r"/odd\name"
