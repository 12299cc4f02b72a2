"""Judge commands: every action that the rules are asked about. Nothing is run."""

from pathlib import Path

import pytest

from given.shell import ShellTree, make_shell_tree
from weft.model.permission import UNKNOWN_START
from weft.tool.shell.judgement import ShellRequest, judge_command
from weft.tool.shell.paths import locate_command


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> ShellTree:
    return make_shell_tree(tmp_path_factory.mktemp("tree"))


def parts(tree: ShellTree, command: str, permission: str) -> list[str]:
    return [
        part.pattern
        for part in judge_command(command, tree.locate()).actions
        if part.permission == permission
    ]


@pytest.mark.parametrize(
    ("command", "patterns"),
    [
        ("ls -la", ["ls -la"]),
        ("ls; pwd", ["ls", "pwd"]),
        ("cd src && ls", ["ls"]),
        ("cd src", ["cd src"]),
        ("X=1", ["X=1"]),
        ("X=1 ls", ["ls"]),
        ("> README.md", ["> README.md"]),
        ("/bin/ls src", ["/bin/ls src", "ls src"]),
        ("'ls' src", ["'ls' src", "ls src"]),
        ("'ls' 'a b'", ["'ls' 'a b'", "ls 'a b'"]),
        ("env -i X=1 ls src", ["env -i X=1 ls src", "ls src"]),
        ("timeout 5 nice ls", ["timeout 5 nice ls", "nice ls", "ls"]),
        ("bash -c 'ls; pwd'", ["bash -c 'ls; pwd'", "ls", "pwd"]),
        ("echo $(date)", ["date", "echo⟦ $(date)⟧"]),
        ("for i in a b; do echo $i; done", ["echo $i", "echo a", "echo b"]),
        ("git -C src push", ["git -C src push", "git push"]),
        ("kubectl -n x delete y", ["kubectl -n x delete y", "kubectl delete y"]),
        ("find src -exec wc -l {} +", ["find src -exec wc -l {} +", "wc -l⟦ {}⟧"]),
        ("ls | xargs wc", ["ls", "xargs wc", "wc⟦ files of the list⟧"]),
        ("$X src", ["⟦$X⟧ src", "⟦$X src⟧"]),
        ("echo $?", ["echo⟦ $?⟧"]),
        ("python3 - <<'X'\n1\nX", ["python3 -"]),
        ("", [""]),
    ],
)
def test_each_command_is_requested_as_written_and_as_meant(
    tree: ShellTree, command: str, patterns: list[str]
) -> None:
    assert parts(tree, command, "bash") == patterns


@pytest.mark.parametrize(
    ("command", "read", "edit"),
    [
        ("cat README.md", ["README.md"], []),
        ("cat src/*.py", ["src/main.py"], []),
        ("cat < README.md > build/x", ["README.md"], ["build/x"]),
        ("cp README.md src", ["README.md"], ["src/README.md"]),
        ("cp README.md x", ["README.md"], ["x"]),
        ("mv README.md x", ["README.md"], ["README.md", "x"]),
        ("cp -r src x", ["src"], ["x", "x/⟦everything below⟧"]),
        ("rm -r build", [], ["build", "build/⟦everything below⟧"]),
        ("sort -o x README.md", ["README.md"], ["x"]),
        ("zip -Ox.zip a.zip README.md", ["README.md"], ["a.zip", "x.zip"]),
        ("zip a.zip README.md --out=x.zip", ["README.md"], ["a.zip", "x.zip"]),
        ("zip -P secret a.zip README.md", ["README.md"], ["a.zip"]),
        ("zip -m a.zip README.md", ["README.md"], ["a.zip", "README.md", "README.md/⟦everything below⟧"]),
        (
            "tar --remove-files -cf a.tar README.md",
            ["README.md"],
            ["a.tar", "README.md", "README.md/⟦everything below⟧"],
        ),
        ("unzip -P secret a.zip -d x", ["a.zip"], ["x", "x/⟦everything below⟧"]),
        ("sed -i s/a/b/ README.md", ["README.md"], ["README.md"]),
        ("sed 's/a/b/w x' README.md", ["README.md"], ["x"]),
        ("cat settings", ["settings", ".env"], []),
        ("echo x > hooks/y", [], ["hooks/y", ".git/hooks/y"]),
        ("echo x > sub/.git/hooks/y", [], ["sub/.git/hooks/y", ".git/hooks/y"]),
        ("echo x > /dev/null", [], []),
        ("echo x >& build/x", [], ["build/x"]),
        ("echo x >& -", [], []),
        ("cat <> build/x", ["build/x"], ["build/x"]),
        ("echo x > -", [], ["-"]),
        ("find . -name '*.o' -delete", [], ["build/out.o"]),
        ("find . -name '*.o' | xargs rm", [], ["build/out.o"]),
        ("grep -r KEY config", ["config", "config/.env.local"], []),
        ("curl -O http://example.com/a/x.tgz", [], ["x.tgz"]),
        ("git config user.name x", [], [".git/config"]),
        ("X=src; cat $X/main.py", ["src/main.py"], []),
        ("cd src; cat main.py", ["src/main.py"], []),
        ("ls && cd src; cat main.py", ["main.py", "src/main.py"], []),
    ],
)
def test_files_are_requested_as_read_or_edited(
    tree: ShellTree, command: str, read: list[str], edit: list[str]
) -> None:
    found = [path.removeprefix(f"{tree.project}/") for path in parts(tree, command, "read")]
    assert (sorted(found), parts(tree, command, "edit")) == (sorted(read), edit)


@pytest.mark.parametrize(
    ("command", "outside"),
    [
        ("cat link.txt", ["{top}/outside/secret.txt"]),
        ("cat out/deep/more.txt", ["{top}/outside/deep/more.txt"]),
        ("ls out", ["{top}/outside/*"]),
        ("cat ~/.ssh/id_rsa", ["{top}/home/.ssh/id_rsa"]),
        ("cat src/up/../outside/secret.txt", ["{top}/outside/secret.txt"]),
        ("cat ../project-private/notes", ["{top}/project-private/notes"]),
        ("cat /proc/1/environ", ["/proc/1/environ"]),
        ("cat README.md", []),
        ("cat src/up/README.md", []),
    ],
)
def test_paths_outside_of_the_project_are_requested_by_their_real_path(
    tree: ShellTree, command: str, outside: list[str]
) -> None:
    assert parts(tree, command, "external_directory") == [path.format(top=tree.top) for path in outside]


def test_requests_are_sorted_by_permission_with_external_directories_first(tree: ShellTree) -> None:
    where = tree.locate()
    assert judge_command("cat link.txt > x; make", where).requests == (
        ShellRequest(
            permission="external_directory",
            patterns=(f"{tree.top}/outside/secret.txt",),
            always=(f"{tree.top}/outside/*",),
            why=("it is outside of the project",),
        ),
        ShellRequest(
            permission="read",
            patterns=(f"{tree.project}/link.txt", f"{tree.top}/outside/secret.txt"),
            always=(f"{tree.project}/link.txt", f"{tree.top}/outside/secret.txt"),
        ),
        ShellRequest(permission="edit", patterns=("x",), always=("x",)),
        ShellRequest(
            permission="bash",
            patterns=("cat link.txt", "make"),
            always=("cat *", "make *"),
            may_write=("make",),
        ),
    )


@pytest.mark.parametrize(
    "command",
    [
        "sed -i s/a/b/ README.md",
        "gsed -i s/a/b/ README.md",
        "find src -delete",
        "gfind src -delete",
        "dd if=README.md of=x",
    ],
)
def test_a_program_whose_files_are_known_may_write_no_others(tree: ShellTree, command: str) -> None:
    requests = judge_command(command, tree.locate()).requests
    assert "edit" in [each.permission for each in requests]
    assert [each.may_write for each in requests if each.may_write] == []


@pytest.mark.parametrize("command", ["cat ../outside/secret.txt", "cat /etc/hostname", "touch /x"])
def test_a_worktree_at_the_root_of_the_disk_contains_nothing(tree: ShellTree, command: str) -> None:
    where = locate_command(str(tree.project), "/", tree.environment())
    asked = [each.permission for each in judge_command(command, where).requests]
    assert "external_directory" in asked


@pytest.mark.parametrize(
    "command",
    [
        "while true; do cd ..; touch x; done",
        "for i in 1 2; do cd ..; done; touch x",
        "until false; do pushd ..; rm x; done",
    ],
)
def test_a_directory_changed_in_a_loop_is_unknown(tree: ShellTree, command: str) -> None:
    for permission in ("external_directory", "edit"):
        assert [each for each in parts(tree, command, permission) if each.startswith(UNKNOWN_START)] != []


def test_a_file_whose_name_would_be_taken_for_an_option_makes_a_pattern_unclear(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    where = locate_command(str(tmp_path), str(tmp_path), {"PATH": "/usr/bin:/bin", "HOME": "/home/ada"})
    reasons = [action.why for action in judge_command("cat *", where).actions]
    assert "the name of a file would be taken for an option" not in reasons
    (tmp_path / "-n").write_text("")
    reasons = [action.why for action in judge_command("cat *", where).actions]
    assert "the name of a file would be taken for an option" in reasons


def test_an_unknown_command_needs_every_permission(tree: ShellTree) -> None:
    judgement = judge_command("if then", tree.locate())
    why = ("it is not shell syntax that we can read",)
    assert judgement.requests == tuple(
        ShellRequest(
            permission=permission,
            patterns=("⟦if then⟧",),
            always=(),
            why=why,
            may_write=("⟦if then⟧",) if permission == "bash" else (),
        )
        for permission in ("external_directory", "read", "edit", "bash")
    )


@pytest.mark.parametrize(
    ("command", "always"),
    [
        ("ls -la", ("ls *",)),
        ("git status", ("git status *",)),
        ("npm run dev", ("npm run dev *",)),
        ("git", ("git *",)),
        ("gh pr list", ("gh pr list *",)),
        ("env ls", ("env ls", "ls *")),
        ("bash -c ls", ("bash -c ls", "ls *")),
        ("find . -name x", ("find . -name x",)),
        ("find . -name 'x*'", ()),
        ("./run.sh x", ("./run.sh *", "run.sh *")),
        ("$X", ()),
        ("echo $X", ()),
    ],
)
def test_a_lasting_grant_covers_a_prefix_of_the_command_if_that_is_specific_enough(
    tree: ShellTree, command: str, always: tuple[str, ...]
) -> None:
    (request,) = [
        each for each in judge_command(command, tree.locate()).requests if each.permission == "bash"
    ]
    assert request.always == always


def test_everything_below_the_worktree_is_inside(tree: ShellTree) -> None:
    src = ShellTree(top=tree.top)
    where = src.locate()
    assert judge_command("cat ../README.md", where).requests[0].permission == "external_directory"
    below = type(where)(
        directory=str(tree.project / "src"),
        worktree=str(tree.project),
        roots=(str(tree.project),),
        environment={},
    )
    assert [each.permission for each in judge_command("cat ../README.md", below).requests] == ["read", "bash"]


def test_a_circular_link_is_judged(tmp_path: Path) -> None:
    tree = make_shell_tree(tmp_path)
    (tree.project / "a").symlink_to("b")
    (tree.project / "b").symlink_to("a")
    assert parts(tree, "cat a", "bash") == ["cat a"]
