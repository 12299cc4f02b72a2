"""The commands that `weft serve` prints for pasting, its socket and its log."""

import ast
import os
import shlex
import socket
import threading

import pytest

from weft.cli.serve import SEND_TIMEOUT_MS, bind_socket
from weft.cli.serve_access import ServerAccess, to_welcome
from weft.cli.serve_log import MAX_LINES, LineWriter
from weft.server.access import AccessPolicy


def list_printed_commands(url: str, username: str = "opencode") -> list[list[str]]:
    """Return the printed commands, split as a shell splits them."""
    access = ServerAccess(policy=AccessPolicy(password="s3cret", username=username), file="/state/password")
    return [shlex.split(line) for line in to_welcome(url, "/project", access) if line.startswith("  ")]


@pytest.mark.parametrize("username", ["opencode", "o'b\"x"])
def test_the_command_for_python_is_valid_python(username: str) -> None:
    *_, python = list_printed_commands("http://127.0.0.1:1", username)
    assert python[-3:-1] == ["python", "-c"]
    words = {node.value for node in ast.walk(ast.parse(python[-1])) if isinstance(node, ast.Constant)}
    assert {f"{username}:", "http://127.0.0.1:1"} <= words


@pytest.mark.parametrize(
    ("url", "found"), [("http://0.0.0.0:1", "http://127.0.0.1:1"), ("http://[::]:1", "http://[::1]:1")]
)
def test_the_printed_address_is_usable_if_the_server_listens_on_all_interfaces(url: str, found: str) -> None:
    web, attach, *_ = list_printed_commands(url)
    assert (web, attach) == (["weft", "web", found], ["weft", "attach", found])


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system does not have it")
def test_connections_of_clients_that_do_not_read_time_out() -> None:
    with (
        bind_socket("127.0.0.1", 0) as bound,
        socket.create_connection(bound.getsockname()),
        bound.accept()[0] as taken,
    ):
        assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SEND_TIMEOUT_MS


def test_unread_lines_are_counted_and_the_others_stay_in_order() -> None:
    ours, its = os.pipe()
    notes: list[str] = []
    with os.fdopen(ours) as read:
        reader = threading.Thread(target=lambda: notes.extend(line.strip() for line in read))
        with os.fdopen(its, "w") as written:
            lines = LineWriter(written, lambda count: f"{count} are missing")
            for number in range(3 * MAX_LINES):
                lines.put(f"{number:0100}")
            reader.start()
            lines.close()
        reader.join()
    missing = [line for line in notes if line.endswith("are missing")]
    numbers = [int(line) for line in notes if line not in missing]
    assert numbers == sorted(set(numbers))
    assert len(numbers) + sum(int(line.split()[0]) for line in missing) == 3 * MAX_LINES
    assert missing != []
