"""Fixtures for every test: an empty home directory, no network, and property tests that are reproducible in CI."""

import gc
import os
import re
import signal
import socket
from collections.abc import Callable, Generator, Iterator
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from given.postgres import remove_servers
from given.second_tries import SecondTries, read_flaky_tests

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True, max_examples=50)
settings.register_profile("fast", deadline=None, max_examples=10)
settings.register_profile(
    "random", deadline=None, max_examples=int(os.environ.get("WEFT_EXAMPLES", "1000")), print_blob=True
)
settings.load_profile("ci" if os.environ.get("CI") else "here")

TESTS = Path(__file__).parent
FLAKY_TESTS = TESTS / "flaky.toml"
FAST_DIRECTORIES = {"unit", "contract", "architecture"}  # those of `make test-fast`
SCRUBBED = ("OPENCODE_", "WEFT_", "XDG_", "GIT_", "ANTHROPIC_", "OPENAI_", "OPENROUTER_", "GOOGLE_", "AWS_")
PRESERVED = {
    "WEFT_AXE",
    "WEFT_OPENCODE",
    "WEFT_PYRIGHT",
    "WEFT_TEST_POSTGRES",
}  # where make put what it installed, and servers
# What CI may skip, by the reason that the test gives. Every other skip is a failure there: a part that was not installed
# would otherwise skip its tests silently.
SKIPPED_IN_CI = (
    "there is no systemd here",
    "this kernel allows no mounts, and that is said",
    "no landlock here: ",
    "no bubblewrap here: ",
)
GIT_IDENTITY = {"NAME": "Ada Loom", "EMAIL": "ada@example.test"}
NUMBERS = count()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        _, _, reason = (
            report.longrepr if isinstance(report.longrepr, tuple) else ("", 0, str(report.longrepr))
        )
        if not reason.removeprefix("Skipped: ").startswith(SKIPPED_IN_CI):
            report.outcome = "failed"
            report.longrepr = f"CI may not skip this test. {reason}"
    return report


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a process of xdist hands its reports to the one that started it
        config.pluginmanager.register(SecondTries(read_flaky_tests(FLAKY_TESTS)))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let a process of xdist send what it tells pytest-rerunfailures about each test at once.

    It sends a number and then a question over one connection. With Nagle's algorithm the question waits for the receipt of the
    number, which the other side delays by 40 ms: longer than most tests take.
    """
    database = getattr(session.config, "failures_db", None)
    if isinstance(connection := getattr(database, "sock", None), socket.socket) and hasattr(
        session.config, "workerinput"
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from modules and tests: these are hundreds of thousands of objects, and none is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow no second try to the tests of `make test-fast`, and to no unit test: they start no servers, so a failure is a fault (decision 49)."""
    for item in items:
        directories = {path.name for path in item.path.parents if path.parent == TESTS}
        is_slow = item.get_closest_marker("slow") is not None
        if "unit" in directories or (not is_slow and directories & FAST_DIRECTORIES):
            item.add_marker(pytest.mark.flaky(reruns=0))


@pytest.fixture(scope="session")
def _temporary_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("t")


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, _temporary_root: Path) -> Path:
    """A directory for one test. Pytest's own fixture reads the directories of all earlier tests to find a free number,
    which after some thousand tests takes longer than most tests."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    path = _temporary_root / f"{name}{next(NUMBERS)}"
    path.mkdir()
    return path


@pytest.fixture(autouse=True)
def _scrubbed_environment(_temporary_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the configuration, data and keys of the person who runs the tests."""
    home = _temporary_root / f"home{next(NUMBERS)}"
    home.mkdir()
    for name in list(os.environ):
        if name not in PRESERVED and (name.startswith(SCRUBBED) or name.endswith("_API_KEY")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    for kind in ("DATA", "CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for role in ("AUTHOR", "COMMITTER"):
        for what, value in GIT_IDENTITY.items():
            monkeypatch.setenv(f"GIT_{role}_{what}", value)


@pytest.fixture(autouse=True, scope="session")
def _interruptible() -> None:
    """Accept interrupts again: a shell starts background processes with interrupts ignored, and processes of tests would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _no_servers_left() -> Iterator[None]:
    """End the database servers that tests have started."""
    yield
    remove_servers()


@pytest.fixture(autouse=True, scope="session")
def _no_network() -> Iterator[None]:
    """Allow connections to this machine only, and no name lookups, which would leave it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, _only_loopback(getattr(socket.socket, name)))
        patch.setattr(socket, "getaddrinfo", _only_local_names(socket.getaddrinfo))
        yield


def _only_loopback(connect: Callable[..., Any]) -> Callable[..., Any]:
    def connect_locally(self: socket.socket, address: Any) -> Any:
        if self.family != socket.AF_UNIX:
            _refuse_unless_local(address[0])
        return connect(self, address)

    return connect_locally


def _only_local_names(look_up: Callable[..., Any]) -> Callable[..., Any]:
    def look_up_locally(host: Any, *rest: Any, **options: Any) -> Any:
        _refuse_unless_local(host)
        return look_up(host, *rest, **options)

    return look_up_locally


def _refuse_unless_local(host: Any) -> None:
    name = host.decode() if isinstance(host, bytes) else str(host or "localhost")
    if name != "localhost" and not _is_loopback(name):
        raise PermissionError(f"a test tried to reach {name}: tests stay on this machine")


def _is_loopback(name: str) -> bool:
    try:
        address = ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
