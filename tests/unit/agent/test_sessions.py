"""The session store on its own: append, load, rewind, fork, search, events and names."""

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.agent.sessions import Session, SessionStore, open_store
from weft.errors import InvalidInputError, NotFoundError, SessionBusyError, StoreError
from weft.model.event import MessageUpdated, PartUpdated, SessionDeleted, SessionUpdated
from weft.model.ids import MessageID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import (
    CallTime,
    CompletedState,
    ErrorState,
    FilePart,
    ModelRef,
    ReasoningPart,
    RunningState,
    Span,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.session.append import (
    NewFile,
    NewMessage,
    NewReasoning,
    NewText,
    NewToolCall,
    NewToolResult,
    assistant_message,
    user_message,
)
from weft.store.url import open_store as open_backend


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    url = "memory:" if request.param == "memory" else f"file:{tmp_path / 'history'}"
    async with open_store(url, directory=tmp_path) as opened:
        yield opened


def texts(messages: list[MessageWithParts]) -> list[str]:
    return [part.text for message in messages for part in message.parts if isinstance(part, TextPart)]


# --- append and load ---


async def test_appended_messages_are_listed_oldest_first(store: SessionStore) -> None:
    session = await store.session("support-42")
    await session.append("Where is my order?")
    await session.append("On its way.", role="assistant")
    await session.append("one", "two")

    messages = await session.load()
    assert texts(messages) == ["Where is my order?", "On its way.", "one", "two"]
    assert [type(message.info) for message in messages] == [
        UserMessage, AssistantMessage, UserMessage, UserMessage,
    ]  # fmt: skip
    assert await session.load(last=2) == messages[2:]
    assert await session.load(last=1, before=messages[2].info.id) == [messages[1]]
    assert await session.load(last=0) == []


async def test_every_kind_of_content_becomes_its_part(store: SessionStore) -> None:
    session = await store.session()
    [asked] = await session.append(user_message("See this.", NewFile("data:text/csv,a", "text/csv", "a.csv")))
    [answer] = await session.append(
        assistant_message(
            NewReasoning("It is a table."),
            NewToolCall("sum", {"rows": [1, 2]}, "call_1", output="3"),
            NewToolCall("mail", {"path": "a.csv"}, "call_2", error="no such address"),
            NewToolCall("wait", {}, "call_3"),
            NewText("Three.", synthetic=True),
            model="openai/gpt-5",
            tokens=Tokens(input=7, output=3),
            cost=Decimal("0.01"),
        )
    )
    assert await session.load() == [asked, answer]

    info, at = answer.info, answer.info.time.created
    assert isinstance(info, AssistantMessage)
    assert (info.parent_id, info.provider_id, info.model_id) == (asked.info.id, "openai", "gpt-5")
    assert (info.tokens, info.cost, info.counted, info.priced, info.finish) == (
        Tokens(input=7, output=3), Decimal("0.01"), True, True, "tool-calls",
    )  # fmt: skip
    ids = [{"id": each.id, "session_id": session.id, "message_id": info.id} for each in answer.parts]
    time, span = CallTime(start=at, end=at), Span(start=at, end=at)
    completed = CompletedState(
        input={"rows": [1, 2]}, output="3", title='{"rows": [1, 2]}', metadata={}, time=time
    )
    assert answer.parts == (
        ReasoningPart(**ids[0], text="It is a table.", time=span),
        ToolPart(**ids[1], call_id="call_1", tool="sum", state=completed),
        ToolPart(
            **ids[2],
            call_id="call_2",
            tool="mail",
            state=ErrorState(input={"path": "a.csv"}, error="no such address", time=time),
        ),
        ToolPart(**ids[3], call_id="call_3", tool="wait", state=RunningState(input={}, time=Span(start=at))),
        TextPart(**ids[4], text="Three.", synthetic=True, time=span),
    )
    file = asked.parts[1]
    assert isinstance(file, FilePart)
    assert (file.mime, file.filename, file.url) == ("text/csv", "a.csv", "data:text/csv,a")


async def test_a_result_completes_a_call_of_the_same_append_or_an_earlier_one(store: SessionStore) -> None:
    session = await store.session()
    [first] = await session.append(
        assistant_message(
            NewToolCall("find", {"id": 1}, "here"),
            NewToolResult("here", "found"),
            NewToolCall("find", {"id": 2}, "later"),
        )
    )
    await session.append(assistant_message(NewToolResult("later", error="gone"), "It is gone."))

    [stored, second] = await session.load()
    states = [part.state for part in stored.parts if isinstance(part, ToolPart)]
    assert stored.info == first.info
    assert [type(state) for state in states] == [CompletedState, ErrorState]
    assert isinstance(states[1], ErrorState)
    assert (states[1].input, states[1].error) == ({"id": 2}, "gone")
    assert texts([second]) == ["It is gone."]
    assert len(second.parts) == 1


async def test_a_result_without_a_call_is_stored_as_a_call_of_its_own(store: SessionStore) -> None:
    session = await store.session()
    [message] = await session.append(assistant_message(NewToolResult("lost", "42", tool="find")))
    [part] = message.parts
    assert isinstance(part, ToolPart)
    assert (part.tool, part.call_id, type(part.state)) == ("find", "lost", CompletedState)
    assert await session.load() == [message]


async def test_a_prompt_keeps_its_model_and_an_unknown_usage_is_not_zero(store: SessionStore) -> None:
    session = await store.session()
    [asked, answer] = await session.append(user_message("Hi", model="openai/gpt-5"), assistant_message("Ho"))
    assert isinstance(asked.info, UserMessage)
    assert isinstance(answer.info, AssistantMessage)
    assert asked.info.model == ModelRef(provider_id="openai", model_id="gpt-5")
    assert (answer.info.counted, answer.info.priced, answer.info.finish) == (False, False, "stop")
    assert answer.info.parent_id == asked.info.id


async def test_metadata_is_copied_and_stored(store: SessionStore) -> None:
    given: dict[str, Any] = {"sdk": {"items": [{"id": "x", "n": 1.5}]}}
    session = await store.session()
    await session.append(user_message("Hi", metadata=given))
    given["sdk"]["items"].clear()
    assert [each.info.metadata for each in await session.load()] == [
        {"sdk": {"items": [{"id": "x", "n": 1.5}]}}
    ]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (7, "message"),
        (NewMessage(role="system", content=()), "role"),  # type: ignore[arg-type]
        (NewMessage(role="user", content=(7,)), "content"),  # type: ignore[arg-type]
        (user_message(NewText(7)), "text"),  # type: ignore[arg-type]
        (assistant_message(NewToolCall("a", [])), "input"),  # type: ignore[arg-type]
        (assistant_message(NewToolCall("a", {"x": object()})), "input"),
        (assistant_message(NewToolCall("a", {}, output="x", error="y")), "error"),
        (user_message("a", metadata={"x": object()}), "metadata"),
        (assistant_message("x", cost=Decimal("NaN")), "cost"),
        (assistant_message("x", cost="much"), "cost"),  # type: ignore[arg-type]
    ],
)
async def test_an_invalid_message_is_refused_with_its_whole_append(
    store: SessionStore, message: Any, field: str
) -> None:
    session = await store.session()
    with pytest.raises(InvalidInputError) as caught:
        await session.append("fine", message)
    assert caught.value.field == field
    assert await session.load() == []


async def test_a_wrong_role_is_refused_with_a_hint(store: SessionStore) -> None:
    session = await store.session()
    with pytest.raises(InvalidInputError, match="'system' is none of user, assistant") as caught:
        await session.append("Be nice.", role="system")  # type: ignore[arg-type]
    assert caught.value.hint == "instructions belong to the agent, not to its history"


async def test_concurrent_appends_do_not_mix(store: SessionStore) -> None:
    session = await store.session()
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(session.append(*(f"{number}.{part}" for part in range(3))))
    found = texts(await session.load())
    batches = [found[start : start + 3] for start in range(0, len(found), 3)]
    assert sorted(batches) == sorted([[f"{number}.{part}" for part in range(3)] for number in range(20)])


class Model:
    """What a session should hold: the texts, and the ids to refer to."""

    def __init__(self, session: Session, held: list[str], ids: list[MessageID]) -> None:
        self.session = session
        self.held = held
        self.ids = ids

    async def check(self) -> None:
        messages = await self.session.load()
        assert texts(messages) == self.held
        assert texts(await self.session.load(last=2)) == self.held[-2:]
        times = [message.info.time.created for message in messages]
        assert times == sorted(times)
        self.ids = [message.info.id for message in messages]


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["append", "rewind", "fork"]),
        st.integers(0, 9),
        st.lists(st.text(max_size=5), min_size=1, max_size=3),
    ),
    max_size=12,
)


@given(moves=MOVES, in_files=st.booleans())
async def test_sessions_behave_like_lists_of_messages(
    moves: list[tuple[str, int, list[str]]], in_files: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = str(tmp_path_factory.mktemp("h")) if in_files else "memory:"
    async with open_store(url) as store:
        models = [Model(await store.session(), [], [])]
        for move, number, words in moves:
            model = models[number % len(models)]
            at = number % len(model.ids) if model.ids else None
            if move == "append":
                await model.session.append(*words)
                model.held = model.held + words
            elif move == "rewind" and at is not None:
                await model.session.rewind(model.ids[at], *(user_message(word) for word in words))
                model.held = model.held[:at] + words
            elif move == "fork":
                copy = await model.session.fork(at=None if at is None else model.ids[at])
                models.append(Model(copy, model.held[:at], []))
            for each in models:
                await each.check()


# --- rewind and fork ---


async def test_rewinding_removes_the_end_and_an_unknown_message_changes_nothing(store: SessionStore) -> None:
    session = await store.session()
    [_, second, _] = await session.append("one", "two", "three")
    await session.rewind(second.info.id, assistant_message("other"))
    messages = await session.load()
    assert texts(messages) == ["one", "other"]
    assert isinstance(messages[1].info, AssistantMessage)
    assert messages[1].info.parent_id == messages[0].info.id
    with pytest.raises(NotFoundError):
        await session.rewind(second.info.id)
    assert await session.load() == messages


async def test_a_fork_has_the_messages_before_a_point_and_is_independent(store: SessionStore) -> None:
    session = await store.session("plan", title="The plan")
    [_, second] = await session.append("one", "two")
    copy = await session.fork(at=second.info.id)
    await copy.append("other")
    assert texts(await copy.load()) == ["one", "other"]
    assert texts(await session.load()) == ["one", "two"]
    assert (await copy.info()).title == "The plan (fork #1)"
    with pytest.raises(NotFoundError):
        await copy.fork(at=second.info.id)


# --- names ---


async def test_a_name_opens_the_same_session_and_no_name_a_new_one(store: SessionStore) -> None:
    first = await store.session("Größe/№ 1", title="Mine")
    again = await store.session("Größe/№ 1", title="Not looked at")
    assert first.id == again.id
    assert (await again.info()).title == "Mine"
    assert (await store.session("Größe/№ 2")).id != first.id
    assert (await store.session()).id != (await store.session()).id
    assert (await store.session(first.id)).id == first.id


async def test_concurrent_opens_of_a_name_create_one_session(store: SessionStore) -> None:
    async with asyncio.TaskGroup() as tasks:
        opened = [tasks.create_task(store.session("shared")) for _ in range(8)]
    assert len({task.result().id for task in opened}) == 1
    assert len(await store.list()) == 1


async def test_an_unknown_id_and_an_empty_name_are_refused(store: SessionStore) -> None:
    with pytest.raises(NotFoundError, match="there is no session 'ses_none'") as caught:
        await store.session("ses_none")
    assert "list the sessions" in caught.value.hint
    with pytest.raises(InvalidInputError):
        await store.session(" ")
    with pytest.raises(InvalidInputError):
        await store.session("fine", title=" ")
    assert await store.list() == []


# --- the record of a session ---


async def test_sessions_are_renamed_tagged_archived_listed_and_removed(store: SessionStore) -> None:
    first, second = await store.session("first"), await store.session("second")
    await first.rename("Orders")
    await first.tag("shop", "urgent")
    await first.untag("urgent")
    await second.archive()
    assert [each.title for each in await store.list(tag="shop")] == ["Orders"]
    assert [each.title for each in await store.list(search="ord")] == ["Orders"]
    assert [each.title for each in await store.list(archived=True)] == ["second"]
    await second.archive(archived=False)
    assert await store.list(archived=True) == []

    await second.append("the last used comes first")
    assert [each.id for each in await store.list()] == [second.id, first.id]
    assert [each.id for each in await store.list(limit=1)] == [second.id]

    await first.remove()
    assert [each.id for each in await store.list()] == [second.id]
    for use in (first.info(), first.load(), first.append("x"), first.rename("x"), first.fork()):
        with pytest.raises(NotFoundError):
            await use
    await second.remove(trash=False)
    assert await store.list() == []


async def test_a_session_that_runs_cannot_be_removed(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'history'}"
    async with open_store(url) as store, open_backend(url) as backend:
        session = await store.session()
        async with backend.lease(session.id, "another run"):
            with pytest.raises(SessionBusyError):
                await session.remove()
        assert len(await store.list()) == 1


# --- search ---


async def test_search_finds_appended_text_across_sessions_and_within_one(store: SessionStore) -> None:
    orders, weather = await store.session("orders"), await store.session("weather")
    [asked, _] = await orders.append(
        "Where is my parcel?", assistant_message(NewToolCall("track", {"number": "ZX81"}, output="Hamburg"))
    )
    await weather.append("Is it raining in Hamburg?")

    assert {hit.session_id for hit in await store.search("hamburg")} == {orders.id, weather.id}
    assert [(hit.session_id, hit.message_id) for hit in await store.search("parcel")] == [
        (orders.id, asked.info.id)
    ]
    assert await store.search("nothing like it") == []
    assert [(hit.message_id, hit.by) for hit in await orders.search("PARCEL")] == [(asked.info.id, "user")]
    assert [hit.by for hit in await orders.search("zx81 hamburg")] == ["track"]
    assert await orders.search("raining") == []
    assert await orders.search(" ") == []


# --- events ---


async def test_events_report_appends_and_end_with_the_session(store: SessionStore) -> None:
    session, other = await store.session(), await store.session()
    events = session.events()
    [message] = await session.append("Hi")
    await other.append("not shown")
    await session.remove()

    seen = [each async for each in events]
    assert [type(each.event) for each in seen] == [
        SessionUpdated,
        MessageUpdated,
        PartUpdated,
        SessionDeleted,
    ]
    assert [each.event for each in seen[1:3]] == [
        MessageUpdated(info=message.info),
        PartUpdated(part=message.parts[0]),
    ]
    assert [each.cursor async for each in session.events(after=seen[1].cursor)] == [
        each.cursor for each in seen[2:]
    ]


async def test_events_end_when_the_store_is_closed(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks, open_store("memory:", directory=tmp_path) as store:
        session = await store.session()

        async def follow() -> int:
            return len([each async for each in session.events()])

        following = tasks.create_task(follow())
        await asyncio.sleep(0)
        await session.append("Hi")
    assert following.result() == 3


# --- values ---


async def test_values_are_stored_under_keys_that_weft_does_not_use(store: SessionStore) -> None:
    await store.put_value(("alias", "global"), {"a": [1]})
    assert await store.find_value(("alias", "global")) == {"a": [1]}

    def count(value: Any) -> Any:
        return {"n": (value or {"n": 0})["n"] + 1}

    await store.update_value(("counter",), count)
    assert await store.update_value(("counter",), count) == {"n": 2}
    await store.put_value(("counter",), None)
    assert await store.find_value(("counter",)) is None
    assert await store.list() == []
    with pytest.raises(InvalidInputError, match="value: it is not JSON"):
        await store.put_value(("bad",), {"x": object()})


# --- a store that cannot be used ---


async def test_a_closed_store_raises_an_error(tmp_path: Path) -> None:
    async with open_store("memory:", directory=tmp_path) as store:
        session = await store.session()
    for use in (store.session(), store.list(), store.search("x"), session.load(), session.append("x")):
        with pytest.raises(StoreError, match="the store is closed") as caught:
            await use
        assert "async with weft.open_store" in caught.value.hint
    with pytest.raises(StoreError):
        session.events()


async def test_a_store_of_another_event_loop_raises_an_error(tmp_path: Path) -> None:
    async with open_store("memory:", directory=tmp_path) as store:
        with pytest.raises(StoreError, match="belongs to another event loop"):
            await asyncio.to_thread(asyncio.run, store.list())  # type: ignore[arg-type]


async def test_an_invalid_address_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="is not the URL of a store"):
        async with open_store("ftp://example.test/x"):
            pass


async def test_a_plain_path_and_its_url_are_the_same_store(tmp_path: Path) -> None:
    async with open_store(tmp_path / "history") as store:
        await (await store.session("a")).append("Hi")
    async with open_store(f"file:{tmp_path / 'history'}") as store:
        assert texts(await (await store.session("a")).load()) == ["Hi"]


async def test_wrong_use_of_a_store_is_explained() -> None:
    with pytest.raises(TypeError, match=r"write `async with weft\.open_store"), open_store("memory:"):  # type: ignore[attr-defined]
        pass
    with pytest.raises(InvalidInputError, match="url: it is of the type int"):
        open_store(3)  # type: ignore[arg-type]
    async with open_store("memory:") as store:
        assert repr(store) == "SessionStore('memory:')"
        with pytest.raises(InvalidInputError, match="name: it is of the type int"):
            await store.session(3)  # type: ignore[arg-type]
