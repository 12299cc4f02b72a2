"""The errors: the tree in the docstring matches the code, and each error carries its facts."""

import re

import pytest

from weft import errors
from weft.errors import (
    ConfigError,
    CorrectedError,
    CursorLostError,
    DeniedError,
    DocumentError,
    GitError,
    InvalidIdError,
    ModelNotFoundError,
    NewerFormatError,
    NotFoundError,
    ProviderError,
    SessionBusyError,
    WeftError,
)


def list_documented() -> list[tuple[int, str]]:
    """Return the tree of the docstring: depth and name of each line."""
    lines = (errors.__doc__ or "").splitlines()
    found = [(line, re.search(r"\b[A-Z]\w+Error\b", line)) for line in lines[1:]]
    return [(match.start() // 4, match.group()) for _, match in found if match]


def list_defined(kind: type[WeftError] = WeftError, depth: int = 0) -> list[tuple[int, str]]:
    below = [
        each
        for child in kind.__subclasses__()
        if child.__module__ == "weft.errors"
        for each in list_defined(child, depth + 1)
    ]
    return [(depth, kind.__name__), *below]


def test_the_tree_in_the_docstring_is_complete() -> None:
    assert list_documented() == list_defined()


def test_every_error_is_a_weft_error_and_named_so() -> None:
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert all(issubclass(each, WeftError) and each.__name__.endswith("Error") for each in found)


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (WeftError("it broke", hint="mend it"), "it broke", "mend it"),
        (NotFoundError("agent", "bild", near=["build"]), "there is no agent 'bild'", "did you mean build?"),
        (
            InvalidIdError("session", "../x"),
            "session id: '../x' is not one",
            "an id consists of letters, digits and underscores",
        ),
        (DocumentError("ses_1.json", "not JSON"), "ses_1.json: not JSON", ""),
        (SessionBusyError("ses_1"), "Session ses_1 is busy", ""),
        (
            SessionBusyError("ses_1", "pid 7"),
            "Session ses_1 is busy",
            "pid 7 is running it; wait until it is done",
        ),
        (
            GitError(["status"], 128, "warning: x\nfatal: not a repository\n"),
            "git status: fatal: not a repository",
            "",
        ),
        (GitError(["status"], 128, ""), "git status: exit code 128", ""),
        (
            ConfigError("opencode.json", "not a number", at=(3, 7), key="agent.build.steps", near="steps"),
            "opencode.json:3:7: agent.build.steps: not a number",
            "did you mean 'steps'?",
        ),
        (ConfigError("opencode.json", "not JSON"), "opencode.json: not JSON", ""),
        (
            CursorLostError(3, 9),
            "event 3 is no longer held; the oldest is 9",
            "read the session again, then listen",
        ),
    ],
)
def test_an_error_is_a_sentence_with_a_hint(error: WeftError, message: str, hint: str) -> None:
    assert (str(error), error.hint) == (message, hint)


def test_facts_of_an_error_are_attributes() -> None:
    missing = NotFoundError("session", "ses_1", near=["ses_2"])
    assert (missing.kind, missing.id, missing.near) == ("session", "ses_1", ("ses_2",))
    assert NewerFormatError("store", 9, 2).found == 9
    assert ModelNotFoundError("anthropic", "sonet", near=["anthropic/sonnet"]).near == ("anthropic/sonnet",)
    assert CorrectedError("use rg").feedback == "use rg"
    assert DeniedError("bash", "rm *", "deny").permission == "bash"
    provider = ProviderError(
        "overloaded", status=529, retryable=True, headers={"retry-after": "3"}, body="{}"
    )
    assert (provider.status, provider.retryable, provider.headers, provider.body) == (
        529,
        True,
        {"retry-after": "3"},
        "{}",
    )
