"""The environment of child processes of tools: an allowlist without keys or passwords."""

import pytest

from weft.host.processes import ALLOWED_VARIABLES, tool_environment
from weft.provider.catalog.models import Catalogue, read_snapshot

PASSWORDS = (
    "OPENCODE_SERVER_PASSWORD",
    "OPENCODE_API_KEY",
    "OPENCODE_CONFIG_CONTENT",
    "WEFT_EXA_URL",
    "GITHUB_TOKEN",
    "GH_TOKEN",
    "NPM_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "DATABASE_URL",
)


def key_names() -> list[str]:
    """Return the variables from which any known provider reads its key."""
    catalogue = Catalogue(read_snapshot)
    found = (catalogue.find(provider) for provider in catalogue.list_providers())
    return sorted({name for shelf in found if shelf is not None for name in shelf.env})


def test_api_key_variables_of_providers_are_not_passed_on() -> None:
    names = key_names()
    assert "ANTHROPIC_API_KEY" in names
    assert tool_environment(dict.fromkeys(names, "secret")) == {}


@pytest.mark.parametrize("name", PASSWORDS)
def test_passwords_and_tokens_are_not_passed_on(name: str) -> None:
    assert tool_environment({name: "secret"}) == {}


def test_no_variable_on_the_allow_list_sounds_like_a_secret() -> None:
    words = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
    assert [name for name in ALLOWED_VARIABLES if any(word in name for word in words)] == []


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("http://proxy.example:3128", "http://proxy.example:3128"),
        ("http://ada:secret@proxy.example:3128/", "http://proxy.example:3128/"),
        ("http://ada:sec/re@t@proxy.example", "http://proxy.example"),
        ("http://ada:sec://ret@proxy.example", "http://proxy.example"),
        ("ada:secret@proxy.example:3128", "proxy.example:3128"),
        ("ada:secret://@proxy.example", "proxy.example"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("name", ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"])
def test_a_proxy_is_passed_on_without_its_credentials(name: str, given: str, seen: str) -> None:
    assert tool_environment({name: given}) == {name: seen}


def test_variables_that_programs_need_are_passed_on() -> None:
    given = {
        "PATH": "/bin",
        "HOME": "/home/ada",
        "LC_ALL": "C.UTF-8",
        "XDG_CACHE_HOME": "/cache",
        "OTHER": "1",
    }
    assert tool_environment(given) == {name: value for name, value in given.items() if name != "OTHER"}
