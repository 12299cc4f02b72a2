"""The models a configuration makes available."""

from weft.config.schema import Config
from weft.errors import InvalidInputError
from weft.host.clock import Clock
from weft.model.catalog import parse_ref
from weft.model.part import ModelRef
from weft.provider.demo import serve_demo
from weft.provider.registry import Registry, Served


def find_models(config: Config, clock: Clock, also: tuple[Served, ...]) -> Registry:
    return Registry([serve_demo(clock), *also], default=default_model(config))


def default_model(config: Config) -> ModelRef | None:
    """What the key `model` names; nothing else is ever used in its place."""
    if not config.model:
        return None
    ref = parse_ref(config.model)
    if ref is None:
        raise InvalidInputError(
            "model", f"{config.model!r} does not name a model", hint="write it as provider/model"
        )
    return ref
