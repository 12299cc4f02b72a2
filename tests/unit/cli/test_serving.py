"""What a server says when it is ready can be pasted, and where it listens nobody keeps a connection for nothing."""

import ast
import os
import shlex
import socket
import threading

import pytest

from weft.cli.serve import PATIENCE_MS, listening
from weft.cli.serving.door import Entrance
from weft.cli.serving.log import MOST_LINES, Lines
from weft.cli.serving.welcome import to_welcome
from weft.server.access import Door


def pasted(url: str, username: str = "opencode") -> list[list[str]]:
    """The commands, as a shell takes them apart."""
    entrance = Entrance(door=Door(password="s3cret", username=username), file="/state/password")
    return [shlex.split(line) for line in to_welcome(url, "/project", entrance) if line.startswith("  ")]


@pytest.mark.parametrize("username", ["opencode", "o'b\"x"])
def test_the_line_for_the_python_package_is_python(username: str) -> None:
    *_, python = pasted("http://127.0.0.1:1", username)
    assert python[-3:-1] == ["python", "-c"]
    words = {node.value for node in ast.walk(ast.parse(python[-1])) if isinstance(node, ast.Constant)}
    assert {f"{username}:", "http://127.0.0.1:1"} <= words


@pytest.mark.parametrize(
    ("url", "found"), [("http://0.0.0.0:1", "http://127.0.0.1:1"), ("http://[::]:1", "http://[::1]:1")]
)
def test_an_address_that_means_every_address_is_not_one_to_paste(url: str, found: str) -> None:
    attach, *_ = pasted(url)
    assert attach == ["weft", "attach", found]


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system does not know it")
def test_a_client_that_takes_nothing_more_is_cut_off_in_the_end() -> None:
    with (
        listening("127.0.0.1", 0) as bound,
        socket.create_connection(bound.getsockname()),
        bound.accept()[0] as taken,
    ):
        assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == PATIENCE_MS


def test_lines_that_nobody_read_in_time_are_counted_and_the_rest_comes_in_order() -> None:
    ours, its = os.pipe()
    told: list[str] = []
    with os.fdopen(ours) as read:
        reader = threading.Thread(target=lambda: told.extend(line.strip() for line in read))
        with os.fdopen(its, "w") as written:
            lines = Lines(written, lambda count: f"{count} are missing")
            for number in range(3 * MOST_LINES):
                lines.put(f"{number:0100}")
            reader.start()
            lines.close()
        reader.join()
    missing = [line for line in told if line.endswith("are missing")]
    numbers = [int(line) for line in told if line not in missing]
    assert numbers == sorted(set(numbers))
    assert len(numbers) + sum(int(line.split()[0]) for line in missing) == 3 * MOST_LINES
    assert missing != []
