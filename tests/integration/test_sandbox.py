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

from given.walled import SECRET, Grounds, make_grounds, run
from weft.config.sources import ConfigScope
from weft.errors import ToolError
from weft.host.paths import paths_from
from weft.host.processes import ProcessCommand, ProcessExit, run_command
from weft.local.sandbox import SandboxSettings, SandboxState, build_sandbox
from weft.sandbox.backends import find_sandbox
from weft.sandbox.policy import Sandbox, SandboxPolicy
from weft.testing.tool_contract import Bench, processes_in
from weft.tool.programs import ProgramContext, find_program
from weft.tool.shell.bash import BASH

AUTO = SandboxSettings(mode="auto")
REQUIRED = SandboxSettings(mode="required")
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
CONNECT = f"{PYTHON} -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])))'"
FAKE_BWRAP = "#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n"


@pytest.fixture
def grounds(tmp_path: Path) -> Grounds:
    return make_grounds(tmp_path.resolve())


@pytest.fixture(params=["landlock", "bubblewrap"])
def standing(request: pytest.FixtureRequest, grounds: Grounds) -> SandboxState:
    """Each kind of wall that can be put up on this machine."""
    env = grounds.env
    if request.param == "landlock":
        env["PATH"] = "/usr/bin:/bin" if not os.path.exists("/usr/bin/bwrap") else "/bin-without-bwrap"
    elif shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    found = grounds.stand(AUTO, env)
    if found.sandbox.kind != request.param:
        pytest.skip(f"no {request.param} here: {found.why}")
    return found


@pytest.fixture
def walled(grounds: Grounds, standing: SandboxState) -> Bench:
    return grounds.bench(standing)


# --- what can be done ---


async def test_a_command_works_in_the_project_and_in_the_temporary_directory(
    grounds: Grounds, walled: Bench
) -> None:
    script = (
        'echo new > made && mkdir -p a/b && mv made a/b/ && cat a/b/made file && pwd && echo t > "$TMPDIR/t"'
    )
    assert await run(walled, script) == (0, f"new\ninside{grounds.project}\n")
    assert (grounds.temporary / "t").read_text() == "t\n"


async def test_git_commits_with_the_persons_name(walled: Bench) -> None:
    script = (
        "git add file && git commit -q -m 'A beginning' && git log --format='%an %s' && git status --short"
    )
    assert await run(walled, script) == (0, "Ada Loom A beginning\n")


async def test_what_a_shell_needs_is_there(walled: Bench) -> None:
    script = (
        "echo a > /dev/null; echo b > /dev/stderr; echo $(($(head -c 4 /dev/urandom | wc -c))); echo <<<c"
    )
    code, said = await run(walled, script)
    assert (code, sorted(said.split())) == (0, ["4", "b"])


async def test_an_exit_code_and_a_missing_program_are_as_without(walled: Bench) -> None:
    assert (await run(walled, "exit 7"))[0] == 7
    assert (await run(walled, "no-such-program"))[0] == 127


# --- what cannot ---


async def test_a_secret_at_home_cannot_be_read(grounds: Grounds, walled: Bench) -> None:
    code, said = await run(walled, f"cat {grounds.home}/.ssh/id_test")
    assert code == 1
    assert SECRET not in said
    assert (await run(walled, f"cp {grounds.home}/.ssh/id_test stolen"))[0] == 1
    assert (await run(walled, f"ln {grounds.home}/.ssh/id_test stolen"))[0] == 1
    code, _ = await run(walled, f"ln -s {grounds.home}/.ssh/id_test link; cat link")
    assert code == 1


async def test_nothing_is_written_outside(grounds: Grounds, walled: Bench) -> None:
    for script in (
        f"touch {grounds.outside}/new",
        f"echo more >> {grounds.outside}/file",
        f"truncate -s 0 {grounds.outside}/file",
        f"mv file {grounds.outside}/moved",
        f"ln -s {grounds.outside} way && touch way/new",
        f"touch {grounds.home}/new",
        f"mkdir {grounds.home}/new",
    ):
        code, said = await run(walled, script)
        assert (script, code != 0) == (script, True), said
    assert (grounds.outside / "file").read_text() == "outside"
    assert os.listdir(grounds.outside) == ["file"]
    assert sorted(os.listdir(grounds.home)) == [".gitconfig", ".ssh", "project"]


async def test_permissions_elsewhere_stay_as_they_are(
    grounds: Grounds, standing: SandboxState, walled: Bench
) -> None:
    before = (grounds.outside / "file").stat().st_mode
    code, _ = await run(walled, f"chmod 600 {grounds.outside}/file")
    if not standing.sandbox.lacks:
        assert code == 1
        assert (grounds.outside / "file").stat().st_mode == before


async def test_hooks_and_settings_of_the_repository_stay_as_they_are(
    grounds: Grounds, standing: SandboxState, walled: Bench
) -> None:
    if standing.sandbox.lacks:
        pytest.skip("this kernel allows no mounts, and that is said")
    (grounds.project / ".git" / "hooks" / "there").write_text("there")
    before = (grounds.project / ".git" / "config").read_text()
    for script in (
        "touch .git/hooks/pre-commit",
        "echo x >> .git/hooks/there",
        "git config core.fsmonitor ./run-me",
        "cp file .git/config",
        "mv .git gone",
        "mv .git/hooks gone",
    ):
        code, said = await run(walled, script)
        assert (script, code != 0) == (script, True), said
    assert (grounds.project / ".git" / "config").read_text() == before
    assert (grounds.project / ".git" / "hooks" / "there").read_text() == "there"
    assert not (grounds.project / ".git" / "hooks" / "pre-commit").exists()


async def test_our_settings_are_not_to_be_made_by_a_command(grounds: Grounds, walled: Bench) -> None:
    script = "echo '{}' > opencode.json; mkdir .opencode; echo x > .opencode/x"
    result = await walled.call(BASH, command=script, description="Settle in")
    made = [f"{grounds.project}/{name}" for name in ("opencode.json", ".opencode")]
    notes = "\n".join(
        f"{path} may not be made by a command: it was renamed to {path}.set-aside" for path in made
    )
    assert result.output == f"\n\n<bash_metadata>\n{notes}\n</bash_metadata>"
    assert sorted(os.listdir(grounds.project)) == [
        ".git",
        ".opencode.set-aside",
        "file",
        "opencode.json.set-aside",
    ]


async def test_our_settings_that_are_there_are_not_changed(grounds: Grounds, standing: SandboxState) -> None:
    (grounds.project / "opencode.json").write_text("{}")
    env = {**grounds.env, "PATH": "/usr/bin:/bin"}
    again = grounds.stand(AUTO, env)
    if again.sandbox.lacks or again.sandbox.kind == "":
        pytest.skip("this kernel allows no mounts, and that is said")
    code, _ = await run(grounds.bench(again), "echo x > opencode.json")
    assert code != 0
    assert (grounds.project / "opencode.json").read_text() == "{}"


async def test_the_environment_of_other_processes_is_out_of_reach(walled: Bench) -> None:
    code, said = await run(walled, f"cat /proc/{os.getpid()}/environ")
    assert (code, "PATH=" in said) == (1, False)


async def test_other_processes_cannot_be_signalled(walled: Bench) -> None:
    code, _ = await run(walled, f"kill -0 {os.getpid()}")
    assert code == 1


async def test_the_model_is_told_that_it_was_the_wall(grounds: Grounds, walled: Bench) -> None:
    result = await walled.call(BASH, command=f"touch {grounds.outside}/new", description="Try")
    assert "this ran in a sandbox: it can write in the project" in result.output
    other = await walled.call(BASH, command="ls nowhere", description="Try")
    assert "sandbox" not in other.output


async def test_a_worktree_commits_and_leaves_the_main_checkout_alone(
    grounds: Grounds, standing: SandboxState
) -> None:
    linked = grounds.link()
    env = {**grounds.env, "PATH": "/usr/bin:/bin"} if standing.sandbox.kind == "landlock" else grounds.env
    at = ConfigScope(directory=str(linked), worktree=str(linked), paths=paths_from(env), env=env)
    found = build_sandbox(AUTO, at)
    bench = Bench(linked, outside=grounds.root / "bench", environment=grounds.env)
    bench.desk = replace(bench.desk, sandbox=found.sandbox)
    script = "echo new > new && git add new && git commit -q -m 'In a worktree' && git log -1 --format=%s"
    assert await run(bench, script) == (0, "In a worktree\n")
    assert (await run(bench, f"touch {grounds.project}/new"))[0] != 0
    if not found.sandbox.lacks:
        assert (await run(bench, "echo 'gitdir: elsewhere' > .git"))[0] != 0
        assert (await run(bench, f"touch {grounds.project}/.git/hooks/new"))[0] != 0


def test_what_is_hidden_may_lie_where_sockets_do(grounds: Grounds) -> None:
    inside = next((path for path in Path("/run").iterdir() if path.is_dir() and not path.is_symlink()), None)
    wall = SandboxPolicy(
        hidden=(str(grounds.home), str(inside or "/run/none")), writable=(str(grounds.project),)
    )
    plain = grounds.stand(AUTO, {**grounds.env, "PATH": "/usr/bin:/bin"})
    found = find_sandbox(wall, {"PATH": "/usr/bin:/bin"})
    assert (found.sandbox or Sandbox()).lacks == plain.sandbox.lacks


# --- the network ---


@pytest.fixture
def listening() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


async def test_the_network_is_there_unless_it_is_denied(
    grounds: Grounds, walled: Bench, listening: int, standing: SandboxState
) -> None:
    del standing
    assert await run(walled, f"{CONNECT} 127.0.0.1 {listening}") == (0, "")
    env = grounds.env
    cut_off = grounds.stand(replace(AUTO, network="deny"), env)
    code, said = await run(grounds.bench(cut_off), f"{CONNECT} 127.0.0.1 {listening}")
    assert code == 1
    assert "Error" in said


# --- how it ends ---


async def test_what_is_left_behind_the_wall_is_ended(walled: Bench, grounds: Grounds) -> None:
    result = await walled.call(BASH, command="sleep 999 & setsid sleep 999 & echo hi", description="Leave")
    assert result.output.startswith("hi\n")
    assert processes_in(grounds.project) == []


async def test_time_runs_out_behind_the_wall(walled: Bench, grounds: Grounds) -> None:
    result = await walled.call(BASH, command="echo hi; sleep 999", description="Wait", timeout=1000)
    assert "exceeding timeout 1000 ms" in result.output
    assert processes_in(grounds.project) == []


# --- where there is none ---


def impossible(grounds: Grounds) -> SandboxState:
    """A home inside of the project cannot be both hidden and writable, on any kernel."""
    env = {**grounds.env, "HOME": str(grounds.project / "home")}
    return grounds.stand(AUTO, env)


def test_that_there_is_none_is_said_in_one_line(grounds: Grounds) -> None:
    found = impossible(grounds)
    assert found.sandbox == Sandbox()
    assert str(found.warning) == (
        "experimental.weft.sandbox: the sandbox is not available, commands run without one: "
        f"{grounds.project}/home must be hidden, but is inside a writable directory"
    )


async def test_one_that_is_required_and_missing_refuses_every_command(grounds: Grounds) -> None:
    env = {**grounds.env, "HOME": str(grounds.project / "home")}
    found = grounds.stand(REQUIRED, env)
    bench = grounds.bench(found)
    with pytest.raises(ToolError, match="require a sandbox"):
        await bench.call(BASH, command="touch made", description="Try")
    assert not (grounds.project / "made").exists()
    assert bench.asked == []
    assert "no command is run" in str(found.warning)
    ground = ProgramContext(directory="/", worktree="/", environment=grounds.env, sandbox=found.sandbox)
    assert find_program("sh", (), ground) is None


def test_one_that_is_off_is_not_looked_for(grounds: Grounds) -> None:
    assert grounds.stand(SandboxSettings()) == SandboxState(settings=SandboxSettings())


def test_a_bubblewrap_that_does_not_work_gives_way(grounds: Grounds, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "bwrap").write_text(FAKE_BWRAP)
    (programs / "bwrap").chmod(0o755)
    found = grounds.stand(AUTO, {**grounds.env, "PATH": f"{programs}:/usr/bin:/bin"})
    if found.why:
        assert "bubblewrap does not work here (setting up uid map: Permission denied)" in found.why
    else:
        assert found.sandbox.kind == "landlock"


def test_without_a_project_the_directory_is_what_can_be_written(grounds: Grounds) -> None:
    at = ConfigScope(
        directory=str(grounds.outside), worktree="/", paths=paths_from(grounds.env), env=grounds.env
    )
    found = build_sandbox(AUTO, at)
    if found.why:
        pytest.skip(found.why)
    assert found.sandbox.kept == tuple(
        f"{grounds.outside}/{name}" for name in ("opencode.json", "opencode.jsonc", ".opencode")
    )


async def test_a_wall_that_cannot_be_put_up_any_more_runs_nothing(grounds: Grounds) -> None:
    found = grounds.stand(AUTO, {**grounds.env, "PATH": "/usr/bin:/bin"})
    if found.sandbox.kind != "landlock":
        pytest.skip(found.why)
    *words, wall = found.sandbox.before
    # Stands for whatever a kernel may refuse one day.
    broken = Sandbox(kind="landlock", before=(*words, wall.replace('"hidden"', '"hidden-not"')))
    said = bytearray()

    async def hear(piece: bytes) -> None:
        said.extend(piece)

    command = ProcessCommand(
        argv=broken.wrap(("touch", "made")), directory=str(grounds.project), environment=grounds.env
    )
    ended = await run_command(command, hear)
    assert ended != ProcessExit(code=0)
    assert not (grounds.project / "made").exists()
