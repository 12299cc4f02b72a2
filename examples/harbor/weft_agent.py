"""Let Harbor run weft as an agent (https://harborframework.com, version 0.25).

Build weft's wheel with `make dist`, then name it and this class:

    export WEFT_WHEEL=$PWD/dist/weft-0.1.0-py3-none-any.whl
    PYTHONPATH=examples/harbor harbor run -d terminal-bench@2.0 -m anthropic/claude-sonnet-4-5 \
        --agent weft_agent:WeftAgent

Harbor needs Python 3.12 or later; inside of the task's container weft gets a Python of its own.
"""

import json
import os
import shlex
from pathlib import Path
from typing import Any

from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.installed.base import BaseInstalledAgent, with_prompt_template

WHEEL = "/installed-agent/weft-wheel"
# The container is the sandbox: whatever the agent breaks in it ends with the task.
CONFIGURATION = {"permission": "allow", "share": "disabled"}
INSTALL_UV = "command -v uv >/dev/null 2>&1 || curl -LsSf https://astral.sh/uv/install.sh | sh"
FIND_PROGRAMS = 'export PATH="$HOME/.local/bin:$PATH"'


def find_wheel() -> Path:
    wheel = Path(os.environ.get("WEFT_WHEEL", ""))
    if not wheel.is_file():
        raise RuntimeError("WEFT_WHEEL does not name a wheel of weft; build one: make dist")
    return wheel


class WeftAgent(BaseInstalledAgent):
    """Installs weft's wheel in the environment of a task, runs the prompt, and leaves a trajectory for Harbor."""

    capabilities = AgentCapabilities(atif=True, resume=True)

    @staticmethod
    def name() -> str:
        return "weft"

    def get_version_command(self) -> str:
        return f"{FIND_PROGRAMS}; weft --version"

    async def install(self, environment: Any) -> None:
        wheel = find_wheel()
        await self.ensure_system_dependencies(environment, ("curl", "bash", "git"))
        target = f"{WHEEL}/{wheel.name}"
        await self.exec_as_root(environment, command=f"mkdir -p {WHEEL} && chmod 755 {WHEEL}")
        await environment.upload_file(wheel, target)
        command = (
            f"set -e; {INSTALL_UV}; {FIND_PROGRAMS}; uv tool install --python 3.12 {shlex.quote(target)}"
        )
        await self.exec_as_agent(environment, command=command)

    @with_prompt_template
    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        del context  # it is filled in from the trajectory when the run has ended
        if not self.model_name:
            raise ValueError("name a model: -m provider/model")
        logs = self.environment_logs_dir
        env = dict(self.model_connection.env) | {"OPENCODE_CONFIG_CONTENT": json.dumps(CONFIGURATION)}
        model, output = shlex.quote(self.model_name), shlex.quote(f"{logs}/weft.jsonl")
        trajectory = shlex.quote(f"{logs}/trajectory.json")
        run = f"weft run --format json -m {model} {shlex.quote(instruction)} </dev/null 2>&1 | tee {output}"
        export = f"weft export last --atif -o {trajectory}"
        # The trajectory is written also if the run failed; the exit status is that of the run.
        command = f"{FIND_PROGRAMS}; set -o pipefail; {run}; status=$?; {export}; exit $status"
        await self.exec_as_agent(environment, command=f"bash -c {shlex.quote(command)}", env=env)

    def populate_context_post_run(self, context: Any) -> None:
        """Tell Harbor what the run used, from the trajectory."""
        path = Path(self.logs_dir) / "trajectory.json"
        if not path.is_file():
            return
        total = json.loads(path.read_text())["final_metrics"]
        context.n_input_tokens = total["total_prompt_tokens"]
        context.n_output_tokens = total["total_completion_tokens"]
        context.n_cache_tokens = total["total_cached_tokens"]
        context.cost_usd = total["total_cost_usd"]
