"""`weft acp` with an editor: sessions, prompts, calls, questions and modes, over a real pipe with the official SDK."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from acp import text_block
from acp.schema import AcpMcpServer, McpServerStdio

import given.editor
from given.editor import FORMS, Editor, expect_error, open_editor, open_pipe
from given.prompt_keyed_provider import PromptKeyedProvider
from weft.api import Api
from weft.errors import CursorLostError
from weft.host.clock import SystemClock
from weft.local.open import OpenOptions, open_directory
from weft.model.event import PublishedEvent, SessionDeleted
from weft.model.ids import SessionID
from weft.provider.scripted import End, Fail, Say, Think, UseTool, Wait

READ = UseTool(tool="read", input={"filePath": "hello.txt"})
EDIT = UseTool(tool="edit", input={"filePath": "hello.txt", "oldString": "there", "newString": "you"})
ASK = {"permission": {"edit": "ask"}}
GOOD = Path(__file__).parents[1] / "given" / "mcp_servers" / "good.py"
GOOD_SERVER = McpServerStdio(name="good", command=sys.executable, args=[str(GOOD)], env=[])


async def test_a_prompt_is_streamed_and_ends_with_its_stop_reason(tmp_path: Path) -> None:
    script = [Think(text="let me see"), Say(text="I look."), READ], [Say(text="It says hello.")]
    async with open_editor(tmp_path, *script) as connection:
        session = await connection.new_session()
        answer = await connection.editor.prompt(session, "what does it say?")
        assert answer.stop_reason == "end_turn"
        assert answer.usage.total_tokens > 0
        assert connection.editor.words() == "I look.It says hello."
        assert connection.editor.words("agent_thought_chunk") == "let me see"
        call = connection.editor.call("read")
        assert (call["status"], call["title"]) == ("completed", "Read hello.txt")
        assert call["locations"] == [{"path": str(connection.project / "hello.txt")}]
        assert "hello there" in call["content"][0]["content"]["text"]
        used = connection.editor.updates("usage_update")[-1]
        assert (used.size, used.cost.currency) == (200_000, "USD")
        assert used.cost.amount > 0
        assert {id for id, _ in connection.editor.received} == {session}
        assert connection.notes == []


async def test_an_edit_asks_with_its_diff_and_is_shown_completely_afterwards(tmp_path: Path) -> None:
    async with open_editor(tmp_path, [READ], [EDIT], [Say(text="Done.")], config=ASK) as connection:
        session = await connection.new_session()
        assert (await connection.editor.prompt(session, "greet me")).stop_reason == "end_turn"
        [(asked_in, asked, options)] = connection.editor.permission_requests
        path = str(connection.project / "hello.txt")
        assert (asked_in, asked.tool_call_id) == (session, connection.editor.call("edit")["tool_call_id"])
        assert [(each.path, each.old_text, each.new_text) for each in asked.content] == [
            (path, "there", "you")
        ]
        assert [(each.option_id, each.kind) for each in options] == [
            ("once", "allow_once"),
            ("always", "allow_always"),
            ("reject", "reject_once"),
        ]
        call = connection.editor.call("edit")
        assert (call["status"], call["title"]) == ("completed", "Edit hello.txt")
        assert call["content"] == [
            {"type": "diff", "path": path, "old_text": "hello there\n", "new_text": "hello you\n"}
        ]
        assert (connection.project / "hello.txt").read_text() == "hello you\n"


async def test_a_rejected_or_dismissed_call_is_not_run(tmp_path: Path) -> None:
    for number, chosen in enumerate(("reject", None)):
        editor = Editor(lambda _, __, chosen=chosen: chosen)
        at = tmp_path / str(number)
        async with open_editor(
            at, [READ], [EDIT], [Say(text="never")], editor=editor, config=ASK
        ) as connection:
            assert (await editor.prompt(await connection.new_session(), "greet me")).stop_reason == "end_turn"
            assert editor.call("edit")["status"] == "failed"
            assert (connection.project / "hello.txt").read_text() == "hello there\n"


async def test_an_always_allowed_call_is_asked_for_once(tmp_path: Path) -> None:
    again = UseTool(tool="edit", input={"filePath": "hello.txt", "oldString": "you", "newString": "all"})
    editor = Editor(lambda _, __: "always")
    script = [READ], [EDIT], [again], [Say(text="Done.")]
    async with open_editor(tmp_path, *script, editor=editor, config=ASK) as connection:
        await editor.prompt(await connection.new_session(), "greet us")
        assert len(editor.permission_requests) == 1
        assert (connection.project / "hello.txt").read_text() == "hello all\n"


async def test_an_overwritten_file_is_shown_with_its_old_content(tmp_path: Path) -> None:
    over = UseTool(tool="write", input={"filePath": "hello.txt", "content": "new\n"})
    made = UseTool(tool="write", input={"filePath": "made.txt", "content": "made\n"})
    async with open_editor(tmp_path, [READ], [over], [made], [Say(text="Done.")]) as connection:
        await connection.editor.prompt(await connection.new_session(), "write")
        diffs = [call["content"] for call in connection.editor.calls().values() if call["kind"] == "edit"]
        assert [(each.get("old_text"), each["new_text"]) for [each] in diffs] == [
            ("hello there\n", "new\n"),
            (None, "made\n"),
        ]


async def test_a_session_of_another_process_is_loaded_as_it_was_streamed(tmp_path: Path) -> None:
    todo = {"todos": [{"content": "greet", "status": "in_progress", "priority": "high", "id": "1"}]}
    script = (
        [Think(text="hm"), Say(text="I look."), READ],
        [UseTool(tool="todowrite", input=todo)],
        [Say(text="So.")],
    )
    async with open_editor(tmp_path, *script) as connection:
        session = await connection.new_session()
        await connection.editor.prompt(session, "look at it")
        first = connection.editor
    assert [(each.content, each.status) for each in first.updates("plan")[-1].entries] == [
        ("greet", "in_progress")
    ]
    async with open_editor(tmp_path, [Say(text="Again.")]) as connection:
        loaded = await connection.agent.load_session(
            cwd=str(connection.project), session_id=session, mcp_servers=[]
        )
        again = connection.editor
        assert loaded.modes.current_mode_id == "build"
        assert again.words("user_message_chunk") == "look at it"
        assert (again.words(), again.words("agent_thought_chunk")) == (
            first.words(),
            first.words("agent_thought_chunk"),
        )
        assert again.calls() == first.calls()
        assert again.updates("plan")[-1] == first.updates("plan")[-1]
        assert (await again.prompt(session, "and?")).stop_reason == "end_turn"
        assert again.words() == first.words() + "Again."


async def test_a_session_is_listed_resumed_forked_and_closed(tmp_path: Path) -> None:
    async with open_editor(
        tmp_path, [Say(text="One.")], [Say(text="Two.")], [Say(text="Three.")]
    ) as connection:
        session, cwd = await connection.new_session(), str(connection.project)
        await connection.editor.prompt(session, "count")
        [listed] = (await connection.agent.list_sessions(cwd=cwd)).sessions
        assert (listed.session_id, listed.cwd) == (session, cwd)
        await connection.agent.close_session(session_id=session)
        assert (await expect_error(connection.editor.prompt(session, "on"))).code == -32002
        await connection.agent.resume_session(session_id=session, cwd=cwd, mcp_servers=[])
        await connection.editor.prompt(session, "on")
        forked = await connection.agent.fork_session(session_id=session, cwd=cwd, mcp_servers=[])
        await connection.editor.prompt(forked.session_id, "on")
        assert connection.editor.words() == "One.Two.Three."
        assert len((await connection.agent.list_sessions()).sessions) == 2


async def test_a_prompt_is_cancelled_during_a_permission_request_and_the_next_one_works(
    tmp_path: Path,
) -> None:
    editor = Editor()
    editor.hold = asyncio.Event()
    script = [READ], [EDIT], [Say(text="Well then.")]
    async with open_editor(tmp_path, *script, editor=editor, config=ASK) as connection:
        session = await connection.new_session()
        prompting = asyncio.ensure_future(editor.prompt(session, "greet me"))
        await editor.permission_asked.wait()
        await connection.agent.cancel(session_id=session)
        assert (await prompting).stop_reason == "cancelled"
        assert editor.call("edit")["status"] == "failed"
        assert (await editor.prompt(session, "never mind")).stop_reason == "end_turn"
        assert (connection.project / "hello.txt").read_text() == "hello there\n"


async def test_a_second_prompt_is_refused_and_one_after_a_cancel_waits(tmp_path: Path) -> None:
    async with open_editor(
        tmp_path, [Say(text="Well."), Wait(seconds=600)], [Say(text="Here.")]
    ) as connection:
        session = await connection.new_session()
        first = asyncio.ensure_future(connection.editor.prompt(session, "one"))
        await connection.editor.wait_for_update("agent_message_chunk")
        assert (await expect_error(connection.editor.prompt(session, "two"))).code == -32600
        await connection.agent.cancel(session_id=session)
        third = asyncio.ensure_future(connection.editor.prompt(session, "three"))
        assert (await first).stop_reason == "cancelled"
        assert (await third).stop_reason == "end_turn"
        assert connection.editor.words() == "Well.Here."
        await connection.agent.cancel(session_id=session)  # no run: nothing happens
        assert connection.notes == []


async def test_the_mode_selects_the_agent(tmp_path: Path) -> None:
    async with open_editor(tmp_path, [Say(text="A plan.")]) as connection:
        made = await connection.agent.new_session(cwd=str(connection.project), mcp_servers=[])
        session = made.session_id
        assert made.modes.current_mode_id == "build"
        assert {"build", "plan"} <= {mode.id for mode in made.modes.available_modes}
        await connection.agent.set_session_mode(session_id=session, mode_id="plan")
        await connection.editor.prompt(session, "plan it")
        loaded = await connection.agent.load_session(
            cwd=str(connection.project), session_id=session, mcp_servers=[]
        )
        assert loaded.modes.current_mode_id == "plan"
        wrong = await expect_error(connection.agent.set_session_mode(session_id=session, mode_id="dance"))
        assert (wrong.code, "there are build, plan" in str(wrong)) == (-32002, True)


async def test_the_model_is_chosen_from_those_available(tmp_path: Path) -> None:
    async with open_editor(tmp_path, [Say(text="Hello.")]) as connection:
        made = await connection.agent.new_session(cwd=str(connection.project), mcp_servers=[])
        session, [mode, model] = made.session_id, made.config_options
        assert (mode.current_value, model.current_value) == ("build", "default")
        assert "scripted/test" in {each.value for each in model.options}
        choose = connection.agent.set_config_option
        chosen = await choose(session_id=session, config_id="model", value="scripted/test")
        assert chosen.config_options[1].current_value == "scripted/test"
        await connection.editor.prompt(session, "hello")
        chosen = await choose(session_id=session, config_id="mode", value="plan")
        assert chosen.config_options[0].current_value == "plan"
        wrong = await expect_error(choose(session_id=session, config_id="model", value="scripted/tset"))
        assert "did you mean scripted/test" in str(wrong)
        assert (
            await expect_error(choose(session_id=session, config_id="colour", value="red"))
        ).code == -32002
        assert (await expect_error(choose(session_id=session, config_id="model", value="x"))).code == -32602


async def test_a_slash_command_runs_and_a_path_is_not_a_command(tmp_path: Path) -> None:
    config = {"command": {"greet": {"template": "Say hello to $ARGUMENTS", "description": "greet somebody"}}}
    script = [Say(text="Hello, ada.")], [Say(text="A path.")], [Say(text="In short: hello.")]
    async with open_editor(tmp_path, *script, config=config) as connection:
        session = await connection.new_session()
        await connection.editor.prompt(session, "/greet ada")
        listed = connection.editor.updates("available_commands_update")[0].available_commands
        assert {"greet", "init", "compact"} <= {each.name for each in listed}
        assert next(each for each in listed if each.name == "greet").input.root.hint == "$ARGUMENTS"
        await connection.editor.prompt(session, "/usr/bin is what?")
        assert (await connection.editor.prompt(session, "/compact")).stop_reason == "end_turn"
        assert "In short: hello." in connection.editor.words("agent_thought_chunk")
        connection.editor.received.clear()
        await connection.agent.load_session(cwd=str(connection.project), session_id=session, mcp_servers=[])
        assert connection.editor.words("user_message_chunk") == "Say hello to ada/usr/bin is what?"


QUESTION = UseTool(
    tool="question",
    input={
        "questions": [
            {
                "question": "Which greeting?",
                "header": "Greeting",
                "options": [
                    {"label": "Hello", "description": "the usual"},
                    {"label": "Hey", "description": "the short"},
                ],
            }
        ]
    },
)


async def test_a_question_is_a_choice_in_every_editor(tmp_path: Path) -> None:
    editor = Editor(lambda _, __: "1")
    async with open_editor(tmp_path, [QUESTION], [Say(text="Hey it is.")], editor=editor) as connection:
        await editor.prompt(await connection.new_session(), "ask me")
        [(_, call, options)] = editor.permission_requests
        assert (call.title, [each.name for each in options]) == (
            "Which greeting?",
            ["Hello", "Hey", "Dismiss"],
        )
        assert '"Which greeting?"="Hey"' in editor.call("other")["content"][0]["content"]["text"]


async def test_a_question_is_a_form_if_the_editor_has_forms(tmp_path: Path) -> None:
    for number, (filled, said) in enumerate(
        [({"answer0": "Hello"}, "Hello"), ({"answer0": "Hello", "own0": "Good day"}, "Good day")]
    ):
        editor, at = Editor(), tmp_path / str(number)
        editor.form_answer = filled
        async with open_editor(
            at, [QUESTION], [Say(text="So.")], editor=editor, capabilities=FORMS
        ) as connection:
            await editor.prompt(await connection.new_session(), "ask me")
            [(_, form)] = editor.forms
            assert list(form.requested_schema.properties) == ["answer0", "own0"]
            assert f'"Which greeting?"="{said}"' in editor.call("other")["content"][0]["content"]["text"]
            assert editor.permission_requests == []


async def test_a_question_names_the_call_that_the_editor_knows(tmp_path: Path) -> None:
    for number, capabilities in enumerate((None, FORMS)):
        editor = Editor(lambda _, __: "0")
        editor.form_answer = {"answer0": "hello"}
        at = tmp_path / str(number)
        async with open_editor(
            at, [QUESTION], [Say(text="Done.")], editor=editor, capabilities=capabilities
        ) as connection:
            await editor.prompt(await connection.new_session(), "ask me")
            asked = [call.tool_call_id for _, call, _ in editor.permission_requests]
            asked += [mode.tool_call_id for _, mode in editor.forms]
            assert asked == [editor.call("other")["tool_call_id"]]


async def test_open_and_closed_sessions_can_be_deleted(tmp_path: Path) -> None:
    async with open_editor(tmp_path, [Say(text="Hi.")]) as connection:
        first, second = await connection.new_session(), await connection.new_session()
        await connection.editor.prompt(first, "hello")
        await connection.agent.close_session(session_id=second)
        for session in (first, second):
            assert await connection.agent._conn.send_request("session/delete", {"sessionId": session}) == {}
        listed = await connection.agent.list_sessions(cwd=str(connection.project))
        assert listed.sessions == []
        assert (await expect_error(connection.editor.prompt(first, "again"))).code == -32002
        gone = await expect_error(connection.agent._conn.send_request("session/delete", {"sessionId": first}))
        assert gone.code == -32002
        odd = await expect_error(connection.agent._conn.send_request("session/delete", {}))
        assert odd.code == -32602
        unknown = await expect_error(connection.agent.ext_method("session/none", {}))
        assert unknown.code == -32601


async def test_a_question_that_is_dismissed_ends_the_run(tmp_path: Path) -> None:
    async with open_editor(tmp_path, [QUESTION], [Say(text="never")], capabilities=FORMS) as connection:
        assert (
            await connection.editor.prompt(await connection.new_session(), "ask me")
        ).stop_reason == "end_turn"
        assert connection.editor.call("other")["status"] == "failed"
        assert connection.editor.words() == ""


async def test_a_request_of_a_child_is_asked_in_its_parent_session(tmp_path: Path) -> None:
    task = UseTool(
        tool="task", input={"description": "greet", "prompt": "go and greet", "subagent_type": "general"}
    )
    scripts = {
        "greet me": [[task], [Say(text="Done.")]],
        "go and greet": [[READ], [EDIT], [Say(text="I greeted.")]],
    }
    provider = PromptKeyedProvider(scripts, SystemClock())
    async with open_editor(tmp_path, provider=provider, config=ASK) as connection:
        session = await connection.new_session()
        await connection.editor.prompt(session, "greet me")
        [(asked_in, asked, _)] = connection.editor.permission_requests
        assert (asked_in, asked.title) == (session, "edit hello.txt")
        assert "-hello there" in asked.content[0].content.text
        assert {id for id, _ in connection.editor.received} == {session}
        assert connection.editor.words() == "Done."
        [task_call] = connection.editor.calls().values()
        assert (task_call["kind"], task_call["status"]) == ("think", "completed")
        assert (connection.project / "hello.txt").read_text() == "hello you\n"


async def test_the_stop_reason_is_one_of_the_protocol(tmp_path: Path) -> None:
    script = [Say(text="Much"), End(reason="length")], [Say(text="No."), End(reason="content-filter")]
    async with open_editor(tmp_path, *script) as connection:
        session = await connection.new_session()
        assert (await connection.editor.prompt(session, "much")).stop_reason == "max_tokens"
        assert (await connection.editor.prompt(session, "bad")).stop_reason == "refusal"


async def test_a_failure_is_an_error_with_its_message_and_the_next_prompt_works(tmp_path: Path) -> None:
    script = [Fail(message="the API is out of order", status=400)], [Say(text="Better.")]
    async with open_editor(tmp_path, *script) as connection:
        session = await connection.new_session()
        failed = await expect_error(connection.editor.prompt(session, "hello"))
        assert (failed.code, str(failed)) == (-32603, "the API is out of order")
        assert (await connection.editor.prompt(session, "again")).stop_reason == "end_turn"


async def test_invalid_arguments_are_refused_by_name(tmp_path: Path) -> None:
    async with open_editor(tmp_path) as connection:
        new, nowhere = connection.agent.new_session, str(tmp_path / "nowhere")
        assert "cwd" in str(await expect_error(new(cwd="here", mcp_servers=[])))
        assert "there is no such directory" in str(await expect_error(new(cwd=nowhere, mcp_servers=[])))
        beside = await expect_error(
            new(cwd=str(connection.project), mcp_servers=[], additional_directories=["/"])
        )
        assert (beside.code, "more than one directory" in str(beside)) == (-32602, True)
        unknown = "ses_000000000000aaaaaaaaaaaaaa"
        assert (await expect_error(connection.editor.prompt(unknown, "hello"))).code == -32002
        load = connection.agent.load_session
        assert (
            await expect_error(load(cwd=str(connection.project), session_id=unknown, mcp_servers=[]))
        ).code == -32002
        assert (
            await expect_error(load(cwd=str(connection.project), session_id="../x", mcp_servers=[]))
        ).code == -32002
        assert (await expect_error(connection.agent.authenticate(method_id="by-magic"))).code == -32002
        await connection.agent.authenticate(method_id="weft-auth-login")
        await connection.agent.cancel(session_id=unknown)
        assert (await connection.agent.list_sessions()).sessions == []


async def test_mcp_servers_of_the_editor_are_connected_and_failures_are_named(tmp_path: Path) -> None:
    bad = McpServerStdio(name="bad", command=str(tmp_path / "nothing"), args=[], env=[])
    far = AcpMcpServer(type="acp", name="far", server_id="1")
    provider = PromptKeyedProvider({"look": [[Say(text="I see.")]]}, SystemClock())
    patient = {"experimental": {"weft": {"mcp": {"wait": 60}}}}
    async with open_editor(tmp_path, provider=provider, config=patient) as connection:
        session = await connection.new_session(mcp_servers=[GOOD_SERVER, bad, far])
        await connection.editor.prompt(session, "look")
        [request] = [each for each in provider.requests if each.tools]
        assert "good_add" in {tool.name for tool in request.tools}
        thought = connection.editor.words("agent_thought_chunk")
        assert "MCP server bad is not connected" in thought
        assert "MCP server far: weft cannot reach servers through the editor." in thought
        assert "MCP server good is not connected" not in thought


async def test_long_content_is_truncated(tmp_path: Path) -> None:
    long = UseTool(tool="bash", input={"command": "seq -f %040.0f 1 1000", "description": "count " * 4000})
    async with open_editor(tmp_path, [long], [Say(text="Counted.")]) as connection:
        await connection.editor.prompt(await connection.new_session(), "count")
        call = connection.editor.call("execute")
        assert call["title"] == "seq -f %040.0f 1 1000"
        assert 31_000 < len(call["content"][0]["content"]["text"]) <= 32_000
        assert 3_900 < len(call["raw_input"]["description"]) <= 4_000


async def test_an_editor_that_disconnects_leaves_a_settled_session(tmp_path: Path) -> None:
    editor = Editor()
    editor.hold = asyncio.Event()
    async with open_editor(tmp_path, [READ], [EDIT], editor=editor, config=ASK) as connection:
        session = await connection.new_session()
        prompting = asyncio.ensure_future(editor.prompt(session, "greet me"))
        await editor.permission_asked.wait()
    assert isinstance((await asyncio.gather(prompting, return_exceptions=True))[0], ConnectionError)
    async with open_editor(tmp_path, [Say(text="Back.")], config=ASK) as connection:
        await connection.agent.load_session(cwd=str(connection.project), session_id=session, mcp_servers=[])
        assert connection.editor.call("edit")["status"] == "failed"
        assert (await connection.editor.prompt(session, "again")).stop_reason == "end_turn"


async def test_open_files_of_the_editor_are_shown_to_the_model(tmp_path: Path) -> None:
    provider = PromptKeyedProvider({"look": [[Say(text="I see.")]]}, SystemClock())
    async with open_editor(tmp_path, provider=provider) as connection:
        session = await connection.new_session()
        link = {
            "type": "resource_link",
            "name": "hello.txt",
            "uri": (connection.project / "hello.txt").as_uri(),
        }
        held = {"type": "resource", "resource": {"uri": "file:///x/notes.md", "text": "unsaved words"}}
        blocks = [text_block("look"), link, held]
        await connection.agent.prompt(session_id=session, prompt=blocks)
        [request] = [each for each in provider.requests if each.tools]
        assert "hello there" in str(request.messages)
        assert "unsaved words" in str(request.messages)


@pytest.mark.parametrize(
    "call",
    [
        UseTool(tool="write", input={"filePath": "hello.txt", "content": 5}),
        UseTool(tool="edit", input={"filePath": "hello.txt", "edits": 5}),
        UseTool(tool="edit", input={"filePath": "a\0b", "oldString": "a", "newString": "b"}),
    ],
)
async def test_a_repeated_call_with_invalid_arguments_is_asked_about(tmp_path: Path, call: UseTool) -> None:
    """The editor is asked before the tool has checked the arguments, which can be anything."""
    editor = Editor(lambda _, __: "reject")
    script = [[call]] * 5 + [[Say(text="never")]]
    async with open_editor(tmp_path, *script, editor=editor) as connection:
        session = await connection.new_session()
        assert (await editor.prompt(session, "go")).stop_reason == "end_turn"
        assert len(editor.permission_requests) == 1
        assert connection.notes == []


async def test_an_editor_that_disconnects_while_a_directory_opens_ends_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, go_on, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def open_slowly(options: OpenOptions) -> AsyncIterator[Api]:
        opening.set()
        await go_on.wait()
        async with open_directory(options) as api:
            yield api
        closed.set()

    monkeypatch.setattr(given.editor, "open_directory", open_slowly)
    request = {"method": "session/new", "params": {"cwd": str(tmp_path), "mcpServers": []}}
    async with asyncio.timeout(20), open_pipe(tmp_path) as (_, writer):
        writer.write(json.dumps({"jsonrpc": "2.0", "id": 1, **request}).encode() + b"\n")
        await opening.wait()
        writer.close()
        asyncio.get_running_loop().call_later(0.1, go_on.set)
    assert closed.is_set()


async def test_a_prompt_with_half_a_character_is_answered(tmp_path: Path) -> None:
    """Editors in JavaScript write half a surrogate pair as an escape, which is valid JSON."""
    async with asyncio.timeout(20), open_editor(tmp_path, [Say(text="Yes.")]) as connection:
        session = await connection.new_session()
        assert (await connection.editor.prompt(session, "a \ud83d")).stop_reason == "end_turn"
        assert connection.editor.words() == "Yes."


class LosingApi:
    """An `Api` whose first stream of events breaks off when a session is removed."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def events(self) -> AsyncIterator[PublishedEvent]:
        async for published in self._api.events():
            if isinstance(published.event, SessionDeleted) and not self._lost:
                self._lost = True
                raise CursorLostError(0, 1)
            yield published


async def test_missed_events_of_a_removed_session_do_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apis: list[Api] = []

    @asynccontextmanager
    async def open_losing(options: OpenOptions) -> AsyncIterator[LosingApi]:
        async with open_directory(options) as api:
            apis.append(api)
            yield LosingApi(api)

    monkeypatch.setattr(given.editor, "open_directory", open_losing)
    async with asyncio.timeout(20), open_editor(tmp_path, [Say(text="Here.")]) as connection:
        removed, kept = await connection.new_session(), await connection.new_session()
        await apis[0].remove_session(SessionID(removed))
        assert (await connection.editor.prompt(kept, "still there?")).stop_reason == "end_turn"
        assert connection.editor.words() == "Here."
        [note] = connection.notes
        assert removed in note
