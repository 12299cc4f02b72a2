"""The `config` hook: plugins have their say on what is configured, before anything is made of it."""

from collections.abc import Callable
from typing import Any, Final

from msgspec import convert
from msgspec.structs import replace

from weft.config.check import check
from weft.config.layer import Origin, Problems, make_layer
from weft.config.load import Loaded
from weft.config.schema import Config
from weft.errors import ConfigError
from weft.model.wire import to_plain
from weft.plugin.hooks import CONFIG, Configuration, Configured, Hooks

ORIGIN: Final = Origin(kind="environment", path="config hook", own=True)


async def configured(
    loaded: Loaded, hooks: Hooks, directory: str, warn: Callable[[ConfigError], None]
) -> Loaded:
    """The configuration as plugins would have it, held against the schema like a file's.

    Of a project that nobody has vouched for, what it says itself stays what it is: only what a plugin changed is vouched for.
    """
    if not hooks.any(CONFIG):
        return loaded
    before = to_plain(loaded.config)
    told, now = Configured(directory=directory), Configuration(config=before)
    after = (await hooks.ask(CONFIG, told, now)).config
    if after == before:
        return loaded
    problems = Problems()
    config = _to_config(after, problems)
    vouched = config
    if loaded.vouched is not loaded.config:
        vouched = _to_config(changed(to_plain(loaded.vouched), before, after), Problems())
    for problem in (*problems.errors, *problems.warnings):
        warn(problem)
    return replace(loaded, config=config, vouched=vouched)


def _to_config(said: dict[str, Any], problems: Problems) -> Config:
    layer = make_layer(ORIGIN, said, None, problems)
    kept, findings = check(layer.data, whole=True)
    problems.note(ORIGIN, None, findings)
    return convert(kept, Config)


def changed(value: Any, before: Any, after: Any) -> Any:
    """A value with the changes made to it that lead from `before` to `after`, and no more."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return after
    made = {key: item for key, item in (value or {}).items() if key in after or key not in before}
    for key, new in after.items():
        if key not in before:
            made[key] = new
        elif new != before[key]:
            made[key] = changed(made.get(key), before[key], new)
    return made
