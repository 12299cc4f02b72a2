"""The models a configuration makes available."""

from weft.app.offers import Around, find_offers
from weft.config.load import Loaded
from weft.config.schema import Config
from weft.config.schema import Deadlines as Said
from weft.errors import InvalidInputError
from weft.host.clock import Clock
from weft.model.catalog import parse_ref
from weft.model.part import ModelRef
from weft.provider.demo import serve_demo
from weft.provider.endpoint import Deadlines
from weft.provider.offer.reach import Adapters
from weft.provider.registry import Registry, Served


def find_models(loaded: Loaded, around: Around, clock: Clock, also: tuple[Served, ...]) -> Registry:
    """Every model: the scripted one, those in `also`, and those on offer. Nothing is fetched for it."""
    return Registry(
        [serve_demo(clock), *also],
        default=named_model("model", loaded.config.model),
        small=named_model("small_model", loaded.config.small_model),
        offers=find_offers(loaded, around),
        connect=Adapters(to_waits(loaded.config)),
    )


def to_waits(config: Config) -> Deadlines:
    """How long a model's server is waited for."""
    own = config.experimental.weft if config.experimental else None
    said, usual = (own.deadlines if own else None) or Said(), Deadlines()
    return Deadlines(
        connect=said.connect or usual.connect,
        first_byte=said.first_byte or usual.first_byte,
        between=said.chunk or usual.between,
    )


def named_model(key: str, name: str | None) -> ModelRef | None:
    """What a key of the configuration names; nothing else is ever used in its place."""
    if not name:
        return None
    ref = parse_ref(name)
    if ref is None:
        raise InvalidInputError(key, f"{name!r} does not name a model", hint="write it as provider/model")
    return ref
