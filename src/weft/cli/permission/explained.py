"""`weft permission explain`: what the rules say of a shell command, part by part. Nothing is run."""

import argparse
import os
import sys
from collections.abc import Mapping
from typing import Any

from weft.cli.exit import Exit
from weft.cli.offers import warn
from weft.cli.paint import Paint, plain, write_json
from weft.cli.table import to_table
from weft.config.agents import build_agents, choose_agent
from weft.config.check import nearest
from weft.config.load import load_config
from weft.config.sources import Situation
from weft.errors import NotFoundError
from weft.host.paths import paths_from
from weft.host.processes import tool_environment
from weft.local.permissions import Explanation, JudgedPart, explain
from weft.model.agent import Agent
from weft.model.permission import Action, Rule
from weft.project.look import look
from weft.tool.shell.places import where_is
from weft.trust.decision import is_trusted

EXITS: dict[Action, Exit] = {"allow": Exit.DONE, "ask": Exit.ASKED, "deny": Exit.REFUSED}
VERDICTS: dict[Action, str] = {
    "allow": "allowed: it is run unasked",
    "ask": "asked: a person decides first",
    "deny": "denied: it is not run",
}


def explain_command(chosen: argparse.Namespace) -> int:
    env, at = os.environ, look(chosen.dir)
    worktree = at.top or "/"
    agent = _find_agent(chosen.agent, at.directory, worktree, env)
    where = where_is(at.directory, worktree, tool_environment(env))
    told = explain(chosen.command, where, (agent.permission, *agent.limits))
    if chosen.format == "json":
        write_json(_to_plain(agent, chosen.command, told))
    else:
        _print(agent, told)
    return EXITS[told.verdict]


def _find_agent(name: str | None, directory: str, worktree: str, env: Mapping[str, str]) -> Agent:
    """The one that is named, or the one that answers when none is."""
    paths = paths_from(env)
    trusted = is_trusted(paths, env, worktree, directory)
    loaded = load_config(
        Situation(directory=directory, worktree=worktree, paths=paths, env=env, trusted=trusted)
    )
    for problem in (*loaded.problems, *loaded.warnings):
        warn(problem)
    agents = build_agents(loaded.config, paths, worktree, loaded.vouched)
    key = name or choose_agent(agents, loaded.config)
    if key not in agents:
        near = nearest(key, agents)
        raise NotFoundError("agent", key, near=[near] if near else [], hint="weft agent list --all")
    return agents[key]


def _to_plain(agent: Agent, command: str, told: Explanation) -> dict[str, Any]:
    return {
        "command": command,
        "agent": agent.name,
        "verdict": told.verdict,
        "parts": [
            {
                "permission": each.part.permission,
                "pattern": each.part.pattern,
                "action": each.rule.action,
                "rule": _rule(each.rule),
                "always": each.part.always,
                "why": each.part.why,
                "mayWrite": each.part.may_write,
            }
            for each in told.parts
        ],
    }


def _print(agent: Agent, told: Explanation) -> None:
    paint = Paint(sys.stdout)
    rows = [
        (each.rule.action, each.part.permission, each.part.pattern, _rule(each.rule), _why(each))
        for each in told.parts
    ]
    print("\n".join(to_table(("verdict", "permission", "what", "rule", "why"), rows, paint)))
    colour = {"allow": paint.green, "ask": paint.yellow, "deny": paint.red}[told.verdict]
    print(f"\n{colour(VERDICTS[told.verdict])} (agent {plain(agent.name)})")


def _rule(rule: Rule) -> str:
    return f"{rule.permission} {rule.pattern} {rule.action}"


def _why(each: JudgedPart) -> str:
    if each.part.why:
        return each.part.why
    return "it may change files" if each.part.may_write and each.rule.action == "ask" else ""
