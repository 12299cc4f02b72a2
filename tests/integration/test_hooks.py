"""Hooks that change the request to a model, each in a real run."""

from typing import Any

import pytest
from msgspec.structs import replace

from given.engine import MODEL, NOW, Engine, open_engine, text_prompt
from given.fake_hooks import FakeHooks, block, leave
from weft.errors import BlockedError, InvalidInputError, NotFoundError
from weft.model.agent import AgentInfo
from weft.model.event import PartUpdated
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.input import PromptInput, SessionInput, TextInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import SnapshotPart, TextPart
from weft.plugin.hooks import (
    ChatHeaders,
    ChatMessage,
    ChatMessageInput,
    ChatParams,
    ChatRequest,
    Compacting,
    FinishedText,
    SessionHookInput,
    ShownMessages,
    SystemPrompt,
)
from weft.provider.contract import AssistantModelMessage, TextContent, ToolModelMessage, UserModelMessage
from weft.provider.registry import ServedModel
from weft.provider.scripted import Fail, Say, ScriptedProvider, UseTool
from weft.testing.clock import HandClock

CALL = UseTool(tool="echo", input={"words": "x"})
HELPER = AgentInfo(name="helper", mode="primary", prompt="Help.")
TITLER = AgentInfo(name="title", mode="primary", hidden=True, prompt="You are a title generator.")
SUMMARISER = AgentInfo(name="compaction", mode="primary", hidden=True, prompt="Sum it up.")
OTHER_MODEL = replace(MODEL, id="other")


async def start(engine: Engine) -> SessionID:
    return (await engine.api.create_session(SessionInput(title="t"))).id


async def prompts_of(engine: Engine, session: SessionID) -> list[MessageWithParts]:
    messages = await engine.api.list_messages(session)
    return [each for each in messages if isinstance(each.info, UserMessage)]


def texts(message: MessageWithParts) -> list[str]:
    return [part.text for part in message.parts if isinstance(part, TextPart)]


def part(words: str, like: ChatMessage, **more: Any) -> TextPart:
    usual: dict[str, Any] = {
        "id": PartID("prt_mine"),
        "session_id": SessionID("ses_foreign"),
        "message_id": MessageID("msg_foreign"),
    }
    return TextPart(**usual | more, text=words)


# --- chat.message ---


async def test_a_plugin_changes_a_prompt_before_it_is_stored() -> None:
    def put_before(told: ChatMessageInput, now: ChatMessage) -> ChatMessage:
        changed = replace(now.message, agent="helper", session_id=SessionID("ses_foreign"))
        return now.but(message=changed, parts=(part("First.", now), *now.parts, part("Last.", now)))

    hooks = FakeHooks({"chat.message": put_before})
    async with open_engine([Say(text="ok")], hooks=hooks, agents=(HELPER,)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("Mend it."))
        (stored,) = await prompts_of(engine, session)

        assert texts(stored) == ["First.", "Mend it.", "Last."]
        assert stored.info.agent == "helper"
        assert {(each.session_id, each.message_id) for each in stored.parts} == {(session, stored.info.id)}
        assert len({each.id for each in stored.parts}) == 3
        assert engine.provider.requests[0].system[0] == "Help."
        assert hooks.calls[0][1] == ChatMessageInput(
            session_id=session, agent=None, model=None, message_id=None, variant=None
        )


async def test_existing_parts_keep_their_ids() -> None:
    def add_exclamation_marks(told: ChatMessageInput, now: ChatMessage) -> ChatMessage:
        return now.but(parts=tuple(replace(each, text=f"{each.text}!") for each in now.parts))  # type: ignore[call-arg]

    one, two = (f"prt_{number:026d}" for number in (1, 2))
    own = PromptInput(parts=(TextInput(id=one, text="a"), TextInput(id=two, text="b")))
    async with open_engine(
        [Say(text="ok")], hooks=FakeHooks({"chat.message": add_exclamation_marks})
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(session, own)
        (stored,) = await prompts_of(engine, session)
        assert [(each.id, each.text) for each in stored.parts if isinstance(each, TextPart)] == [
            (one, "a!"),
            (two, "b!"),
        ]


async def test_a_blocked_prompt_is_refused_and_nothing_of_it_is_stored() -> None:
    async with open_engine(hooks=FakeHooks({"chat.message": block("not on Sundays")})) as engine:
        session = await start(engine)
        with pytest.raises(BlockedError, match="not on Sundays"):
            await engine.api.prompt(session, text_prompt("Mend it."))
        assert await engine.api.list_messages(session) == []
        assert engine.provider.requests == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda now: now.but(message=replace(now.message, agent="nobody")), NotFoundError),
        (lambda now: now.but(parts=()), InvalidInputError),
        (
            lambda now: now.but(
                parts=(
                    SnapshotPart(
                        id=PartID("prt_1"),
                        session_id=SessionID("ses_1"),
                        message_id=MessageID("msg_1"),
                        snapshot="",
                    ),
                )
            ),
            InvalidInputError,
        ),
    ],
)
async def test_an_invalid_changed_prompt_is_refused_before_it_is_stored(
    change: Any, error: type[Exception]
) -> None:
    async with open_engine(hooks=FakeHooks({"chat.message": lambda _, now: change(now)})) as engine:
        session = await start(engine)
        with pytest.raises(error):
            await engine.api.prompt(session, text_prompt("Mend it."))
        assert await engine.api.list_messages(session) == []


# --- chat.params, chat.headers, the system prompt ---


def make_tuning_hooks() -> FakeHooks:
    def params(asked: ChatRequest, now: ChatParams) -> ChatParams:
        return now.but(temperature=0.1, options={**now.options, "by": asked.agent})

    def headers(asked: ChatRequest, now: ChatHeaders) -> ChatHeaders:
        return now.but(headers={**now.headers, "x-session": asked.session_id})

    def system(told: SessionHookInput, now: SystemPrompt) -> SystemPrompt:
        return now.but(system=(*now.system, "", "Be brief."))

    return FakeHooks(
        {"chat.params": params, "chat.headers": headers, "experimental.chat.system.transform": system}
    )


async def test_a_plugin_changes_every_request_to_a_model() -> None:
    hooks, small = make_tuning_hooks(), ScriptedProvider([[Say(text="A title")]], HandClock(NOW))
    served = ServedModel(replace(MODEL, id="small"), small)
    script = ([Fail(message="busy", retryable=True)], [Say(text="ok")], [Say(text="We did it.")])
    async with open_engine(
        *script, hooks=hooks, agents=(TITLER, SUMMARISER), small=served, skip_waits=True
    ) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        await engine.api.prompt(session, text_prompt("Mend it."))
        await engine.api.compact(session)
        requests = [*engine.provider.requests, *small.requests]

        assert [each.parameters.options["by"] for each in requests] == [
            "build",
            "build",
            "compaction",
            "title",
        ]
        assert {each.parameters.temperature for each in requests} == {0.1}
        assert {each.parameters.headers["x-session"] for each in requests} == {session}
        assert {each.system[-1] for each in requests} == {"Be brief."}
        assert all("" not in each.system for each in requests)
        assert (await engine.api.get_session(session)).title == "A title"


async def test_a_request_always_has_a_system_prompt() -> None:
    def remove_system_prompt(told: SessionHookInput, now: SystemPrompt) -> SystemPrompt:
        return now.but(system=())

    hooks = FakeHooks({"experimental.chat.system.transform": remove_system_prompt})
    async with open_engine([Say(text="ok")], hooks=hooks) as engine:
        await engine.api.prompt(await start(engine), text_prompt("Mend it."))
        assert engine.provider.requests[0].system


# --- the conversation ---


async def test_the_messages_hook_runs_for_each_request() -> None:
    def without_secret(told: SessionHookInput, now: ShownMessages) -> ShownMessages:
        return now.but(
            messages=tuple(
                replace(
                    each,
                    parts=tuple(
                        replace(part, text=part.text.replace("hunter2", "***"))
                        if isinstance(part, TextPart)
                        else part
                        for part in each.parts
                    ),
                )
                for each in now.messages
            )
        )

    hooks = FakeHooks({"experimental.chat.messages.transform": without_secret})
    async with open_engine([CALL], [Say(text="ok")], hooks=hooks) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("My word is hunter2."))
        (stored,) = await prompts_of(engine, session)
        first, second = engine.provider.requests

        assert first.messages[0] == UserModelMessage(content=(TextContent(text="My word is ***."),))
        assert second.messages[: len(first.messages)] == first.messages
        assert isinstance(second.messages[1], AssistantModelMessage)
        assert isinstance(second.messages[2], ToolModelMessage)
        assert texts(stored) == ["My word is hunter2."]


async def test_a_request_stays_valid_if_a_plugin_removes_messages() -> None:
    def keep_last_message(told: SessionHookInput, now: ShownMessages) -> ShownMessages:
        return now.but(messages=now.messages[-1:])

    def remove_messages(told: SessionHookInput, now: ShownMessages) -> ShownMessages:
        return now.but(messages=())

    for hook, turns in ((keep_last_message, 2), (remove_messages, 3)):
        hooks = FakeHooks({"experimental.chat.messages.transform": hook})
        async with open_engine([CALL], [Say(text="ok")], hooks=hooks) as engine:
            await engine.api.prompt(await start(engine), text_prompt("Mend it."))
            last = engine.provider.requests[1].messages
            calls = sum(len(each.content) for each in last if isinstance(each, AssistantModelMessage))
            results = sum(len(each.content) for each in last if isinstance(each, ToolModelMessage))
            assert (len(last), calls, results) == (turns, 1, 1)


async def test_a_plugin_adds_to_or_replaces_the_summary_prompt() -> None:
    def add_context(told: SessionHookInput, now: Compacting) -> Compacting:
        return now.but(context=("Keep the ticket's number.", "And its owner."))

    def replace_prompt(told: SessionHookInput, now: Compacting) -> Compacting:
        return now.but(prompt="In one line, please.")

    asked: list[str] = []
    for hook in (leave, add_context, replace_prompt):
        hooks = FakeHooks({"experimental.session.compacting": hook})
        async with open_engine(
            [Say(text="ok")], [Say(text="We did it.")], hooks=hooks, agents=(SUMMARISER,)
        ) as engine:
            session = await start(engine)
            await engine.api.prompt(session, text_prompt("Mend it."))
            await engine.api.compact(session)
            last = engine.provider.requests[1].messages[-1]
            assert isinstance(last, UserModelMessage)
            assert isinstance(last.content[0], TextContent)
            asked.append(last.content[0].text)
    assert asked[1] == f"{asked[0]}\n\nKeep the ticket's number.\n\nAnd its owner."
    assert asked[2] == "In one line, please."


# --- finished texts ---


async def test_a_plugin_changes_a_finished_text_before_it_is_stored_and_published() -> None:
    def add_signature(told: Any, now: FinishedText) -> FinishedText:
        return now.but(text=f"{now.text} -- weft")

    hooks = FakeHooks({"experimental.text.complete": add_signature})
    async with open_engine([Say(text="All done now.")], [Say(text="Yes.")], hooks=hooks) as engine:
        session = await start(engine)
        listening = engine.api.events()
        answer = await engine.api.prompt(session, text_prompt("Mend it."))
        told: dict[str, str] = {}
        async for each in listening:
            if isinstance(each.event, PartUpdated) and isinstance(each.event.part, TextPart):
                told[each.event.part.id] = each.event.part.text
            if each.event.type == "session.idle":
                break
        (said,) = [each for each in answer.parts if isinstance(each, TextPart)]

        assert said.text == "All done now. -- weft"
        assert told[said.id] == said.text
        assert texts((await engine.api.list_messages(session))[-1]) == [said.text]
        assert (hooks.calls[0][1].part_id, hooks.calls[0][1].message_id) == (said.id, answer.info.id)
        # The model reads its text as it was stored.
        await engine.api.prompt(session, text_prompt("Sure?"))
        assert engine.provider.requests[1].messages[1] == AssistantModelMessage(
            content=(TextContent(text="All done now. -- weft"),)
        )


# --- hooks that return nothing ---


async def test_hooks_that_return_nothing_change_nothing() -> None:
    async def history(**more: Any) -> tuple[Any, Any]:
        script = ([CALL], [Say(text="ok")], [Say(text="We did it.")], [Say(text="again")])
        async with open_engine(*script, agents=(SUMMARISER,), **more) as engine:
            session = await start(engine)
            await engine.api.prompt(session, text_prompt("Mend it."))
            await engine.api.compact(session)
            await engine.api.prompt(session, text_prompt("And now?"))
            return await engine.api.list_messages(session), engine.provider.requests

    silent = FakeHooks(
        dict.fromkeys(
            (
                "chat.message",
                "chat.params",
                "chat.headers",
                "experimental.chat.messages.transform",
                "experimental.chat.system.transform",
                "experimental.session.compacting",
                "experimental.text.complete",
                "tool.execute.before",
                "tool.execute.after",
            ),
            leave,
        )
    )
    assert await history(hooks=silent) == await history()
    assert len(set(silent.names())) == 9
