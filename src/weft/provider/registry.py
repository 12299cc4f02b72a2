"""The registry: from the name of a model to the model and the provider that serves it."""

from collections.abc import Iterable
from difflib import get_close_matches

from msgspec import Struct

from weft.errors import ModelNotFoundError, NoModelError
from weft.model.catalog import Model
from weft.model.part import ModelRef
from weft.provider.catalog import choice
from weft.provider.catalog.adapters import Adapters, Connect, Reached
from weft.provider.catalog.offers import Offer, Offers, names_of
from weft.provider.contract import Provider
from weft.provider.health import Health

# Variables that hold a token for much else: that there is one does not mean that our requests may be sent there.
FOR_MUCH_ELSE = frozenset(
    [
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "DIGITALOCEAN_ACCESS_TOKEN",
        "GITHUB_TOKEN",
        "GITLAB_TOKEN",
        "HF_TOKEN",
    ]
)


class Served(Struct, frozen=True):
    """A model, and the provider that serves it."""

    model: Model
    provider: Provider


class Chosen(Struct, frozen=True, kw_only=True):
    """The models a configuration names: the one to work with, and the one for small work."""

    model: ModelRef | None = None
    small: ModelRef | None = None


class Registry:
    """The models there are. An unknown one is an error with near names, never a silent swap.

    `served` are there as they stand; a model that is on offer is made when it is asked for, by our adapters or by
    what stands in for them (`connect`). `health` remembers which of them failed lately.
    """

    def __init__(
        self,
        served: Iterable[Served] = (),
        *,
        default: ModelRef | None = None,
        small: ModelRef | None = None,
        offers: Offers | None = None,
        connect: Connect | Adapters | None = None,
    ) -> None:
        self.health = Health()
        self._served = {(each.model.provider_id, each.model.id): each for each in served}
        self._made: dict[tuple[str, str], Served] = {}
        self._chosen = Chosen(model=default, small=small)
        self._offers = offers
        self._adapters = connect if isinstance(connect, Adapters) else Adapters()
        self._connect = self._adapters.connect if isinstance(connect, Adapters | None) else connect

    def get(self, ref: ModelRef) -> Served:
        """A model that there is, whether or not there is a key for it: what is missing is told when it is asked."""
        name = (ref.provider_id, ref.model_id)
        found = self._served.get(name) or self._made.get(name) or self._find_offered(ref)
        if found is None:
            off = self._offers.why_off(ref.provider_id) if self._offers is not None else ""
            raise ModelNotFoundError(*name, near=self._near(ref), hint=off)
        if name not in self._served:
            self._made[name] = found
        return found

    def _find_offered(self, ref: ModelRef) -> Served | None:
        offer = self._offers.find(ref.provider_id) if self._offers is not None else None
        model = offer.find(ref.model_id) if offer is not None else None
        return Served(model, Reached(offer, model, self._connect)) if offer and model else None

    def default(self) -> ModelRef:
        """The model to use when nobody says which: the configured one, else the best of the first provider."""
        if self._chosen.model is not None:
            return self._chosen.model
        for offer in self._meant():
            found = choice.best(offer.list_models())
            if found is not None:
                return ModelRef(provider_id=offer.id, model_id=found.id)
        raise NoModelError

    def small(self, beside: ModelRef) -> ModelRef | None:
        """The model for small work such as titles, beside the one that does the work; None if there is none."""
        if self._chosen.small is not None:
            return self._chosen.small
        offer = self._offers.find(beside.provider_id) if self._offers is not None else None
        ids = [model.id for model in offer.list_models()] if offer is not None else []
        found = choice.small(beside.provider_id, ids)
        return ModelRef(provider_id=beside.provider_id, model_id=found) if found is not None else None

    def _meant(self) -> list[Offer]:
        """The providers to choose from, the likeliest first.

        OpenCode goes by the alphabet, takes any token for a key, and with none at all sends the work to a service of
        its own. We send it nowhere that the person has not pointed to.
        """
        if self._offers is None:
            return []
        available = [offer for offer in self._offers.list_available() if points_here(offer)]
        configured = [offer for offer in available if offer.configured]
        if self._offers.configured:
            return configured
        stored = [offer for offer in available if offer.key is not None and offer.key.source == "stored"]
        return [*stored, *(offer for offer in available if offer not in stored)]

    def list_served(self) -> list[Model]:
        """Those that are there as they stand."""
        return [each.model for each in self._served.values()]

    def list_models(self) -> list[Model]:
        """Those that can be used as things are."""
        offers = self._offers.list_available() if self._offers is not None else []
        offered = [model for offer in offers for model in offer.list_models()]
        return [*(each.model for each in self._served.values()), *offered]

    def _near(self, ref: ModelRef) -> list[str]:
        wanted = f"{ref.provider_id}/{ref.model_id}"
        own = [f"{provider}/{model}" for provider, model in self._served]
        if self._offers is None:
            return get_close_matches(wanted, own, n=3)
        offer = self._offers.find(ref.provider_id)
        same = names_of([offer]) if offer is not None else []
        close = list(dict.fromkeys((*own, *same, *names_of(self._offers.list_available()))))
        return get_close_matches(wanted, close, n=3) or get_close_matches(
            wanted, names_of(self._offers.list_all()), n=3
        )

    async def aclose(self) -> None:
        """Close what is open towards the providers."""
        await self._adapters.aclose()


def points_here(offer: Offer) -> bool:
    """Whether the person said, one way or another, that work may be sent to it."""
    key = offer.key
    if offer.configured or key is None:
        return True
    return key.source != "public" and key.variable not in FOR_MUCH_ELSE
