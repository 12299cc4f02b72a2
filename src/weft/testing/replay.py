"""Replay recorded answers in your own tests: run with a real model's answers, without a key and without a network.

Put the fixture in your `conftest.py`, and pass it to weft as its tape:

    from weft.testing.replay import weft_tape

    async def test_it_greets(weft_tape):
        async with weft.open(".", store="memory:", tape=weft_tape) as api: ...

The tape of a test is `tapes/<file>.<test>.jsonl` next to it. `WEFT_RECORD=1 pytest` records it again, with the real
model.
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
    """Yield a tape that records into this file and replaces its content. The directory is created."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    yield Recording(str(file))


@contextmanager
def replaying(path: str | Path) -> Iterator[Replay]:
    """Yield a tape that replays this file. Raise `AssertionError` at the end if a request was not on it, or if an
    exchange was not requested.

    A run treats a request that is not on the tape as a failure of the model and ends normally, so only this error shows
    it.
    """
    tape = Replay(str(path))
    yield tape
    if tape.missed:
        raise AssertionError(tape.missed[0])
    if tape.left:
        raise AssertionError(f"{len(tape.left)} recorded exchanges of {path} were not requested")


@pytest.fixture
def weft_tape(request: pytest.FixtureRequest) -> Iterator[Tape]:
    """The tape of this test: replayed, or recorded if `WEFT_RECORD` is set."""
    name = re.sub(r"[^\w.-]+", "-", f"{request.path.stem}.{request.node.name}").strip("-")
    path = request.path.parent / "tapes" / f"{name}.jsonl"
    with recording(path) if os.environ.get(RECORD) else replaying(path) as tape:
        yield tape
