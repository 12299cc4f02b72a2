"""The installed `weft` command."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weft import __version__
from weft.cli.commands import build_parser

WEFT = str(Path(sys.executable).with_name("weft"))


class Shell:
    """A directory with a repository, and its own home."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.repository = root / "repository"
        self.repository.mkdir()
        (self.repository / "greet.py").write_text(
            'def main():\n    print("Hello, world!")\n\n\nif __name__ == "__main__":\n    main()\n'
        )
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
            subprocess.run(["git", *command], cwd=self.repository, check=True)

    def weft(self, *arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [WEFT, *arguments],
            cwd=self.repository,
            env={**os.environ, **env},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def sessions(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(self.weft("session", "list", "--format", "json").stdout)
        return found

    def files(self) -> dict[str, tuple[int, int]]:
        """Return the size and modification time of every file in the home."""
        home = Path(os.environ["HOME"])
        return {
            str(path): (path.stat().st_size, path.stat().st_mtime_ns)
            for path in home.rglob("*")
            if path.is_file()
        }


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_version_and_help_are_printed_at_once(shell: Shell) -> None:
    assert shell.weft("--version").stdout == f"{__version__}\n"
    helped = shell.weft("--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert 'weft run "fix the failing test"' in helped.stdout
    assert "exit codes:" in helped.stdout


def test_a_run_streams_its_text_to_stdout_and_the_rest_to_stderr(shell: Shell) -> None:
    ran = shell.weft("run", "-m", "scripted/demo", "let it greet a name")

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0] == "I'll look at the file first."
    assert ran.stdout.splitlines()[-1].startswith("Done.")
    assert "| Edit    greet.py" in ran.stderr
    assert '+    print(f"Hello, {name}!")' in ran.stderr
    assert "Hello, weft!" in ran.stderr
    assert "4 steps" in ran.stderr
    assert "$" in ran.stderr.splitlines()[-1]
    assert 'f"Hello, {name}!"' in (shell.repository / "greet.py").read_text()


def test_json_lines_are_those_of_opencode_and_end_with_a_result(shell: Shell) -> None:
    ran = shell.weft("run", "-m", "scripted/demo", "--format", "json", "--title", "Mine", "go")
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    (session,) = shell.sessions()

    assert ran.stderr == ""
    assert [line["type"] for line in lines] == [
        *("step_start", "text", "tool_use", "step_finish"),
        *("step_start", "text", "tool_use", "step_finish"),
        *("step_start", "text", "tool_use", "step_finish"),
        *("step_start", "text", "step_finish"),
        "result",  # ours: the whole of it in one line
    ]
    assert {line["sessionID"] for line in lines} == {session["id"]}
    assert all(isinstance(line["timestamp"], int) for line in lines)
    assert lines[2]["part"]["state"]["status"] == "completed"
    assert lines[3]["part"]["tokens"]["input"] > 0
    assert session["title"] == "Mine"
    assert set(session) == {"id", "title", "updated", "created", "projectId", "directory"}


def test_a_session_is_shown_and_exported_as_by_opencode(shell: Shell) -> None:
    shell.weft("run", "-m", "scripted/demo", "go")
    id = str(shell.sessions()[0]["id"])
    shown, exported = shell.weft("session", "show", id), shell.weft("session", "show", id, "--format", "json")
    document = json.loads(exported.stdout)

    assert "> go" in shown.stdout
    assert "Done." in shown.stdout
    assert document["info"]["id"] == id
    assert [message["info"]["role"] for message in document["messages"]] == ["user"] + ["assistant"] * 4


def test_a_session_is_continued_with_continue_or_by_its_id(shell: Shell) -> None:
    shell.weft("run", "-m", "scripted/demo", "one")
    shell.weft("run", "-m", "scripted/demo", "-c", "two")
    (session,) = shell.sessions()
    shell.weft("run", "-s", str(session["id"]), "three")
    document = json.loads(shell.weft("session", "show", str(session["id"]), "--format", "json").stdout)
    asked = [m["parts"][0]["text"] for m in document["messages"] if m["info"]["role"] == "user"]

    assert asked == ["one", "two", "three"]
    assert document["messages"][-1]["info"]["modelID"] == "demo"


def test_a_session_continues_in_its_own_directory_from_anywhere(shell: Shell) -> None:
    other = shell.root / "other"
    other.mkdir()
    began = shell.weft("run", "-m", "scripted/demo", "--dir", str(other), "one")
    listed = json.loads(shell.weft("session", "list", "--all", "--format", "json").stdout)
    (id,) = [each["id"] for each in listed if each["directory"] == str(other)]
    with_another_turn = shell.weft("run", "-s", id, "two")
    forked = shell.weft("session", "fork", id, "--format", "json")
    document = json.loads(shell.weft("session", "show", id, "--format", "json").stdout)
    worked_in = {each["info"]["path"]["cwd"] for each in document["messages"] if "path" in each["info"]}

    assert (began.returncode, with_another_turn.returncode) == (0, 0), with_another_turn.stderr
    assert f"the session continues in {other}" in with_another_turn.stderr
    assert worked_in == {str(other)}
    assert json.loads(forked.stdout)["directory"] == str(other)


def test_a_session_whose_directory_is_gone_continues_only_where_it_is_told_to(shell: Shell) -> None:
    other = shell.root / "other"
    other.mkdir()
    shell.weft("run", "-m", "scripted/demo", "--dir", str(other), "one")
    listed = json.loads(shell.weft("session", "list", "--all", "--format", "json").stdout)
    (id,) = [each["id"] for each in listed if each["directory"] == str(other)]
    shutil.rmtree(other)
    refused = shell.weft("run", "-s", id, "two")
    result = shell.weft("run", "-s", id, "--dir", str(shell.repository), "two")

    assert refused.returncode == 2
    assert f"{other}: session {id} worked in it, but it no longer exists" in refused.stderr
    assert result.returncode == 0


def test_continue_in_a_git_worktree_means_the_session_of_this_checkout(shell: Shell) -> None:
    main, beside = shell.repository, shell.root / "beside"
    subprocess.run(["git", "worktree", "add", "-q", beside], cwd=main, check=True)
    for checkout in (beside, main):
        shell.weft("run", "-m", "scripted/demo", "--dir", str(checkout), "one")
    with_another_turn = shell.weft("run", "-m", "scripted/demo", "--dir", str(beside), "-c", "two")

    assert with_another_turn.returncode == 0, with_another_turn.stderr
    assert [each["directory"] for each in shell.sessions()] == [str(beside), str(main)]


def test_continue_outside_of_a_repository_means_the_session_of_this_directory(shell: Shell) -> None:
    for name in ("here", "there"):
        (shell.root / name).mkdir()
        shell.weft("run", "-m", "scripted/demo", "--dir", str(shell.root / name), name)
    with_another_turn = shell.weft(
        "run", "-m", "scripted/demo", "--dir", str(shell.root / "here"), "-c", "again"
    )
    sessions = json.loads(shell.weft("session", "list", "--all", "--format", "json").stdout)
    nothing = shell.weft("run", "-m", "scripted/demo", "--dir", str(shell.root), "-c", "again")

    assert with_another_turn.returncode == 0
    assert len(sessions) == 2
    assert sessions[0]["directory"] == str(shell.root / "here")
    assert nothing.returncode == 2
    assert "start one" in nothing.stderr


def test_continue_skips_archived_sessions(shell: Shell) -> None:
    shell.weft("run", "-m", "scripted/demo", "one")
    shell.weft("session", "archive", str(shell.sessions()[0]["id"]))

    assert shell.weft("run", "-m", "scripted/demo", "-c", "two").returncode == 2


def test_piped_text_and_attachments_reach_the_prompt(shell: Shell) -> None:
    shell.weft("run", "-m", "scripted/demo", "-f", "greet.py", "explain", "this one", stdin="from a pipe\n")
    document = json.loads(
        shell.weft("session", "show", str(shell.sessions()[0]["id"]), "--format", "json").stdout
    )
    called, content, file, text = document["messages"][0]["parts"]

    assert called["text"].startswith('Called the Read tool with the following input: {"filePath":')
    assert "00001| def main():" in content["text"]
    assert (file["type"], file["filename"]) == ("file", "greet.py")
    assert text["text"] == 'explain "this one"\nfrom a pipe\n'


def test_listing_starts_no_event_loop_and_writes_nothing(shell: Shell) -> None:
    shell.weft("run", "-m", "scripted/demo", "go")
    before = shell.files()
    code = (
        "import sys; from weft.cli.main import run_command; code = run_command(['session', 'list']);"
        "print([name for name in ('asyncio', 'httpx2', 'yaml', 'rich', 'subprocess') if name in sys.modules]); sys.exit(code)"
    )
    listed = subprocess.run(
        [sys.executable, "-c", code],
        cwd=shell.repository,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert listed.stdout.splitlines()[-1] == "[]"
    assert shell.files() == before


def test_history_can_be_read_with_a_broken_configuration(shell: Shell) -> None:
    shell.weft("run", "-m", "scripted/demo", "go")
    (shell.repository / "opencode.json").write_text('{"model": "x/y", oops')
    broken = shell.weft("run", "go")

    assert len(shell.sessions()) == 1
    assert broken.returncode == 2
    assert f"{shell.repository / 'opencode.json'}:1:18" in broken.stderr
    assert "Traceback" not in broken.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said", "way_out"),
    [
        (["run", "hello"], 2, "no model is available", "weft auth login anthropic"),
        (["run", "-m", "scripted/dmeo", "hello"], 2, "no model scripted/dmeo", "scripted/demo"),
        (["run", "-m", "demo", "hello"], 2, "'demo' does not name a model", "provider/model"),
        (["run", "-m", "scripted/demo", "--agent", "nobody", "hello"], 2, "no agent 'nobody'", "build"),
        (["run", "-m", "scripted/demo", "-f", "nothing.txt", "hello"], 2, "no file 'nothing.txt'", ""),
        (["run", "-m", "scripted/demo", "-s", "ses_1", "hello"], 2, "there is no session 'ses_1'", "session list --all"),
        (["run", "-m", "scripted/demo", "-c", "hello"], 2, "there is no session", "weft run"),
        (["run", "-m", "scripted/demo"], 2, "prompt: it is missing", "weft run"),
        (["session", "show", "ses_00000000000000000000000000"], 2, "no session 'ses_0", "session list --all"),
        (["session", "show", "../../etc/passwd"], 2, "is not one", ""),
        (["session", "list", "--dir", "/nowhere/at/all"], 2, "/nowhere/at/all", ""),
        (["session", "list", "--dir", "greet.py"], 2, "greet.py", ""),
        (["session", "list", "--store", "nosuch:x"], 2, "is not a store that can be read", "WEFT_STORE"),
        (["session", "list", "--store", "nosuch"], 2, "there is no store at", "a new store is made by weft run"),
        (["run", "-m", "scripted/demo", "--json-schema", '{"type": "objec"}', "hello"], 2, "--json-schema: not a JSON schema", "or name a file"),
        (["run", "-m", "scripted/demo", "--record", "/nowhere/tape", "hello"], 2, "cannot write /nowhere/tape", "a new file"),
        (["run", "-m", "scripted/demo", "--replay", "nothing", "hello"], 2, "cannot read nothing", "weft run --record"),
        (["run", "-m", "scripted/demo", "--replay", "greet.py", "hello"], 2, "not a tape: greet.py, line 1", "weft run --record"),
        (["session", "list", "--store", "postgres:x"], 2, "is not the URL of a Postgres database", "postgres://"),
        (["run", "--store", "nosuch:x", "-m", "scripted/demo", "hello"], 2, "is not the URL of a store", "file:<path>"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_in_a_sentence_with_a_hint(
    shell: Shell, arguments: list[str], code: int, said: str, way_out: str
) -> None:
    ran = shell.weft(*arguments)

    assert ran.returncode == code
    assert said in ran.stderr
    assert way_out in ran.stderr
    assert len(ran.stderr.splitlines()) <= 2
    assert "Traceback" not in ran.stderr
    assert shell.sessions() == []


def test_output_that_finds_no_room_is_not_reported_as_a_bug(shell: Shell) -> None:
    shell.weft("run", "-m", "scripted/demo", "go")
    with open("/dev/full", "w") as full:
        listed = subprocess.run(
            [sys.executable, "-m", "weft", "session", "list"],
            cwd=shell.repository,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )

    assert (listed.returncode, listed.stderr.splitlines()) == (
        1,
        [
            "error: what this command prints cannot be written: No space left on device",
            "       free some space and try again",
        ],
    )


def test_a_current_directory_that_was_removed_is_named(shell: Shell) -> None:
    gone = shell.root / "gone"
    gone.mkdir()
    listed = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && exec "$0" -m weft session list', sys.executable],
        cwd=gone,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert listed.returncode == 2
    assert "error: the current directory: it was removed\n       go to another one" in listed.stderr


def test_the_store_is_set_by_flag_environment_or_configuration(shell: Shell) -> None:
    config = Path(os.environ["XDG_CONFIG_HOME"], "opencode", "opencode.json")
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"experimental": {"weft": {"store": str(shell.root / "configured")}}}))
    places = [
        (["--store", str(shell.root / "flag")], {"WEFT_STORE": str(shell.root / "environment")}, "flag"),
        ([], {"WEFT_STORE": f"file:{shell.root / 'environment'}"}, "environment"),
        ([], {}, "configured"),
    ]
    for flags, env, where in places:
        shell.weft("run", "-m", "scripted/demo", *flags, "go", **env)
        listed = json.loads(shell.weft("session", "list", "--format", "json", *flags, **env).stdout)
        assert len(listed) == 1, where
        assert len(list((shell.root / where / "session").rglob("*.json"))) == 1


def test_a_broken_session_is_named_and_does_not_hide_the_others(shell: Shell) -> None:
    for words in ("one", "two"):
        shell.weft("run", "-m", "scripted/demo", "--title", words, words)
    storage = Path(os.environ["XDG_DATA_HOME"], "opencode", "storage")
    (broken,) = [path for path in storage.glob("session/*/*.json") if '"one"' in path.read_text()]
    broken.write_text('{"id": "ses_')
    os.utime(broken, (1_700_000_000, 1_700_000_000))
    listed = shell.weft("session", "list", "--format", "json")

    assert [session["title"] for session in json.loads(listed.stdout)] == ["two"]
    assert str(broken) in listed.stderr
    assert broken.read_text() == '{"id": "ses_'


def test_an_interrupted_run_settles_and_has_its_exit_code(shell: Shell) -> None:
    running = subprocess.Popen(
        [WEFT, "run", "-m", "scripted/demo", "go"],
        cwd=shell.repository,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.read(1) == "I", running.communicate()
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    document = json.loads(
        shell.weft("session", "show", str(shell.sessions()[0]["id"]), "--format", "json").stdout
    )
    last = document["messages"][-1]

    assert running.returncode == 130
    assert "Traceback" not in said
    assert last["info"]["error"]["name"] == "MessageAbortedError"
    assert last["info"]["time"]["completed"]
    assert all(
        part["state"]["status"] in ("completed", "error") for part in last["parts"] if part["type"] == "tool"
    )


def test_a_closed_stdout_ends_the_output_silently(shell: Shell) -> None:
    for number in range(3):
        shell.weft("run", "-m", "scripted/demo", f"prompt {number}")
    piped = subprocess.run(
        f"{WEFT} run -m scripted/demo --format json go | head -n 1",
        shell=True, cwd=shell.repository, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip

    # A busy machine may not close everything in the two seconds that are promised, and says so.
    assert piped.stderr == "" or piped.stderr.startswith("weft exited while these were still running: ")
    assert json.loads(piped.stdout)["type"] == "step_start"


def test_sessions_of_the_oldest_versions_are_found_by_the_first_command(shell: Shell) -> None:
    old = Path(os.environ["XDG_DATA_HOME"], "opencode", "project", "x", "storage", "session")
    session = {
        "id": "ses_417d96fffffe0000000000000a",
        "title": "From long ago",
        "time": {"created": 1_750_000_000_000, "updated": 1_750_000_000_000},
    }
    message = {
        "id": "msg_be8269000001aaaaaaaaaaaaaa",
        "sessionID": session["id"],
        "role": "user",
        "time": {"created": 1_750_000_000_000},
        "path": {"root": str(shell.repository)},
    }
    for name, document in (
        (f"info/{session['id']}", session),
        (f"message/{session['id']}/{message['id']}", message),
    ):
        path = old / f"{name}.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(document))

    assert [each["title"] for each in shell.sessions()] == ["From long ago"]
    assert (old / "info" / f"{session['id']}.json").exists()


# --- as programs that know OpenCode call it ---


@pytest.mark.parametrize(
    "arguments",
    [
        ("--print-logs", "--log-level", "DEBUG", "session", "list", "--format", "json"),
        ("--log-level=ERROR", "session", "list", "--format", "json"),
        ("session", "list", "--print-logs", "--format", "json", "--log-level=warn"),
        ("auth", "ls", "--format", "json"),
        ("--print-logs", "mcp", "ls", "--format", "json"),
        ("run", "--port", "0", "-m", "scripted/demo", "--print-logs", "hi"),
    ],
)
def test_the_arguments_of_opencode_are_accepted(shell: Shell, arguments: tuple[str, ...]) -> None:
    ran = shell.weft(*arguments)
    assert (ran.returncode, "unrecognized" in ran.stderr) == (0, False), ran.stderr


def test_an_editor_may_pass_the_listening_options_of_opencode() -> None:
    arguments = ["acp", "--port=0", "--hostname=127.0.0.1", "--cors", "a", "b", "--mdns", "--cwd", "/x"]
    assert build_parser(arguments).parse_args(arguments).cwd == "/x"


def test_an_invalid_log_level_is_refused(shell: Shell) -> None:
    for arguments in (("--log-level", "loud", "session", "list"), ("session", "list", "--log-level", "loud")):
        ran = shell.weft(*arguments)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "--log-level" in ran.stderr


def test_a_run_continues_with_a_fork_and_leaves_the_original_unchanged(shell: Shell) -> None:
    shell.weft("run", "-m", "scripted/demo", "first")
    [first] = shell.sessions()
    before = shell.weft("session", "show", str(first["id"]), "--format", "json").stdout
    for chosen in (("-c",), ("-s", str(first["id"]))):
        forked = shell.weft("run", "-m", "scripted/demo", *chosen, "--fork", "--format", "json", "second")
        assert forked.returncode == 0, forked.stderr
        last = json.loads(forked.stdout.splitlines()[-1])
        assert last["sessionID"] != first["id"]
        shown = json.loads(shell.weft("session", "show", last["sessionID"], "--format", "json").stdout)
        said = [
            part["text"] for each in shown["messages"] for part in each["parts"] if part["type"] == "text"
        ]
        assert "first" in said[0]
    assert shell.weft("session", "show", str(first["id"]), "--format", "json").stdout == before
    refused = shell.weft("run", "-m", "scripted/demo", "--fork", "alone")
    assert (refused.returncode, "--fork" in refused.stderr) == (2, True)


# --- odd surroundings ---


def run_in_bash(shell: Shell, line: str, **env: str) -> tuple[int, str, str]:
    ran = subprocess.run(
        ["bash", "-c", line],
        cwd=shell.repository,
        env={**os.environ, "WEFT": WEFT, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return ran.returncode, ran.stdout.decode("latin-1"), ran.stderr.decode("latin-1")


def test_closed_streams_are_tolerated(shell: Shell) -> None:
    assert run_in_bash(shell, "$WEFT --version >&-") == (0, "", "")
    code, out, err = run_in_bash(shell, "$WEFT session list >&-")
    assert (code, out, err.startswith("this project has no sessions yet")) == (0, "", True)
    code, out, err = run_in_bash(shell, "$WEFT run -m scripted/demo hi >&-")
    assert (code, out, err.splitlines()[-1].startswith("4 steps")) == (0, "", True)
    code, out, err = run_in_bash(shell, "$WEFT run -m scripted/demo --format json hi 2>&- <&-")
    assert (code, json.loads(out.splitlines()[-1])["status"], err) == (0, "done", "")
    assert run_in_bash(shell, "$WEFT run -m scripted/demo hi <&- >&- 2>&-") == (0, "", "")
    assert run_in_bash(shell, "$WEFT session show nosuch 2>&-") == (2, "", "")
    assert len(shell.sessions()) == 3


def test_characters_that_the_output_cannot_encode_are_escaped(shell: Shell) -> None:
    line = "$WEFT run -m scripted/demo --title 'gr\u00fc\u00df \u2026 \U0001f600' hi"
    code, _, err = run_in_bash(shell, line, PYTHONIOENCODING="ascii", LC_ALL="C.UTF-8")
    assert (code, "\\u00b7" in err) == (0, True), err
    code, out, err = run_in_bash(shell, "$WEFT session list", PYTHONIOENCODING="latin-1")
    assert (code, "gr\u00fc\u00df \\u2026 \\ud83d\\ude00" in out, err) == (0, True, "")
    code, out, err = run_in_bash(shell, "$WEFT session list --format json", PYTHONIOENCODING="ascii")
    assert (code, json.loads(out)[0]["title"], err) == (0, "gr\u00fc\u00df \u2026 \U0001f600", "")


def test_piped_bytes_that_are_not_text_are_escaped(shell: Shell) -> None:
    code, _, err = run_in_bash(shell, "printf 'gr\\374n' | $WEFT run -m scripted/demo")
    assert code == 0, err
    [session] = shell.sessions()
    shown = json.loads(shell.weft("session", "show", str(session["id"]), "--format", "json").stdout)
    assert shown["messages"][0]["parts"][0]["text"] == "gr\\xfcn"


@pytest.mark.parametrize(
    "command", ["session list", "run -m scripted/demo hi", "serve", "doctor", "config", "models"]
)
def test_without_a_home_one_sentence_is_printed(shell: Shell, command: str) -> None:
    gone = " ".join(f"-u {name}" for name in os.environ if name.startswith("XDG_") or name == "HOME")
    code, out, err = run_in_bash(shell, f"env {gone} $WEFT {command}")
    assert (code, out, err.splitlines()) == (
        2,
        "",
        ["error: HOME: is not set", "       set HOME to your home directory"],
    )


def test_an_exporter_that_cannot_be_loaded_causes_a_warning_and_the_run_continues(shell: Shell) -> None:
    broken = shell.root / "broken/opentelemetry/exporter/otlp/proto/http"
    broken.mkdir(parents=True)
    (broken / "__init__.py").touch()
    for name in ("trace_exporter", "metric_exporter"):
        (broken / f"{name}.py").write_text("raise TypeError('Descriptors cannot be created directly')\n")
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode/opencode.json"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(json.dumps({"experimental": {"openTelemetry": True}}))
    code, out, err = run_in_bash(
        shell, "$WEFT run -m scripted/demo hi", PYTHONPATH=str(shell.root / "broken")
    )
    assert (code, "Done." in out) == (0, True), err
    [warning] = [line for line in err.splitlines() if "warning" in line]
    assert "opentelemetry-exporter-otlp-proto-http" in warning
    assert "TypeError: Descriptors cannot be created directly" in warning
