"""The agent file for Harbor, with a stand-in for Harbor: it needs a later Python, and containers."""

import asyncio
import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

AGENT = Path(__file__).parents[2] / "examples" / "harbor" / "weft_agent.py"


class StandIn:
    """What the agent uses of Harbor's `BaseInstalledAgent`."""

    def __init__(self, logs: Path) -> None:
        self.logs_dir = logs
        self.environment_logs_dir = Path("/logs/agent")
        self.model_name = "anthropic/claude"
        self.model_connection = SimpleNamespace(env={"ANTHROPIC_API_KEY": "key"})
        self.commands: list[tuple[str, dict[str, str]]] = []

    async def ensure_system_dependencies(self, environment: Any, names: tuple[str, ...]) -> None:
        del environment
        self.commands.append((f"packages {' '.join(names)}", {}))

    async def exec_as_root(self, environment: Any, command: str, env: Any = None) -> None:
        del environment
        self.commands.append((command, env or {}))

    exec_as_agent = exec_as_root


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    names = ("harbor", "harbor.agents", "harbor.agents.installed", "harbor.agents.capabilities", "harbor.agents.installed.base")  # fmt: skip
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    vars(sys.modules["harbor.agents.capabilities"])["AgentCapabilities"] = lambda **fields: fields
    base = vars(sys.modules["harbor.agents.installed.base"])
    base |= {"BaseInstalledAgent": StandIn, "with_prompt_template": lambda function: function}
    spec = spec_from_file_location("weft_agent", AGENT)
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_adapter_installs_the_wheel_runs_the_prompt_and_exports_the_trajectory(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "weft-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"")
    monkeypatch.setenv("WEFT_WHEEL", str(wheel))
    uploaded: list[tuple[Path, str]] = []

    async def upload(source: Path, target: str) -> None:
        uploaded.append((source, target))

    agent = module.WeftAgent(tmp_path)
    environment = SimpleNamespace(upload_file=upload)
    asyncio.run(agent.install(environment))
    asyncio.run(agent.run("fix it; rm -rf /", environment, None))
    assert uploaded == [(wheel, f"{module.WHEEL}/{wheel.name}")]
    command, env = agent.commands[-1]
    assert "weft run --format json -m anthropic/claude" in command
    assert "weft export last --atif -o /logs/agent/trajectory.json" in command
    assert env == {"ANTHROPIC_API_KEY": "key", "OPENCODE_CONFIG_CONTENT": json.dumps(module.CONFIGURATION)}


def test_without_a_wheel_the_adapter_says_what_to_do(module: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="make dist"):
        asyncio.run(module.WeftAgent(tmp_path).install(SimpleNamespace()))


def test_the_usage_of_the_run_is_reported_to_harbor(module: ModuleType, tmp_path: Path) -> None:
    totals = {"total_prompt_tokens": 3, "total_completion_tokens": 2, "total_cached_tokens": 1, "total_cost_usd": 0.5}  # fmt: skip
    (tmp_path / "trajectory.json").write_text(json.dumps({"final_metrics": totals}))
    context = SimpleNamespace()
    module.WeftAgent(tmp_path).populate_context_post_run(context)
    assert vars(context) == {"n_input_tokens": 3, "n_output_tokens": 2, "n_cache_tokens": 1, "cost_usd": 0.5}
