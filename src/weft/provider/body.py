"""Encode request bodies as JSON, cache encoded messages, and choose which blocks get a cache mark."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from weakref import ref

import msgspec

from weft.model.catalog import Model
from weft.provider.contract import ModelMessage

EncodeMessage = Callable[[ModelMessage], list[dict[str, Any]]]
CacheMessages = Callable[[Model, EncodeMessage], EncodeMessage]


def to_bytes(body: Any) -> bytes:
    """Encode a body as JSON with its keys in the given order. Replace lone surrogates, which no API accepts."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(_replace_surrogates(body))


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_replace_surrogates(name): _replace_surrogates(item) for name, item in value.items()}
    return [_replace_surrogates(item) for item in value] if isinstance(value, list | tuple) else value


def encode_uncached(_: Model, encode: EncodeMessage) -> EncodeMessage:
    """Cache nothing: return `encode` as it is."""
    return encode


class ModelMessageCache:
    """Caches how each message is encoded for a model, for as long as the message exists.

    Every request sends the whole conversation, and its messages are the same objects as before (decision 35), so
    each is encoded once. The encoded values are shared: nobody may change them.
    """

    def __init__(self) -> None:
        self._models: dict[str, tuple[Model, dict[int, tuple[object, list[Any]]]]] = {}

    def cache_values(self, model: Model, encode: EncodeMessage) -> EncodeMessage:
        """Return `encode` with a cache: each message is encoded once."""
        cached_model, entries = self._models.get(model.id, (None, {}))
        if cached_model is not model and cached_model != model:
            entries = {}
            self._models[model.id] = model, entries

        def encode_once(message: ModelMessage) -> list[Any]:
            key = id(message)
            entry = entries.get(key)
            if entry is None:
                # The entry is removed with the message, before another object can get the same address.
                entry = entries[key] = ref(message, lambda _: entries.pop(key, None)), encode(message)
            return entry[1]

        return encode_once

    def cache_json(self, model: Model, encode: EncodeMessage) -> EncodeMessage:
        """Do the same as `cache_values`, but encode each item as JSON, for callers that do not inspect it."""

        def encode_json(message: ModelMessage) -> list[Any]:
            return [msgspec.Raw(to_bytes(piece)) for piece in encode(message)]

        return self.cache_values(model, encode_json)


CACHE_MARK: Final[dict[str, Any]] = {"type": "ephemeral"}
# Claude accepts four marks in a request.
MARKED_SYSTEM_ENTRIES: Final = 2
MARKED_MESSAGES: Final = 2


def needs_cache_marks(model: Model) -> bool:
    """Return True for Claude models, on any API. Other models cache prompts without marks."""
    names = (model.api.id.lower(), model.id.lower())
    return (
        model.provider_id == "anthropic"
        or "anthropic" in model.api.npm
        or any(word in name for name in names for word in ("anthropic", "claude"))
    )


def list_system_marks(count: int) -> range:
    """Return the indices of the system entries to mark: the first two of `count`."""
    return range(min(count, MARKED_SYSTEM_ENTRIES))


def list_message_marks(count: int) -> range:
    """Return the indices of the messages to mark: the last two of `count`. The first of these ended the request before."""
    return range(max(0, count - MARKED_MESSAGES), count)
