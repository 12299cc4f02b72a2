"""Providers for showing: what each serves, which model is meant when none is named, and no key to be read."""

from collections.abc import Collection, Iterable
from decimal import Decimal
from typing import Any, Final, Literal

from msgspec.structs import fields

from weft.config.masks import MASK, mask
from weft.errors import NoModelError
from weft.model.around.provider import ListedModel, ProviderInfo, ProviderList
from weft.model.catalog import Cost, Model
from weft.provider.offer import choice
from weft.provider.offer.offer import Offer
from weft.provider.offer.offers import Offers
from weft.provider.offer.scripted import PROVIDER
from weft.provider.registry import Registry, points_here

Source = Literal["env", "config", "custom", "api"]

SOURCES: Final[dict[str, Source]] = {
    "environment": "env",
    "config": "config",
    "stored": "api",
    "public": "custom",
}
UNKNOWN_PRICE: Final = Cost(input=Decimal(0), output=Decimal(0))
_FIELDS: Final = tuple(field.name for field in fields(Model))


def list_providers(models: Registry, offers: Offers | None, secrets: Collection[str]) -> ProviderList:
    """Every provider; those that are connected with the models they can be asked for, the others with all."""
    offered = [] if offers is None else offers.list_all()
    # A service that answers whoever asks is not connected for that: nobody has pointed to it.
    available = {offer.id for offer in offered if offer.available and points_here(offer)}
    served = list(_served(models))
    infos = [*served, *(to_info(offer, secrets) for offer in offered)]
    handed_in = {info.id for info in served}
    connected = [info.id for info in infos if info.models and info.id in available | handed_in]
    usual = _default_of(models)
    default = {
        info.id: usual[1] if usual is not None and usual[0] == info.id else best
        for info in infos
        if (best := _best(info)) is not None
    }
    return ProviderList(all=tuple(infos), default=default, connected=tuple(dict.fromkeys(connected)))


def to_info(offer: Offer, secrets: Collection[str]) -> ProviderInfo:
    source = SOURCES[offer.key.source] if offer.key is not None else "config" if offer.configured else "env"
    models = offer.list_models(everything=not offer.available)
    return ProviderInfo(
        id=offer.id,
        name=offer.name,
        source=source,
        env=offer.variables,
        options=_covered(offer.options, secrets),
        models={model.id: to_listed(model, secrets) for model in models},
    )


def to_listed(model: Model, secrets: Collection[str] = ()) -> ListedModel:
    told = {name: getattr(model, name) for name in _FIELDS}
    told["family"] = model.family or ""
    told["cost"] = model.cost or UNKNOWN_PRICE
    told["options"] = _covered(model.options, secrets)
    told["headers"] = dict.fromkeys(model.headers, MASK)
    return ListedModel(**told, priced=model.cost is not None)


def _covered(options: dict[str, Any], secrets: Collection[str]) -> dict[str, Any]:
    """OpenCode hands out keys to whoever asks."""
    covered: dict[str, Any] = mask(options, secrets=secrets)
    return covered


def _served(models: Registry) -> Iterable[ProviderInfo]:
    """Those that were handed in. The scripted one, which is there to try things out, only where it is meant."""
    usual = _default_of(models)
    by_provider: dict[str, dict[str, ListedModel]] = {}
    for each in models.list_served():
        if each.provider_id != PROVIDER or (usual is not None and usual[0] == PROVIDER):
            by_provider.setdefault(each.provider_id, {})[each.id] = to_listed(each)
    for id, found in by_provider.items():
        yield ProviderInfo(id=id, name=id, source="custom", env=(), models=found)


def _default_of(models: Registry) -> tuple[str, str] | None:
    try:
        found = models.default()
    except NoModelError:
        return None
    return found.provider_id, found.model_id


def _best(info: ProviderInfo) -> str | None:
    found = choice.best(info.models.values()) or next(iter(info.models.values()), None)
    return found.id if found is not None else None


def list_known(offers: Offers | None) -> list[str]:
    """The providers that we can talk with: each takes a key."""
    return [] if offers is None else [offer.id for offer in offers.list_all() if offer.known]
