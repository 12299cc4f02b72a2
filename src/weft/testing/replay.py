"""Recorded answers in your own tests: runs with a real model's words, without a key and without a network.

Put the fixture in your `conftest.py`, and give it to weft as its tape:

    from weft.testing.replay import weft_tape

    async def test_it_greets(weft_tape):
        async with weft.open(".", store="memory:", tape=weft_tape) as api: ...

The tape of a test is `tapes/<file>.<test>.jsonl` beside it. `WEFT_RECORD=1 pytest` records it anew, asking the model.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from weft.provider.tape import Recording, Replay, Tape

RECORD = "WEFT_RECORD"


@contextmanager
def recording(path: str | Path) -> Iterator[Recording]:
    """A tape that records into this file, in place of what was in it. Its directory is made."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    yield Recording(str(file))


@contextmanager
def replaying(path: str | Path) -> Iterator[Replay]:
    """A tape that plays this file. In the end nothing else must have been asked for, and everything on it.

    A run takes a request that is not on it for a failure of the model, and ends well: here it is told what was asked.
    """
    tape = Replay(str(path))
    yield tape
    if tape.missed:
        raise AssertionError(tape.missed[0])
    if tape.left:
        raise AssertionError(f"{len(tape.left)} recorded exchanges of {path} were not asked for")


@pytest.fixture
def weft_tape(request: pytest.FixtureRequest) -> Iterator[Tape]:
    """The tape of this test: played, or recorded if `WEFT_RECORD` is set."""
    name = re.sub(r"[^\w.-]+", "-", f"{request.path.stem}.{request.node.name}").strip("-")
    path = request.path.parent / "tapes" / f"{name}.jsonl"
    with recording(path) if os.environ.get(RECORD) else replaying(path) as tape:
        yield tape
