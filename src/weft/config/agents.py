"""Build the agents with their permission rules: the built-in ones, and those that the configuration changes or adds."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.config.check import find_nearest
from weft.config.jsonc import KeyPath
from weft.config.schema import AgentConfig, Config, PermissionMap
from weft.errors import InvalidInputError
from weft.host.paths import Paths
from weft.model.agent import AgentInfo
from weft.model.part import ModelRef
from weft.model.permission import Action, Rule, Ruleset


def to_ruleset(permission: PermissionMap | None, *, home: str) -> Ruleset:
    """Convert permissions to rules, one for each entry, in order. A pattern may begin with `~` or `$HOME`."""
    return tuple(
        Rule(permission=key, pattern=pattern, action=action)
        for key, value in (permission or {}).items()
        for pattern, action in _to_patterns(value, home).items()
    )


def list_configured_rules(config: Config, agent: str, *, home: str) -> list[tuple[KeyPath, Rule]]:
    """Return the rules that the configuration sets for an agent, each with the path of its key, the weakest first."""
    configured = (config.agent or {}).get(agent)
    return [
        *_list_rules(("permission",), config.permission, home),
        *_list_rules(("agent", agent, "permission"), configured.permission if configured else None, home),
    ]


def _list_rules(path: KeyPath, permission: PermissionMap | None, home: str) -> Iterator[tuple[KeyPath, Rule]]:
    for key, value in (permission or {}).items():
        if isinstance(value, str):
            yield (*path, key), Rule(permission=key, pattern="*", action=value)
        else:
            for pattern, action in value.items():
                rule = Rule(permission=key, pattern=_expand_home(pattern, home), action=action)
                yield (*path, key, pattern), rule


def _to_patterns(value: Action | Mapping[str, Action], home: str) -> dict[str, Action]:
    if isinstance(value, str):
        return {"*": value}
    return {_expand_home(pattern, home): action for pattern, action in value.items()}


def _expand_home(pattern: str, home: str) -> str:
    if pattern == "~" or pattern.startswith("~/"):
        return home + pattern[1:]
    return home + pattern.removeprefix("$HOME") if pattern.startswith("$HOME") else pattern


ALLOW: Action = "allow"
# Matched against the path from the top of the checkout. `tool/paths.py` does the same for nested checkouts.
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
    """What every agent's rules are built from: the default rules come before its own, the user's after them."""

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
    config: Config, paths: Paths, worktree: str, trusted_config: Config | None = None
) -> dict[str, AgentInfo]:
    """Return every agent by its key: the built-in ones first, then in configured order.

    `trusted_config` is `config` without an untrusted project. The rules of such a project can only restrict. OpenCode lets a
    cloned repository allow what the user wants to be asked about.
    """
    agents = _build_unlimited(config, paths, worktree)
    if trusted_config is None or trusted_config is config:
        return agents
    user_agents = _build_unlimited(trusted_config, paths, worktree)
    trusted_context = _make_context(trusted_config, paths, worktree)
    disabled = {key for key, agent in (trusted_config.agent or {}).items() if agent.disable}
    return {
        key: _limit_agent(
            agent, user_agents[key].permission if key in user_agents else trusted_context.list_common()
        )
        for key, agent in agents.items()
        if key not in disabled
    }


def _limit_agent(agent: AgentInfo, user_rules: Ruleset) -> AgentInfo:
    """Return the agent with the user's rules, limited further by its own."""
    if agent.permission == user_rules:
        return agent
    return replace(agent, permission=user_rules, limits=(agent.permission,))


def _make_context(config: Config, paths: Paths, worktree: str) -> _RuleContext:
    defaults = to_ruleset(_build_default_permission(paths), home=paths.os_home)
    user = to_ruleset(config.permission, home=paths.os_home)
    return _RuleContext(paths=paths, worktree=worktree, defaults=defaults, user=user)


def _build_unlimited(config: Config, paths: Paths, worktree: str) -> dict[str, AgentInfo]:
    context = _make_context(config, paths, worktree)
    agents = {agent.name: agent for agent in _list_built_in(context)}
    for key, configured in (config.agent or {}).items():
        if configured.disable:
            agents.pop(key, None)
            continue
        base = agents.get(key) or AgentInfo(name=key, mode="all", permission=context.list_common())
        agents[key] = _apply_config(base, configured, context)
    return {key: _allow_tool_output(agent, context) for key, agent in agents.items()}


def list_agents(agents: Mapping[str, AgentInfo], config: Config) -> list[AgentInfo]:
    """Return the agents: the default one first, then in order of definition."""
    default = config.default_agent or "build"
    return [agent for _, agent in sorted(agents.items(), key=lambda item: item[0] != default)]


def choose_agent(agents: Mapping[str, AgentInfo], config: Config) -> str:
    """Return the key of the agent that answers when none is named. Raise `InvalidInputError` if there is none."""
    name = config.default_agent
    if not name:
        for key, agent in agents.items():
            if agent.mode != "subagent" and not agent.hidden:
                return key
        raise InvalidInputError("agent", "no primary visible agent found")
    chosen = agents.get(name)
    if chosen is None:
        near = find_nearest(name, agents)
        hint = f"did you mean {near!r}?" if near else ""
        raise InvalidInputError("default_agent", f'default agent "{name}" not found', hint=hint)
    if chosen.mode == "subagent":
        raise InvalidInputError("default_agent", f'default agent "{name}" is a subagent')
    if chosen.hidden:
        raise InvalidInputError("default_agent", f'default agent "{name}" is hidden')
    return name


def list_models(model: str | tuple[str, ...] | None) -> tuple[ModelRef, ...]:
    """Return the models that an agent names, to be tried in order.

    A name without a slash is kept: a request for it must fail instead of using another model.
    """
    names = (model,) if isinstance(model, str) else model or ()
    parts = (name.partition("/") for name in names)
    return tuple(ModelRef(provider_id=provider, model_id=id) for provider, _, id in parts)


def _build_default_permission(paths: Paths) -> PermissionMap:
    return {
        "*": "allow",
        "doom_loop": "ask",
        # A call that a crash interrupted may have had its effect. OpenCode leaves it open forever.
        "interrupted": "ask",
        "external_directory": {"*": "ask", **_build_tool_output_rules(paths)},
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


def _build_tool_output_rules(paths: Paths) -> dict[str, Action]:
    return {paths.tool_output: "allow", os.path.join(paths.tool_output, "*"): "allow"}


def _list_built_in(context: _RuleContext) -> list[AgentInfo]:
    def make_agent(name: str, permission: PermissionMap, **fields: Any) -> AgentInfo:
        rules = context.defaults + context.to_rules(permission) + context.user
        return AgentInfo(name=name, native=True, permission=rules, **fields)

    no_tools: PermissionMap = {"*": "deny"}
    return [
        make_agent("build", {"question": "allow", "plan_enter": "allow"}, mode="primary"),
        make_agent("plan", _build_plan_permission(context), mode="primary"),
        make_agent(
            "general",
            {"todoread": "deny", "todowrite": "deny"},
            mode="subagent",
            description=_read_prompt("general.about"),
        ),
        make_agent(
            "explore",
            _build_explore_permission(context.paths),
            mode="subagent",
            description=_read_prompt("explore.about"),
            prompt=_read_prompt("explore"),
        ),
        make_agent("compaction", no_tools, mode="primary", hidden=True, prompt=_read_prompt("compaction")),
        make_agent(
            "title", no_tools, mode="primary", hidden=True, prompt=_read_prompt("title"), temperature=0.5
        ),
        make_agent("summary", no_tools, mode="primary", hidden=True, prompt=_read_prompt("summary")),
    ]


def _build_plan_permission(context: _RuleContext) -> PermissionMap:
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


def _build_explore_permission(paths: Paths) -> PermissionMap:
    allowed = ("grep", "glob", "list", "bash", "webfetch", "websearch", "codesearch")
    return {
        "*": "deny",
        **dict.fromkeys(allowed, ALLOW),
        # OpenCode allows all reading here, including `.env`.
        "read": {"*": "allow", **SECRET_FILES},
        "external_directory": _build_tool_output_rules(paths),
    }


def _apply_config(agent: AgentInfo, configured: AgentConfig, context: _RuleContext) -> AgentInfo:
    models = list_models(configured.model)
    fields = {
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
        **{field: value for field, value in fields.items() if value is not None},
        options=_merge_options(agent.options, configured.options or {}),
        permission=agent.permission + context.to_rules(configured.permission),
    )


def _merge_options(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in overrides.items():
        current = merged.get(key)
        merged[key] = (
            _merge_options(current, value) if isinstance(current, dict) and isinstance(value, dict) else value
        )
    return merged


def _allow_tool_output(agent: AgentInfo, context: _RuleContext) -> AgentInfo:
    """Allow an agent to read files with truncated tool output, unless a rule denies it."""
    output = _build_tool_output_rules(context.paths)
    for rule in agent.permission:
        if rule.permission == "external_directory" and rule.action == "deny" and rule.pattern in output:
            return agent
    return replace(agent, permission=agent.permission + context.to_rules({"external_directory": output}))


def _read_prompt(name: str) -> str:
    path = os.path.join(os.path.dirname(__file__), "prompts", f"{name}.md")
    with open(path, encoding="utf-8") as file:
        return file.read().strip()
