"""The registry: find a model, and the provider that serves it, by name; and remember which models failed recently."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from weft.errors import FaultKind, ModelNotFoundError, NoModelError, ProviderError, find_similar
from weft.model.catalog import Model
from weft.model.part import ModelRef
from weft.provider.catalog import choice
from weft.provider.catalog.adapters import Adapters, Connect, LazyProvider
from weft.provider.catalog.offers import SCRIPTED_PROVIDER, ProviderOffer, ProviderOffers, list_model_names
from weft.provider.contract import Provider

# Variables with tokens for many purposes. A user who has set one need not want the models of its provider.
GENERAL_PURPOSE_VARIABLES: Final = frozenset(
    [
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "DIGITALOCEAN_ACCESS_TOKEN",
        "GITHUB_TOKEN",
        "GITLAB_TOKEN",
        "HF_TOKEN",
    ]
)
COOL_DOWN_MS: Final = 60_000
# A refused key, an empty account or a wrong model name does not fix itself.
LONG_COOL_DOWN_MS: Final = 10 * 60_000
MAX_COOL_DOWN_MS: Final = 60 * 60_000
LASTING_FAULTS: Final[frozenset[FaultKind]] = frozenset({"auth", "quota", "not-found"})


class ServedModel(Struct, frozen=True):
    """A model and the provider that serves it."""

    model: Model
    provider: Provider


class Registry:
    """The available models. An unknown name raises an error that lists similar names; no other model replaces it.

    `served` are models that have a provider. Models in `offers` get one from `connect` when they are first used.
    `health` records recent failures.
    """

    def __init__(
        self,
        served: Iterable[ServedModel] = (),
        *,
        default: ModelRef | None = None,
        small: ModelRef | None = None,
        offers: ProviderOffers | None = None,
        connect: Connect | Adapters | None = None,
    ) -> None:
        self.health = ModelHealth()
        self._served = {(each.model.provider_id, each.model.id): each for each in served}
        self._connected: dict[tuple[str, str], ServedModel] = {}
        self._default = default
        self._small = small
        self._offers = offers
        self._adapters = connect if isinstance(connect, Adapters) else Adapters()
        self._connect = self._adapters.connect if isinstance(connect, Adapters | None) else connect

    def add(self, served: ServedModel) -> None:
        """Add a model, instead of one of the same name."""
        self._served[served.model.provider_id, served.model.id] = served

    def get(self, ref: ModelRef) -> ServedModel:
        """Return a model. Raise `ModelNotFoundError` if there is none.

        A missing key is reported only when a request is sent to the model.
        """
        name = (ref.provider_id, ref.model_id)
        found = self._served.get(name) or self._connected.get(name) or self._find_offered(ref)
        if found is None:
            near = self._find_similar(ref)
            raise ModelNotFoundError(*name, near=near, hint=self._explain_missing(ref, near))
        if name not in self._served:
            self._connected[name] = found
        return found

    def _find_offered(self, ref: ModelRef) -> ServedModel | None:
        offer = self._offers.find(ref.provider_id) if self._offers is not None else None
        model = offer.find(ref.model_id) if offer is not None else None
        return ServedModel(model, LazyProvider(offer, model, self._connect)) if offer and model else None

    def get_default(self) -> ModelRef:
        """Return the model to use when none is named: the configured one, or the best of the first provider that has
        one. Raise `NoModelError` if there is none.
        """
        if self._default is not None:
            return self._default
        for offer in self._list_candidates():
            found = choice.choose_best_model(offer.list_models())
            if found is not None:
                return ModelRef(provider_id=offer.id, model_id=found.id)
        raise NoModelError

    def find_small(self, main: ModelRef) -> ModelRef | None:
        """Return the model for small tasks such as titles, in sessions with the model `main`; None if there is none."""
        if self._small is not None:
            # A test with a scripted model must not send a request to a real one.
            is_real = self._small.provider_id != SCRIPTED_PROVIDER
            return None if is_real and main.provider_id == SCRIPTED_PROVIDER else self._small
        offer = self._offers.find(main.provider_id) if self._offers is not None else None
        ids = [model.id for model in offer.list_models()] if offer is not None else []
        found = choice.choose_small_model(main.provider_id, ids)
        return ModelRef(provider_id=main.provider_id, model_id=found) if found is not None else None

    def _list_candidates(self) -> list[ProviderOffer]:
        """Return the providers to choose from, the likeliest first.

        OpenCode orders them by name, uses any token as a key, and without a key sends requests to a service of its own.
        We send nothing to a service that the user has not chosen.
        """
        if self._offers is None:
            return []
        available = [offer for offer in self._offers.list_available() if is_meant_to_be_used(offer)]
        configured = [offer for offer in available if offer.configured]
        if self._offers.configured:
            return configured
        stored = [offer for offer in available if offer.key is not None and offer.key.source == "stored"]
        return [*stored, *(offer for offer in available if offer not in stored)]

    def list_served(self) -> list[Model]:
        """Return the models that have a provider already."""
        return [each.model for each in self._served.values()]

    def list_models(self) -> list[Model]:
        """Return all models that can be used now."""
        offers = self._offers.list_available() if self._offers is not None else []
        offered = [model for offer in offers for model in offer.list_models()]
        return [*(each.model for each in self._served.values()), *offered]

    def _explain_missing(self, ref: ModelRef, near: Sequence[str]) -> str:
        """Return why a model cannot be used, or where to look for its name; "" if similar names say enough."""
        disabled = self._offers.explain_disabled(ref.provider_id) if self._offers is not None else ""
        if disabled or near:
            return disabled
        if self._offers is not None and self._offers.find(ref.provider_id) is None:
            return f"there is no provider {ref.provider_id!r} either; weft models --all lists all models"
        return f"weft models {ref.provider_id} --all lists the models of {ref.provider_id}"

    def _find_similar(self, ref: ModelRef) -> list[str]:
        name = f"{ref.provider_id}/{ref.model_id}"
        served = [f"{provider}/{model}" for provider, model in self._served]
        if self._offers is None:
            return find_similar(name, served)
        # The provider may be mistyped: its models come before those of another one that happens to be usable.
        meant = [ref.provider_id, *self._offers.find_similar(ref.provider_id)]
        siblings = list_model_names(offer for id in meant if (offer := self._offers.find(id)) is not None)
        usable = list(dict.fromkeys((*served, *siblings, *list_model_names(self._offers.list_available()))))
        return find_similar(name, usable) or find_similar(
            name, list_model_names(self._offers.list_all()), n=3
        )

    async def aclose(self) -> None:
        """Close the connections to the providers."""
        await self._adapters.aclose()


def is_meant_to_be_used(offer: ProviderOffer) -> bool:
    """Return True if the user has said, by a setting or a key, that requests may be sent to this provider."""
    key = offer.key
    if offer.configured or key is None:
        return True
    return key.source != "public" and key.variable not in GENERAL_PURPOSE_VARIABLES


# --- models that failed recently ---


class CoolDown(Struct, frozen=True, kw_only=True):
    """A model that failed `failures` times in a row and is avoided until the time `until` (ms)."""

    failures: int
    until: int


class ModelHealth:
    """Failures of models in this process. They affect only the order of attempts: a model that cools down can still be
    asked.
    """

    def __init__(self) -> None:
        self._cooling: dict[tuple[str, str], CoolDown] = {}

    def fail(self, model: ModelRef, error: ProviderError, now: int) -> None:
        """Record a failure of a model."""
        previous = self._cooling.get(_to_key(model))
        failures = previous.failures + 1 if previous is not None else 1
        self._cooling[_to_key(model)] = CoolDown(
            failures=failures, until=now + compute_cool_down(error, failures)
        )

    def succeed(self, model: ModelRef) -> None:
        """Record that a model answered: forget its failures."""
        self._cooling.pop(_to_key(model), None)

    def order(self, chain: Iterable[ModelRef], now: int) -> tuple[ModelRef, ...]:
        """Return the models without duplicates: first those that are available, then those that cool down,
        soonest first.
        """
        models = {_to_key(model): model for model in chain}
        return tuple(sorted(models.values(), key=lambda model: self._get_available_time(model, now)))

    def _get_available_time(self, model: ModelRef, now: int) -> int:
        cooling = self._cooling.get(_to_key(model))
        return cooling.until if cooling is not None and cooling.until > now else now


def compute_cool_down(error: ProviderError, failures: int) -> int:
    """Return how many ms to avoid a model after this many failures in a row: at least as long as the API asked to
    wait.
    """
    base = LONG_COOL_DOWN_MS if error.kind in LASTING_FAULTS else COOL_DOWN_MS
    doubled = min(base << min(failures - 1, 16), MAX_COOL_DOWN_MS)
    return max(doubled, error.wait_ms or 0)


def _to_key(model: ModelRef) -> tuple[str, str]:
    return model.provider_id, model.model_id
