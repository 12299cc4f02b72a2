"""The model catalogue: providers and models as models.dev and `opencode.json` describe them."""

import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from weft.errors import ConfigError, ProviderError
from weft.host.files import read_bytes, write_atomic
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

# Returns the body of a URL. Raises `ProviderError` unless it answers with success.
Fetch = Callable[[str], bytes]
Warn = Callable[[ConfigError], None]

SNAPSHOT_FILE: Final = "data/models.pack"
MAX_CATALOGUE_BYTES: Final = 64 * 1024 * 1024

# What msgspec raises for bytes that are not the JSON that it expects.
INVALID_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_catalogue_decoder = msgspec.json.Decoder(dict[str, Raw])
_index_decoder = msgspec.json.Decoder(dict[str, tuple[int, int]])


class CatalogueEntry(Struct, frozen=True, kw_only=True):
    """A provider in the catalogue. `env` names the variables with its key and settings."""

    name: str | None = None
    env: tuple[str, ...] = ()
    npm: str | None = None
    api: str | None = None
    models: dict[str, Raw] = {}

    def find(self, model: str) -> dict[str, Any] | None:
        """Return a model in the format of models.dev, or None if there is none that can be read."""
        raw = self.models.get(model)
        try:
            found = msgspec.json.decode(raw) if raw is not None else None
        except INVALID_JSON:
            return None
        return found if isinstance(found, dict) else None


_entry_decoder = msgspec.json.Decoder(CatalogueEntry)


class Catalogue:
    """All known providers. `read` is called when the first one is looked up."""

    def __init__(self, read: Callable[[], Mapping[str, Raw]]) -> None:
        self._read = read

    @cached_property
    def _raw(self) -> Mapping[str, Raw]:
        return self._read()

    def list_providers(self) -> list[str]:
        return list(self._raw)

    def find(self, provider: str) -> CatalogueEntry | None:
        raw = self._raw.get(provider)
        try:
            return _entry_decoder.decode(raw) if raw is not None else None
        except INVALID_JSON:
            return None  # a later models.dev may use a format that we do not know


def make_catalogue(path: str, warn: Warn) -> Catalogue:
    """Return the catalogue that was last fetched to `path`, or else the one that ships with weft."""

    def read() -> Mapping[str, Raw]:
        return _read_fetched(path, warn) or read_snapshot()

    return Catalogue(read)


class PackedCatalogue(Mapping[str, Raw]):
    """The undecoded providers by id. Each is compressed by itself: a run unpacks one of them, and not all.

    The first line is a JSON object: where each provider begins and ends in the bytes that follow the line.
    """

    def __init__(self, packed: bytes) -> None:
        index, _, self._body = packed.partition(b"\n")
        self._places = _index_decoder.decode(index)

    def __getitem__(self, provider: str) -> Raw:
        begin, end = self._places[provider]
        return Raw(zlib.decompress(self._body[begin:end]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def read_snapshot() -> Mapping[str, Raw]:
    """Return the catalogue that ships with weft."""
    with open(os.path.join(os.path.dirname(__file__), SNAPSHOT_FILE), "rb") as file:
        return PackedCatalogue(file.read())


def fetch_catalogue(path: str, url: str, fetch: Fetch) -> int:
    """Fetch the catalogue into `path`, in OpenCode's format. Return the number of providers. Raise `ProviderError`."""
    document_url = f"{url.rstrip('/')}/api.json"
    raw = fetch(document_url)
    providers = _decode_catalogue(raw)
    if not providers:
        raise ProviderError(f"{document_url} did not answer with a catalogue of models")
    write_atomic(path, raw, temp=f"{path}.{os.getpid()}.new")
    return len(providers)


def _read_fetched(path: str, warn: Warn) -> Mapping[str, Raw]:
    try:
        raw = read_bytes(path, limit=MAX_CATALOGUE_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        warn(
            ConfigError(path, f"cannot be read ({error.strerror}); using the catalogue that ships with weft")
        )
        return {}
    providers = _decode_catalogue(raw)
    if not providers:
        warn(ConfigError(path, "is not a catalogue of models; using the one that ships with weft"))
    return providers


def _decode_catalogue(raw: bytes) -> Mapping[str, Raw]:
    """Return the undecoded providers by id, or {} if this is not a catalogue."""
    try:
        providers = _catalogue_decoder.decode(raw)
    except INVALID_JSON:
        return {}
    return providers if all(bytes(provider).startswith(b"{") for provider in providers.values()) else {}


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


# Packages whose models support an output format, unless the catalogue or the configuration says otherwise.
PACKAGES_WITH_FORMAT: Final = frozenset({"@ai-sdk/openai", "@ai-sdk/azure", "@ai-sdk/google"})


class ModelEntry(Struct, frozen=True, kw_only=True):
    """A model's description. `id` is its name at the provider, if that differs from its key."""

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


def merge_deep(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> Plain:
    """Merge two descriptions, key by key on all levels. `overrides` wins.

    OpenCode builds a configured model from scratch and loses the catalogue's input limit and long-context price.
    """
    merged = dict(base)
    for key, value in overrides.items():
        current = merged.get(key)
        if isinstance(current, Mapping) and isinstance(value, Mapping):
            merged[key] = merge_deep(current, value)
        else:
            merged[key] = value
    return merged


def to_model(provider_id: str, id: str, plain: Plain, *, provider_api: ModelApi) -> Model:
    """Build a model from its merged description, which may override `provider_api`, the provider's address and package.

    Raise `msgspec.ValidationError` if a value is invalid.
    """
    entry = msgspec.convert(plain, ModelEntry)
    npm = entry.provider.npm or provider_api.npm
    return Model(
        id=id,
        provider_id=provider_id,
        name=entry.name or id,
        api=ModelApi(id=entry.id or id, url=entry.provider.api or provider_api.url, npm=npm),
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
            structured_output=npm in PACKAGES_WITH_FORMAT
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
    """Convert prices. A missing price is unknown. OpenCode makes it zero, so that an expensive model looks free."""
    if entry is None:
        return None
    long = entry.context_over_200k
    return Cost(
        input=entry.input,
        output=entry.output,
        cache=_to_cache_price(entry),
        experimental_over200_k=Price(input=long.input, output=long.output, cache=_to_cache_price(long))
        if long
        else None,
    )


def _to_cache_price(entry: PriceEntry) -> CachePrice:
    """Convert cache prices. Without one, cached tokens cost as much as others. OpenCode treats them as free."""
    return CachePrice(
        read=entry.input if entry.cache_read is None else entry.cache_read,
        write=entry.input if entry.cache_write is None else entry.cache_write,
    )
