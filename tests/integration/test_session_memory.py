"""What an engine keeps in memory of sessions that are gone."""

import gc
from collections import Counter
from pathlib import Path

import pytest

from given.engine import Engine, open_engine, text_prompt
from weft.model.input import SessionInput
from weft.provider.scripted import AnyMove, Say, UseTool
from weft.store.url import open_store

WARM_UP, ROUNDS = 4, 10
ANSWER: tuple[list[AnyMove], ...] = ([UseTool(tool="echo", input={"text": "thread"})], [Say(text="woven")])


async def use_sessions(engine: Engine, rounds: int) -> None:
    """Create, prompt, fork and remove this many sessions."""
    for number in range(rounds):
        session = await engine.api.create_session(SessionInput(title="Cloth"))
        await engine.api.prompt(session.id, text_prompt("weave"))
        fork = await engine.api.fork_session(session.id)
        for id in (fork.id, session.id):
            await engine.api.remove_session(id, trash=bool(number % 2))
    engine.provider.requests.clear()


def count_objects() -> Counter[str]:
    """Count the objects of weft by type. Values are left out: the log of events keeps those of the last thousands."""
    gc.collect()
    kinds = (type(each) for each in gc.get_objects())
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for kind in kinds
        if str(kind.__module__).startswith("weft.") and not str(kind.__module__).startswith("weft.model.")
    )


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_a_session_that_was_removed_leaves_nothing_in_memory(kind: str, tmp_path: Path) -> None:
    answers = ANSWER * (WARM_UP + ROUNDS)
    async with (
        open_store(f"{kind}:{tmp_path}/sessions", cache=str(tmp_path / "cache")) as store,
        open_engine(*answers, store=store) as engine,
    ):
        await use_sessions(engine, WARM_UP)
        before = count_objects()
        await use_sessions(engine, ROUNDS)
        grown = count_objects() - before
    assert {kind: count for kind, count in grown.items() if count >= ROUNDS // 2} == {}
