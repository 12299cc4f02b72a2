"""What `conftest.py` guarantees to every other test."""

import os
import socket
from datetime import date
from pathlib import Path

import pytest

from given.second_tries import FlakyTest, find_faults, read_flaky_tests
from given.user_pytest import run_pytest

TESTS = Path(__file__).parents[1]
FLAKY = """
import pytest
from pathlib import Path

@pytest.mark.parametrize("name", ["one", "two"])
def test_it(name):
    marker = Path(f"{name}.seen")
    seen = marker.exists()
    marker.touch()
    assert seen or name == "two"
"""
SKIPPED = """
import pytest

def test_skipped_by_a_call():
    pytest.skip("loom is not installed")

@pytest.mark.skipif(True, reason="loom is too old")
def test_skipped_by_a_mark():
    pass

@pytest.fixture
def loom():
    pytest.skip("no loom here")

def test_skipped_by_a_fixture(loom):
    pass

@pytest.mark.parametrize("thread", [])
def test_without_parameters(thread):
    pass

def test_that_ci_may_skip():
    pytest.skip("there is no systemd here")
"""
CONFTEST = """
from pathlib import Path
from given.second_tries import SecondTries, read_flaky_tests

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondTries(read_flaky_tests(Path("flaky.toml"))))
"""


def test_the_home_of_a_test_is_empty_and_no_variable_points_elsewhere() -> None:
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


def test_a_socket_to_this_machine_is_allowed() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as taken,
    ):
        client.sendall(b"thread")
        assert taken.recv(16) == b"thread"


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_a_run_fails_if_a_test_needed_its_second_try_and_is_not_listed(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(FLAKY)
    (tmp_path / "flaky.toml").write_text("")
    run = run_pytest(tmp_path, "--reruns", "1", *options, PYTHONPATH=str(TESTS))
    assert "FLAKY test_some.py::test_it[one] passed at the second try; not in tests/flaky.toml" in run.stdout
    assert "2 passed, 1 rerun" in run.stdout
    assert run.returncode == 1

    (tmp_path / "one.seen").unlink()
    (tmp_path / "flaky.toml").write_text(
        '[[test]]\nname = "test_some.py::test_it"\nreason = "a file is missing"\ndate = 2026-11-17\n'
    )
    run = run_pytest(tmp_path, "--reruns", "1", *options, PYTHONPATH=str(TESTS))
    assert "test_it[one] passed at the second try; known since 2026-11-17: a file is missing" in run.stdout
    assert run.returncode == 0


def test_tests_without_processes_get_no_second_try(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "flaky.toml").write_text("")
    kinds = ("unit", "contract", "architecture", "integration")
    for kind in kinds:
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"test_{kind}.py").write_text(FLAKY.replace("{name}", f"{kind}-{{name}}"))
    (tmp_path / "contract" / "test_server.py").write_text(f"{FLAKY}\npytestmark = pytest.mark.slow\n")
    run = run_pytest(tmp_path, "--reruns", "1", "-p", "no:randomly", PYTHONPATH=str(TESTS))
    failed = [line for line in run.stdout.splitlines() if line.startswith("FAILED")]
    assert [line.partition("::")[0].removeprefix("FAILED ") for line in sorted(failed)] == [
        f"{kind}/test_{kind}.py" for kind in sorted(kinds[:3])
    ]
    flaky = [line.partition("::")[0] for line in run.stdout.splitlines() if line.startswith("FLAKY")]
    assert flaky == ["FLAKY contract/test_server.py", "FLAKY integration/test_integration.py"]


def test_a_skip_is_a_failure_in_ci_however_it_came_about(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "flaky.toml").write_text("")
    (tmp_path / "test_some.py").write_text(SKIPPED)
    run = run_pytest(tmp_path, PYTHONPATH=str(TESTS), CI="true")
    assert "CI may not skip this test. Skipped: loom is not installed" in run.stdout
    assert "1 failed, 1 skipped, 3 errors" in run.stdout
    assert run.returncode == 1
    run = run_pytest(tmp_path, PYTHONPATH=str(TESTS), CI="")
    assert "5 skipped" in run.stdout
    assert run.returncode == 0


def test_flaky_tests_are_listed_for_sixty_days_at_most_and_with_a_reason() -> None:
    faults = find_faults(read_flaky_tests(TESTS / "flaky.toml"), TESTS.parent, date.today())  # noqa: DTZ011
    assert list(faults) == []


def test_a_wrong_entry_in_the_list_of_flaky_tests_is_found() -> None:
    here = "tests/architecture/test_conftest.py"
    listed = [
        FlakyTest(f"{here}::test_a_socket_to_this_machine_is_allowed", "slow", date(2026, 9, 18)),
        FlakyTest(f"{here}::test_a_socket_to_this_machine_is_allowed", " ", date(2026, 9, 17)),
        FlakyTest(f"{here}::test_none", "slow", date(2026, 11, 17)),
        FlakyTest("tests/none.py::test_none", "slow", date(2026, 11, 17)),
    ]
    assert list(find_faults(listed, TESTS.parent, date(2026, 11, 17))) == [
        f"{here}::test_a_socket_to_this_machine_is_allowed is listed without a reason",
        f"{here}::test_a_socket_to_this_machine_is_allowed has been listed since 2026-09-17: mend it",
        f"there is no test {here}::test_none",
        "there is no test tests/none.py::test_none",
    ]
