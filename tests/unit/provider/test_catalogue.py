"""The model catalogue: the bundled one, a fetched one, and a broken one."""

from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given

from given.damage import IN_ONE_DIRECTORY, allow_refusal, damaged_bytes, damaged_values, to_json
from weft.errors import ConfigError, ProviderError
from weft.model.catalog import ModelApi
from weft.provider.catalog.local import list_served_models
from weft.provider.catalog.models import fetch_catalogue, make_catalogue, read_snapshot, to_model

LOOM = b'{"loom": {"name": "Loom", "env": ["LOOM_API_KEY"], "npm": "x", "models": {"one": {"name": "One"}}}}'
BROKEN = [b"", b"{", b"<html>busy</html>", b"[]", b"null", b'{"loom": 1}', b"{}", b'{"loom"', b"\xff\xfe"]


def test_the_bundled_catalogue_has_the_major_model_families() -> None:
    known = read_snapshot()
    assert {"anthropic", "openai", "google", "openrouter", "groq", "mistral", "xai"} <= set(known)
    assert len(known) > 100


def test_the_bundled_catalogue_has_prices_for_caching_and_for_long_requests() -> None:
    catalogue = make_catalogue("/nowhere/models.json", pytest.fail)
    google = catalogue.find("google")
    assert google is not None
    found = google.find("gemini-2.5-pro")
    assert found is not None
    assert found["cost"] == {
        "input": 1.25,
        "output": 10,
        "cache_read": 0.125,
        "context_over_200k": {"input": 2.5, "output": 15, "cache_read": 0.25},
    }
    assert found["limit"] == {"context": 1048576, "output": 65536}


def test_every_provider_and_model_in_the_catalogue_can_be_read() -> None:
    catalogue = make_catalogue("/nowhere/models.json", pytest.fail)
    shelves = {id: catalogue.find(id) for id in catalogue.list_providers()}
    unread = [id for id, shelf in shelves.items() if shelf is None or not all(map(shelf.find, shelf.models))]
    assert (unread, "anthropic" in shelves) == ([], True)


def test_an_unknown_entry_is_not_found() -> None:
    catalogue = make_catalogue("/nowhere/models.json", pytest.fail)
    assert catalogue.find("loom") is None
    anthropic = catalogue.find("anthropic")
    assert anthropic is not None
    assert anthropic.find("loom") is None


def test_a_fetched_catalogue_takes_precedence(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    path.write_bytes(LOOM)
    catalogue = make_catalogue(str(path), pytest.fail)
    assert catalogue.list_providers() == ["loom"]


@pytest.mark.parametrize("raw", BROKEN)
def test_a_broken_fetched_catalogue_is_ignored_with_a_warning(raw: bytes, tmp_path: Path) -> None:
    path, heard = tmp_path / "models.json", list[ConfigError]()
    path.write_bytes(raw)
    catalogue = make_catalogue(str(path), heard.append)
    assert "anthropic" in catalogue.list_providers()
    assert [error.path for error in heard] == [str(path)]


def test_the_catalogue_is_read_only_when_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "models.json").write_bytes(b"broken")
    make_catalogue(str(tmp_path / "models.json"), pytest.fail)


def test_an_unreadable_provider_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    path.write_bytes(b'{"odd": {"models": [1, 2]}, ' + LOOM[1:])
    catalogue = make_catalogue(str(path), pytest.fail)
    assert catalogue.find("odd") is None
    assert catalogue.find("loom") is not None


def test_refreshing_fetches_the_api_and_stores_the_response_unchanged(tmp_path: Path) -> None:
    asked: list[str] = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return LOOM

    path = tmp_path / "cache" / "models.json"
    assert fetch_catalogue(str(path), "https://models.test/", fetch) == 1
    assert asked == ["https://models.test/api.json"]
    assert path.read_bytes() == LOOM
    assert [each.name for each in path.parent.iterdir()] == ["models.json"]


@pytest.mark.parametrize("raw", BROKEN)
def test_an_invalid_response_replaces_nothing(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    path.write_bytes(LOOM)
    with pytest.raises(ProviderError, match=r"models\.test"):
        fetch_catalogue(str(path), "https://models.test", lambda _: raw)
    assert path.read_bytes() == LOOM


def test_the_snapshot_contains_facts_only() -> None:
    entry = msgspec.json.decode(read_snapshot()["anthropic"])
    kept = {"name", "env", "npm", "api", "models"}
    assert set(entry) <= kept
    assert {key for model in entry["models"].values() for key in model} <= {
        "name", "family", "release_date", "attachment", "reasoning", "temperature", "tool_call", "interleaved",
        "status", "provider", "limit", "modalities", "cost",
    }  # fmt: skip


WHOLE = {
    "loom": {
        "name": "Loom",
        "env": ["LOOM_API_KEY"],
        "npm": "x",
        "models": {
            "one": {
                "name": "One",
                "interleaved": {"field": "reasoning"},
                "cost": {"input": 1.5, "output": 2, "context_over_200k": {"input": 3, "output": 4}},
                "limit": {"context": 1000, "output": 100},
                "modalities": {"input": ["text", "image"], "output": ["text"]},
                "options": {"a": [1]},
            }
        },
    }
}
CATALOGUES = damaged_values(WHOLE).map(to_json)


@given(raw=CATALOGUES | CATALOGUES.flatmap(damaged_bytes))
@example(raw=b'{"loom": {"models": {"one": {"name": "\\ud800"}}}}')
@example(raw=b'{"loom": {"models": {"one": {"name": 1e400}}}}')
@example(raw=b'{"loom": {"x": ' + b"[" * 2000 + b"]" * 2000 + b"}}")
@example(raw=b'{"loom": {"models": {"one": ' + b"[" * 2000 + b"]" * 2000 + b"}}}")
@IN_ONE_DIRECTORY
def test_whatever_a_fetched_catalogue_contains_is_read_or_ignored(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "models.json"
    path.write_bytes(raw)
    catalogue = make_catalogue(str(path), lambda _: None)
    for id in catalogue.list_providers() if "anthropic" not in catalogue.list_providers() else ():
        entry = catalogue.find(id)
        for model in entry.models if entry is not None else ():
            found = None if entry is None else entry.find(model)
            if found is not None:
                with suppress(msgspec.ValidationError):
                    to_model(id, model, found, provider_api=ModelApi(id=model, url="", npm=""))


@given(raw=damaged_bytes(b'{"object": "list", "data": [{"id": "a", "x": {}}, {"id": "b"}]}'))
@example(raw=b'{"x": ' + b"[" * 2000 + b"]" * 2000 + b"}")
def test_whatever_a_local_server_lists_is_a_list_of_models_or_refused(raw: bytes) -> None:
    with allow_refusal(ProviderError, naming="did not answer with a list"):
        assert all(isinstance(id, str) for id in list_served_models("http://127.0.0.1:1/v1", lambda _: raw))
