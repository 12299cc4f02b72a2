"""Terminals whose opening is cancelled, or that are opened at the same time."""

import asyncio
import os
from pathlib import Path

import pytest

from weft.errors import ConflictError
from weft.host.tasks import open_tasks
from weft.local import terminals as terminals_module
from weft.local.terminals import LocalTerminals
from weft.model.event import Event
from weft.model.ids import Mint
from weft.model.workspace import PtyInput

CAT = PtyInput(command="cat", args=())


def make_terminals(directory: Path, tasks: asyncio.TaskGroup) -> LocalTerminals:
    async def publish(event: Event) -> None:
        del event

    return LocalTerminals(str(directory), os.environ, Mint(lambda: 1, os.urandom), publish, tasks)


@pytest.mark.parametrize("delay", [0.0, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02])
async def test_a_terminal_whose_opening_is_cancelled_ends(tmp_path: Path, delay: float) -> None:
    async with asyncio.timeout(20), open_tasks() as tasks:
        terminals = make_terminals(tmp_path, tasks)
        opening = asyncio.ensure_future(terminals.create_pty(CAT))
        await asyncio.sleep(delay)
        opening.cancel()
        await asyncio.wait([opening])
        await terminals.close()


async def test_terminals_opened_at_the_same_time_count_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminals_module, "MAX_TERMINALS", 2)
    async with open_tasks() as tasks:
        terminals = make_terminals(tmp_path, tasks)
        opened = await asyncio.gather(*(terminals.create_pty(CAT) for _ in range(4)), return_exceptions=True)
        refused = [each for each in opened if isinstance(each, ConflictError)]
        assert (len(refused), len(await terminals.list_ptys())) == (2, 2)
        await terminals.close()
