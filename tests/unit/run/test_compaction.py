"""Compaction of a conversation that no longer fits."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from msgspec.structs import replace

from given.conversation import assistant_message, text, tool_part, user_message
from given.engine import ALLOW, MODEL, Engine, open_engine, text_prompt
from weft.context.compaction import format_carryover, list_changed_files
from weft.context.tokens import estimate, project_tokens
from weft.errors import InvalidInputError, ProviderError
from weft.model.agent import AgentInfo
from weft.model.catalog import Limit
from weft.model.event import SessionCompacted, SessionFailed
from weft.model.ids import SessionID
from weft.model.input import FileInput, PromptInput, SessionInput, TextInput
from weft.model.message import AssistantMessage, UserMessage
from weft.model.part import CompactionPart, TextPart, Tokens
from weft.model.session import SessionChange, Todo
from weft.provider.chunk import AnyChunk, Usage
from weft.provider.contract import ModelRequest, TextContent, UserModelMessage
from weft.provider.scripted import End, Fail, Say, UseTool
from weft.run.decide import Compact, ModelStep, decide

SMALL = replace(MODEL, limit=Limit(context=100_000, output=8_000))
SUMMARY_AGENT = AgentInfo(name="compaction", mode="primary", hidden=True, prompt="Sum it up.")
FULL = End(usage=Usage(input=95_000, output=100), reason="tool-calls")
CALL = UseTool(tool="echo", input={"words": "x"})


async def start(engine: Engine) -> SessionID:
    return (await engine.api.create_session(SessionInput())).id


async def test_a_conversation_that_no_longer_fits_is_compacted_and_continues() -> None:
    script = (
        [CALL, FULL],
        [Say(text="We did x."), End(usage=Usage(input=95_000, output=10))],
        [Say(text="Done.")],
    )
    async with open_engine(*script, model=SMALL, agents=(SUMMARY_AGENT,)) as engine:
        session = await start(engine)
        listening = engine.api.events()
        await engine.api.prompt(session, text_prompt("mend the loom"))
        compacted = False
        async for published in listening:
            compacted |= isinstance(published.event, SessionCompacted)
            if published.event.type == "session.idle":
                break
        messages = await engine.api.list_messages(session)
        requests = engine.provider.requests

        assert compacted
        assert [type(message.info).__name__[0] for message in messages] == ["U", "A", "U", "A", "U", "A"]
        assert isinstance(messages[3].info, AssistantMessage)
        assert (messages[3].info.summary, messages[3].info.agent) == (True, "compaction")
        assert messages[3].info.parent_id == messages[2].info.id
        assert requests[1].system == ("Sum it up.",)
        assert requests[1].tools == ()
        # After a compaction the model sees the request for a summary with what was carried over, the summary, and a request to continue.
        first, _, last = requests[2].messages
        assert isinstance(first, UserModelMessage)
        assert first.content[0] == TextContent(text="What did we do so far?")
        assert "mend the loom" in getattr(first.content[1], "text", "")
        assert last == UserModelMessage(content=(TextContent(text="Continue if you have next steps"),))


async def test_an_overflow_error_of_the_provider_causes_a_compaction() -> None:
    class SmallContextProvider:
        """A model that accepts at most three turns, unless it writes a summary."""

        def __init__(self) -> None:
            self.sizes: list[int] = []

        async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
            self.sizes.append(len(request.messages))
            if len(request.messages) > 3 and request.system != ("Sum it up.",):
                error = ProviderError("too long", status=400)
                error.kind = "overflow"
                raise error
            async for chunk in engine.provider.stream(request):
                yield chunk

    script = ([CALL], [Say(text="We did x.")], [Say(text="Done.")])
    model = SmallContextProvider()
    async with open_engine(*script, provider=model, agents=(SUMMARY_AGENT,)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("one", no_reply=True))
        await engine.api.prompt(session, text_prompt("two"))
        answers = [
            m.info for m in await engine.api.list_messages(session) if isinstance(m.info, AssistantMessage)
        ]

        assert [(each.summary, each.error is None) for each in answers] == [
            (False, True),
            (False, False),
            (True, True),
            (False, True),
        ]
        assert model.sizes == [2, 4, 6, 3]


async def test_a_summary_request_that_does_not_fit_is_made_smaller() -> None:
    class SmallSummaryProvider:
        def __init__(self) -> None:
            self.sizes: list[int] = []

        async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
            self.sizes.append(len(request.messages))
            if request.system == ("Sum it up.",) and len(request.messages) > 4:
                error = ProviderError("too long", status=400)
                error.kind = "overflow"
                raise error
            async for chunk in engine.provider.stream(request):
                yield chunk

    model = SmallSummaryProvider()
    script = ([Say(text="a")], [Say(text="b")], [CALL, FULL], [Say(text="Summed up.")], [Say(text="Done.")])
    async with open_engine(*script, provider=model, model=SMALL, agents=(SUMMARY_AGENT,)) as engine:
        session = await start(engine)
        for words in ("one", "two", "three"):
            await engine.api.prompt(session, text_prompt(words))

        assert model.sizes[3] > model.sizes[-2]
        assert (await engine.api.list_messages(session))[-1].parts[1].text == "Done."  # type: ignore[union-attr]


async def test_an_empty_summary_is_not_accepted() -> None:
    script = ([CALL, FULL], [], [Say(text="At last.")], [Say(text="Done.")])
    clock_free = {"model": SMALL, "agents": (SUMMARY_AGENT,)}
    async with asyncio.timeout(60), open_engine(*script, skip_waits=True, **clock_free) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        answers = [m for m in await engine.api.list_messages(session) if isinstance(m.info, AssistantMessage)]
        summary = next(m for m in answers if getattr(m.info, "summary", False))

        assert any(isinstance(part, TextPart) and part.text == "At last." for part in summary.parts)


async def test_if_compaction_makes_no_room_the_run_fails_with_the_reason() -> None:
    tiny = replace(MODEL, limit=Limit(context=8_100, output=8_000))
    script = [[Say(text="word " * 400)]] * 9
    async with open_engine(*script, model=tiny, agents=(SUMMARY_AGENT,)) as engine:
        session = await start(engine)
        listening = engine.api.events()
        await engine.api.prompt(session, text_prompt("x" * 4_000))
        failures = []
        async for published in listening:
            if isinstance(published.event, SessionFailed):
                failures.append(published.event.error)
            if published.event.type == "session.idle":
                break

        assert len(failures) == 1
        assert "even after a summary" in str(failures[0])
        assert len(engine.provider.requests) <= 2


async def test_a_request_that_is_too_long_after_a_summary_too_ends_the_run() -> None:
    class SummaryOnlyProvider:
        """A model that accepts nothing but requests for a summary."""

        def __init__(self) -> None:
            self.summaries = 0

        async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
            if request.system != ("Sum it up.",):
                error = ProviderError("too long", status=400)
                error.kind = "overflow"
                raise error
            self.summaries += 1
            async for chunk in engine.provider.stream(request):
                yield chunk

    model = SummaryOnlyProvider()
    async with open_engine(*[[Say(text="We did x.")]] * 5, provider=model, agents=(SUMMARY_AGENT,)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("one", no_reply=True))
        answer = (await engine.api.prompt(session, text_prompt("two"))).info

    assert isinstance(answer, AssistantMessage)
    assert "even after a summary" in str(answer.error)
    assert model.summaries == 1


async def test_without_auto_compaction_nothing_is_compacted() -> None:
    script = ([CALL, FULL], [Say(text="Done.")])
    async with open_engine(*script, model=SMALL, agents=(SUMMARY_AGENT,), auto=False) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))

        assert len(engine.provider.requests) == 2


def test_a_prompt_queued_behind_a_summary_request_does_not_prevent_the_summary() -> None:
    request = user_message("U2", 3, CompactionPart(id="prt_1", session_id="s", message_id="U2", auto=True))  # type: ignore[arg-type]
    history = [
        user_message("U1", 1),
        assistant_message("A1", 2, "U1", tool_part("A1")),
        request,
        user_message("U3", 4),
    ]
    assert isinstance(request.info, UserMessage)

    assert decide(history) == ModelStep(request.info, summary=True)


def test_compaction_happens_only_if_another_step_follows() -> None:
    first = user_message("U1", 1)
    assert isinstance(first.info, UserMessage)

    assert decide([first], overflows=True) == Compact(first.info)
    assert decide([first, assistant_message("A1", 2, "U1", text("A1", "done"))], overflows=True) != Compact(
        first.info
    )


def test_the_size_of_the_next_request_is_projected_from_the_last_count() -> None:
    message = assistant_message("A1", 2, "U1", text("A1", "said before " * 100))
    assert isinstance(message.info, AssistantMessage)
    counted = replace(message, info=replace(message.info, tokens=Tokens(input=1000, output=50)))

    assert project_tokens([user_message("U1", 1), counted]) == 1050
    assert 1050 < project_tokens([user_message("U1", 1), counted, user_message("U2", 3)]) < 1060


def test_prompts_and_open_todos_are_carried_over_verbatim() -> None:
    todos = [
        Todo(content="weave", status="pending", priority="high"),
        Todo(content="spin", status="completed", priority="low"),
    ]
    words = format_carryover([user_message("U1", 1, text("U1", "mend the loom"))], todos)

    assert "mend the loom" in words
    assert "- [pending] weave" in words
    assert "spin" not in words
    assert format_carryover([], []) == ""
    assert list_changed_files([user_message("U1", 1)]) == []


async def test_a_conversation_can_be_compacted_at_any_time() -> None:
    script = ([Say(text="a")], [Say(text="We said a.")], [Say(text="b")])
    async with open_engine(*script, agents=(SUMMARY_AGENT,)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("one"))
        summary = await engine.api.compact(session)
        await engine.api.prompt(session, text_prompt("two"))

        assert isinstance(summary.info, AssistantMessage)
        assert summary.info.summary
        assert len(engine.provider.requests) == 3
        assert len(engine.provider.requests[2].messages) == 3


async def test_an_empty_conversation_cannot_be_compacted() -> None:
    async with open_engine(agents=(SUMMARY_AGENT,)) as engine:
        with pytest.raises(InvalidInputError, match="nothing to summarise"):
            await engine.api.compact(await start(engine))


async def test_initialising_records_the_time() -> None:
    async with open_engine([Say(text="written")]) as engine:
        session = await start(engine)
        answer = await engine.api.initialize(session)
        project = await engine.store.find_project(engine.api.runtime.place.project.id)

        assert isinstance(answer.info, AssistantMessage)
        assert project is not None
        assert project.time.initialized is not None
        assert "AGENTS.md" in str(engine.provider.requests[0].messages[0])


async def test_a_pinned_note_is_shown_at_once_and_survives_every_compaction() -> None:
    script = ([Say(text="a")], [Say(text="b")], [Say(text="We said a and b.")], [Say(text="c")])
    async with open_engine(*script, agents=(SUMMARY_AGENT,)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("one"))
        await engine.api.update_session(session, SessionChange(note=("never touch the archive",)))
        await engine.api.prompt(session, text_prompt("two"))
        await engine.api.compact(session)
        await engine.api.prompt(session, text_prompt("three"))
        before, visible, _, after = engine.provider.requests

        assert "archive" not in str(before)
        assert visible.system == before.system
        assert "never touch the archive" in str(visible.messages[-1])
        assert "never touch the archive" in "".join(after.system)


async def test_a_history_ten_times_the_context_is_compacted_in_pieces_that_fit() -> None:
    small = replace(MODEL, limit=Limit(context=12_000, output=1_000))
    scripts = [[Say(text=f"answer {number}")] for number in range(20)]
    summaries = [[Say(text=f"summary {number}")] for number in range(40)]
    async with open_engine(*scripts, *summaries, model=small, agents=(SUMMARY_AGENT,), auto=False) as engine:
        session = await start(engine)
        for number in range(20):
            await engine.api.prompt(session, text_prompt(f"{number} " + "wordy " * 4_000))
        before = len(engine.provider.requests)
        summary = await engine.api.compact(session)
        asked_for = engine.provider.requests[before:]

        assert len(asked_for) > 5
        assert all(estimate_size(request) < 12_000 for request in asked_for)
        assert "summary 0" in str(asked_for[1].messages[0])
        visible = [part.text for part in summary.parts if isinstance(part, TextPart) and not part.ignored]
        assert visible == [f"summary {len(asked_for) - 1}"]


async def test_a_request_that_does_not_fit_is_shortened_and_compacted_before_the_next_step() -> None:
    picture = FileInput(mime="image/png", url="data:image/png;base64,iVBORw0KGgo=", filename="loom.png")
    overflow = [Fail(message="too long", kind="overflow")]
    script = (overflow, [CALL], [Say(text="We wove.")], [Say(text="Done.")])
    async with open_engine(*script, model=SMALL, agents=(SUMMARY_AGENT,)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, PromptInput(parts=(TextInput(text="look"), picture)))
        messages = await engine.api.list_messages(session)
        full, lean, _, after = engine.provider.requests

        assert "base64" in str(full.messages)
        assert "base64" not in str(lean.messages)
        assert [type(part).__name__ for part in messages[1].parts][:2] == ["StepStartPart", "RetryPart"]
        assert "We wove." in str(after.messages)


async def test_an_empty_summary_is_requested_once_more_and_then_replaced_by_a_notice() -> None:
    script = ([Say(text="a")], [Say(text="")], [Say(text=" ")], [Say(text="b")])
    async with open_engine(*script, agents=(SUMMARY_AGENT,), skip_waits=True) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("mend the loom"))
        await engine.api.compact(session)
        await engine.api.prompt(session, text_prompt("go on"))

        assert len(engine.provider.requests) == 4
        shown = str(engine.provider.requests[-1].messages)
        assert "no summary of it could be made: the summary is empty" in shown
        assert "mend the loom" in shown


async def test_a_system_prompt_above_the_limit_is_one_clear_error_and_no_endless_loop() -> None:
    tiny = replace(MODEL, limit=Limit(context=3_000, output=1_000))
    heavy = AgentInfo(name="build", mode="primary", prompt="rule " * 4_000, permission=ALLOW)
    script = ([Say(text="We did nothing yet.")], [Say(text="never")])
    async with open_engine(*script, model=tiny, agents=(heavy, SUMMARY_AGENT)) as engine:
        session = await start(engine)
        answer = await engine.api.prompt(session, text_prompt("begin"))

        assert isinstance(answer.info, AssistantMessage)
        assert answer.info.error is not None
        assert "no room" in str(answer.info.error) or "summary" in str(answer.info.error)
        assert len(engine.provider.requests) <= 2


def estimate_size(request: ModelRequest) -> int:
    return sum(estimate(str(turn)) for turn in request.messages)


async def test_undoing_a_compaction_shows_the_cut_off_history_again() -> None:
    script = ([Say(text="a")], [Say(text="We said a.")], [Say(text="b")], [Say(text="c")])
    async with open_engine(*script, agents=(SUMMARY_AGENT,)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("one"))
        stored = await engine.api.list_messages(session)
        await engine.api.compact(session)
        await engine.api.prompt(session, text_prompt("two"))

        assert await engine.api.uncompact(session) is True
        assert await engine.api.uncompact(session) is False
        await engine.api.prompt(session, text_prompt("three"))
        cut, whole = (str(request.messages) for request in engine.provider.requests[-2:])
        assert "We said a." in cut
        assert "one" in whole
        assert "We said a." not in whole
        assert (await engine.api.list_messages(session))[: len(stored)] == stored
