"""A model as models.dev and `opencode.json` describe one, which is in the same words; and as the value we use."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec
from msgspec import Struct

from weft.model.catalog import (
    CachePrice,
    Capabilities,
    Cost,
    Interleaved,
    Limit,
    Modalities,
    Model,
    ModelApi,
    Price,
)

Plain = dict[str, Any]


class PriceEntry(Struct, frozen=True, kw_only=True):
    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None


class CostEntry(PriceEntry, frozen=True, kw_only=True):
    context_over_200k: PriceEntry | None = None


class LimitEntry(Struct, frozen=True, kw_only=True):
    context: int = 0
    input: int | None = None
    output: int = 0


class ModalityEntry(Struct, frozen=True, kw_only=True):
    input: tuple[str, ...] = ("text",)
    output: tuple[str, ...] = ("text",)


class FieldEntry(Struct, frozen=True, kw_only=True):
    field: str


class PackageEntry(Struct, frozen=True, kw_only=True):
    npm: str | None = None
    api: str | None = None


# The APIs whose models take a format for their answer, unless the catalogue or the configuration says otherwise.
FORMATTED: Final = frozenset({"@ai-sdk/openai", "@ai-sdk/azure", "@ai-sdk/google"})


class ModelEntry(Struct, frozen=True, kw_only=True):
    """`id` is the model's name at the provider, where that is not the key it stands under."""

    id: str | None = None
    name: str | None = None
    family: str | None = None
    release_date: str = ""
    attachment: bool = False
    reasoning: bool = False
    temperature: bool = False
    tool_call: bool = True
    structured_output: bool | None = None
    interleaved: bool | FieldEntry = False
    cost: CostEntry | None = None
    limit: LimitEntry = LimitEntry()
    modalities: ModalityEntry = ModalityEntry()
    status: str = "active"
    options: dict[str, Any] = {}
    headers: dict[str, str] = {}
    provider: PackageEntry = PackageEntry()


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Plain:
    """What is said above wins, key by key, all the way down; what only one of them says stays.

    OpenCode builds a configured model anew and loses the catalogue's input limit and long price on the way.
    """
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if isinstance(under, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(under, value)
        else:
            merged[key] = value
    return merged


def to_model(provider_id: str, id: str, plain: Plain, *, reached: ModelApi) -> Model:
    """The model of a merged description. `reached` says how its provider is reached; the model may say otherwise.

    Raises `msgspec.ValidationError` for what cannot be meant.
    """
    entry = msgspec.convert(plain, ModelEntry)
    npm = entry.provider.npm or reached.npm
    return Model(
        id=id,
        provider_id=provider_id,
        name=entry.name or id,
        api=ModelApi(id=entry.id or id, url=entry.provider.api or reached.url, npm=npm),
        family=entry.family,
        capabilities=Capabilities(
            temperature=entry.temperature,
            reasoning=entry.reasoning,
            attachment=entry.attachment,
            toolcall=entry.tool_call,
            input=_to_modalities(entry.modalities.input),
            output=_to_modalities(entry.modalities.output),
            interleaved=Interleaved(field=entry.interleaved.field)
            if isinstance(entry.interleaved, FieldEntry)
            else entry.interleaved,
            structured_output=npm in FORMATTED
            if entry.structured_output is None
            else entry.structured_output,
        ),
        cost=_to_cost(entry.cost),
        limit=Limit(context=entry.limit.context, input=entry.limit.input, output=entry.limit.output),
        status=entry.status,
        options=entry.options,
        headers=entry.headers,
        release_date=entry.release_date,
    )


def _to_modalities(names: tuple[str, ...]) -> Modalities:
    return Modalities(
        text="text" in names,
        audio="audio" in names,
        image="image" in names,
        video="video" in names,
        pdf="pdf" in names,
    )


def _to_cost(entry: CostEntry | None) -> Cost | None:
    """No price is an unknown price. OpenCode makes it zero, and a dear model looks free."""
    if entry is None:
        return None
    long = entry.context_over_200k
    return Cost(
        input=entry.input,
        output=entry.output,
        cache=_to_cache(entry),
        experimental_over200_k=Price(input=long.input, output=long.output, cache=_to_cache(long))
        if long
        else None,
    )


def _to_cache(entry: PriceEntry) -> CachePrice:
    """Where no price for cached tokens is told, they cost as much as any. OpenCode takes them for free."""
    return CachePrice(
        read=entry.input if entry.cache_read is None else entry.cache_read,
        write=entry.input if entry.cache_write is None else entry.cache_write,
    )
