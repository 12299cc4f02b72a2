"""The scripted model that ships with weft: it needs no key and no network, and always does the same."""

from importlib.resources import files

from weft.host.clock import Clock
from weft.provider.offer.scripted import DEMO, scripted_model
from weft.provider.registry import Served
from weft.provider.scripted import ScriptedProvider, read_script

PACE = 0.02


def serve_script(id: str, raw: bytes, clock: Clock, *, where: str, pace: float = 0) -> Served:
    """A script as a model."""
    return Served(scripted_model(id), ScriptedProvider(read_script(raw, where=where), clock, pace=pace))


def serve_demo(clock: Clock) -> Served:
    raw = files("weft.provider").joinpath("scripts/demo.json").read_bytes()
    return serve_script(DEMO, raw, clock, where="the demo script", pace=PACE)
