"""What is stored about a project once it is identified."""

from msgspec.structs import replace

from weft.model.ids import GLOBAL_PROJECT, ProjectID, SessionID
from weft.model.project import Place, Project, ProjectTime
from weft.model.session import SessionInfo, SessionTime
from weft.model.wire import to_plain
from weft.project.facts import (
    Adoption,
    Checkout,
    CheckoutFacts,
    IdFile,
    Inode,
    KnownProjects,
    LastSeen,
    ProjectIdentity,
    Resolution,
    last_seen_key,
    parse_last_seen,
)
from weft.project.resolve import adopt_sessions, covers_checkout, to_resolution

X, Y = ProjectID("a" * 40), ProjectID("b" * 40)
LINKED = Checkout(
    directory="/linked/src",
    top="/linked",
    main="/loom",
    common_dir="/loom/.git",
    is_valid=True,
    git_file=True,
    id=X,
    inode=Inode(number="7", device="1"),
)
VERDICT = ProjectIdentity(id=X, worktree="/linked", main="/loom", vcs="git", roots=(X,))
SEEN = LastSeen(worktree="/loom", common_dir="/loom/.git", inode="7", roots=(X,))
GLOBAL = Project(id=GLOBAL_PROJECT, worktree="/", time=ProjectTime(created=1, updated=1))
ADOPTION = Adoption(
    project=X,
    sources=(GLOBAL_PROJECT,),
    tops=("/loom", "/linked"),
    common_dir="/loom/.git",
    other_tops=("/loom/lost",),
)


def project(updated: int, *sandboxes: str) -> Project:
    time = ProjectTime(created=1, updated=updated)
    return Project(id=X, worktree="/loom", vcs="git", name="Loom", time=time, sandboxes=sandboxes)


def resolution(stored: Project | None, seen: LastSeen | None, at: Checkout = LINKED) -> Resolution:
    projects = {GLOBAL_PROJECT: GLOBAL} | ({X: stored} if stored else {})
    known = KnownProjects(projects=projects, last_seen={X: seen} if seen else {})
    return to_resolution(
        VERDICT, CheckoutFacts(checkout=at), known, existing_sandboxes={"/linked", "/third"}, now=9
    )


def test_nothing_is_stored_without_changes() -> None:
    stored = project(5, "/linked")

    found = resolution(stored, SEEN)

    assert found == Resolution(place=Place(project=stored, directory="/linked/src", worktree="/linked"))
    assert found.is_stored


def test_a_new_checkout_is_added_and_a_missing_one_dropped() -> None:
    found = resolution(project(5, "/gone", "/third"), SEEN)

    assert found.project == found.place.project == project(9, "/third", "/linked")
    assert not found.is_stored


def test_a_new_project_is_recorded_and_adopts_global_sessions() -> None:
    found = resolution(None, None, replace(LINKED, id=""))

    fresh = Project(
        id=X, worktree="/loom", vcs="git", time=ProjectTime(created=9, updated=9), sandboxes=("/linked",)
    )
    assert found == Resolution(
        place=Place(project=fresh, directory="/linked/src", worktree="/linked"),
        project=fresh,
        last_seen=SEEN,
        id_file=IdFile(common_dir="/loom/.git", id=X),
        adoption=Adoption(
            project=X,
            sources=(GLOBAL_PROJECT,),
            tops=("/linked", "/loom"),
            common_dir="/loom/.git",
            other_tops=(),
        ),
    )


def test_the_global_record_is_written_once_and_never_changed() -> None:
    verdict = ProjectIdentity(id=GLOBAL_PROJECT, worktree="/new", main="/new", vcs="git")
    facts = CheckoutFacts(checkout=Checkout(directory="/new", top="/new"))

    first = to_resolution(
        verdict, facts, KnownProjects(projects={}, last_seen={}), existing_sandboxes=(), now=9
    )
    again = to_resolution(
        verdict,
        facts,
        KnownProjects(projects={GLOBAL_PROJECT: GLOBAL}, last_seen={}),
        existing_sandboxes=(),
        now=9,
    )

    assert first.project == first.place.project
    assert again.is_stored
    assert again.place.project.worktree == "/new"


def test_the_last_known_path_of_a_project_is_read_back_and_an_invalid_one_ignored() -> None:
    assert parse_last_seen(to_plain(SEEN)) == SEEN
    assert to_plain(SEEN) == {
        "worktree": "/loom",
        "commonDir": "/loom/.git",
        "inode": "7",
        "roots": [X],
    }
    assert [parse_last_seen(kept) for kept in (None, [], {}, {"worktree": 1})] == [None] * 4
    assert last_seen_key(X) == ("alias", X)


def test_a_project_adopts_sessions_in_its_own_checkouts_only() -> None:
    def checkout(directory: str, top: str = "", common_dir: str = "") -> Checkout:
        return Checkout(directory=directory, top=top, common_dir=common_dir)

    assert covers_checkout(ADOPTION, checkout("/loom", "/loom", "/loom/.git"))
    assert covers_checkout(ADOPTION, checkout("/loom/deep/gone", "/loom", "/loom/.git"))
    assert covers_checkout(ADOPTION, checkout("/linked", "/linked", "/loom/.git"))
    assert not covers_checkout(ADOPTION, checkout("/loomed"))
    assert not covers_checkout(ADOPTION, checkout("/"))
    assert not covers_checkout(ADOPTION, checkout("/loom/nested/src", "/loom/nested", "/loom/nested/.git"))
    assert not covers_checkout(ADOPTION, checkout("/loom/lost/src", "/loom", "/loom/.git"))


def test_a_project_without_git_adopts_sessions_in_outer_repositories() -> None:
    bare = replace(ADOPTION, common_dir="", other_tops=())

    assert covers_checkout(bare, Checkout(directory="/loom/src"))
    assert covers_checkout(bare, Checkout(directory="/loom/src", top="/", common_dir="/.git"))
    assert not covers_checkout(
        bare, Checkout(directory="/loom/src", top="/loom/src", common_dir="/loom/src/.git")
    )


def test_sessions_without_a_directory_are_not_adopted() -> None:
    def session(id: str, directory: str, project: ProjectID = GLOBAL_PROJECT) -> SessionInfo:
        time = SessionTime(created=1, updated=1)
        return SessionInfo(id=SessionID(id), project_id=project, directory=directory, time=time)

    mine = session("mine", "/loom/nowhere/to/be/found")
    others = [
        session("none", ""),
        session("relative", "loom"),
        session("nul", "/loom/\0"),
        session("y", "/loom", Y),
    ]

    assert adopt_sessions(ADOPTION, [*others, mine]) == [replace(mine, project_id=X)]
