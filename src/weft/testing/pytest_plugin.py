"""The pytest plugin, which pytest loads by itself: the fixture `weft_tape` and the option `--weft-record`."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # every test run loads this plugin, and few use it
    from weft.provider.tape import Tape

OPTION = "--weft-record"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("weft").addoption(
        OPTION, action="store_true", help="record the tapes of weft_tape anew, from the real models"
    )


@pytest.fixture
def weft_tape(request: pytest.FixtureRequest) -> "Iterator[Tape]":
    """The tape of this test, to pass as `tape=`: replayed, or recorded with `--weft-record`.

    It is `tapes/<file>.<test>.jsonl` next to the test. The test fails if a request is not on the tape, or if a recorded one
    was not made.
    """
    from weft.testing.replay import recording, replaying  # noqa: PLC0415  few tests replay a tape

    name = re.sub(r"[^\w.-]+", "-", f"{request.path.stem}.{request.node.name}").strip("-")
    path = request.path.parent / "tapes" / f"{name}.jsonl"
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
