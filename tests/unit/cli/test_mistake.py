"""The answer to a mistyped command line: the nearest name, and where to look."""

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
        ("fork last", "there is no command 'fork'", "did you mean weft session fork? weft --help lists them"),
        (
            "session undo",
            "there is no command 'session undo'",
            "did you mean weft undo? weft session --help lists them",
        ),
        ("--colour", "weft: there is no option --colour", "weft --help lists them"),
        ("--colour red", "weft: there is no option --colour", "weft --help lists them"),
        (
            "--store sqlite:here.db session list -n 3",
            "weft: --store comes after the command",
            "write: weft session list --store sqlite:here.db -n 3",
        ),
        ("--dir=there run hi", "weft: --dir comes after the command", "write: weft run --dir=there hi"),
        ("-c", "weft: -c needs a command before it", "for example: weft chat -c"),
        ("-m a/b hello", "weft: -m needs a command before it", "for example: weft run -m a/b hello"),
        ("fix the test", "there is no command 'fix'", "to send a prompt: weft run 'fix the test'"),
        (
            "permission explain rm -rf build",
            "weft permission explain: there is no option -rf",
            "put all of COMMAND in quotes; weft permission explain --help lists them",
        ),
        (
            "permission explain make test",
            "weft permission explain: it does not take 'test'",
            "put all of COMMAND in quotes",
        ),
        (
            "config set model x",
            "weft config: it does not take 'set'",
            "it only shows settings; to change one, edit opencode.json",
        ),
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
            "session list -n ²",
            "weft session list: -n/--max-count: '²' is not a whole number",
            "weft session list --help explains its arguments",
        ),
        (
            "run --max-tokens ² go",
            "weft run: --max-tokens: '²' is not a whole number above 0",
            "weft run --help explains its arguments",
        ),
        (
            "run --max-cost ² go",
            "weft run: --max-cost: '²' is not an amount of dollars above 0, such as 1.50",
            "weft run --help explains its arguments",
        ),
        (
            "completion pwsh",
            "weft completion: bash|zsh|fish: 'pwsh' is not one of bash, zsh, fish",
            "weft completion --help explains its arguments",
        ),
        (
            "serve --port 99999",
            "weft serve: --port: '99999' is not a port: write a number from 0 to 65535",
            "weft serve --help explains its arguments",
        ),
    ],
)
def test_a_mistake_is_reported_with_a_suggestion(line: str, message: str, hint: str) -> None:
    with pytest.raises(WeftError) as refused:
        parse_arguments(normalise(line.split()))
    assert (str(refused.value), refused.value.hint) == (message, hint)


def test_a_prompt_in_place_of_a_command_is_recognised() -> None:
    error = find_wrong_command(["fix the failing test"])
    assert error is not None
    assert error.hint == "to send a prompt: weft run 'fix the failing test'"


def test_an_invalid_choice_is_answered_with_the_valid_ones() -> None:
    with pytest.raises(WeftError) as refused:
        parse_arguments(["session", "list", "--format", "yaml"])
    assert str(refused.value).startswith("weft session list: --format: invalid choice: 'yaml'")
    assert "json" in str(refused.value)


@pytest.mark.parametrize("line", ["run hi", "session list", "session", "", "--version"])
def test_an_existing_command_is_not_a_mistake(line: str) -> None:
    assert find_wrong_command(line.split()) is None


@pytest.mark.parametrize(
    ("given", "near"),
    [("rnu", ["run"]), ("sess", ["session"]), ("unshar", ["unshare"]), ("q", [])],
)
def test_the_nearest_names_come_first(given: str, near: list[str]) -> None:
    assert find_near(given, ["run", "session", "share", "unshare"]) == near
