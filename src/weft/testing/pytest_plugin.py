"""The pytest plugin, which pytest loads by itself: the fixture `weft_tape` and the option `--weft-record`."""

import hashlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # every test run loads this plugin, and few use it
    from weft.provider.tape import Tape

OPTION = "--weft-record"
MAX_NAME = 120


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("weft").addoption(
        OPTION, action="store_true", help="record the tapes of weft_tape again, from the real models"
    )


def to_file_name(request: pytest.FixtureRequest) -> str:
    """Return a name for the tape of a test, different for every test of a directory."""
    owner = f"{request.cls.__qualname__}." if request.cls is not None else ""
    name = f"{request.path.stem}.{owner}{request.node.name}"
    plain = re.sub(r"[^\w.-]+", "-", name.replace("[", "-").replace("]", ""))[:MAX_NAME]
    # Parameters may contain anything: what is lost here must not make two tests share a tape.
    lost = re.search(r"[^\w.\-\[\]]", name) or len(name) > MAX_NAME
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}" if lost else plain


@pytest.fixture
def weft_tape(request: pytest.FixtureRequest) -> "Iterator[Tape]":
    """The tape of this test, to pass as `tape=`: replayed, or recorded with `--weft-record`.

    It is `tapes/<file>.<test>.jsonl` next to the test; the class, if there is one, comes before the test. The test fails if a
    request is not on the tape, or if a recorded one was not made.
    """
    from weft.testing.replay import recording, replaying  # noqa: PLC0415  few tests replay a tape

    path = request.path.parent / "tapes" / f"{to_file_name(request)}.jsonl"
    if request.config.getoption(OPTION):
        with recording(path) as tape:
            yield tape
        return
    if not path.exists():
        pytest.fail(
            f"there is no tape {path}: record it with `pytest {OPTION} {request.node.nodeid}`", pytrace=False
        )
    with replaying(path, record=f"pytest {OPTION} {request.node.nodeid}") as tape:
        yield tape
