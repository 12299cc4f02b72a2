"""`weft models`, from the command line: available models, their prices, and models of a local server."""

import json
from collections.abc import Callable
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest

from given.web import Answer, open_web
from weft.cli.main import run_command
from weft.cli.models import format_limit, format_models, format_price
from weft.cli.output import Paint
from weft.model.catalog import Limit, Model, ModelApi

CATALOGUE = json.dumps(
    {
        "loom": {
            "name": "Loom",
            "env": ["LOOM_API_KEY"],
            "npm": "@ai-sdk/openai-compatible",
            "api": "https://loom.test/v1",
            "models": {
                "two": {"limit": {"context": 8000, "output": 500}},
                "one": {
                    "reasoning": True,
                    "cost": {"input": 0.25, "output": 2},
                    "limit": {"context": 1_000_000, "output": 64_000},
                    "modalities": {"input": ["text", "image"], "output": ["text"]},
                },
            },
        },
        "opencode": {
            "npm": "@ai-sdk/openai-compatible",
            "models": {"free": {"cost": {"input": 0, "output": 0}}},
        },
    }
).encode()
LISTING = Answer(b'{"object": "list", "data": [{"id": "qwen3:4b"}, {"id": "llama3:8b"}]}')

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def weft(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_command([*arguments, "--dir", str(tmp_path)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the cached catalogue, fetched long ago."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "cache" / "opencode" / "models.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(CATALOGUE)
    return path


def configure(monkeypatch: pytest.MonkeyPatch, **config: object) -> None:
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps(config))


def test_models_with_a_key_are_listed_by_name(
    weft: Run, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_API_KEY", "k")
    assert weft("models") == (0, "opencode/free\nloom/one\nloom/two\n", "")
    assert weft("models", "loom") == (0, "loom/one\nloom/two\n", "")


def test_all_models_are_listed_on_demand(weft: Run, cache: Path) -> None:
    assert weft("models") == (0, "opencode/free\n", "")
    assert weft("models", "--all") == (0, "opencode/free\nloom/one\nloom/two\nscripted/demo\n", "")


def test_the_scripted_model_is_listed_on_request(weft: Run, cache: Path) -> None:
    assert weft("models", "scripted") == (0, "scripted/demo\n", "")


def test_a_provider_without_a_key_says_what_to_set(weft: Run, cache: Path) -> None:
    code, out, err = weft("models", "loom")
    assert (code, out) == (1, "")
    assert "set LOOM_API_KEY, or run: weft auth login loom" in err
    assert "weft models loom --all lists its models without a key" in err
    assert weft("models", "loom", "--all")[1] == "loom/one\nloom/two\n"


def test_an_unknown_provider_is_an_error_with_near_names(weft: Run, cache: Path) -> None:
    code, _, err = weft("models", "lom")
    assert code == 2
    assert "did you mean loom?" in err


def test_without_models_the_list_says_how_to_get_one(
    weft: Run, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, enabled_providers=[])
    code, out, err = weft("models")
    assert (code, out) == (0, "")
    assert "weft auth login" in err


def test_json_lists_everything_except_secrets(
    weft: Run, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {
        "models": {
            "one": {"headers": {"x-team": "sk-secret-0123456789"}, "options": {"apiKey": "sk-secret-2"}}
        }
    }
    configure(monkeypatch, provider={"loom": {**said, "options": {"apiKey": "sk-secret-3"}}})
    code, out, _ = weft("models", "loom", "--format", "json")
    one, two = json.loads(out)
    assert code == 0
    assert (one["id"], one["providerID"], one["limit"]) == (
        "one",
        "loom",
        {"context": 1_000_000, "output": 64_000},
    )
    assert (one["cost"]["output"], one["headers"], "cost" in two) == (2, {"x-team": "***"}, False)
    assert "sk-secret" not in out


def test_verbose_adds_all_known_fields(weft: Run, cache: Path) -> None:
    _, out, _ = weft("models", "opencode", "--verbose")
    name, _, rest = out.partition("\n")
    assert name == "opencode/free"
    assert json.loads(rest)["name"] == "free"


def test_a_broken_configuration_is_reported_and_hides_nothing(
    weft: Run, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", "{broken")
    code, out, err = weft("models")
    assert (code, out) == (0, "opencode/free\n")
    assert "warning:" in err


def test_a_provider_without_an_adapter_is_named(
    weft: Run, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, provider={"odd": {"npm": "odd-sdk", "models": {"m": {}}}})
    _, out, err = weft("models")
    assert out == "opencode/free\n"
    assert "'odd-sdk'" in err


# --- fetching ---


def test_refreshing_fetches_the_catalogue(weft: Run, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write_bytes(b"{}")
    with open_web({"/api.json": Answer(CATALOGUE)}) as web:
        monkeypatch.setenv("OPENCODE_MODELS_URL", web.url)
        code, out, err = weft("models", "--all", "--refresh")
    assert (code, out) == (0, "opencode/free\nloom/one\nloom/two\nscripted/demo\n")
    assert "2 providers" in err
    assert [(asked.method, asked.path) for asked in web.requests] == [("GET", "/api.json")]
    assert cache.read_bytes() == CATALOGUE


@pytest.mark.parametrize(
    "answer", [Answer(b"busy", 503), Answer(b"<html>", kind="text/html"), Answer(b"{}")], ids=str
)
def test_a_failed_refresh_keeps_the_old_catalogue(
    answer: Answer, weft: Run, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_web({"/api.json": answer}) as web:
        monkeypatch.setenv("OPENCODE_MODELS_URL", web.url)
        code, _, err = weft("models", "--refresh")
    assert code == 1
    assert "/api.json" in err
    assert cache.read_bytes() == CATALOGUE


def test_nothing_is_fetched_if_fetching_is_disabled(
    weft: Run, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_DISABLE_MODELS_FETCH", "1")
    monkeypatch.setenv("OPENCODE_MODELS_URL", "https://nobody.test")
    code, _, err = weft("models", "--refresh")
    assert code == 2
    assert "OPENCODE_DISABLE_MODELS_FETCH" in err


# --- servers of one's own ---


def test_ollama_is_asked_for_its_models(weft: Run, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_web({"/v1/models": LISTING}) as web:
        monkeypatch.setenv("OLLAMA_HOST", web.url)
        assert weft("models", "ollama") == (0, "ollama/llama3:8b\nollama/qwen3:4b\n", "")


def test_any_configured_server_without_models_is_asked_with_its_key(
    weft: Run, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_web({"/v1/models": LISTING}) as web:
        options = {"baseURL": f"{web.url}/v1", "apiKey": "sk-1", "headers": {"x-team": "t"}}
        configure(monkeypatch, provider={"shed": {"options": options}})
        assert weft("models") == (0, "opencode/free\nshed/llama3:8b\nshed/qwen3:4b\n", "")
    [asked] = web.requests
    assert (asked.headers["authorization"], asked.headers["x-team"]) == ("Bearer sk-1", "t")


def test_a_local_server_that_does_not_answer_is_reported(
    weft: Run, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_web({}) as web:
        monkeypatch.setenv("OLLAMA_HOST", web.url)
        code, out, err = weft("models", "ollama")
        assert (code, out) == (1, "")
        assert "status 404" in err
        configure(monkeypatch, provider={"ollama": {}})
        code, out, err = weft("models")
        assert (code, out) == (0, "opencode/free\n")
        assert "left out" in err


@pytest.mark.parametrize("body", [b"<html>", b'{"data": [{"name": 1}]}', b"[]"])
def test_a_local_server_with_an_invalid_answer_is_reported(
    body: bytes, weft: Run, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_web({"/v1/models": Answer(body)}) as web:
        monkeypatch.setenv("OLLAMA_HOST", web.url)
        code, _, err = weft("models", "ollama")
    assert code == 1
    assert "list of models" in err


# --- the table ---


def test_on_a_terminal_the_list_is_a_table() -> None:
    unknown = Model(id="m", provider_id="p", name="M", api=ModelApi(id="m"), limit=Limit(context=0, output=0))
    head, row = format_models([unknown], Paint(StringIO()))
    assert head == "Model  Context  Output  In $/M  Out $/M  Cache $/M  Can"
    assert row == "p/m          ?       ?       ?        ?          ?  tools"


def test_limits_are_abbreviated_and_prices_have_no_trailing_zeros() -> None:
    assert [format_limit(count) for count in (0, 500, 8192, 200_000, 1_048_576)] == [
        "?",
        "500",
        "8.2K",
        "200K",
        "1M",
    ]
    prices = [format_price(Decimal(price)) for price in ("0", "0.075", "3.0", "100")]
    assert [*prices, format_price(None)] == ["0", "0.075", "3", "100", "?"]


def test_a_password_in_an_address_is_not_shown(
    weft: Run, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_web({"/v1/models": Answer(b"<html>")}) as web:
        secret = web.url.replace("://", "://me:hunter22@")
        for url in (f"{secret}/v1", f"{secret}/nowhere"):
            configure(monkeypatch, provider={"shed": {"options": {"baseURL": url}}})
            code, _, err = weft("models", "shed")
            assert (code, "hunter22" in err) == (1, False)
