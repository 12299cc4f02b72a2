"""`weft session context`: exactly what the next request would send."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from weft.cli.main import run_command
from weft.config.store_address import resolve_store_url
from weft.host.clock import SystemClock
from weft.host.paths import paths_from
from weft.local.open import OpenOptions, open_directory
from weft.local.preview import PLACEHOLDER
from weft.model.ids import SessionID
from weft.model.input import PromptInput, SessionInput, TextInput
from weft.model.move import SessionArrival
from weft.model.part import ModelRef
from weft.model.session import get_weft_data, with_weft_data
from weft.model.wire import to_plain
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.contract import ModelRequest
from weft.provider.registry import ServedModel
from weft.provider.scripted import Say, ScriptedProvider
from weft.store.url import open_store

DEMO = make_scripted_model("demo")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    top = tmp_path / "repository"
    (top / "pkg").mkdir(parents=True)
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "start"]):
        subprocess.run(["git", *command], cwd=top, check=True)
    (top / "AGENTS.md").write_text("Far.")
    (top / "pkg" / "AGENTS.md").write_text("Near.")
    monkeypatch.chdir(top / "pkg")
    return top


async def run_prompt(words: str, *, session: SessionID | None = None) -> tuple[SessionID, ModelRequest]:
    """Run a prompt here, and return the session and the request."""
    provider = ScriptedProvider([[Say(text="So be it.")]], SystemClock())
    async with open_directory(OpenOptions(models=(ServedModel(DEMO, provider),))) as api:
        session = session or (await api.create_session(SessionInput(title="Talk"))).id
        named = ModelRef(provider_id=DEMO.provider_id, model_id=DEMO.id)
        await api.prompt(session, PromptInput(parts=(TextInput(text=words),), model=named))
    return session, provider.requests[0]


def context(session: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert run_command(["session", "context", session, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def files(top: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in top.rglob("*") if path.is_file()}


async def test_the_shown_context_is_the_one_sent_next(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session, first = await run_prompt("first")
    (repository / "AGENTS.md").write_text("Farther.")
    before = files(Path(os.environ["XDG_DATA_HOME"]))
    shown = context(session, capsys)
    assert files(Path(os.environ["XDG_DATA_HOME"])) == before
    _, second = await run_prompt(PLACEHOLDER, session=session)

    sent = to_plain({"system": second.system, "tools": second.tools, "messages": second.messages})
    assert {name: shown[name] for name in sent} == json.loads(json.dumps(sent))
    assert shown["system"] == list(first.system)
    assert shown["placeholder"]
    assert "Farther." in shown["messages"][-1]["content"][1]["text"]


async def test_the_context_of_a_session_that_was_moved_here_says_so(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session, _ = await run_prompt("first")
    arrived = SessionArrival(move="mov_1", host="loom", directory="/there", time=1)
    async with open_store(resolve_store_url(os.environ, paths_from(os.environ))) as store:
        await store.edit(
            session, lambda info: with_weft_data(info, replace(get_weft_data(info), arrived=arrived))
        )
    shown = context(session, capsys)
    _, second = await run_prompt(PLACEHOLDER, session=session)

    assert shown["messages"] == json.loads(json.dumps(to_plain(second.messages)))
    assert "It worked in /there on loom" in shown["messages"][-1]["content"][1]["text"]


async def test_the_tokens_of_each_part_are_listed(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session, _ = await run_prompt("first")
    report = context(session, capsys)["tokens"]
    run_command(["session", "context", session])
    shown = capsys.readouterr().out

    assert report["total"] == sum(part["tokens"] for part in report["parts"])
    assert [part["of"] for part in report["parts"] if part["part"] == "system"] == [
        "prompt 1",
        "environment",
        f"{repository}/pkg/AGENTS.md",
        f"{repository}/AGENTS.md",
    ]
    assert f"Instructions from: {repository}/pkg/AGENTS.md\nNear." in shown
    assert f"{PLACEHOLDER} stands for your next prompt\n\n" in shown
    assert shown.splitlines()[-1] == (
        f"scripted/demo, agent build: about {report['total']:,} of {report['limit']:,} tokens"
    )


async def test_a_session_without_messages_shows_its_first_request(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", '{"model": "scripted/demo"}')
    async with open_directory(OpenOptions()) as api:
        session = (await api.create_session(SessionInput())).id
    shown = context(session, capsys)

    assert shown["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": PLACEHOLDER, "metadata": None}]}
    ]
    assert shown["system"][1].endswith(f"Instructions from: {repository}/AGENTS.md\nFar.")


async def test_mcp_servers_and_plugins_that_were_not_asked_are_named(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session, _ = await run_prompt("first")
    assert context(session, capsys)["unasked"] == {"mcp": [], "plugins": []}
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
    (own / "tool").mkdir(parents=True)
    (own / "tool" / "count.py").write_text("raise SystemExit")
    notes, off = {"type": "local", "command": ["x"]}, {"type": "local", "command": ["y"], "enabled": False}
    hooks = {"weft": {"hooks": {"event": [{"command": ["./note.sh", "now"]}]}}}
    (own / "opencode.json").write_text(
        json.dumps({"mcp": {"notes": notes, "later": off}, "experimental": hooks})
    )

    assert context(session, capsys)["unasked"] == {"mcp": ["notes"], "plugins": ["count", "./note.sh now"]}
    assert run_command(["session", "context", session]) == 0
    ours = "plugins, hooks and custom tools"
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "not included: what these MCP servers would add, which were not started: notes",
        f"not included: what these {ours} would add, which were not started: count, ./note.sh now",
    ]
