"""LangGraph with its checkpoints in weft: real graphs of plain functions, and LangGraph's own saver as the reference."""

import asyncio
import operator
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from weft.agent.sessions import SessionStore, open_store
from weft.errors import InvalidInputError, UnsupportedError
from weft.integrations.langgraph import WeftCheckpointer


class State(TypedDict, total=False):
    words: Annotated[list[str], operator.add]
    approved: bool


def answer(state: State) -> State:
    return {"words": [f"answer to {state['words'][-1]}"]}


def ask(state: State) -> State:
    return {"approved": interrupt("send it?") == "yes"}


def build(checkpointer: BaseCheckpointSaver[Any], *, asks: bool = False) -> Any:
    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    if asks:
        builder.add_node("ask", ask)
        builder.add_edge("answer", "ask")
        builder.add_edge("ask", END)
    return builder.compile(checkpointer=checkpointer)


def thread(name: str, **more: str) -> RunnableConfig:
    return {"configurable": {"thread_id": name, **more}}


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    url = "memory:" if request.param == "memory" else str(tmp_path / "history")
    async with open_store(url, directory=tmp_path) as opened:
        yield opened


async def test_a_graph_continues_in_the_same_process_and_with_another_handle(tmp_path: Path) -> None:
    async with open_store(tmp_path / "history", directory=tmp_path) as store:
        graph = build(WeftCheckpointer(store))
        await graph.ainvoke({"words": ["one"]}, thread("user/42 ü"))
        await graph.ainvoke({"words": ["two"]}, thread("user/42 ü"))
    async with open_store(tmp_path / "history", directory=tmp_path) as store:
        graph = build(WeftCheckpointer(store))
        state = await graph.ainvoke({"words": ["three"]}, thread("user/42 ü"))
        assert state["words"] == [
            "one", "answer to one", "two", "answer to two", "three", "answer to three",
        ]  # fmt: skip
        assert (await graph.aget_state(thread("another"))).values == {}
        assert await store.list() == []  # a thread is not a session


async def test_a_graph_that_was_interrupted_is_resumed_with_another_handle(tmp_path: Path) -> None:
    async with open_store(tmp_path / "history", directory=tmp_path) as store:
        stopped = await build(WeftCheckpointer(store), asks=True).ainvoke({"words": ["one"]}, thread("a"))
        assert [each.value for each in stopped["__interrupt__"]] == ["send it?"]
    async with open_store(tmp_path / "history", directory=tmp_path) as store:
        graph = build(WeftCheckpointer(store), asks=True)
        ended = await graph.ainvoke(Command(resume="yes"), thread("a"))
        assert ended == {"words": ["one", "answer to one"], "approved": True}


async def test_a_graph_goes_back_to_an_earlier_checkpoint(store: SessionStore) -> None:
    graph = build(WeftCheckpointer(store))
    await graph.ainvoke({"words": ["one"]}, thread("a"))
    first = await graph.aget_state(thread("a"))
    await graph.ainvoke({"words": ["two"]}, thread("a"))
    state = await graph.ainvoke({"words": ["other"]}, first.config)
    assert state["words"] == ["one", "answer to one", "other", "answer to other"]


async def test_blocking_calls_work_from_other_threads_and_are_refused_in_the_loop(
    store: SessionStore,
) -> None:
    saver = WeftCheckpointer(store)
    graph = build(saver)
    state = await asyncio.to_thread(graph.invoke, {"words": ["one"]}, thread("a"))
    assert state["words"] == ["one", "answer to one"]
    listed = await asyncio.to_thread(lambda: list(saver.list(thread("a"))))
    assert listed == [each async for each in saver.alist(thread("a"))]
    assert len(listed) == 3
    with pytest.raises(UnsupportedError, match="a blocking call") as caught:
        graph.invoke({"words": ["two"]}, thread("a"))
    assert "ainvoke" in caught.value.hint
    await asyncio.to_thread(saver.delete_thread, "a")
    assert await saver.aget_tuple(thread("a")) is None


async def test_a_config_without_a_thread_or_checkpoint_is_refused(store: SessionStore) -> None:
    saver = WeftCheckpointer(store)
    with pytest.raises(InvalidInputError, match="no thread_id"):
        await saver.aget_tuple({"configurable": {}})
    with pytest.raises(InvalidInputError, match="no checkpoint_id"):
        await saver.aput_writes(thread("a"), [("x", 1)], "task")


# --- copying, pruning and deleting ---


def extend(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*state, *(word for write in writes for word in write)]


class DeltaState(TypedDict, total=False):
    words: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=5)]


def answer_briefly(state: DeltaState) -> DeltaState:
    return {"words": [f"{state['words'][-1]}!"]}


def build_deltas(checkpointer: BaseCheckpointSaver[Any]) -> Any:
    """Return a graph whose checkpoints rarely contain the words, which are rebuilt from earlier ones."""
    builder = StateGraph(DeltaState)
    builder.add_node("answer", answer_briefly)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=checkpointer)


async def count(saver: BaseCheckpointSaver[Any], name: str) -> int:
    return len([each async for each in saver.alist(thread(name))])


async def test_langgraphs_conformance_suite_passes(store: SessionStore) -> None:
    @checkpointer_test(name="weft")
    async def create() -> AsyncIterator[BaseCheckpointSaver[Any]]:
        yield WeftCheckpointer(store)

    report = await validate(create)
    assert {name: (each.passed, each.failures) for name, each in report.results.items()} == {
        each.value: (True, []) for each in Capability
    }


async def test_a_copied_thread_is_independent(store: SessionStore) -> None:
    saver = WeftCheckpointer(store)
    graph = build(saver, asks=True)
    await graph.ainvoke({"words": ["one"]}, thread("a"))
    await saver.acopy_thread("a", "b/ü")
    await saver.acopy_thread("a", "a")
    await saver.acopy_thread("missing", "c")
    ended = await graph.ainvoke(Command(resume="yes"), thread("b/ü"))
    assert ended == {"words": ["one", "answer to one"], "approved": True}
    assert (await graph.aget_state(thread("a"))).next == ("ask",)
    assert (await graph.aget_state(thread("c"))).values == {}
    await saver.adelete_thread("a")
    assert (await graph.aget_state(thread("b/ü"))).values == ended


async def test_pruning_keeps_the_last_checkpoint_and_the_graph_continues(store: SessionStore) -> None:
    saver = WeftCheckpointer(store)
    graph = build(saver, asks=True)
    for name in ("a", "b"):
        await graph.ainvoke({"words": ["one"]}, thread(name))
    before = await graph.aget_state(thread("a"))
    await saver.aprune(["a", "missing"])
    assert (await count(saver, "a"), await count(saver, "b")) == (1, 3)
    after = await graph.aget_state(thread("a"))
    assert (after.values, after.next, after.interrupts) == (before.values, before.next, before.interrupts)
    ended = await graph.ainvoke(Command(resume="yes"), thread("a"))
    assert ended == {"words": ["one", "answer to one"], "approved": True}
    await saver.aprune(["a"], strategy="delete")
    assert (await count(saver, "a"), await count(saver, "b")) == (0, 3)


async def test_pruning_keeps_the_checkpoints_that_values_are_rebuilt_from(store: SessionStore) -> None:
    saver = WeftCheckpointer(store)
    graph = build_deltas(saver)
    counts: list[int] = []
    for number in range(8):
        state = await graph.ainvoke({"words": [str(number)]}, thread("a"))
        await saver.aprune(["a"])
        assert (await graph.aget_state(thread("a"))).values == state
        counts.append(await count(saver, "a"))
    assert state["words"] == [word for number in range(8) for word in (str(number), f"{number}!")]
    assert counts == [3, 6, 2, 5, 1, 4, 7, 2]  # without pruning 3, 6, 9, …


async def test_deleting_a_run_leaves_other_runs_unchanged(store: SessionStore) -> None:
    saver = WeftCheckpointer(store)
    graph = build(saver)
    for run in ("run 1", "run 2", "run 3"):
        await graph.ainvoke({"words": [run]}, thread("a", run_id=run))
    before = (await graph.aget_state(thread("a"))).values
    await saver.adelete_for_runs(["run 2", "missing"])
    left = [each.metadata["run_id"] async for each in saver.alist(thread("a"))]
    assert left == ["run 3", "run 3", "run 3", "run 1", "run 1", "run 1"]
    assert (await graph.aget_state(thread("a"))).values == before
    await saver.adelete_for_runs(["run 3"])
    assert (await graph.aget_state(thread("a"))).values == {"words": ["run 1", "answer to run 1"]}


async def test_deleting_a_run_keeps_checkpoints_that_other_runs_build_on(store: SessionStore) -> None:
    saver = WeftCheckpointer(store)
    graph = build_deltas(saver)
    for run in ("run 1", "run 2"):
        await graph.ainvoke({"words": [run]}, thread("a", run_id=run))
    await saver.adelete_for_runs(["run 1"])
    assert (await graph.aget_state(thread("a"))).values == {"words": ["run 1", "run 1!", "run 2", "run 2!"]}
    await saver.adelete_for_runs(["run 1", "run 2"])
    assert await count(saver, "a") == 0


async def test_copying_pruning_and_deleting_work_from_other_threads(store: SessionStore) -> None:
    saver = WeftCheckpointer(store)
    await build(saver).ainvoke({"words": ["one"]}, thread("a", run_id="run 1"))
    await asyncio.to_thread(saver.copy_thread, "a", "b")
    await asyncio.to_thread(saver.prune, ["a"])
    assert (await count(saver, "a"), await count(saver, "b")) == (1, 3)
    await asyncio.to_thread(saver.delete_for_runs, ["run 1"])
    assert (await count(saver, "a"), await count(saver, "b")) == (0, 0)


async def test_an_unknown_way_of_pruning_is_refused(store: SessionStore) -> None:
    with pytest.raises(InvalidInputError, match="'keep_some' is unknown") as caught:
        await WeftCheckpointer(store).aprune(["a"], strategy="keep_some")
    assert caught.value.hint == "pass one of keep_latest, delete"


# --- beside LangGraph's own saver ---

THREADS, NAMESPACES, IDS = ["a", "b/ü"], ["", "child:1|x"], ["1", "2", "3/é"]
CHANNELS = ["messages", "total", "__error__", "__interrupt__", "__resume__"]
VALUES = st.one_of(
    st.none(),
    st.integers(-9, 9),
    st.text(max_size=4),
    st.binary(max_size=4),
    st.lists(st.integers(-9, 9), max_size=2),
)
PUT = st.tuples(
    st.just("put"),
    st.sampled_from(THREADS),
    st.sampled_from(NAMESPACES),
    st.sampled_from(IDS),
    st.sampled_from([None, *IDS]),
    st.dictionaries(st.sampled_from(CHANNELS[:2]), VALUES),
)
WRITE = st.tuples(
    st.just("write"),
    st.sampled_from(THREADS),
    st.sampled_from(NAMESPACES),
    st.sampled_from(IDS),
    st.sampled_from(["task 1", "task-2"]),
    st.lists(st.tuples(st.sampled_from(CHANNELS), VALUES), max_size=3),
)
DELETE = st.tuples(st.just("delete"), st.sampled_from(THREADS))


async def apply(saver: BaseCheckpointSaver[Any], move: Any, number: int) -> None:
    match move:
        case "put", name, namespace, id, parent, values:
            config = thread(name, checkpoint_ns=namespace, **({"checkpoint_id": parent} if parent else {}))
            versions = dict.fromkeys(values, number + 1)
            await saver.aput(
                config,
                {
                    "v": 1,
                    "id": id,
                    "ts": "2026-11-17T00:00:00+00:00",
                    "channel_values": values,
                    "channel_versions": versions,
                    "versions_seen": {"node": versions},
                    "updated_channels": None,
                },
                {"source": "loop" if number % 2 else "input", "step": number},
                versions,
            )
        case "write", name, namespace, id, task, writes:
            config = thread(name, checkpoint_ns=namespace, checkpoint_id=id)
            await saver.aput_writes(config, writes, task, task_path=f"path {number % 2}")
        case "delete", name:
            await saver.adelete_thread(name)


async def observe(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    """Return everything that a saver can be asked."""
    seen: list[Any] = []
    for name in THREADS:
        for namespace in NAMESPACES:
            config = thread(name, checkpoint_ns=namespace)
            seen.append(await saver.aget_tuple(config))
            seen += [
                await saver.aget_tuple(thread(name, checkpoint_ns=namespace, checkpoint_id=id)) for id in IDS
            ]
            seen.append([each async for each in saver.alist(config)])
            seen.append([each async for each in saver.alist(config, filter={"source": "loop"}, limit=2)])
            seen.append([each async for each in saver.alist(config, before=thread(name, checkpoint_id="2"))])
            seen.append(
                [each async for each in saver.alist(thread(name, checkpoint_ns=namespace, checkpoint_id="1"))]
            )
        seen.append(sort([each async for each in saver.alist(thread(name))]))
    seen.append(sort([each async for each in saver.alist(None)]))
    return seen


def sort(found: list[CheckpointTuple]) -> list[CheckpointTuple]:
    """Sort by thread and namespace: savers differ in the order of these."""
    return sorted(found, key=lambda each: str(each.config))


@given(moves=st.lists(st.one_of(PUT, PUT, WRITE, WRITE, DELETE), max_size=12))
async def test_the_checkpointer_behaves_like_the_saver_of_langgraph(moves: list[Any]) -> None:
    async with open_store("memory:") as store:
        saver, reference = WeftCheckpointer(store), InMemorySaver()
        for number, move in enumerate(moves):
            await apply(saver, move, number)
            await apply(reference, move, number)
        assert await observe(saver) == await observe(reference)


async def test_the_checkpointer_behaves_the_same_on_a_file_store(tmp_path: Path) -> None:
    moves: list[Any] = [
        ("put", "a", "", "1", None, {"messages": ["x"], "total": b"\x00"}),
        ("write", "a", "", "1", "task 1", [("messages", "y"), ("__error__", "z")]),
        ("put", "a", "", "2", "1", {"messages": ["x", "y"]}),
        ("put", "b/ü", "child:1|x", "3/é", None, {}),
        ("put", "b/ü", "", "1", None, {"total": 1}),
        ("delete", "b/ü"),
    ]
    reference = InMemorySaver()
    for number, move in enumerate(moves):
        async with open_store(tmp_path / "history") as store:  # a new handle for each
            await apply(WeftCheckpointer(store), move, number)
        await apply(reference, move, number)
    async with open_store(tmp_path / "history") as store:
        assert await observe(WeftCheckpointer(store)) == await observe(reference)
