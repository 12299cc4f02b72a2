"""The catalogue: models, what they can take in, what they cost."""

from decimal import Decimal
from typing import Any

from weft.model.part import ModelRef
from weft.model.wire import Wire, always


class CachePrice(Wire, frozen=True, kw_only=True):
    read: Decimal = always(Decimal(0))
    write: Decimal = always(Decimal(0))


class Price(Wire, frozen=True, kw_only=True):
    """Dollars per million tokens."""

    input: Decimal
    output: Decimal
    cache: CachePrice = always(CachePrice())


class Cost(Price, frozen=True, kw_only=True):
    """A model's price, and the one that holds once a request passes 200,000 tokens."""

    experimental_over200_k: Price | None = None


class Limit(Wire, frozen=True, kw_only=True):
    """Tokens. A context of 0 is unknown."""

    context: int
    input: int | None = None
    output: int


class Modalities(Wire, frozen=True, kw_only=True):
    text: bool = always(True)
    audio: bool = always(False)
    image: bool = always(False)
    video: bool = always(False)
    pdf: bool = always(False)


class Interleaved(Wire, frozen=True, kw_only=True):
    """The field in which this model wants its reasoning back."""

    field: str


class Capabilities(Wire, frozen=True, kw_only=True):
    temperature: bool = always(False)
    reasoning: bool = always(False)
    attachment: bool = always(False)
    toolcall: bool = always(True)
    input: Modalities = always(Modalities())
    output: Modalities = always(Modalities())
    interleaved: bool | Interleaved = always(False)
    structured_output: bool = False


class ModelApi(Wire, frozen=True, kw_only=True):
    """How to reach a model: its name there, the address, and the package OpenCode would use (it picks our adapter)."""

    id: str
    url: str = always("")
    npm: str = always("")


class Model(Wire, frozen=True, kw_only=True):
    """A model. No `cost` means that the price is unknown, which is not the same as free."""

    id: str
    provider_id: str
    name: str
    api: ModelApi
    family: str | None = None
    capabilities: Capabilities = always(Capabilities())
    cost: Cost | None = None
    limit: Limit
    status: str = always("active")
    options: dict[str, Any] = always({})
    headers: dict[str, str] = always({})
    release_date: str = always("", name="release_date")
    variants: dict[str, dict[str, Any]] | None = None


def ref(model: Model) -> ModelRef:
    return ModelRef(provider_id=model.provider_id, model_id=model.id)


def parse_ref(text: str) -> ModelRef | None:
    """`provider/model`; the model's own name may hold more slashes."""
    provider, slash, model = text.partition("/")
    return ModelRef(provider_id=provider, model_id=model) if provider and slash and model else None
