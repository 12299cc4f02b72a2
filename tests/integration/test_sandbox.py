"""The sandbox: what real processes in it can access, and the error where none works."""

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from given.sandbox_tree import SECRET, SandboxTree, make_sandbox_tree, run
from weft.config.sources import ConfigScope
from weft.errors import ToolError
from weft.host.paths import paths_from
from weft.host.processes import ProcessCommand, ProcessExit, run_command
from weft.local.sandbox import SandboxSettings, SandboxState, build_sandbox
from weft.sandbox.backends import find_sandbox
from weft.sandbox.policy import Sandbox, SandboxPolicy
from weft.testing.tool_contract import ToolHarness, list_processes
from weft.tool.programs import ProgramContext, find_program
from weft.tool.registry import BASH

AUTO = SandboxSettings(mode="auto")
REQUIRED = SandboxSettings(mode="required")
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
CONNECT = f"{PYTHON} -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])))'"
NO_BWRAP_PATH = "/bin-without-bwrap" if os.path.exists("/usr/bin/bwrap") else "/usr/bin:/bin"
FAKE_BWRAP = "#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n"


@pytest.fixture
def tree(tmp_path: Path) -> SandboxTree:
    return make_sandbox_tree(tmp_path.resolve())


@pytest.fixture(params=["landlock", "bubblewrap"])
def state(request: pytest.FixtureRequest, tree: SandboxTree) -> SandboxState:
    """Each kind of sandbox that works on this machine."""
    env = tree.env
    if request.param == "landlock":
        env["PATH"] = NO_BWRAP_PATH
    elif shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    found = tree.build_state(AUTO, env)
    if found.sandbox.kind != request.param:
        pytest.skip(f"no {request.param} here: {found.why}")
    return found


@pytest.fixture
def sandboxed(tree: SandboxTree, state: SandboxState) -> ToolHarness:
    return tree.harness(state)


# --- what can be done ---


async def test_a_command_works_in_the_project_and_in_the_temporary_directory(
    tree: SandboxTree, sandboxed: ToolHarness
) -> None:
    script = (
        'echo new > made && mkdir -p a/b && mv made a/b/ && cat a/b/made file && pwd && echo t > "$TMPDIR/t"'
    )
    assert await run(sandboxed, script) == (0, f"new\ninside{tree.project}\n")
    assert (tree.temporary / "t").read_text() == "t\n"


async def test_git_commits_with_the_name_of_the_person(sandboxed: ToolHarness) -> None:
    script = (
        "git add file && git commit -q -m 'A beginning' && git log --format='%an %s' && git status --short"
    )
    assert await run(sandboxed, script) == (0, "Ada Loom A beginning\n")


async def test_a_shell_can_use_devices_and_here_strings(sandboxed: ToolHarness) -> None:
    script = (
        "echo a > /dev/null; echo b > /dev/stderr; echo $(($(head -c 4 /dev/urandom | wc -c))); echo <<<c"
    )
    code, said = await run(sandboxed, script)
    assert (code, sorted(said.split())) == (0, ["4", "b"])


async def test_exit_codes_and_missing_programs_are_reported_as_without_a_sandbox(
    sandboxed: ToolHarness,
) -> None:
    assert (await run(sandboxed, "exit 7"))[0] == 7
    assert (await run(sandboxed, "no-such-program"))[0] == 127


# --- what is refused ---


async def test_a_secret_in_the_home_directory_cannot_be_read(
    tree: SandboxTree, sandboxed: ToolHarness
) -> None:
    code, said = await run(sandboxed, f"cat {tree.home}/.ssh/id_test")
    assert code == 1
    assert SECRET not in said
    assert (await run(sandboxed, f"cp {tree.home}/.ssh/id_test stolen"))[0] == 1
    assert (await run(sandboxed, f"ln {tree.home}/.ssh/id_test stolen"))[0] == 1
    code, _ = await run(sandboxed, f"ln -s {tree.home}/.ssh/id_test link; cat link")
    assert code == 1


async def test_nothing_outside_can_be_written(tree: SandboxTree, sandboxed: ToolHarness) -> None:
    for script in (
        f"touch {tree.outside}/new",
        f"echo more >> {tree.outside}/file",
        f"truncate -s 0 {tree.outside}/file",
        f"mv file {tree.outside}/moved",
        f"ln -s {tree.outside} way && touch way/new",
        f"touch {tree.home}/new",
        f"mkdir {tree.home}/new",
    ):
        code, said = await run(sandboxed, script)
        assert (script, code != 0) == (script, True), said
    assert (tree.outside / "file").read_text() == "outside"
    assert os.listdir(tree.outside) == ["file"]
    assert sorted(os.listdir(tree.home)) == [".gitconfig", ".ssh", "project"]


async def test_permissions_outside_cannot_be_changed(
    tree: SandboxTree, state: SandboxState, sandboxed: ToolHarness
) -> None:
    if state.sandbox.lacks:
        pytest.skip("this kernel allows no mounts, and that is said")
    before = (tree.outside / "file").stat().st_mode
    code, _ = await run(sandboxed, f"chmod 600 {tree.outside}/file")
    assert code == 1
    assert (tree.outside / "file").stat().st_mode == before


async def test_hooks_and_settings_of_the_repository_cannot_be_changed(
    tree: SandboxTree, state: SandboxState, sandboxed: ToolHarness
) -> None:
    if state.sandbox.lacks:
        pytest.skip("this kernel allows no mounts, and that is said")
    (tree.project / ".git" / "hooks" / "there").write_text("there")
    before = (tree.project / ".git" / "config").read_text()
    for script in (
        "touch .git/hooks/pre-commit",
        "echo x >> .git/hooks/there",
        "git config core.fsmonitor ./run-me",
        "cp file .git/config",
        "mv .git gone",
        "mv .git/hooks gone",
    ):
        code, said = await run(sandboxed, script)
        assert (script, code != 0) == (script, True), said
    assert (tree.project / ".git" / "config").read_text() == before
    assert (tree.project / ".git" / "hooks" / "there").read_text() == "there"
    assert not (tree.project / ".git" / "hooks" / "pre-commit").exists()


async def test_our_configuration_cannot_be_created_by_a_command(
    tree: SandboxTree, sandboxed: ToolHarness
) -> None:
    script = "echo '{}' > opencode.json; mkdir .opencode; echo x > .opencode/x"
    result = await sandboxed.call(BASH, command=script, description="Settle in")
    made = [f"{tree.project}/{name}" for name in ("opencode.json", ".opencode")]
    notes = "\n".join(
        f"{path} may not be made by a command: it was renamed to {path}.set-aside" for path in made
    )
    assert result.output == f"\n\n<bash_metadata>\n{notes}\n</bash_metadata>"
    assert sorted(os.listdir(tree.project)) == [
        ".git",
        ".opencode.set-aside",
        "file",
        "opencode.json.set-aside",
    ]


async def test_existing_configuration_of_ours_cannot_be_changed(
    tree: SandboxTree, state: SandboxState
) -> None:
    (tree.project / "opencode.json").write_text("{}")
    env = {**tree.env, "PATH": "/usr/bin:/bin"}
    again = tree.build_state(AUTO, env)
    if again.sandbox.lacks or again.sandbox.kind == "":
        pytest.skip("this kernel allows no mounts, and that is said")
    code, _ = await run(tree.harness(again), "echo x > opencode.json")
    assert code != 0
    assert (tree.project / "opencode.json").read_text() == "{}"


async def test_the_environment_of_other_processes_cannot_be_read(sandboxed: ToolHarness) -> None:
    code, said = await run(sandboxed, f"cat /proc/{os.getpid()}/environ")
    assert (code, "PATH=" in said) == (1, False)


async def test_other_processes_cannot_be_signalled(sandboxed: ToolHarness) -> None:
    code, _ = await run(sandboxed, f"kill -0 {os.getpid()}")
    assert code == 1


async def test_the_model_is_told_that_the_sandbox_refused(tree: SandboxTree, sandboxed: ToolHarness) -> None:
    result = await sandboxed.call(BASH, command=f"touch {tree.outside}/new", description="Try")
    assert "this ran in a sandbox: it can write in the project" in result.output
    other = await sandboxed.call(BASH, command="ls nowhere", description="Try")
    assert "sandbox" not in other.output


async def test_a_worktree_commits_and_leaves_the_main_checkout_alone(
    tree: SandboxTree, state: SandboxState
) -> None:
    linked = tree.link()
    env = {**tree.env, "PATH": "/usr/bin:/bin"} if state.sandbox.kind == "landlock" else tree.env
    at = ConfigScope(directory=str(linked), worktree=str(linked), paths=paths_from(env), env=env)
    found = build_sandbox(AUTO, at)
    harness = ToolHarness(linked, outside=tree.root / "bench", environment=tree.env)
    harness.resources = replace(harness.resources, sandbox=found.sandbox)
    script = "echo new > new && git add new && git commit -q -m 'In a worktree' && git log -1 --format=%s"
    assert await run(harness, script) == (0, "In a worktree\n")
    assert (await run(harness, f"touch {tree.project}/new"))[0] != 0
    if not found.sandbox.lacks:
        assert (await run(harness, "echo 'gitdir: elsewhere' > .git"))[0] != 0
        assert (await run(harness, f"touch {tree.project}/.git/hooks/new"))[0] != 0


def test_a_hidden_directory_may_be_below_run(tree: SandboxTree) -> None:
    inside = next((path for path in Path("/run").iterdir() if path.is_dir() and not path.is_symlink()), None)
    wall = SandboxPolicy(hidden=(str(tree.home), str(inside or "/run/none")), writable=(str(tree.project),))
    plain = tree.build_state(AUTO, {**tree.env, "PATH": "/usr/bin:/bin"})
    found = find_sandbox(wall, {"PATH": "/usr/bin:/bin"})
    assert (found.sandbox or Sandbox()).lacks == plain.sandbox.lacks


# --- the network ---


@pytest.fixture
def port() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


async def test_the_network_is_available_unless_denied(
    tree: SandboxTree, sandboxed: ToolHarness, port: int, state: SandboxState
) -> None:
    del state
    assert await run(sandboxed, f"{CONNECT} 127.0.0.1 {port}") == (0, "")
    env = tree.env
    cut_off = tree.build_state(replace(AUTO, network="deny"), env)
    code, said = await run(tree.harness(cut_off), f"{CONNECT} 127.0.0.1 {port}")
    assert code == 1
    assert "Error" in said


# --- how it ends ---


async def test_processes_left_in_the_sandbox_are_killed(sandboxed: ToolHarness, tree: SandboxTree) -> None:
    result = await sandboxed.call(BASH, command="sleep 999 & setsid sleep 999 & echo hi", description="Leave")
    assert result.output.startswith("hi\n")
    assert list_processes(tree.project) == []


async def test_a_timeout_ends_a_command_in_the_sandbox(sandboxed: ToolHarness, tree: SandboxTree) -> None:
    result = await sandboxed.call(BASH, command="echo hi; sleep 999", description="Wait", timeout=1000)
    assert "exceeding timeout 1000 ms" in result.output
    assert list_processes(tree.project) == []


# --- which one ---


def test_landlock_is_not_tried_if_bubblewrap_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bubblewrap, launcher = tmp_path / "bwrap", tmp_path / "python"
    for program in (bubblewrap, launcher):
        program.write_text(f"#!/bin/sh\necho {program.name} >> {tmp_path}/tried\nexit 0\n")
        program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(launcher))
    found = find_sandbox(SandboxPolicy(), {"PATH": str(tmp_path)})
    assert (found.sandbox or Sandbox()).kind == "bubblewrap"
    assert (tmp_path / "tried").read_text() == "bwrap\n"


# --- without a sandbox ---


def build_impossible_state(tree: SandboxTree) -> SandboxState:
    """A home inside the project cannot be both hidden and writable, on any kernel."""
    env = {**tree.env, "HOME": str(tree.project / "home")}
    return tree.build_state(AUTO, env)


def test_a_missing_sandbox_is_reported_in_one_line(tree: SandboxTree) -> None:
    found = build_impossible_state(tree)
    assert found.sandbox == Sandbox()
    assert str(found.warning) == (
        "experimental.weft.sandbox: the sandbox is not available, commands run without one: "
        f"{tree.project}/home must be hidden, but is inside a writable directory"
    )


async def test_a_required_but_missing_sandbox_refuses_every_command(tree: SandboxTree) -> None:
    env = {**tree.env, "HOME": str(tree.project / "home")}
    found = tree.build_state(REQUIRED, env)
    harness = tree.harness(found)
    with pytest.raises(ToolError, match="require a sandbox"):
        await harness.call(BASH, command="touch made", description="Try")
    assert not (tree.project / "made").exists()
    assert harness.asked == []
    assert "no command is run" in str(found.warning)
    ground = ProgramContext(directory="/", worktree="/", environment=tree.env, sandbox=found.sandbox)
    assert find_program("sh", (), ground) is None


def test_a_disabled_sandbox_is_not_searched_for(tree: SandboxTree) -> None:
    assert tree.build_state(SandboxSettings()) == SandboxState(settings=SandboxSettings())


def test_a_bubblewrap_that_does_not_work_is_skipped(tree: SandboxTree, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "bwrap").write_text(FAKE_BWRAP)
    (programs / "bwrap").chmod(0o755)
    found = tree.build_state(AUTO, {**tree.env, "PATH": f"{programs}:/usr/bin:/bin"})
    if found.why:
        assert "bubblewrap does not work here (setting up uid map: Permission denied)" in found.why
    else:
        assert found.sandbox.kind == "landlock"


def test_without_a_project_only_the_directory_can_be_written(tree: SandboxTree) -> None:
    at = ConfigScope(directory=str(tree.outside), worktree="/", paths=paths_from(tree.env), env=tree.env)
    found = build_sandbox(AUTO, at)
    if found.why:
        pytest.skip(found.why)
    assert found.sandbox.protected == tuple(
        f"{tree.outside}/{name}" for name in ("opencode.json", "opencode.jsonc", ".opencode")
    )


async def test_a_sandbox_that_stops_working_runs_nothing(tree: SandboxTree) -> None:
    found = tree.build_state(AUTO, {**tree.env, "PATH": NO_BWRAP_PATH})
    if found.sandbox.kind != "landlock":
        pytest.skip(f"no landlock here: {found.why}")
    *words, wall = found.sandbox.prefix
    # Stands for anything that a kernel may refuse.
    broken = Sandbox(kind="landlock", prefix=(*words, wall.replace('"hidden"', '"hidden-not"')))
    said = bytearray()

    async def hear(piece: bytes) -> None:
        said.extend(piece)

    command = ProcessCommand(
        argv=broken.wrap(("touch", "made")), directory=str(tree.project), environment=tree.env
    )
    ended = await run_command(command, hear)
    assert ended != ProcessExit(code=0)
    assert not (tree.project / "made").exists()
