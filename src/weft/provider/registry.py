"""The registry: from the name of a model to the model and the provider that serves it."""

from collections.abc import Iterable
from difflib import get_close_matches

from msgspec import Struct

from weft.errors import ModelNotFoundError, NoModelError
from weft.model.catalog import Model
from weft.model.part import ModelRef
from weft.provider.contract import Provider


class Served(Struct, frozen=True):
    """A model, and the provider that serves it."""

    model: Model
    provider: Provider


class Registry:
    """The models there are. An unknown one is an error with near names, never a silent swap."""

    def __init__(self, served: Iterable[Served], *, default: ModelRef | None = None) -> None:
        self._served = {(each.model.provider_id, each.model.id): each for each in served}
        self._default = default

    def get(self, ref: ModelRef) -> Served:
        found = self._served.get((ref.provider_id, ref.model_id))
        if found is None:
            names = [f"{provider}/{model}" for provider, model in self._served]
            near = get_close_matches(f"{ref.provider_id}/{ref.model_id}", names, n=3)
            raise ModelNotFoundError(ref.provider_id, ref.model_id, near=near)
        return found

    def default(self) -> ModelRef:
        """The model to use when nobody says which."""
        if self._default is None:
            raise NoModelError
        return self._default

    def list_models(self) -> list[Model]:
        return [each.model for each in self._served.values()]
