"""What a mistyped command line is answered with: the nearest name, and where to look."""

import pytest

from weft.cli.commands import normalise
from weft.cli.main import parse_arguments
from weft.cli.mistake import find_near, find_wrong_command
from weft.errors import WeftError


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("rnu", "there is no command 'rnu'", "did you mean weft run? weft --help lists them"),
        ("sesion list", "there is no command 'sesion'", "did you mean weft session? weft --help lists them"),
        (
            "session lst",
            "there is no command 'session lst'",
            "did you mean weft session list? weft session --help lists them",
        ),
        (
            "--log-level DEBUG rnu",
            "there is no command 'rnu'",
            "did you mean weft run? weft --help lists them",
        ),
        ("xyzzy", "there is no command 'xyzzy'", "weft --help lists them"),
        ("--colour", "weft: there is no option --colour", "weft --help lists them"),
        (
            "session list --fromat json",
            "weft session list: there is no option --fromat",
            "did you mean --format? weft session list --help lists them",
        ),
        (
            "session show",
            "weft session show: ID is missing",
            "usage: weft session show [-h] [--format {default,json}] [--dir PATH] [--store URL] ID",
        ),
        (
            "project merge",
            "weft project merge: ID, INTO are missing",
            "usage: weft project merge [-h] [--yes] [--store URL] ID INTO",
        ),
        (
            "doctor now",
            "weft doctor: it does not take 'now'",
            "usage: weft doctor [-h] [--fix] [--format {table,json}] [--dir PATH] [--store URL]",
        ),
        (
            "session list -n many",
            "weft session list: -n/--max-count: 'many' is not a whole number",
            "weft session list --help explains its arguments",
        ),
        (
            "serve --port 99999",
            "weft serve: --port: '99999' is not a port: write a number from 0 to 65535",
            "weft serve --help explains its arguments",
        ),
    ],
)
def test_a_mistake_is_named_with_what_was_probably_meant(line: str, message: str, hint: str) -> None:
    with pytest.raises(WeftError) as refused:
        parse_arguments(normalise(line.split()))
    assert (str(refused.value), refused.value.hint) == (message, hint)


def test_a_prompt_in_place_of_a_command_is_recognised() -> None:
    error = find_wrong_command(["fix the failing test"])
    assert error is not None
    assert error.hint == "to send a prompt: weft run 'fix the failing test'"


def test_a_choice_that_is_not_offered_is_answered_with_the_ones_that_are() -> None:
    with pytest.raises(WeftError) as refused:
        parse_arguments(["session", "list", "--format", "yaml"])
    assert str(refused.value).startswith("weft session list: --format: invalid choice: 'yaml'")
    assert "json" in str(refused.value)


@pytest.mark.parametrize("line", ["run hi", "session list", "session", "", "--version"])
def test_a_command_that_exists_is_no_mistake(line: str) -> None:
    assert find_wrong_command(line.split()) is None


@pytest.mark.parametrize(
    ("given", "near"),
    [("rnu", ["run"]), ("sess", ["session"]), ("unshar", ["unshare"]), ("q", [])],
)
def test_the_nearest_names_come_first(given: str, near: list[str]) -> None:
    assert find_near(given, ["run", "session", "share", "unshare"]) == near
