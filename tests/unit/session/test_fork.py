"""Forks: what the model is shown next, where references point, and what is not copied."""

from typing import Any

import pytest
from msgspec.structs import replace

from given.engine import MODEL, NOW, open_engine
from weft.context.history import since_compaction, to_model_messages
from weft.local.api import LocalApi
from weft.model.event import SessionUpdated, TodoUpdated
from weft.model.failure import AbortedFailure
from weft.model.ids import MessageID, Mint, PartID, SessionID
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage, AssistantTime, MessageWithParts, UserMessage
from weft.model.part import (
    AnyPart,
    CallTime,
    CompactionPart,
    CompletedState,
    ErrorState,
    FilePart,
    Moment,
    RunningState,
    Span,
    StepStartPart,
    TextPart,
    ToolPart,
)
from weft.model.session import SessionRevert, Todo, get_weft_data
from weft.session.fork import fork_title


class StoredSession:
    """Stores a session with prompts, answers, tool calls and compactions."""

    def __init__(self, api: LocalApi, session: SessionID) -> None:
        self.api = api
        self.session = session
        self.mint: Mint = api.runtime.mint
        self.now = NOW - 100_000

    def _ids(self, message: MessageID) -> dict[str, Any]:
        return {"id": self.mint.part(), "session_id": self.session, "message_id": message}

    async def ask(self, words: str, *more: AnyPart, id: MessageID | None = None) -> UserMessage:
        self.now += 1
        info = UserMessage(
            id=id or self.mint.message(),
            session_id=self.session,
            time=Moment(created=self.now),
            agent="build",
        )
        await self.api.update_message(info)
        for part in (TextPart(**self._ids(info.id), text=words), *more):
            await self.api.update_part(part)
        return info

    async def answer(self, to: UserMessage, words: str, **more: Any) -> AssistantMessage:
        self.now += 1
        info = AssistantMessage(
            id=self.mint.message(),
            session_id=self.session,
            time=AssistantTime(created=self.now, completed=self.now),
            parent_id=to.id,
            provider_id=MODEL.provider_id,
            model_id=MODEL.id,
            finish="stop",
            **more,
        )
        await self.api.update_message(info)
        await self.api.update_part(StepStartPart(**self._ids(info.id)))
        await self.api.update_part(TextPart(**self._ids(info.id), text=words))
        await self.api.update_part(self.call(info.id))
        return info

    def call(self, message: MessageID) -> ToolPart:
        picture = FilePart(**self._ids(message), mime="image/png", url="data:image/png;base64,AAAA")
        state = CompletedState(
            input={"messageID": message},
            output=message,
            title="t",
            metadata={"of": {"message": message}},
            time=CallTime(start=1, end=2),
            attachments=(picture,),
        )
        return ToolPart(**self._ids(message), call_id=f"call_{message}", tool="read", state=state)

    async def compact(self, *, finish: str | None = "stop") -> None:
        asked = MessageID(self.mint.message())
        request = await self.ask("", CompactionPart(**self._ids(asked), auto=True), id=asked)
        summary = await self.answer(request, "All so far, in short.", summary=True)
        await self.api.update_message(replace(summary, finish=finish))

    async def history(self) -> list[MessageWithParts]:
        return await self.api.list_messages(self.session)


async def create_session(api: LocalApi, *, title: str = "Loom") -> StoredSession:
    return StoredSession(api, (await api.create_session(SessionInput(title=title))).id)


def show(history: list[MessageWithParts]) -> object:
    return to_model_messages(since_compaction(history), MODEL)


async def test_a_fork_at_any_message_of_a_compacted_session_shows_the_model_the_same() -> None:
    async with open_engine() as engine:
        spoken = await create_session(engine.api)
        for number in range(3):
            await spoken.answer(await spoken.ask(f"prompt {number}"), f"answer {number}")
        await spoken.compact()
        await spoken.answer(await spoken.ask("after"), "the first compaction")
        await spoken.compact(finish=None)  # a compaction that did not finish
        await spoken.compact()
        await spoken.answer(await spoken.ask("last"), "of all")
        history = await spoken.history()
        for index, message in enumerate(history):
            fork = await engine.api.fork_session(spoken.session, at=message.info.id)
            assert show(await engine.api.list_messages(fork.id)) == show(history[:index])
        whole = await engine.api.fork_session(spoken.session)
        assert show(await engine.api.list_messages(whole.id)) == show(history)
        # A fork from before a compaction has the messages before it.
        assert len(history) == 16


async def test_a_fork_at_a_prompt_has_everything_before_it_and_its_answers_point_to_the_copies() -> None:
    async with open_engine() as engine:
        spoken = await create_session(engine.api)
        first = await spoken.ask("U1")
        await spoken.answer(first, "A1")
        second = await spoken.ask("U2")
        await spoken.answer(second, "A2")
        fork = await engine.api.fork_session(spoken.session, at=second.id)
        asked, answered = [message.info for message in await engine.api.list_messages(fork.id)]

        assert isinstance(answered, AssistantMessage)
        assert answered.parent_id == asked.id
        assert asked.id != first.id


async def test_references_among_copies_point_to_the_copies_and_texts_are_unchanged() -> None:
    async with open_engine() as engine:
        spoken = await create_session(engine.api)
        first = await spoken.ask("hello")
        pointed = replace(await spoken.answer(first, "hi"), extra_={"tail_start_id": first.id})
        await engine.api.update_message(pointed)
        fork = await engine.api.fork_session(spoken.session)
        asked, answered = await engine.api.list_messages(fork.id)
        assert isinstance(answered.info, AssistantMessage)
        assert answered.info.parent_id == asked.info.id
        assert answered.info.extra_ == {"tail_start_id": asked.info.id}
        assert {part.message_id for part in answered.parts} == {answered.info.id}
        call = answered.parts[-1]
        assert isinstance(call, ToolPart)
        assert isinstance(call.state, CompletedState)
        assert (call.state.input, call.state.output) == ({"messageID": pointed.id}, pointed.id)
        assert call.state.metadata == {"of": {"message": answered.info.id}}
        [picture] = call.state.attachments or ()
        assert (picture.session_id, picture.message_id) == (fork.id, answered.info.id)
        old = {part.id for message in await spoken.history() for part in message.parts}
        assert old.isdisjoint([picture.id, *(part.id for part in answered.parts)])


async def test_a_revert_is_copied_if_its_target_is() -> None:
    async with open_engine() as engine:
        spoken = await create_session(engine.api)
        first, second = await spoken.ask("one"), await spoken.ask("two")
        known = await engine.api.get_session(spoken.session)
        reverted = replace(known, revert=SessionRevert(message_id=second.id, snapshot="abc"))
        await engine.api.runtime.journal.commit(SessionUpdated(info=reverted))
        whole = await engine.api.fork_session(spoken.session)
        copies = await engine.api.list_messages(whole.id)
        assert whole.revert == SessionRevert(message_id=copies[1].info.id, snapshot="abc")
        assert (await engine.api.fork_session(spoken.session, at=second.id)).revert is None
        assert first.id != copies[0].info.id


async def test_a_fork_has_spent_nothing_and_has_the_todos_only_if_it_is_complete() -> None:
    async with open_engine() as engine:
        spoken = await create_session(engine.api)
        last = await spoken.ask("one")
        todos = (Todo(content="weave", status="pending", priority="low"),)
        await engine.api.runtime.journal.commit(TodoUpdated(session_id=spoken.session, todos=todos))
        whole = await engine.api.fork_session(spoken.session)
        ledger = get_weft_data(whole).spent
        assert ledger is not None
        assert (ledger.own.cost, ledger.below) == (0, {})
        assert await engine.api.list_todos(whole.id) == list(todos)
        part = await engine.api.fork_session(spoken.session, at=last.id)
        assert await engine.api.list_todos(part.id) == []


async def test_a_running_call_is_interrupted_in_the_fork() -> None:
    async with open_engine() as engine:
        spoken = await create_session(engine.api)
        open_answer = await spoken.answer(await spoken.ask("go"), "going")
        await engine.api.update_message(
            replace(open_answer, time=AssistantTime(created=spoken.now), finish=None)
        )
        history = await spoken.history()
        call = history[-1].parts[-1]
        assert isinstance(call, ToolPart)
        running = replace(call, state=RunningState(input={"x": 1}, time=Span(start=1)))
        await engine.api.update_part(running)
        fork = await engine.api.fork_session(spoken.session)
        copied = (await engine.api.list_messages(fork.id))[-1]
        assert isinstance(copied.info, AssistantMessage)
        assert copied.info.time.completed == copied.info.time.created
        assert isinstance(copied.info.error, AbortedFailure)
        settled = copied.parts[-1]
        assert isinstance(settled, ToolPart)
        assert isinstance(settled.state, ErrorState)
        assert (await spoken.history())[-1].parts[-1] == running


async def test_parts_with_the_same_id_in_two_messages_keep_their_order() -> None:
    async with open_engine() as engine:
        spoken = await create_session(engine.api)
        for words in ("first", "second"):
            info = await spoken.ask("")
            for number in (1, 2):
                part = PartID(f"prt_{number:012x}AbCdEfGhIjKlMn")
                await engine.api.update_part(
                    TextPart(id=part, session_id=spoken.session, message_id=info.id, text=f"{words} {number}")
                )
        fork = await engine.api.fork_session(spoken.session)
        said = [
            [part.text for part in message.parts if isinstance(part, TextPart) and part.text]
            for message in await engine.api.list_messages(fork.id)
        ]
        assert said == [["first 1", "first 2"], ["second 1", "second 2"]]


@pytest.mark.parametrize(
    ("title", "fork"),
    [
        ("Loom", "Loom (fork #1)"),
        ("Loom (fork #1)", "Loom (fork #2)"),
        ("Loom (fork #99)", "Loom (fork #100)"),
        ("Loom (fork #x)", "Loom (fork #x) (fork #1)"),
        ("(fork #1)", "(fork #1) (fork #1)"),
        ("two\nlines (fork #1)", "two\nlines (fork #2)"),
        ("", " (fork #1)"),
    ],
)
def test_a_fork_is_numbered(title: str, fork: str) -> None:
    assert fork_title(title) == fork
