"""List what an untrusted project sets looser than the person does: it has no effect until the project is trusted."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import asdict

from weft.config.agents import build_agents, list_configured_rules
from weft.config.jsonc import KeyPath
from weft.config.layer import ConfigOrigin
from weft.config.load import LoadedConfig
from weft.config.schema import SANDBOX_MODES, BudgetConfig, LimitsConfig
from weft.config.sources import ConfigScope
from weft.model.permission import Rule, Ruleset
from weft.model.trust import HeldItem
from weft.permission.rules import STRICTEST_FIRST, evaluate, matches

_WEFT: Final = ("experimental", "weft")

# A setting that is looser than the person's, and what it would do.
_Looser = tuple[KeyPath, str]


def list_looser(loaded: LoadedConfig, scope: ConfigScope) -> list[HeldItem]:
    """Return what is without effect because it is looser, given the configuration loaded as that of an untrusted project."""
    if loaded.trusted_config is loaded.config:
        return []
    effects: dict[KeyPath, str] = {}
    for path, does in (
        *_list_rules(loaded, scope),
        *_list_budgets(loaded),
        *_list_sandbox(loaded),
        *_list_enabled(loaded),
    ):
        effects.setdefault(path, does)
    return [
        HeldItem(kind="setting", name=".".join(path), path=origin.path, does=does)
        for path, does in effects.items()
        if (origin := _find_project_origin(loaded, path)) is not None
    ]


def _find_project_origin(loaded: LoadedConfig, path: KeyPath) -> ConfigOrigin | None:
    """Return the source of a setting, None if it is not the project's."""
    origin = loaded.find_origin(path)
    return None if origin is None or origin.own else origin


# --- rules ---


def _list_rules(loaded: LoadedConfig, scope: ConfigScope) -> Iterator[_Looser]:
    agents = build_agents(loaded.config, scope.paths, scope.worktree, loaded.trusted_config)
    for key, agent in agents.items():
        if agent.native and agent.hidden:
            continue  # those that write titles and summaries have no tools
        configured = list_configured_rules(loaded.config, key, home=scope.paths.os_home)
        rules = [each for each in configured if _find_project_origin(loaded, each[0]) is not None]
        for limits in agent.limits:
            yield from _compare_rules(key, agent.permission, limits, rules)


def _compare_rules(
    agent: str, own: Ruleset, project: Ruleset, rules: Sequence[tuple[KeyPath, Rule]]
) -> Iterator[_Looser]:
    """Compare the person's rules with those that a trusted project would have, of which `rules` are its own."""
    for permission, pattern in dict.fromkeys(_list_samples(own, [rule for _, rule in rules])):
        allowed, wanted = evaluate(permission, pattern, own), evaluate(permission, pattern, project)
        if STRICTEST_FIRST.index(wanted.action) <= STRICTEST_FIRST.index(allowed.action):
            continue
        deciding = [path for path, rule in rules if rule == wanted]
        for path in deciding:
            yield path, f"is {wanted.action} instead of {allowed.action} for the agent {agent}"
        if not deciding:
            for path in (path for path, rule in rules if matches(permission, rule.permission)):
                yield path, f"replaces your {allowed.action} for the agent {agent}"


def _list_samples(own: Ruleset, rules: Sequence[Rule]) -> Iterator[tuple[str, str]]:
    """Yield permissions and patterns at which a rule of the project may meet a stricter one of the person."""
    for strict in own:
        if strict.action == "allow":
            continue
        yield strict.permission, strict.pattern
        for rule in rules:
            for permission in _list_common(strict.permission, rule.permission):
                for pattern in _list_common(strict.pattern, rule.pattern):
                    yield permission, pattern


def _list_common(one: str, other: str) -> Iterator[str]:
    """Yield texts that match both patterns: each pattern itself, and each within the stars of the other."""
    for text in (one, other, one.replace("*", other), other.replace("*", one)):
        if matches(text, one) and matches(text, other):
            yield text


# --- other settings ---


def _list_budgets(loaded: LoadedConfig) -> Iterator[_Looser]:
    own, merged = (
        asdict(config.weft_settings.budget or BudgetConfig())
        for config in (loaded.trusted_config, loaded.config)
    )
    for scope in own:
        limits, raised = (asdict(each[scope] or LimitsConfig()) for each in (own, merged))
        for measure, limit in limits.items():
            if limit is not None and raised[measure] is not None and raised[measure] > limit:
                yield (*_WEFT, "budget", scope, measure), f"is {raised[measure]} instead of {limit}"


def _list_sandbox(loaded: LoadedConfig) -> Iterator[_Looser]:
    path = (*_WEFT, "sandbox")
    own, merged = (
        loaded.trusted_config.weft_settings.sandbox_settings,
        loaded.config.weft_settings.sandbox_settings,
    )
    mode, wanted = own.mode or "off", merged.mode or "off"
    if SANDBOX_MODES.index(wanted) < SANDBOX_MODES.index(mode):
        yield (*path, "mode"), f"is {wanted} instead of {mode}"
    if own.network == "deny" and merged.network == "allow":
        yield (*path, "network"), "is allow instead of deny"
    for kind in ("readable", "writable"):
        added = [each for each in getattr(merged, kind) or () if each not in (getattr(own, kind) or ())]
        if added:
            yield (*path, kind), f"makes {', '.join(added)} {kind}"


def _list_enabled(loaded: LoadedConfig) -> Iterator[_Looser]:
    """Yield agents and providers that the person has disabled."""
    own = loaded.trusted_config
    for key, agent in (own.agent or {}).items():
        merged = (loaded.config.agent or {}).get(key)
        if agent.disable and merged is not None and not merged.disable:
            yield ("agent", key, "disable"), "enables an agent that you have disabled"
    named = _find_list(loaded, "disabled_providers")
    enabled = [] if named is None else [each for each in own.disabled_providers or () if each not in named]
    if enabled:
        yield ("disabled_providers",), f"enables {', '.join(enabled)}"
    if own.enabled_providers is not None:
        more = _find_list(loaded, "enabled_providers") or ()
        enabled = [each for each in more if each not in own.enabled_providers]
        if enabled:
            yield ("enabled_providers",), f"enables {', '.join(enabled)}"


def _find_list(loaded: LoadedConfig, key: str) -> Any:
    """Return a list as the strongest layer has it: in the merged configuration, the providers are narrowed already."""
    return next((layer.data[key] for layer in reversed(loaded.layers) if key in layer.data), None)
