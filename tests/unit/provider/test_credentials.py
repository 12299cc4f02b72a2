"""Keys: stored for the owner alone beside OpenCode's, read from the environment, and never shown."""

import json
import stat
from pathlib import Path

import pytest
from hypothesis import example, given

from given.damage import IN_ONE_DIRECTORY, allow_refusal, damaged_bytes, damaged_values, to_json
from weft.errors import ConfigError
from weft.provider.catalog.credentials import (
    ProviderKey,
    StoredLogin,
    find_auth,
    find_environment_key,
    list_key_variables,
    list_logins,
    remove_login,
    store_key,
)

OTHERS = {
    "copilot": {"type": "oauth", "refresh": "r", "access": "a", "expires": 1, "enterpriseUrl": "x"},
    "https://corp.test": {"type": "wellknown", "key": "CORP", "token": "t"},
    "later": {"type": "something-new", "nested": {"a": [1, 2]}},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "opencode" / "auth.json"


def test_a_key_is_stored_in_the_format_of_opencode(path: Path) -> None:
    store_key(str(path), "anthropic", "sk-1")
    assert json.loads(path.read_bytes()) == {"anthropic": {"type": "api", "key": "sk-1"}}
    assert list_logins(str(path)) == {
        "anthropic": StoredLogin(provider="anthropic", type="api", secret="sk-1")
    }


def test_the_key_file_becomes_private_if_others_could_read_it(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("{}")
    path.chmod(0o644)
    store_key(str(path), "anthropic", "sk-1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_cannot_be_written_is_named_with_a_way_out(path: Path) -> None:
    path.parent.touch()  # a file in the place of the directory
    with pytest.raises(ConfigError) as refused:
        store_key(str(path), "anthropic", "sk-1")
    assert str(refused.value).startswith(f"{path}: cannot be written (")
    assert refused.value.hint == "make its directory writable, or free some space on its disk"


def test_other_entries_of_the_file_stay_unchanged(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(json.dumps(OTHERS))
    store_key(str(path), "openai", "sk-2")
    assert remove_login(str(path), "openai")
    assert json.loads(path.read_bytes()) == OTHERS


def test_a_copilot_login_is_a_key(path: Path) -> None:
    login = {"type": "oauth", "refresh": "gho_1", "access": "gho_1", "expires": 0}
    path.parent.mkdir()
    path.write_text(
        json.dumps(
            {
                "github-copilot": login,
                "github-copilot-enterprise": {**login, "enterpriseUrl": "https://corp.test/"},
            }
        )
    )
    assert list_logins(str(path)) == {
        "github-copilot": StoredLogin(provider="github-copilot", type="oauth", secret="gho_1"),
        "github-copilot-enterprise": StoredLogin(
            provider="github-copilot-enterprise",
            type="oauth",
            secret="gho_1",
            url="https://copilot-api.corp.test",
        ),
    }


def test_other_entries_are_not_keys(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(json.dumps({**OTHERS, "hollow": {"type": "api"}, "odd": 3}))
    assert list_logins(str(path)) == {
        "copilot": StoredLogin(provider="copilot", type="oauth"),
        "https://corp.test": StoredLogin(provider="https://corp.test", type="wellknown"),
        "later": StoredLogin(provider="later", type="something-new"),
        "hollow": StoredLogin(provider="hollow", type="unusable"),
    }


def test_storing_again_replaces_the_key(path: Path) -> None:
    store_key(str(path), "openai", "old")
    store_key(str(path), "openai", "new")
    assert json.loads(path.read_bytes()) == {"openai": {"type": "api", "key": "new"}}


def test_a_link_to_the_key_file_stays_a_link(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    kept = tmp_path / "kept.json"
    kept.write_text("{}")
    path.symlink_to(kept)
    store_key(str(path), "openai", "sk")
    assert path.is_symlink()
    assert json.loads(kept.read_bytes()) == {"openai": {"type": "api", "key": "sk"}}


def test_removing_a_missing_key_says_that_there_was_none(path: Path) -> None:
    assert not remove_login(str(path), "openai")


@pytest.mark.parametrize("raw", [b"{sk-secret", b"[1]", b"\xff\xfe", b'"sk-secret"'])
def test_a_broken_key_file_is_reported_without_its_content_and_never_overwritten(
    raw: bytes, path: Path
) -> None:
    path.parent.mkdir()
    path.write_bytes(raw)
    with pytest.raises(ConfigError) as caught:
        store_key(str(path), "openai", "sk")
    assert "secret" not in str(caught.value)
    assert path.read_bytes() == raw


def test_an_empty_file_has_no_keys(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b" \n")
    assert list_logins(str(path)) == {}


@pytest.mark.parametrize(
    ("env", "holding"),
    [
        (("ANTHROPIC_API_KEY",), ["ANTHROPIC_API_KEY"]),
        (("AZURE_RESOURCE_NAME", "AZURE_API_KEY"), ["AZURE_API_KEY"]),
        (("CLARIFAI_PAT",), ["CLARIFAI_PAT"]),
        (("DATABRICKS_HOST", "DATABRICKS_TOKEN"), ["DATABRICKS_TOKEN"]),
        (("SOMETHING",), ["SOMETHING"]),
        ((), []),
    ],
)
def test_only_some_variables_of_a_provider_hold_its_key(env: tuple[str, ...], holding: list[str]) -> None:
    assert list_key_variables(env) == holding


def test_any_variable_that_holds_a_key_is_accepted() -> None:
    names = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
    found = find_environment_key(names, {"GEMINI_API_KEY": " abc \n", "GOOGLE_API_KEY": ""})
    assert found == ProviderKey(secret="abc", source="environment", variable="GEMINI_API_KEY")
    assert find_environment_key(names, {}) is None


def test_the_repr_of_a_key_hides_it() -> None:
    key, login = (
        ProviderKey(secret="sk-secret", source="config"),
        StoredLogin(provider="x", type="api", secret="sk-secret"),
    )
    assert "sk-secret" not in f"{key} {key!r} {login} {login!r}"


LOGINS = damaged_values(
    {
        **OTHERS,
        "anthropic": {"type": "api", "key": "sk-1"},
        "github-copilot": {
            "type": "oauth",
            "refresh": "r",
            "access": "a",
            "expires": 0,
            "enterpriseUrl": "x.test",
        },
    }
).map(to_json)


@given(raw=LOGINS | LOGINS.flatmap(damaged_bytes))
@example(raw=b'{"github-copilot": {"type": "oauth", "enterpriseUrl": "["}}')
@example(raw=b'{"anthropic": {"type": "\\ud800"}}')
@IN_ONE_DIRECTORY
def test_whatever_the_file_of_keys_contains_is_read_or_named(path: Path, raw: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(raw)
    with allow_refusal(ConfigError, naming=str(path)):
        for provider in list_logins(str(path)):
            find_auth(str(path), provider)
        store_key(str(path), "mine", "sk-2")
        assert list_logins(str(path))["mine"].secret == "sk-2"
