"""The catalogue: providers and their models as models.dev describes them, decoded no further than somebody asks."""

import os
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib.resources import files
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from weft.errors import ConfigError, ProviderError
from weft.host.files import read_bytes, write_atomic

# Gives the body of a URL that answered with success. Raises `ProviderError` for anything else.
Fetch = Callable[[str], bytes]
Warn = Callable[[ConfigError], None]

SNAPSHOT: Final = "data/models.json.gz"
GZIP: Final = 16 + zlib.MAX_WBITS
MAX_BYTES: Final = 64 * 1024 * 1024

_providers = msgspec.json.Decoder(dict[str, Raw])


class Shelf(Struct, frozen=True, kw_only=True):
    """A provider in the catalogue. `env` names the variables it takes its key and its settings from."""

    name: str | None = None
    env: tuple[str, ...] = ()
    npm: str | None = None
    api: str | None = None
    models: dict[str, Raw] = {}

    def find(self, model: str) -> dict[str, Any] | None:
        """What is known of a model, in the words of models.dev."""
        raw = self.models.get(model)
        found = msgspec.json.decode(raw) if raw is not None else None
        return found if isinstance(found, dict) else None


_shelf = msgspec.json.Decoder(Shelf)


class Catalogue:
    """Every provider there is word of. `read` is called when the first one is asked for."""

    def __init__(self, read: Callable[[], Mapping[str, Raw]]) -> None:
        self._read = read

    @cached_property
    def _raw(self) -> Mapping[str, Raw]:
        return self._read()

    def list_providers(self) -> list[str]:
        return list(self._raw)

    def find(self, provider: str) -> Shelf | None:
        raw = self._raw.get(provider)
        try:
            return _shelf.decode(raw) if raw is not None else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None  # a later models.dev may describe a provider in words we do not know


def open_catalogue(path: str, warn: Warn) -> Catalogue:
    """The catalogue last fetched, which lies at `path`; without one, the one that came with weft."""

    def read() -> Mapping[str, Raw]:
        return _read_fetched(path, warn) or read_snapshot()

    return Catalogue(read)


def read_snapshot() -> Mapping[str, Raw]:
    packed = files("weft.provider.offer").joinpath(SNAPSHOT).read_bytes()
    return _providers.decode(zlib.decompress(packed, GZIP))


def refresh(path: str, url: str, fetch: Fetch) -> int:
    """Fetch the catalogue into `path`, in OpenCode's own format. Gives back how many providers it names."""
    where = f"{url.rstrip('/')}/api.json"
    raw = fetch(where)
    found = _decode(raw)
    if not found:
        raise ProviderError(f"{where} did not answer with a catalogue of models")
    write_atomic(path, raw, temp=f"{path}.{os.getpid()}.new")
    return len(found)


def _read_fetched(path: str, warn: Warn) -> Mapping[str, Raw]:
    try:
        raw = read_bytes(path, limit=MAX_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        warn(
            ConfigError(path, f"cannot be read ({error.strerror}); the catalogue that came with weft is used")
        )
        return {}
    found = _decode(raw)
    if not found:
        warn(ConfigError(path, "is no catalogue of models; the one that came with weft is used"))
    return found


def _decode(raw: bytes) -> Mapping[str, Raw]:
    """Providers by id; none if this is something else. What each holds is looked at when it is asked for."""
    try:
        found = _providers.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if all(bytes(each).startswith(b"{") for each in found.values()) else {}
