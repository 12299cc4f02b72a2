"""What `conftest.py` guarantees to every other test."""

import os
import socket
from pathlib import Path

import pytest


def test_the_home_of_a_test_is_empty_and_nothing_points_elsewhere() -> None:
    home = Path.home()
    assert list(home.iterdir()) == []
    kept = {"WEFT_AXE", "WEFT_OPENCODE", "WEFT_PYRIGHT"}  # where make put what it installed
    assert {name for name in os.environ if name.startswith(("OPENCODE_", "WEFT_"))} <= kept
    assert all(
        Path(value).is_relative_to(home) for name, value in os.environ.items() if name.startswith("XDG_")
    )


def test_a_socket_to_the_outside_is_refused() -> None:
    with socket.socket() as outside, pytest.raises(PermissionError, match=r"192\.0\.2\.1"):
        outside.connect(("192.0.2.1", 80))
    with pytest.raises(PermissionError, match=r"example\.test"):
        socket.getaddrinfo("example.test", 443)


def test_a_socket_to_this_machine_is_not() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as taken,
    ):
        client.sendall(b"thread")
        assert taken.recv(16) == b"thread"
