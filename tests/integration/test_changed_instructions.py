"""Nested instruction files that change during a session: each request still begins with the previous one."""

from itertools import pairwise
from pathlib import Path

import pytest

from given.engine import open_engine, text_prompt
from given.instruction_repository import Repository
from given.provider_wires import WIRES
from given.request_prefix import find_prefix_change
from weft.model.input import SessionInput
from weft.provider.scripted import Say, Think, UseTool
from weft.testing.provider_harness import open_provider_harness

CALL = [Think(text="hm"), Say(text="I call."), UseTool(tool="echo", input={"words": "x"})]


async def send_with_changing_files(name: str, repository: Repository) -> list[bytes]:
    """Return the requests of a session in which the nearer file changes, then the farther one, which is then removed."""
    wire = WIRES[name]
    async with (
        open_provider_harness(wire.dialect(), wire.make, wire.model) as harness,
        open_engine(
            model=wire.model,
            provider=harness.provider,
            place=repository.place,
            instructions=repository.read(),
        ) as engine,
    ):
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        harness.play(
            CALL, [Say(text="one")], CALL, [Say(text="two")], [Say(text="three")], [Say(text="four")]
        )
        await engine.api.prompt(session, text_prompt("first"))
        (repository.near / "AGENTS.md").write_text("Nearer.")
        await engine.api.prompt(session, text_prompt("second"))
        (repository.top / "AGENTS.md").write_text("Farther.")
        await engine.api.prompt(session, text_prompt("third"))
        (repository.top / "AGENTS.md").unlink()
        await engine.api.prompt(session, text_prompt("fourth"))
        return [request.raw for request in harness.server.requests]


@pytest.mark.parametrize("name", WIRES)
async def test_changed_instructions_are_noted_at_the_end_and_the_prefix_stays(
    name: str, tmp_path: Path
) -> None:
    sent = await send_with_changing_files(name, Repository(tmp_path))

    assert [change for pair in pairwise(sent) if (change := find_prefix_change(*pair)) is not None] == []
    assert len(sent) == 6
    for words in (b"Near.", b"Far."):
        assert words in sent[0]
    noted = [
        [words in request for request in sent] for words in (b"Nearer.", b"Farther.", b"no longer apply: ")
    ]
    assert noted == [[False] * at + [True] * (6 - at) for at in (2, 4, 5)]
