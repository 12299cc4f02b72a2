"""What a Python developer does wrong in the first hour: each mistake is named, with what to do instead."""

import asyncio
import gc
import re
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import weft
from given.engine import open_engine
from given.served_engine import always_open, open_server
from weft.agent.options import PERMISSIONS
from weft.local.open import OpenOptions, open_directory
from weft.permission.rules import permission_of
from weft.testing import FunctionModel, Script
from weft.tool.registry import TOOLS


class Unknown:
    pass


def untyped(item) -> str:  # type: ignore[no-untyped-def]
    """Take anything."""
    return str(item)


def undescribed(item: str) -> str:
    return item


def many(*items: str) -> str:
    """Take any number."""
    return str(items)


def foreign(item: Unknown) -> str:
    """Take something that is no JSON."""
    return str(item)


def undefined(item: "Missing") -> str:  # type: ignore[name-defined]  # noqa: F821
    """Take something that does not exist."""
    return str(item)


TYPES = "use a dataclass, a TypedDict, a msgspec struct, a pydantic model, or a JSON schema as a dict"
JSON_TYPES = "use str, int, float, bool, list, dict, Literal, enums, dataclasses, or None with one of these"
DOLLARS = "pass dollars, such as 0.50, or a weft.Budget"
BAD: list[tuple[dict[str, object], type[Exception], str, str]] = [
    ({"model": 3}, weft.InvalidInputError, "model: it is an int", "name one, as in"),
    ({"model": Script}, weft.InvalidInputError, "model: it is the class Script", "make one: Script(…)"),
    (
        {"model": untyped},
        weft.InvalidInputError,
        "model: it is a function",
        "wrap it: weft.testing.FunctionModel",
    ),
    (
        {"model": "claude"},
        weft.InvalidInputError,
        "model: 'claude' is not of the form provider/model",
        "weft models",
    ),
    ({"model": "nope/nothing"}, weft.ModelNotFoundError, "there is no model nope/nothing", "weft models"),
    (
        {"model": "openai/gpt-5o"},
        weft.ModelNotFoundError,
        "there is no model openai/gpt-5o",
        "did you mean openai/gpt-",
    ),
    ({"agent": "biuld"}, weft.NotFoundError, "there is no agent 'biuld'", "did you mean build?"),
    ({"tools": untyped}, weft.InvalidInputError, "tools: it is a function", "pass a list: tools=[untyped]"),
    ({"tools": [3]}, weft.InvalidInputError, "tools: 3 is not a function", "pass the function itself"),
    ({"tools": [Unknown]}, weft.InvalidInputError, "tools: Unknown is a class", "written with def"),
    ({"tools": [lambda x: x]}, weft.InvalidInputError, "cannot be the name of a tool", "written with def"),
    ({"tools": [undescribed]}, weft.InvalidInputError, "has no docstring", "describe the tool in it"),
    ({"tools": [untyped]}, weft.InvalidInputError, "has no type for 'item'", "write item: str"),
    (
        {"tools": [many]},
        weft.InvalidInputError,
        "takes *items: str, which a model cannot send",
        "name every parameter",
    ),
    ({"tools": [foreign]}, weft.InvalidInputError, "which cannot be read from JSON", JSON_TYPES),
    (
        {"tools": [undefined]},
        weft.InvalidInputError,
        "name 'Missing' is not defined",
        "write the type itself",
    ),
    (
        {"permissions": "maybe"},
        weft.InvalidInputError,
        "permissions: 'maybe' is none of allow, ask, deny",
        'pass "allow", "ask" or "deny"',
    ),
    ({"permissions": {"bash": 1}}, weft.InvalidInputError, "permissions.bash: 1 is none of", "rules such as"),
    ({"permissions": 1}, weft.InvalidInputError, "permissions: it is an int", "or a function"),
    ({"budget": "much"}, weft.InvalidInputError, "budget: 'much' is not a number of dollars", DOLLARS),
    ({"budget": True}, weft.InvalidInputError, "budget: it is a bool", DOLLARS),
    ({"schema": 3}, weft.InvalidInputError, "schema: 3 is not a type", TYPES),
    ({"schema": Unknown}, weft.InvalidInputError, "schema: JSON cannot express it: type <class", TYPES),
    ({"schema": {"type": "nonsense"}}, weft.InvalidInputError, "schema: not a JSON schema: $.type", ""),
    ({"system": b"x"}, weft.InvalidInputError, "system: it is a bytes, not text", "pass a str"),
    (
        {"store": "redis://x"},
        weft.InvalidInputError,
        "store: 'redis://x' is not the URL of a store",
        "use file:",
    ),
    ({"store": 3}, weft.InvalidInputError, "store: it is an int", 'such as "sqlite:sessions.db"'),
    ({"env": 3}, weft.InvalidInputError, "env: it is an int", "pass a dict of variables"),
    ({"modle": "x"}, TypeError, "there is no argument 'modle'; did you mean model?", ""),
    ({"chekc": "x"}, TypeError, "there is no argument 'chekc'; did you mean check?", ""),
    ({"zzz": "x"}, TypeError, "there is no argument 'zzz'; there are model, agent, system", ""),
]


@pytest.mark.parametrize(("options", "error", "message", "hint"), BAD, ids=lambda each: str(each)[:25])
def test_a_wrong_argument_is_reported_with_a_hint(
    options: dict[str, Any], error: type[Exception], message: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(error) as raised, weft.open(tmp_path, **{"store": "memory:", **options}):
        pass
    assert message in str(raised.value)
    assert hint in getattr(raised.value, "hint", "")
    assert bool(hint) == bool(getattr(raised.value, "hint", ""))


async def read_mistake(opening: Callable[[], weft.Opening[str]], **options: Any) -> tuple[object, ...]:
    """Return the error of opening an agent, or of asking it."""
    with pytest.raises((weft.WeftError, TypeError)) as raised:
        async with opening() as agent:
            await agent.ask("x", **options)
    return type(raised.value), str(raised.value), getattr(raised.value, "hint", "")


async def test_mistakes_over_http_have_the_same_messages(tmp_path: Path) -> None:
    def open_local(**options: Any) -> weft.Opening[str]:
        return weft.open(tmp_path, store="memory:", **options)

    def open_served(directory: str) -> AbstractAsyncContextManager[weft.Api]:
        return open_directory(OpenOptions(directory=directory, store="memory:"))

    async with open_server(open_served, default_directory=str(tmp_path)) as url:
        for options, *_ in BAD:
            if options.keys() & {"store", "env", "chekc"}:
                continue
            near = await read_mistake(partial(open_local, **options))
            assert await read_mistake(partial(weft.connect, url, **options)) == near
            near = await read_mistake(open_local, **options)
            assert await read_mistake(partial(weft.connect, url), **options) == near
        async with weft.connect(url) as agent:
            assert await agent.api.list_sessions() == []


async def test_a_closed_agent_raises_an_error_over_http_too(tmp_path: Path) -> None:
    async with open_engine() as engine, open_server(always_open(engine)) as url:
        for opening in (open_scripted(tmp_path), weft.connect(url)):
            async with opening as agent:
                talk = await agent.converse()
                api = agent.api
            for use in (lambda: agent.ask("x"), agent.converse, lambda: talk.ask("x"), talk.messages):  # noqa: B023
                with pytest.raises(weft.ClosedError, match="the agent is closed"):
                    await use()
            with pytest.raises(weft.ClosedError, match="the agent is closed"):
                agent.api  # noqa: B018
        with pytest.raises(weft.ClosedError, match="the connection is closed"):
            await api.list_sessions()


@pytest.mark.parametrize("place", [3, None, b"x"])
def test_only_a_path_or_an_address_can_be_opened(place: Any) -> None:
    with pytest.raises(weft.InvalidInputError, match=r"directory: it is an? "):
        weft.open(place)
    with pytest.raises(weft.InvalidInputError, match=r"url: it is an? ") as raised:
        weft.connect(place)
    assert "http://127.0.0.1:4096" in raised.value.hint


def test_a_file_cannot_be_opened_as_a_directory(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    with pytest.raises(weft.WeftError, match="it is a file"):
        weft.open(tmp_path / "a.txt")


def test_a_store_can_be_passed_only_when_opening() -> None:
    with pytest.raises(TypeError, match=r"there is no argument 'store'; only weft\.open takes it"):
        weft.connect("http://127.0.0.1:1", store="memory:")  # type: ignore[call-overload]


def test_a_misspelt_name_of_the_package_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'opne'; did you mean `open`\?"):
        weft.opne  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(weft, "__wrapped__")


def open_scripted(directory: Path, *more: str, **options: Any) -> weft.Opening[str]:
    script = Script().says("x")
    for each in more:
        script.asked(each).says("x")
    return weft.open(directory, model=script, store="memory:", **options)


QUESTIONS: list[tuple[tuple[Any, ...], dict[str, Any], str, str]] = [
    ((3,), {}, "prompt: it is an int, not text", "pass a str"),
    ((" ",), {}, "prompt: it is empty", "say what the agent should do"),
    (("x",), {"files": "a.txt"}, "files: it is a str", "pass a list of paths"),
    (("x",), {"files": ["."]}, "files: '.' is a directory", "pass the files in it"),
    (("x",), {"files": ["missing.txt"]}, "files: there is no file 'missing.txt'", "paths are relative to"),
    (("x",), {"agent": "biuld"}, "there is no agent 'biuld'", "did you mean build?"),
    (("x",), {"tools": [undescribed]}, "has no docstring", "describe the tool in it"),
]


@pytest.mark.parametrize(("given", "options", "message", "hint"), QUESTIONS, ids=lambda each: str(each)[:25])
def test_an_invalid_question_is_reported_and_leaves_no_session(
    given: tuple[Any, ...], options: dict[str, Any], message: str, hint: str, tmp_path: Path
) -> None:
    with open_scripted(tmp_path) as agent:
        with pytest.raises(weft.WeftError) as raised:
            agent.ask(*given, **options)
        assert agent.wait(agent.api.list_sessions()) == []
    assert message in str(raised.value)
    assert hint in raised.value.hint


def test_without_a_model_the_hint_is_for_python_and_no_session_is_left(tmp_path: Path) -> None:
    with weft.open(tmp_path, store="memory:") as agent:
        with pytest.raises(weft.NoModelError, match="no model is available") as raised:
            agent.ask("Hello.")
        assert agent.wait(agent.api.list_sessions()) == []
    assert raised.value.hint == (
        'pass model="provider/model", or set "model" in opencode.json; weft models lists what there is'
    )


def test_a_missing_key_is_reported_once(tmp_path: Path) -> None:
    opening = weft.open(tmp_path, model="anthropic/claude-sonnet-4-5", store="memory:")
    with opening as agent, pytest.raises(weft.RunFailedError) as raised:
        agent.ask("Hello.")
    shown = "".join(traceback.format_exception(raised.value))
    assert shown.count("weft auth login anthropic") == 1
    assert "set ANTHROPIC_API_KEY" in shown


def test_the_hint_of_a_run_that_failed_is_shown_once(tmp_path: Path) -> None:
    script = Script().calls("read", filePath="/etc/hosts")
    opening = weft.open(tmp_path, model=script, store="memory:")
    with opening as agent, pytest.raises(weft.RunRefusedError) as raised:
        agent.ask("x")
    shown = "".join(traceback.format_exception(raised.value))
    assert shown.count("pass permissions={…}, or a function that answers") == 1
    assert raised.value.hint in str(raised.value)


def test_an_exhausted_budget_says_how_to_continue_in_python(tmp_path: Path) -> None:
    with open_scripted(tmp_path) as agent, pytest.raises(weft.BudgetExceededError) as raised:
        agent.ask("x", budget=0)
    assert "pass a larger budget" in raised.value.hint
    assert "--max-cost" not in str(raised.value)


def test_a_value_of_the_wrong_type_has_a_hint(tmp_path: Path) -> None:
    script = Script().answers("no").answers("no").answers("no").answers("no")
    opening = weft.open(tmp_path, model=script, store="memory:")
    with opening as agent, pytest.raises(weft.InvalidAnswerError) as raised:
        agent.ask("x", schema=int)
    assert "loosen the schema" in raised.value.hint


def count_frames(error: BaseException) -> int:
    return len(traceback.extract_tb(error.__traceback__))


async def test_a_traceback_shows_the_line_of_the_caller_and_few_of_ours(tmp_path: Path) -> None:
    with pytest.raises(weft.ModelNotFoundError) as opening, weft.open(tmp_path, model="nope/nothing"):
        pass
    with open_scripted(tmp_path) as agent, pytest.raises(weft.NotFoundError) as blocking:
        agent.ask("x", agent="nobody")
    async with open_scripted(tmp_path) as other:
        with pytest.raises(weft.NotFoundError) as asking:
            await other.ask("x", agent="nobody")
    for raised in (opening, blocking, asking):
        assert count_frames(raised.value) <= 7


def test_a_hint_is_in_the_traceback(tmp_path: Path) -> None:
    with pytest.raises(weft.InvalidInputError) as raised:
        weft.open(tmp_path, model="claude")
    assert raised.value.__notes__ == [f"Hint: {raised.value.hint}"]


def test_a_rule_with_a_misspelt_permission_causes_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"no permission 'bsh'; did you mean 'bash'\?") as warned:
        weft.open(tmp_path, permissions={"bsh": "deny", "bash": "deny", "deploy": "ask", "*": "allow"})
    assert [each.filename for each in warned] == [__file__]


def test_a_blocking_call_in_a_loop_causes_one_warning_at_the_line_of_its_caller(tmp_path: Path) -> None:
    with open_scripted(tmp_path, "y") as agent, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        agent.ask("x", permissions={"bsh": "deny"})
        agent.stream("y", permissions={"bsh": "deny"}).answer()
        agent.converse(permissions={"bsh": "deny"})
    assert [each.filename for each in warned] == [__file__] * 3
    first = warned[0].lineno
    assert [each.lineno for each in warned] == [first, first + 1, first + 2]


def test_the_known_permissions_are_those_of_weft(tmp_path: Path) -> None:
    with open_scripted(tmp_path) as agent:
        agents = agent.wait(agent.api.workspace.list_agents())
    named = {rule.permission for each in agents for rule in each.permission}
    assert (named | {permission_of(tool.name) for tool in TOOLS}) - set(PERMISSIONS) <= {"*", "invalid"}


def test_a_script_without_a_value_says_what_to_write(tmp_path: Path) -> None:
    with (
        open_scripted(tmp_path) as agent,
        pytest.raises(weft.RunFailedError, match=r"write \.answers\(value\)"),
    ):
        agent.ask("x", schema=int)


@pytest.mark.parametrize("session", ["ses_missing", "nonsense", 3])
def test_a_conversation_needs_a_session_that_exists(session: Any, tmp_path: Path) -> None:
    expected = (weft.NotFoundError, weft.InvalidInputError)
    with open_scripted(tmp_path) as agent, pytest.raises(expected) as raised:
        agent.converse(session)
    assert "or nothing for a new one" in raised.value.hint


# --- closed agents, other loops, other threads ---


def test_a_closed_agent_raises_an_error(tmp_path: Path) -> None:
    opening = open_scripted(tmp_path)
    with opening as agent:
        talk = agent.converse()
    for use in (lambda: agent.ask("x"), lambda: agent.stream("x"), agent.converse, lambda: talk.ask("x")):
        with pytest.raises(weft.ClosedError) as raised:
            use()
        assert "use it inside the `with`" in raised.value.hint
    agent.close()
    with pytest.raises(weft.ClosedError, match="this was opened before"), opening:
        pass
    with pytest.raises(AttributeError, match="not open yet"):
        open_scripted(tmp_path).ask  # type: ignore[attr-defined]  # noqa: B018


async def test_an_agent_of_another_loop_raises_an_error(tmp_path: Path) -> None:
    async with open_scripted(tmp_path) as agent:

        def ask_in_another_thread() -> None:
            with pytest.raises(weft.InvalidInputError, match="opened in another one") as raised:
                asyncio.run(agent.ask("x"))
            assert "use `with weft.open(…)` and blocking calls" in raised.value.hint

        await asyncio.to_thread(ask_in_another_thread)


async def test_a_stream_used_without_async_says_how_to_iterate(tmp_path: Path) -> None:
    async with open_scripted(tmp_path) as agent:
        stream = agent.stream("x")
        with pytest.raises(TypeError, match="iterated over with `async for`"):
            list(stream)  # type: ignore[call-overload]
        assert (await stream.answer()).text == "x"


def test_threads_may_share_a_blocking_agent(tmp_path: Path) -> None:
    texts: list[str] = []
    with weft.open(tmp_path, model=FunctionModel(lambda _: "x"), store="memory:") as agent:
        threads = [threading.Thread(target=lambda: texts.append(agent.ask("x").text)) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert texts == ["x"] * 4


# --- agents that nobody closes ---


def list_loop_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "weft"}


def test_a_dropped_agent_closes_itself(tmp_path: Path) -> None:
    before = list_loop_threads()
    agents = [open_scripted(tmp_path).start()]
    (thread,) = list_loop_threads() - before
    assert agents[0].ask("x").text == "x"
    with pytest.warns(ResourceWarning, match="an agent was not closed"):
        agents.clear()
    thread.join(60)
    assert not thread.is_alive()


def test_a_conversation_keeps_its_agent_open(tmp_path: Path) -> None:
    talks = [open_scripted(tmp_path, "again").start().converse()]
    gc.collect()
    assert [talks[0].ask(each).text for each in ("x", "again")] == ["x", "x"]
    with pytest.warns(ResourceWarning, match="an agent was not closed"):
        talks.clear()


async def test_an_agent_stays_open_while_only_a_conversation_is_kept(tmp_path: Path) -> None:
    agent = await open_scripted(tmp_path, "again").__aenter__()
    talk = await agent.converse()
    del agent
    for each in ("x", "again"):
        gc.collect()
        assert (await talk.ask(each)).text == "x"
    context: Any = talk._host.context
    await context.__aexit__(None, None, None)
    with pytest.raises(weft.ClosedError):
        await talk.ask("x")


NOTEBOOK = """
import gc
import weft
from weft.testing import FunctionModel

def start():
    return weft.open(".", model=FunctionModel(lambda _: "Hello."), store="memory:").start()

print(start().ask("a"))          # nothing keeps this one
agent = start()
print(agent.ask("b"))
agent = start()                  # the cell is run again
gc.collect()
for event in agent.stream("c"):  # left before its end
    break
print(agent)
"""


def test_a_notebook_that_closes_nothing_exits_quietly(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Hello.\nHello.\nBlockingAgent(weft.open('.'))\n"


# --- representations ---


async def test_representations_fit_on_a_line(tmp_path: Path) -> None:
    long = "word " * 100
    script = (
        Script()
        .says(long)
        .calls("write", filePath="a.txt", content=long)
        .also_calls("read", filePath="a.txt")
        .says(long)
    )
    async with weft.open(tmp_path, model=script, store="memory:") as agent:
        answer = await agent.ask("x")
        talk = await agent.converse()
        events = [repr(event) async for event in agent.stream("y", model=Script().says("z"))]
    shown = [repr(each) for each in (agent, talk, answer, *answer.steps, *answer.calls, agent.stream)]
    assert [each for each in (*shown[:-1], *events) if len(each) > 180 or "\n" in each] == []
    assert re.fullmatch(r"Agent\(weft\.open\('.*'\)\)", repr(agent))
    assert "2 steps · " in answer._repr_markdown_()
