"""The agents: built-in ones, and what configuration changes and adds; their permission rules."""

import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.config.check import nearest
from weft.config.schema import AgentConfig, Config, PermissionMap
from weft.errors import InvalidInputError
from weft.host.paths import Paths
from weft.model.agent import Agent
from weft.model.part import ModelRef
from weft.model.permission import Action, Rule, Ruleset


def to_ruleset(permission: PermissionMap | None, *, home: str) -> Ruleset:
    """One rule per entry, in the order written. `~` and `$HOME` at the front of a pattern are the person's home."""
    return tuple(
        Rule(permission=key, pattern=pattern, action=action)
        for key, value in (permission or {}).items()
        for pattern, action in _patterns(value, home).items()
    )


def _patterns(value: Action | Mapping[str, Action], home: str) -> dict[str, Action]:
    if isinstance(value, str):
        return {"*": value}
    return {_expand(pattern, home): action for pattern, action in value.items()}


def _expand(pattern: str, home: str) -> str:
    if pattern == "~" or pattern.startswith("~/"):
        return home + pattern[1:]
    return home + pattern.removeprefix("$HOME") if pattern.startswith("$HOME") else pattern


ALLOW: Action = "allow"
# Held against the path from the top; elsewhere in a checkout the same things count as if they lay there (tool/paths.py).
ACTING_ASK: dict[str, Action] = {
    ".git": "ask",
    ".git/config*": "ask",
    ".git/*/config*": "ask",
    ".git/hooks*": "ask",
    ".git/*/hooks*": "ask",
    "opencode.json": "ask",
    "opencode.jsonc": "ask",
    ".opencode": "ask",
    ".opencode/*": "ask",
    ".opencode/plans/*": "allow",
}
SECRETS_ASK: dict[str, Action] = {"*.env": "ask", "*.env.*": "ask", "*.env.example": "allow"}


class _Ground(Struct, frozen=True, kw_only=True):
    """What every agent stands on: the rules before its own, and the person's after them."""

    paths: Paths
    worktree: str
    defaults: Ruleset
    person: Ruleset

    def rules(self, permission: PermissionMap | None) -> Ruleset:
        return to_ruleset(permission, home=self.paths.os_home)

    def anyone(self) -> Ruleset:
        """The rules of an agent that has none of its own."""
        return self.defaults + self.person


def build_agents(
    config: Config, paths: Paths, worktree: str, vouched: Config | None = None
) -> dict[str, Agent]:
    """Every agent by its key, the built-in ones first, then in the order configured.

    Where `config` says more than what is `vouched` for, its rules only limit: OpenCode lets a repository that was
    merely cloned allow what the person asks to be asked about.
    """
    agents = _build(config, paths, worktree)
    if vouched is None or vouched is config:
        return agents
    person = _build(vouched, paths, worktree)
    newcomer = _ground(vouched, paths, worktree)
    disabled = {key for key, agent in (vouched.agent or {}).items() if agent.disable}
    return {
        key: _limited(agent, person[key].permission if key in person else newcomer.anyone())
        for key, agent in agents.items()
        if key not in disabled
    }


def _limited(agent: Agent, person: Ruleset) -> Agent:
    """What the person's rules say holds, and of the others what is stricter."""
    if agent.permission == person:
        return agent
    return replace(agent, permission=person, limits=(agent.permission,))


def _ground(config: Config, paths: Paths, worktree: str) -> _Ground:
    defaults = to_ruleset(_default_permission(paths), home=paths.os_home)
    person = to_ruleset(config.permission, home=paths.os_home)
    return _Ground(paths=paths, worktree=worktree, defaults=defaults, person=person)


def _build(config: Config, paths: Paths, worktree: str) -> dict[str, Agent]:
    ground = _ground(config, paths, worktree)
    agents = {agent.name: agent for agent in _built_in(ground)}
    for key, configured in (config.agent or {}).items():
        if configured.disable:
            agents.pop(key, None)
            continue
        start = agents.get(key) or Agent(name=key, mode="all", permission=ground.anyone())
        agents[key] = _configure(start, configured, ground)
    return {key: _may_read_tool_output(agent, ground) for key, agent in agents.items()}


def list_agents(agents: Mapping[str, Agent], config: Config) -> list[Agent]:
    """The default agent first, then in the order defined."""
    default = config.default_agent or "build"
    return [agent for _, agent in sorted(agents.items(), key=lambda item: item[0] != default)]


def choose_agent(agents: Mapping[str, Agent], config: Config) -> str:
    """The key of the agent that answers when none is named. Raises `InvalidInputError`."""
    wanted = config.default_agent
    if not wanted:
        for key, agent in agents.items():
            if agent.mode != "subagent" and not agent.hidden:
                return key
        raise InvalidInputError("agent", "no primary visible agent found")
    found = agents.get(wanted)
    if found is None:
        near = nearest(wanted, agents)
        hint = f"did you mean {near!r}?" if near else ""
        raise InvalidInputError("default_agent", f'default agent "{wanted}" not found', hint=hint)
    if found.mode == "subagent":
        raise InvalidInputError("default_agent", f'default agent "{wanted}" is a subagent')
    if found.hidden:
        raise InvalidInputError("default_agent", f'default agent "{wanted}" is hidden')
    return wanted


def list_models(model: str | tuple[str, ...] | None) -> tuple[ModelRef, ...]:
    """The models an agent names, to be tried in turn.

    A name without a slash is kept as it is: asking for it must fail, and not fall to some other model.
    """
    names = (model,) if isinstance(model, str) else model or ()
    parts = (name.partition("/") for name in names)
    return tuple(ModelRef(provider_id=provider, model_id=id) for provider, _, id in parts)


def _default_permission(paths: Paths) -> PermissionMap:
    return {
        "*": "allow",
        "doom_loop": "ask",
        # A call that a crash cut off may have had its effect. OpenCode leaves it open for ever.
        "interrupted": "ask",
        "external_directory": {"*": "ask", **_tool_output(paths)},
        "question": "deny",
        "plan_enter": "deny",
        "plan_exit": "deny",
        "read": {"*": "allow", **SECRETS_ASK},
        # What runs by itself is not the work. OpenCode lets tools write hooks, and the configuration of agents.
        "edit": ACTING_ASK,
        # What is behind the person's own firewall is not the web. OpenCode fetches it unasked.
        "webfetch_private": "ask",
    }


def _tool_output(paths: Paths) -> dict[str, Action]:
    return {paths.tool_output: "allow", os.path.join(paths.tool_output, "*"): "allow"}


def _built_in(ground: _Ground) -> list[Agent]:
    def native(name: str, own: PermissionMap, **fields: Any) -> Agent:
        rules = ground.defaults + ground.rules(own) + ground.person
        return Agent(name=name, native=True, permission=rules, **fields)

    nothing: PermissionMap = {"*": "deny"}
    return [
        native("build", {"question": "allow", "plan_enter": "allow"}, mode="primary"),
        native("plan", _plan_permission(ground), mode="primary"),
        native(
            "general",
            {"todoread": "deny", "todowrite": "deny"},
            mode="subagent",
            description=_read_prompt("general.about"),
        ),
        native(
            "explore",
            _explore_permission(ground.paths),
            mode="subagent",
            description=_read_prompt("explore.about"),
            prompt=_read_prompt("explore"),
        ),
        native("compaction", nothing, mode="primary", hidden=True, prompt=_read_prompt("compaction")),
        native("title", nothing, mode="primary", hidden=True, prompt=_read_prompt("title"), temperature=0.5),
        native("summary", nothing, mode="primary", hidden=True, prompt=_read_prompt("summary")),
    ]


def _plan_permission(ground: _Ground) -> PermissionMap:
    plans = ground.paths.plans
    return {
        "question": "allow",
        "plan_exit": "allow",
        "external_directory": {os.path.join(plans, "*"): "allow"},
        "edit": {
            "*": "deny",
            ".opencode/plans/*.md": "allow",
            os.path.relpath(os.path.join(plans, "*.md"), ground.worktree): "allow",
        },
    }


def _explore_permission(paths: Paths) -> PermissionMap:
    allowed = ("grep", "glob", "list", "bash", "webfetch", "websearch", "codesearch")
    return {
        "*": "deny",
        **dict.fromkeys(allowed, ALLOW),
        # OpenCode allows all reading here, and with it reading `.env` unasked.
        "read": {"*": "allow", **SECRETS_ASK},
        "external_directory": _tool_output(paths),
    }


def _configure(agent: Agent, configured: AgentConfig, ground: _Ground) -> Agent:
    models = list_models(configured.model)
    given = {
        "name": configured.name,
        "model": models[0] if models else None,
        "fallback": models[1:] if models else None,
        "prompt": configured.prompt,
        "description": configured.description,
        "temperature": configured.temperature,
        "top_p": configured.top_p,
        "mode": configured.mode,
        "hidden": configured.hidden,
        "color": configured.color,
        "steps": configured.steps,
    }
    return replace(
        agent,
        **{field: value for field, value in given.items() if value is not None},
        options=_merge_options(agent.options, configured.options or {}),
        permission=agent.permission + ground.rules(configured.permission),
    )


def _merge_options(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = (
            _merge_options(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
        )
    return merged


def _may_read_tool_output(agent: Agent, ground: _Ground) -> Agent:
    """Output too long for an answer is spilled to files; unless told otherwise, any agent may look it up."""
    output = _tool_output(ground.paths)
    for rule in agent.permission:
        if rule.permission == "external_directory" and rule.action == "deny" and rule.pattern in output:
            return agent
    return replace(agent, permission=agent.permission + ground.rules({"external_directory": output}))


def _read_prompt(name: str) -> str:
    path = os.path.join(os.path.dirname(__file__), "prompts", f"{name}.md")
    with open(path, encoding="utf-8") as file:
        return file.read().strip()
