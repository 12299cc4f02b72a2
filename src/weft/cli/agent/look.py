"""`weft agent list` and `show`: the agents there are in a directory, and what each may do."""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping

from weft.cli.offers import warn
from weft.cli.paint import Paint, plain, write_json
from weft.cli.table import to_table
from weft.config.agents import build_agents
from weft.config.check import nearest
from weft.config.load import load_config
from weft.config.sources import Situation
from weft.errors import NotFoundError
from weft.host.paths import paths_from
from weft.model.agent import Agent
from weft.model.permission import Ruleset
from weft.project.look import look
from weft.trust.decision import is_trusted

SHORT = 80


def find_agents(directory: str, env: Mapping[str, str]) -> dict[str, Agent]:
    """Every agent by its key. What is broken in the configuration is told, and does not hide the rest."""
    at, paths = look(directory), paths_from(env)
    worktree = at.top or at.directory
    trusted = is_trusted(paths, env, worktree, at.directory)
    loaded = load_config(
        Situation(directory=at.directory, worktree=worktree, paths=paths, env=env, trusted=trusted)
    )
    for problem in (*loaded.problems, *loaded.warnings):
        warn(problem)
    return build_agents(loaded.config, paths, worktree, loaded.vouched)


def list_agents(chosen: argparse.Namespace) -> int:
    """The built-in ones first, as defined; then the others."""
    found = find_agents(chosen.dir, os.environ)
    named = [(key, agent) for key, agent in found.items() if chosen.all or not agent.hidden]
    named.sort(key=lambda item: not item[1].native)
    if chosen.format == "json":
        write_json([agent for _, agent in named])
        return 0
    paint = Paint(sys.stdout)
    if chosen.verbose:
        for key, agent in named:
            print(f"{paint.bold(plain(key))} ({agent.mode})")
            print("\n".join(f"  {line}" for line in rules_of(agent)))
        return 0
    rows = [(key, agent.mode, _kind(agent), _short(agent.description or "")) for key, agent in named]
    print("\n".join(to_table(("agent", "mode", "from", "what it is for"), rows, paint)))
    return 0


def _kind(agent: Agent) -> str:
    return "weft" if agent.native else "you"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHORT else line[: SHORT - 1] + "…"


def show_agent(chosen: argparse.Namespace) -> int:
    agents = find_agents(chosen.dir, os.environ)
    agent = agents.get(chosen.name)
    if agent is None:
        near = nearest(chosen.name, agents)
        raise NotFoundError("agent", chosen.name, near=[near] if near else [], hint="weft agent list --all")
    if chosen.format == "json":
        write_json(agent)
    else:
        print("\n".join(to_lines(chosen.name, agent, Paint(sys.stdout))))
    return 0


def to_lines(key: str, agent: Agent, paint: Paint) -> Iterator[str]:
    yield paint.bold(plain(key))
    if agent.description:
        yield plain(agent.description)
    yield ""
    yield from (f"{name:<12} {plain(value)}" for name, value in _facts(agent))
    yield "rules        the last that matches decides"
    yield from (f"  {line}" for line in rules_of(agent))
    if agent.prompt:
        yield ""
        yield paint.dim(plain(agent.prompt))


def _facts(agent: Agent) -> Iterator[tuple[str, str]]:
    yield "mode", agent.mode + (", behind the scenes" if agent.hidden else "")
    if agent.model is not None:
        chain = (agent.model, *agent.fallback)
        yield "model", ", then ".join(f"{model.provider_id}/{model.model_id}" for model in chain)
    facts = {
        "temperature": agent.temperature,
        "top_p": agent.top_p,
        "steps": agent.steps,
        "color": agent.color,
    }
    yield from ((name, str(value)) for name, value in facts.items() if value is not None)
    if agent.options:
        yield "options", ", ".join(agent.options)  # by name: a value may be a secret
    yield "prompt", "its own, below" if agent.prompt else "the one for its model's family"


def rules_of(agent: Agent) -> Iterator[str]:
    yield from to_rules(agent.permission)
    for limit in agent.limits:
        yield "and no more than the rules of the project, which you have not vouched for:"
        yield from to_rules(limit)


def to_rules(rules: Ruleset) -> Iterator[str]:
    return (f"{rule.action:<5} {plain(rule.permission)} {plain(rule.pattern)}" for rule in rules)
