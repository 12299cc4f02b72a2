"""Configured model chains and deadlines."""

import pytest

from unit.config.conftest import Home
from weft.config.agents import build_agents
from weft.config.schema import Config
from weft.errors import ConfigError
from weft.local.models import make_adapters, to_provider_deadlines
from weft.local.open import to_deadlines
from weft.model.part import ModelRef
from weft.provider.endpoint import StreamDeadlines
from weft.run.runtime import RunDeadlines

A, B, C = (ModelRef(provider_id="mill", model_id=name) for name in "abc")


def chain_of(home: Home, name: str) -> tuple[ModelRef | None, tuple[ModelRef, ...]]:
    agent = build_agents(home.load().config, home.paths, str(home.project))[name]
    return agent.model, agent.fallback


def test_an_agent_in_json_has_a_chain_of_models(home: Home) -> None:
    home.write(
        home.project / "opencode.json", '{"agent": {"build": {"model": ["mill/a", "mill/b", "mill/c"]}}}'
    )

    assert chain_of(home, "build") == (A, (B, C))


def test_an_agent_in_markdown_has_a_chain_of_models(home: Home) -> None:
    front = "---\ndescription: reviews\nmodel:\n  - mill/a\n  - mill/b\n---\nReview it.\n"
    home.write(home.project / ".opencode" / "agent" / "review.md", front)

    assert chain_of(home, "review") == (A, (B,))


def test_a_single_model_in_a_later_layer_replaces_a_whole_chain(home: Home) -> None:
    home.write(home.config / "opencode.json", '{"agent": {"build": {"model": ["mill/a", "mill/b"]}}}')
    home.write(home.project / "opencode.json", '{"agent": {"build": {"model": "mill/c"}}}')

    assert chain_of(home, "build") == (C, ())


def test_deadlines_have_generous_defaults_and_are_set_one_by_one(home: Home) -> None:
    assert to_deadlines(Config()) == RunDeadlines(tool=3600, turn=21600)
    assert to_provider_deadlines(Config()) == StreamDeadlines(connect=30, first_byte=60, between=120)

    said = '{"experimental": {"weft": {"deadlines": {"turn": 900, "firstByte": 20, "chunk": 7}}}}'
    home.write(home.project / "opencode.json", said)
    config = home.load().config
    assert to_deadlines(config) == RunDeadlines(tool=3600, turn=900)
    assert to_provider_deadlines(config) == StreamDeadlines(connect=30, first_byte=20, between=7)


@pytest.mark.parametrize(
    ("deadlines", "near", "far"),
    [("{}", 300, 60), ('{"firstByte": 60}', 60, 60), ('{"chunk": 7}', 300, 60)],
)
def test_a_local_server_has_longer_to_begin_its_answer_unless_configured(
    home: Home, deadlines: str, near: int, far: int
) -> None:
    home.write(
        home.project / "opencode.json", f'{{"experimental": {{"weft": {{"deadlines": {deadlines}}}}}}}'
    )
    adapters = make_adapters(home.load().config)
    urls = ("http://127.0.0.1:11434/v1", "https://api.example.test/v1")
    assert [adapters._get_deadlines(url).first_byte for url in urls] == [near, far]


@pytest.mark.parametrize("value", ["0", "-5", '"soon"', "true"])
def test_an_invalid_deadline_is_refused_with_its_key(home: Home, value: str) -> None:
    home.write(
        home.project / "opencode.json",
        f'{{"experimental": {{"weft": {{"deadlines": {{"turn": {value}}}}}}}}}',
    )

    with pytest.raises(ConfigError, match=r"experimental\.weft\.deadlines\.turn"):
        home.load(strict=True)
