"""Models: their capabilities, limits and prices."""

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
    """The price of a model, and the price of requests over 200,000 tokens."""

    experimental_over200_k: Price | None = None


class Limit(Wire, frozen=True, kw_only=True):
    """Limits in tokens. A context of 0 means that it is unknown."""

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
    """The field in which this model expects its earlier reasoning."""

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
    """How to reach a model: its name at the API, the URL, and OpenCode's package for it, which selects our adapter."""

    id: str
    url: str = always("")
    npm: str = always("")


class Model(Wire, frozen=True, kw_only=True):
    """A model. Without `cost`, the price is unknown; the model is not free."""

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


def to_ref(model: Model) -> ModelRef:
    return ModelRef(provider_id=model.provider_id, model_id=model.id)


def parse_ref(text: str) -> ModelRef | None:
    """Parse `provider/model`, where the model may contain slashes. Return None if the text has another form."""
    provider, slash, model = text.partition("/")
    return ModelRef(provider_id=provider, model_id=model) if provider and slash and model else None
