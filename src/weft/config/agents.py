"""Build the agents: the built-in ones, and what configuration changes and adds; with their permission rules."""

import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.config.check import find_nearest
from weft.config.schema import AgentConfig, Config, PermissionMap
from weft.errors import InvalidInputError
from weft.host.paths import Paths
from weft.model.agent import Agent
from weft.model.part import ModelRef
from weft.model.permission import Action, Rule, Ruleset


def to_ruleset(permission: PermissionMap | None, *, home: str) -> Ruleset:
    """Convert permissions to rules, one for each entry, in order. `~` and `$HOME` at the start of a pattern are the
    user's home.
    """
    return tuple(
        Rule(permission=key, pattern=pattern, action=action)
        for key, value in (permission or {}).items()
        for pattern, action in _to_patterns(value, home).items()
    )


def _to_patterns(value: Action | Mapping[str, Action], home: str) -> dict[str, Action]:
    if isinstance(value, str):
        return {"*": value}
    return {_expand_home(pattern, home): action for pattern, action in value.items()}


def _expand_home(pattern: str, home: str) -> str:
    if pattern == "~" or pattern.startswith("~/"):
        return home + pattern[1:]
    return home + pattern.removeprefix("$HOME") if pattern.startswith("$HOME") else pattern


ALLOWED: Action = "allow"
# Matched against the path from the top of the checkout; nested checkouts count likewise (tool/paths.py).
PROTECTED_FILES: dict[str, Action] = {
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
SECRET_FILES: dict[str, Action] = {"*.env": "ask", "*.env.*": "ask", "*.env.example": "allow"}


class _RuleContext(Struct, frozen=True, kw_only=True):
    """What the rules of every agent are built from: the default rules before its own, and the user's after them."""

    paths: Paths
    worktree: str
    defaults: Ruleset
    user: Ruleset

    def to_rules(self, permission: PermissionMap | None) -> Ruleset:
        return to_ruleset(permission, home=self.paths.os_home)

    def list_common(self) -> Ruleset:
        """Return the rules of an agent that has none of its own."""
        return self.defaults + self.user


def build_agents(
    config: Config, paths: Paths, worktree: str, vouched: Config | None = None
) -> dict[str, Agent]:
    """Return every agent by its key: the built-in ones first, then in configured order.

    What `config` adds to `vouched` comes from an untrusted project, whose rules can only restrict. OpenCode lets a
    cloned repository allow what the user wants to be asked about.
    """
    agents = _build_all(config, paths, worktree)
    if vouched is None or vouched is config:
        return agents
    user_agents = _build_all(vouched, paths, worktree)
    vouched_context = _make_context(vouched, paths, worktree)
    disabled = {key for key, agent in (vouched.agent or {}).items() if agent.disable}
    return {
        key: _limit_agent(
            agent, user_agents[key].permission if key in user_agents else vouched_context.list_common()
        )
        for key, agent in agents.items()
        if key not in disabled
    }


def _limit_agent(agent: Agent, user_rules: Ruleset) -> Agent:
    """Return the agent with the user's rules, limited further by its own."""
    if agent.permission == user_rules:
        return agent
    return replace(agent, permission=user_rules, limits=(agent.permission,))


def _make_context(config: Config, paths: Paths, worktree: str) -> _RuleContext:
    defaults = to_ruleset(_default_permission(paths), home=paths.os_home)
    user = to_ruleset(config.permission, home=paths.os_home)
    return _RuleContext(paths=paths, worktree=worktree, defaults=defaults, user=user)


def _build_all(config: Config, paths: Paths, worktree: str) -> dict[str, Agent]:
    context = _make_context(config, paths, worktree)
    agents = {agent.name: agent for agent in _list_built_in(context)}
    for key, configured in (config.agent or {}).items():
        if configured.disable:
            agents.pop(key, None)
            continue
        start = agents.get(key) or Agent(name=key, mode="all", permission=context.list_common())
        agents[key] = _configure(start, configured, context)
    return {key: _may_read_tool_output(agent, context) for key, agent in agents.items()}


def list_agents(agents: Mapping[str, Agent], config: Config) -> list[Agent]:
    """Return the agents: the default one first, then in order of definition."""
    default = config.default_agent or "build"
    return [agent for _, agent in sorted(agents.items(), key=lambda item: item[0] != default)]


def choose_agent(agents: Mapping[str, Agent], config: Config) -> str:
    """Return the key of the agent that answers when none is named. Raise `InvalidInputError`."""
    wanted = config.default_agent
    if not wanted:
        for key, agent in agents.items():
            if agent.mode != "subagent" and not agent.hidden:
                return key
        raise InvalidInputError("agent", "no primary visible agent found")
    found = agents.get(wanted)
    if found is None:
        near = find_nearest(wanted, agents)
        hint = f"did you mean {near!r}?" if near else ""
        raise InvalidInputError("default_agent", f'default agent "{wanted}" not found', hint=hint)
    if found.mode == "subagent":
        raise InvalidInputError("default_agent", f'default agent "{wanted}" is a subagent')
    if found.hidden:
        raise InvalidInputError("default_agent", f'default agent "{wanted}" is hidden')
    return wanted


def list_models(model: str | tuple[str, ...] | None) -> tuple[ModelRef, ...]:
    """Return the models that an agent names, to be tried in order.

    A name without a slash is kept: a request for it must fail instead of using another model.
    """
    names = (model,) if isinstance(model, str) else model or ()
    parts = (name.partition("/") for name in names)
    return tuple(ModelRef(provider_id=provider, model_id=id) for provider, _, id in parts)


def _default_permission(paths: Paths) -> PermissionMap:
    return {
        "*": "allow",
        "doom_loop": "ask",
        # A call that a crash interrupted may have had its effect. OpenCode leaves it open forever.
        "interrupted": "ask",
        "external_directory": {"*": "ask", **_tool_output_rules(paths)},
        "question": "deny",
        "plan_enter": "deny",
        "plan_exit": "deny",
        "read": {"*": "allow", **SECRET_FILES},
        # Files that are executed automatically need a confirmation. OpenCode lets tools write hooks and agent
        # configuration.
        "edit": PROTECTED_FILES,
        # Addresses behind the user's firewall need a confirmation. OpenCode fetches them without asking.
        "webfetch_private": "ask",
    }


def _tool_output_rules(paths: Paths) -> dict[str, Action]:
    return {paths.tool_output: "allow", os.path.join(paths.tool_output, "*"): "allow"}


def _list_built_in(context: _RuleContext) -> list[Agent]:
    def native(name: str, own: PermissionMap, **fields: Any) -> Agent:
        rules = context.defaults + context.to_rules(own) + context.user
        return Agent(name=name, native=True, permission=rules, **fields)

    nothing: PermissionMap = {"*": "deny"}
    return [
        native("build", {"question": "allow", "plan_enter": "allow"}, mode="primary"),
        native("plan", _plan_permission(context), mode="primary"),
        native(
            "general",
            {"todoread": "deny", "todowrite": "deny"},
            mode="subagent",
            description=_read_prompt("general.about"),
        ),
        native(
            "explore",
            _explore_permission(context.paths),
            mode="subagent",
            description=_read_prompt("explore.about"),
            prompt=_read_prompt("explore"),
        ),
        native("compaction", nothing, mode="primary", hidden=True, prompt=_read_prompt("compaction")),
        native("title", nothing, mode="primary", hidden=True, prompt=_read_prompt("title"), temperature=0.5),
        native("summary", nothing, mode="primary", hidden=True, prompt=_read_prompt("summary")),
    ]


def _plan_permission(context: _RuleContext) -> PermissionMap:
    plans = context.paths.plans
    return {
        "question": "allow",
        "plan_exit": "allow",
        "external_directory": {os.path.join(plans, "*"): "allow"},
        "edit": {
            "*": "deny",
            ".opencode/plans/*.md": "allow",
            os.path.relpath(os.path.join(plans, "*.md"), context.worktree): "allow",
        },
    }


def _explore_permission(paths: Paths) -> PermissionMap:
    allowed = ("grep", "glob", "list", "bash", "webfetch", "websearch", "codesearch")
    return {
        "*": "deny",
        **dict.fromkeys(allowed, ALLOWED),
        # OpenCode allows all reading here, including `.env`.
        "read": {"*": "allow", **SECRET_FILES},
        "external_directory": _tool_output_rules(paths),
    }


def _configure(agent: Agent, configured: AgentConfig, context: _RuleContext) -> Agent:
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
        permission=agent.permission + context.to_rules(configured.permission),
    )


def _merge_options(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = (
            _merge_options(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
        )
    return merged


def _may_read_tool_output(agent: Agent, context: _RuleContext) -> Agent:
    """Allow an agent to read files with truncated tool output, unless a rule denies it."""
    output = _tool_output_rules(context.paths)
    for rule in agent.permission:
        if rule.permission == "external_directory" and rule.action == "deny" and rule.pattern in output:
            return agent
    return replace(agent, permission=agent.permission + context.to_rules({"external_directory": output}))


def _read_prompt(name: str) -> str:
    path = os.path.join(os.path.dirname(__file__), "prompts", f"{name}.md")
    with open(path, encoding="utf-8") as file:
        return file.read().strip()
