"""The scripted model that ships with weft: it needs no key and no network, and always does the same."""

from decimal import Decimal
from importlib.resources import files

from weft.host.clock import Clock
from weft.model.catalog import CachePrice, Cost, Limit, Model, ModelApi
from weft.provider.registry import Served
from weft.provider.scripted import ScriptedProvider, read_script

PROVIDER = "scripted"
DEMO = "demo"
PACE = 0.02


def scripted_model(id: str) -> Model:
    return Model(
        id=id,
        provider_id=PROVIDER,
        name=f"Scripted ({id})",
        api=ModelApi(id=id),
        cost=Cost(
            input=Decimal(3), output=Decimal(15), cache=CachePrice(read=Decimal("0.3"), write=Decimal("3.75"))
        ),
        limit=Limit(context=200_000, output=8_000),
    )


def serve_script(id: str, raw: bytes, clock: Clock, *, where: str, pace: float = 0) -> Served:
    """A script as a model."""
    return Served(scripted_model(id), ScriptedProvider(read_script(raw, where=where), clock, pace=pace))


def serve_demo(clock: Clock) -> Served:
    raw = files("weft.provider").joinpath("scripts/demo.json").read_bytes()
    return serve_script(DEMO, raw, clock, where="the demo script", pace=PACE)
