"""Identify the project of a directory, on a real disk with real git: sessions survive every change of a repository."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.errors import GitError
from weft.host.git import Git
from weft.model.ids import GLOBAL_PROJECT, ProjectID, SessionID
from weft.model.project import Place, Project, ProjectTime
from weft.model.session import SessionInfo, SessionTime
from weft.model.wire import to_plain
from weft.project.checkout import find_checkout, write_id
from weft.project.facts import KnownProjects, LastSeen, Resolution, RootCommits, parse_last_seen
from weft.project.resolve import adopt_sessions, find_stored, resolve

NOW = 1_790_000_000_000
AUTHOR = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def run(where: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *args],
        cwd=where,
        env=os.environ | AUTHOR,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def init(where: Path, *, commit: str = "one") -> Path:
    where.mkdir(exist_ok=True, parents=True)
    run(where, "init", "-q", "-b", "main")
    if commit:
        run(where, "commit", "-q", "--allow-empty", "-m", commit)
    return where


def clone(source: Path, target: Path) -> Path:
    run(source, "clone", "-q", str(source), str(target))
    return target


class NoGit:
    def root_commits(self, worktree: str) -> list[str]:
        raise GitError(["-C", worktree, "rev-list"], 127, "cannot be started")


class ProjectHarness:
    """A store in three dictionaries, and the steps of a caller of `resolve`."""

    def __init__(self) -> None:
        self.git: RootCommits = Git(os.environ)
        self.projects: dict[ProjectID, Project] = {}
        self.last_seen: dict[ProjectID, LastSeen] = {}
        self.sessions: dict[SessionID, SessionInfo] = {}

    def resolve(self, directory: Path | str) -> Resolution:
        at = find_checkout(str(directory))
        known = KnownProjects(projects=self.projects, last_seen=self.last_seen)
        found = resolve(at, known, git=self.git, now=NOW)
        id = ProjectID(at.id)
        short = find_stored(at, self.projects.get(id), self.last_seen.get(id))
        assert short in (None, found), "the short way leads elsewhere"
        return found

    def open(self, directory: Path | str) -> Place:
        found = self.resolve(directory)
        self.store(found)
        again = self.resolve(directory)
        assert again.place == found.place
        assert (again.project, again.last_seen, again.id_file) == (None, None, None)
        return found.place

    def store(self, found: Resolution) -> None:
        id = found.place.project.id
        if found.project is not None:
            self.projects[id] = found.project
        if found.last_seen is not None:
            kept = parse_last_seen(to_plain(found.last_seen))
            assert kept == found.last_seen
            self.last_seen[id] = kept
        if found.id_file is not None:
            write_id(found.id_file)
        if found.adoption is not None:
            for session in adopt_sessions(found.adoption, list(self.sessions.values())):
                self.sessions[session.id] = session

    def add_sessions(self, directory: Path | str, *titles: str) -> None:
        """Make sessions in a directory, each with its title as its id."""
        for title in titles:
            place = self.open(directory)
            self.record(place.project.id, title, place.directory)

    def record(self, project: str, title: str, directory: Path | str) -> None:
        self.sessions[SessionID(title)] = SessionInfo(
            id=SessionID(title),
            project_id=ProjectID(project),
            directory=str(directory),
            title=title,
            time=SessionTime(created=NOW, updated=NOW),
        )

    def list_titles(self, directory: Path | str) -> set[str]:
        id = self.open(directory).project.id
        return {session.title for session in self.sessions.values() if session.project_id == id}


@pytest.fixture
def harness() -> ProjectHarness:
    return ProjectHarness()


# --- as in OpenCode ---


def test_a_repository_without_commits_is_global_and_has_no_id(
    harness: ProjectHarness, tmp_path: Path
) -> None:
    repository = init(tmp_path / "loom", commit="")

    place = harness.open(repository)

    assert place == Place(
        directory=str(repository),
        worktree=str(repository),
        project=Project(
            id=GLOBAL_PROJECT,
            worktree=str(repository),
            vcs="git",
            time=ProjectTime(created=NOW, updated=NOW),
        ),
    )
    assert not (repository / ".git" / "opencode").exists()


def test_a_repository_is_identified_by_its_root_commit_and_the_id_file_says_so(
    harness: ProjectHarness, tmp_path: Path
) -> None:
    repository = init(tmp_path / "loom")
    (repository / "src").mkdir()
    root = run(repository, "rev-parse", "HEAD")

    place = harness.open(repository / "src")

    assert place == Place(
        directory=str(repository / "src"),
        worktree=str(repository),
        project=Project(
            id=ProjectID(root),
            worktree=str(repository),
            vcs="git",
            time=ProjectTime(created=NOW, updated=NOW),
        ),
    )
    assert (repository / ".git" / "opencode").read_bytes() == root.encode()


def test_a_linked_worktree_is_a_sandbox_of_the_main_project(harness: ProjectHarness, tmp_path: Path) -> None:
    repository, linked = init(tmp_path / "loom"), tmp_path / "linked"
    run(repository, "worktree", "add", "-q", str(linked))
    root = run(repository, "rev-parse", "HEAD")

    place = harness.open(linked)

    assert place.worktree == str(linked)
    assert (place.project.id, place.project.worktree) == (root, str(repository))
    assert place.project.sandboxes == (str(linked),)
    assert (repository / ".git" / "opencode").read_text() == root

    run(repository, "worktree", "remove", str(linked))
    assert harness.open(repository).project.sandboxes == ()


def test_everything_outside_of_repositories_is_global(harness: ProjectHarness, tmp_path: Path) -> None:
    place = harness.open(tmp_path)

    assert (place.project.id, place.project.worktree, place.project.vcs) == (GLOBAL_PROJECT, "/", None)
    assert place.worktree == "/"
    assert harness.resolve(tmp_path).is_stored


def test_an_unchanged_repository_needs_only_its_own_two_records(
    harness: ProjectHarness, tmp_path: Path
) -> None:
    repository = init(tmp_path / "loom")
    place = harness.open(repository)
    id = place.project.id

    at = find_checkout(f"{repository}/")

    assert find_stored(at, harness.projects[id], harness.last_seen[id]) == Resolution(place=place)
    assert find_stored(at, None, None) is None
    assert find_stored(at, harness.projects[id], None) is None


def test_identifying_a_project_without_git_imports_only_what_it_needs() -> None:
    modules = "asyncio subprocess hashlib pathlib weft.host.git"
    code = f"import sys, weft.project.checkout, weft.project.resolve; print([m for m in {modules.split()} if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "[]"


# --- the events after which sessions used to vanish ---


def rewrite_root(where: Path) -> Path:
    run(where, "checkout", "-q", "--orphan", "fresh")
    run(where, "commit", "-q", "--allow-empty", "-m", "rewritten")
    run(where, "branch", "-q", "-D", "main")
    return where


def make_anew(where: Path) -> Path:
    shutil.rmtree(where / ".git")
    return init(where, commit="made anew")


def orphan_branches(where: Path) -> Path:
    for name in "abcdef":
        run(where, "checkout", "-q", "--orphan", name)
        run(where, "commit", "-q", "--allow-empty", "-m", name)
    return where


def link_worktree(where: Path) -> Path:
    run(where, "worktree", "add", "-q", "../linked")
    return where.parent / "linked"


def remove_git(where: Path) -> Path:
    shutil.rmtree(where / ".git")
    return where


def move(where: Path) -> Path:
    return where.rename(where.parent / f"{where.name} moved")


def move_leaving_a_link(where: Path) -> Path:
    target = where.rename(where.parent / "moved")
    where.symlink_to(target)
    return target


def move_and_replace(where: Path) -> Path:
    target = where.rename(where.parent / "moved")
    init(where, commit="another repository")
    return target


def reach_by_a_link(where: Path) -> Path:
    link = where.parent / "link"
    link.symlink_to(where)
    return link


def spell_with_slashes(where: Path) -> str:
    return f"{where.parent}//./{where.name}/src/..//"


def clone_beside(where: Path) -> Path:
    clone(where, where.parent / "second")
    return where


def clone_anew(where: Path) -> Path:
    clone(where, where.parent / "upstream.git")
    shutil.rmtree(where)
    return clone(where.parent / "upstream.git", where.parent / "again")


def clone_into_place(where: Path) -> Path:
    old = where.rename(where.parent / "loom.old")
    return clone(old, where)


def copy_and_remove(where: Path) -> Path:
    target = shutil.copytree(where, where.parent / f"{where.name} copied", symlinks=True)
    shutil.rmtree(where)
    return target


def lose_id_file(where: Path) -> Path:
    (where / ".git" / "opencode").unlink()
    return where


EVENTS = (
    rewrite_root,
    make_anew,
    orphan_branches,
    link_worktree,
    remove_git,
    move,
    move_leaving_a_link,
    move_and_replace,
    reach_by_a_link,
    spell_with_slashes,
    clone_beside,
    clone_anew,
    clone_into_place,
    copy_and_remove,
    lose_id_file,
)


@pytest.mark.parametrize("event", EVENTS)
def test_sessions_are_found_after_each_change(
    harness: ProjectHarness, tmp_path: Path, event: Callable[[Path], Path | str]
) -> None:
    repository = init(tmp_path / "loom")
    (repository / "src").mkdir()
    harness.add_sessions(repository, "one")
    harness.add_sessions(repository / "src", "two")

    after = event(repository)

    assert harness.list_titles(after) == {"one", "two"}


@pytest.mark.parametrize("first", [event for event in EVENTS if event not in (remove_git, link_worktree)])
@pytest.mark.parametrize("second", [make_anew, remove_git, move, copy_and_remove])
def test_sessions_survive_two_changes_of_their_repository_in_a_row(
    harness: ProjectHarness,
    tmp_path: Path,
    first: Callable[[Path], Path | str],
    second: Callable[[Path], Path | str],
) -> None:
    repository = init(tmp_path / "a" / "loom")
    (repository / "src").mkdir()
    harness.add_sessions(repository, "one")
    between = Path(first(repository)).resolve()
    harness.add_sessions(between, "two")

    assert harness.list_titles(second(between)) == {"one", "two"}


def test_git_init_adopts_earlier_sessions(harness: ProjectHarness, tmp_path: Path) -> None:
    unborn, other = tmp_path / "loom", tmp_path / "loomed"
    for directory in (unborn / "src" / "deep", other):
        directory.mkdir(parents=True)
    harness.add_sessions(unborn, "one")
    harness.add_sessions(unborn / "src" / "deep", "two")
    harness.add_sessions(other, "three")

    init(unborn, commit="")
    harness.add_sessions(unborn, "four")
    assert harness.list_titles(unborn) == {
        "one",
        "two",
        "three",
        "four",
    }  # still global: there is no commit to be named by
    init(unborn)

    assert harness.list_titles(unborn) == {"one", "two", "four"}
    assert harness.list_titles(other) == {"three"}


def test_a_nested_repository_without_commits_keeps_its_sessions(
    harness: ProjectHarness, tmp_path: Path
) -> None:
    outer, inner = tmp_path / "outer", init(tmp_path / "outer" / "inner", commit="")
    harness.add_sessions(inner, "inner")
    harness.add_sessions(outer, "outer")

    init(outer)

    assert harness.list_titles(outer) == {"outer"}
    assert harness.list_titles(inner) == {"inner"}


def test_a_nested_repository_that_loses_its_git_keeps_its_project(
    harness: ProjectHarness, tmp_path: Path
) -> None:
    outer, inner = init(tmp_path / "outer"), init(tmp_path / "outer" / "inner", commit="inner")
    (inner / "src").mkdir()
    harness.add_sessions(outer, "outer")
    harness.add_sessions(inner, "inner")

    shutil.rmtree(inner / ".git")

    assert harness.list_titles(inner / "src") == {"inner"}
    assert harness.list_titles(outer) == {"outer"}
    assert harness.open(inner / "src").worktree == str(inner)


def test_another_repository_in_the_old_path_is_not_mistaken_for_it(
    harness: ProjectHarness, tmp_path: Path
) -> None:
    repository = init(tmp_path / "loom")
    harness.add_sessions(repository, "one")
    target = move_and_replace(repository)
    harness.add_sessions(repository, "two")

    assert harness.list_titles(repository) == {"two"}
    assert harness.list_titles(target) == {"one"}


# --- clones and copies ---


def test_two_live_clones_keep_their_sessions_apart(harness: ProjectHarness, tmp_path: Path) -> None:
    first = init(tmp_path / "first")
    second = clone(first, tmp_path / "second")
    harness.add_sessions(first, "one")
    harness.add_sessions(second, "two")

    assert harness.list_titles(first) == {"one"}
    assert harness.list_titles(second) == {"two"}
    root, own = (harness.open(place).project.id for place in (first, second))
    assert root == run(first, "rev-parse", "HEAD")
    assert (second / ".git" / "opencode").read_text() == own != root


def test_a_copy_with_its_id_file_becomes_a_separate_project(harness: ProjectHarness, tmp_path: Path) -> None:
    first = init(tmp_path / "first")
    harness.add_sessions(first, "one")
    second, third = tmp_path / "second", tmp_path / "third"
    shutil.copytree(first, second)
    harness.add_sessions(second, "two")
    shutil.copytree(second, third)
    harness.add_sessions(third, "three")

    assert [harness.list_titles(place) for place in (first, second, third)] == [{"one"}, {"two"}, {"three"}]
    shutil.rmtree(first)
    assert [harness.list_titles(place) for place in (second, third)] == [{"two"}, {"three"}]


def test_clones_that_opencode_mixed_are_separated_by_directory(
    harness: ProjectHarness, tmp_path: Path
) -> None:
    first = init(tmp_path / "first")
    second = clone(first, tmp_path / "second")
    root = run(first, "rev-parse", "HEAD")
    for place in (first, second):
        (place / ".git" / "opencode").write_text(root)
        harness.record(root, place.name, place)
    harness.record(root, "deeper", second / "src" / "gone")
    time = ProjectTime(created=1, updated=1)
    harness.projects[ProjectID(root)] = Project(
        id=ProjectID(root), worktree=str(second), vcs="git", time=time
    )

    assert harness.list_titles(first) == {"first"}
    assert harness.list_titles(second) == {"second", "deeper"}
    assert harness.open(second).project.id == root


def test_a_reused_path_does_not_get_an_id_twice(harness: ProjectHarness, tmp_path: Path) -> None:
    first = init(tmp_path / "first")
    harness.add_sessions(first, "one")
    second = clone(first, tmp_path / "second")
    harness.add_sessions(second, "two")
    elsewhere = second.rename(tmp_path / "elsewhere")
    assert harness.list_titles(elsewhere) == {"two"}

    clone(first, second)
    harness.add_sessions(second, "three")

    assert harness.list_titles(second) == {"three"}
    assert harness.list_titles(elsewhere) == {"two"}
    assert harness.list_titles(first) == {"one"}


def test_a_linked_worktree_of_a_second_clone_reclaims_sessions_recorded_under_the_root(
    harness: ProjectHarness, tmp_path: Path
) -> None:
    first = init(tmp_path / "first")
    harness.add_sessions(first, "one")
    second, linked = clone(first, tmp_path / "second"), tmp_path / "linked"
    harness.add_sessions(second, "two")
    run(second, "worktree", "add", "-q", str(linked))
    harness.add_sessions(linked, "three")
    # OpenCode reads no id file in a linked worktree, and goes by the root commit.
    harness.record(run(first, "rev-parse", "HEAD"), "four", linked)

    assert harness.list_titles(linked) == {"two", "three", "four"}
    assert harness.list_titles(first) == {"one"}


# --- submodules, bare repositories, odd ones ---


def test_a_submodule_is_a_separate_project_with_its_own_directory(
    harness: ProjectHarness, tmp_path: Path
) -> None:
    library, outer = init(tmp_path / "library", commit="library"), init(tmp_path / "outer")
    run(outer, "submodule", "add", "-q", str(library), "sub")
    root = run(library, "rev-parse", "HEAD")
    shutil.rmtree(library)
    harness.add_sessions(outer, "outer")
    harness.add_sessions(outer / "sub", "sub")

    place = harness.open(outer / "sub")

    assert place.worktree == place.project.worktree == str(outer / "sub")
    assert (place.project.id, place.project.sandboxes) == (root, ())
    assert harness.list_titles(outer / "sub") == {"sub"}
    assert harness.list_titles(outer) == {"outer"}
    assert (outer / ".git" / "modules" / "sub" / "opencode").read_text() == root


def test_the_wrong_record_of_opencode_for_a_submodule_is_recognised(
    harness: ProjectHarness, tmp_path: Path
) -> None:
    library, outer = init(tmp_path / "library", commit="library"), init(tmp_path / "outer")
    run(outer, "submodule", "add", "-q", str(library), "sub")
    root = ProjectID(run(library, "rev-parse", "HEAD"))
    wrong = str(outer / ".git" / "modules")
    time = ProjectTime(created=1, updated=1)
    harness.projects[root] = Project(
        id=root, worktree=wrong, vcs="git", time=time, sandboxes=(str(outer / "sub"),)
    )
    harness.record(root, "sub", outer / "sub")

    assert harness.list_titles(outer / "sub") == {"sub"}
    assert harness.open(outer / "sub").project.worktree == str(outer / "sub")


def test_worktrees_of_a_bare_repository_share_a_project_and_neighbours_do_not(
    harness: ProjectHarness, tmp_path: Path
) -> None:
    source, bare = init(tmp_path / "source"), tmp_path / "bare.git"
    run(tmp_path, "clone", "-q", "--bare", str(source), str(bare))
    shutil.rmtree(source)
    for name in ("one", "two"):
        run(bare, "worktree", "add", "-q", "-b", name, str(tmp_path / name))
        harness.add_sessions(tmp_path / name, name)

    assert harness.list_titles(tmp_path / "one") == harness.list_titles(tmp_path / "two") == {"one", "two"}
    assert harness.open(tmp_path / "one").project.worktree == str(bare)
    assert harness.list_titles(bare) == {"one", "two"}
    assert harness.open(tmp_path).project.id == GLOBAL_PROJECT


def test_a_repository_with_a_separate_git_directory_may_be_moved(
    harness: ProjectHarness, tmp_path: Path
) -> None:
    where = tmp_path / "loom"
    where.mkdir()
    run(where, "init", "-q", f"--separate-git-dir={tmp_path / 'loom.git'}")
    run(where, "commit", "-q", "--allow-empty", "-m", "one")
    harness.add_sessions(where, "one")

    target = where.rename(tmp_path / "moved")

    assert harness.list_titles(target) == {"one"}
    assert harness.open(target).project.worktree == str(target)


def test_a_linked_worktree_follows_its_moved_repository(harness: ProjectHarness, tmp_path: Path) -> None:
    repository, linked = init(tmp_path / "loom"), tmp_path / "linked"
    run(repository, "worktree", "add", "-q", str(linked))
    harness.add_sessions(repository, "one")
    harness.add_sessions(linked, "two")

    target = repository.rename(tmp_path / "moved")

    assert harness.list_titles(linked) == {"one", "two"}
    assert harness.list_titles(target) == {"one", "two"}
    assert harness.list_titles(linked) == {"one", "two"}


def test_an_empty_git_directory_is_a_repository_without_commits(
    harness: ProjectHarness, tmp_path: Path
) -> None:
    (tmp_path / "odd" / ".git").mkdir(parents=True)

    place = harness.open(tmp_path / "odd")

    assert (place.project.id, place.project.vcs, place.worktree) == (
        GLOBAL_PROJECT,
        "git",
        str(tmp_path / "odd"),
    )


def test_without_git_the_id_file_or_the_path_identifies_the_project(
    harness: ProjectHarness, tmp_path: Path
) -> None:
    repository, fresh = init(tmp_path / "loom"), init(tmp_path / "fresh", commit="fresh")
    harness.add_sessions(repository, "one")
    harness.git = NoGit()

    assert harness.list_titles(repository) == {"one"}
    (repository / ".git" / "opencode").unlink()
    assert harness.list_titles(repository) == {"one"}
    assert harness.open(fresh).project.id == GLOBAL_PROJECT


def test_sessions_made_while_git_was_missing_are_adopted_later(
    harness: ProjectHarness, tmp_path: Path
) -> None:
    repository, git = init(tmp_path / "loom"), harness.git
    harness.git = NoGit()
    harness.add_sessions(repository, "one")

    harness.git = git

    assert harness.list_titles(repository) == {"one"}
    assert harness.list_titles(tmp_path) == set()
