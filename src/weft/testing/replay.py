"""Record the answers of real models, and replay them without a key and without a network.

In pytest, the fixture `weft_tape` does this (`weft.testing.pytest_plugin`); elsewhere, use these context managers:

    with replaying("greeting.jsonl") as tape, weft.open(".", store="memory:", tape=tape) as agent: ...
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.provider.tape import Recording, Replay


@contextmanager
def recording(path: str | Path) -> Iterator[Recording]:
    """Yield a tape that records into this file and replaces its content. The directory is created."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    yield Recording(str(file))


@contextmanager
def replaying(path: str | Path, *, record: str = "") -> Iterator[Replay]:
    """Yield a tape that replays this file.

    Raise `AssertionError` at the end if a request was not on the tape, or if a recorded exchange was not requested. To a run, a
    request that is not on the tape is a failure of the model, and the run ends normally: only this error tells of it. `record` is
    the command that records the tape again; the error shows it.
    """
    tape = Replay(str(path))
    again = f"\nIf this change is intended, record the tape again: {record}" if record else ""
    try:
        yield tape
    finally:
        # A request that was not on the tape has failed already; this error says why.
        if tape.missed:
            raise AssertionError(f"{tape.missed[0]}{again}")
    if tape.left:
        left = "1 recorded exchange" if len(tape.left) == 1 else f"{len(tape.left)} recorded exchanges"
        raise AssertionError(f"not requested: {left} of {path}{again}")
