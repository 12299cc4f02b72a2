"""Tests that a user of weft writes: with scripts and tapes, in plain pytest, under pytest-asyncio and under anyio."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from given.user_pytest import run_pytest
from given.web import Answer, open_web

SCRIPTED = """
import weft
from weft.testing import Script, assert_called, assert_changed

def test_it_takes_a_note(tmp_path):
    script = Script("Remember tea.").calls("write", filePath="note.txt", content="tea").says("Noted.")
    with weft.open(tmp_path, model=script, store="memory:") as agent:
        answer = agent.ask("Remember tea.")
    assert answer.text == "Noted."
    assert_called(answer, "write", filePath="note.txt")
    assert_changed(answer, "note.txt")
    script.assert_finished()
"""
ASYNC = """
import pytest
import weft
from weft.testing import Script
{marks}

{fixture}
async def agent(tmp_path):
    script = Script().says("Hello.").asked("Count.").answers([1, 2])
    async with weft.open(tmp_path, model=script, store="memory:") as agent:
        yield agent

async def test_a_question(agent):
    assert (await agent.ask("Hi.")).text == "Hello."
    assert (await agent.ask("Count.", schema=list[int])).value == [1, 2]

async def test_a_stream(agent):
    async with agent.stream("Hi.") as events:
        assert "".join([event.text async for event in events]) == "Hello."

def test_blocking(tmp_path):
    with weft.open(tmp_path, model=Script().says("Hello."), store="memory:") as agent:
        assert agent.ask("Hi.").text == "Hello."
"""
ANYIO = """
pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""
TAPED = """
import weft

def test_it_greets(weft_tape, tmp_path):
    with weft.open(tmp_path, store="memory:", tape=weft_tape) as agent:
        assert "Well woven" in agent.ask("Greet me.").text
"""


def test_a_scripted_model_needs_no_configuration_and_no_other_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_note.py").write_text(SCRIPTED)
    for options in ([], ["-p", "no:asyncio", "-p", "no:anyio"]):
        done = run_pytest(tmp_path, *options)
        assert done.returncode == 0, done.stdout
        assert "1 passed" in done.stdout


@pytest.mark.parametrize(
    ("marks", "fixture", "options"),
    [
        ("", "@pytest.fixture", ["-o", "asyncio_mode=auto", "-p", "no:anyio"]),
        ("import pytest_asyncio", "@pytest_asyncio.fixture", ["-o", "asyncio_mode=strict", "-p", "no:anyio"]),
        (ANYIO, "@pytest.fixture", ["-p", "no:asyncio"]),
        (ANYIO, "@pytest.fixture", ["-o", "asyncio_mode=strict"]),
    ],
    ids=["asyncio-auto", "asyncio-strict", "anyio", "anyio-beside-asyncio"],
)
def test_async_tests_pass_in_every_mode(marks: str, fixture: str, options: list[str], tmp_path: Path) -> None:
    text = ASYNC.format(marks=marks, fixture=fixture)
    if "strict" in str(options) and not marks.startswith(ANYIO):
        text = text.replace("async def test", "@pytest.mark.asyncio\nasync def test")
    (tmp_path / "test_async.py").write_text(text)
    done = run_pytest(tmp_path, "-W", "error::pytest.PytestUnraisableExceptionWarning", *options)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def configure(directory: Path, url: str) -> dict[str, str]:
    """Return an environment with a provider at an address, and secrets wherever a configuration may hold them."""
    options = {"baseURL": f"{url}/v1", "apiKey": "sk-in-key", "headers": {"X-Pass": "sk-in-header"}}
    models = {"m": {"options": {"access_token": "sk-in-option"}, "headers": {"X-Own": "sk-in-model"}}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}
    path = directory / "with-keys.json"
    path.write_text(json.dumps({"model": "mill/m", "provider": {"mill": provider}}))
    return {"OPENCODE_CONFIG": str(path)}


def reply(text: str) -> bytes:
    told = [
        {"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]},
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2}},
    ]
    return b"".join(f"data: {json.dumps(each)}\n\n".encode() for each in told) + b"data: [DONE]\n\n"


def record(directory: Path, *options: str) -> Path:
    """Record the tapes of a directory from a server that is gone afterwards. Return the folder of the tapes."""
    with open_web({"/v1/chat/completions": Answer(reply("Well woven"), kind="text/event-stream")}) as web:
        done = run_pytest(directory, "--weft-record", *options, **configure(directory, web.url))
    assert done.returncode == 0, done.stdout
    return directory / "tapes"


def test_without_a_tape_a_test_says_how_to_record_it(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TAPED)
    done = run_pytest(tmp_path)
    path = tmp_path / "tapes" / "test_mine.test_it_greets.jsonl"
    command = "pytest --weft-record test_mine.py::test_it_greets"
    assert done.returncode == 1
    assert f"there is no tape {path}: record it with `{command}`" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_tape_is_recorded_once_and_replayed_without_the_model_its_keys_and_its_address(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_mine.py").write_text(TAPED)
    (tape,) = record(tmp_path).iterdir()
    assert tape.name == "test_mine.test_it_greets.jsonl"
    recorded = tape.read_text()
    assert "Well woven" in recorded
    assert "sk-in" not in recorded
    assert "127.0.0.1" not in recorded

    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
    assert tape.read_text() == recorded


def test_a_changed_prompt_names_the_first_difference_and_the_command_that_records_it(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TAPED)
    record(tmp_path)
    (tmp_path / "test_mine.py").write_text(TAPED.replace("Greet me.", "Greet us."))
    done = run_pytest(tmp_path)
    assert done.returncode == 1
    assert 'recorded "Greet me.", asked "Greet us."' in done.stdout
    assert "at messages[0].content[0].text" in done.stdout
    command = "pytest --weft-record test_mine.py::test_it_greets"
    assert f"If this change is intended, record the tape again: {command}" in done.stdout
    # And that is what it does.
    record(tmp_path, "test_mine.py::test_it_greets")
    assert run_pytest(tmp_path).returncode == 0


def test_a_recorded_exchange_that_is_not_requested_fails_the_test(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TAPED)
    (tape,) = record(tmp_path).iterdir()
    tape.write_text(tape.read_text() + tape.read_text().splitlines()[0] + "\n")
    done = run_pytest(tmp_path)
    assert done.returncode == 1
    assert f"not requested: 1 recorded exchange of {tape}" in done.stdout
    assert "record the tape again: pytest --weft-record test_mine.py::test_it_greets" in done.stdout


MANY = """
import pytest
import weft

def ask(tape, path, prompt):
    with weft.open(path, store="memory:", tape=tape) as agent:
        assert agent.ask(prompt).text == "Well woven"

class TestOne:
    def test_it(self, weft_tape, tmp_path):
        ask(weft_tape, tmp_path, "one")

class TestTwo:
    def test_it(self, weft_tape, tmp_path):
        ask(weft_tape, tmp_path, "two")

@pytest.mark.parametrize("word", ["a/b", "a b", "a-b", "a-", "a", "x" * 300])
def test_it(word, weft_tape, tmp_path):
    ask(weft_tape, tmp_path, word)
"""


def test_every_test_has_its_own_tape(tmp_path: Path) -> None:
    (tmp_path / "test_many.py").write_text(MANY)
    names = sorted(each.name for each in record(tmp_path).iterdir())
    assert len(names) == 8
    assert {"test_many.TestOne.test_it.jsonl", "test_many.test_it-a-b.jsonl"} <= set(names)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout


def test_the_plugin_is_listed_and_adds_almost_no_time(tmp_path: Path) -> None:
    assert "--weft-record" in run_pytest(tmp_path, "--help").stdout
    assert "weft_tape" in run_pytest(tmp_path, "--fixtures").stdout
    program = """
import sys, pytest
before = set(sys.modules)
import weft.testing.pytest_plugin
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert [each for each in imported if each.startswith(("weft.agent", "weft.provider", "msgspec"))] == []
    assert len(imported) <= 6, imported
