"""Encode a conversation that grows from request to request: only what is new is paired and encoded."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec import Raw

from weft.model.catalog import Model
from weft.provider.body import MARKED_MESSAGES, EncodeMessage, to_bytes
from weft.provider.contract import ModelMessage, ToolModelMessage
from weft.provider.media import has_files
from weft.provider.normalise import ShapeId, UniqueIds, pair_more_calls

MAX_CONVERSATIONS: Final = 4


class Encoded(Protocol):
    """A conversation in the form of an API."""

    def add(self, message: ModelMessage) -> None:
        """Add the next message, in which every call has its result."""
        ...


E = TypeVar("E", bound=Encoded)


class SettledItems:
    """The first items of a list in a body. Later requests send them unchanged, so they are encoded once.

    Items that are added together become one piece of JSON. Pieces are not joined: that would copy megabytes for each request.
    """

    def __init__(self) -> None:
        self._pieces: list[Raw] = []

    def extend(self, items: Iterable[Any]) -> None:
        if piece := b",".join(map(to_bytes, items)):
            self._pieces.append(Raw(piece))

    def to_items(self) -> list[Any]:
        """Return raw items for a body. Each stands for the items that were added together."""
        return list(self._pieces)


class EncodedMessages:
    """The messages of a conversation that have content, for APIs that take them one by one.

    All but the last few, which may get a cache mark, are settled.
    """

    def __init__(self, encode: EncodeMessage) -> None:
        self.messages: list[ModelMessage] = []
        self._encode = encode
        self._settled = SettledItems()
        self._settled_count = 0

    def add(self, message: ModelMessage) -> None:
        if self._encode(message):
            self.messages.append(message)

    def split(self) -> tuple[list[Any], int]:
        """Return the settled items for a body, and the number of messages in them."""
        end = max(self._settled_count, len(self.messages) - MARKED_MESSAGES)
        new = self.messages[self._settled_count : end]
        self._settled.extend(item for message in new for item in self._encode(message))
        self._settled_count = end
        return self._settled.to_items(), end


class _GrowingConversation(Generic[E]):
    """A conversation as far as it was encoded for a model."""

    def __init__(self, model: Model, shape: ShapeId, encoded: E) -> None:
        self.model = model
        self.source: tuple[ModelMessage, ...] = ()
        self._ids = UniqueIds(shape)
        self._encoded = encoded

    def begins(self, messages: Sequence[ModelMessage]) -> bool:
        """Return True if `messages` are this conversation, or continue it after the results of its last calls."""
        count = len(self.source)
        if count > len(messages) or (count and self.source[0] is not messages[0]):
            return False
        if count < len(messages) and isinstance(messages[count], ToolModelMessage):
            return False
        return self.source == tuple(messages[:count])  # fast, because the same objects are equal at once

    def extend(self, messages: Sequence[ModelMessage]) -> E:
        for message in pair_more_calls(messages[len(self.source) :], self._ids):
            self._encoded.add(message)
        self.source = tuple(messages)
        return self._encoded


class ConversationCache(Generic[E]):
    """Keeps the conversations of the last requests as they were encoded.

    How a message is shown does not depend on later ones (decision 18), so a request mostly begins with the messages of the request
    before it. Conversations with files are not kept, because later files decide whether an earlier one is still sent.
    """

    def __init__(self) -> None:
        self._conversations: list[_GrowingConversation[E]] = []  # the one of the last request is at the end

    def has_files(self, messages: Sequence[ModelMessage]) -> bool:
        """Return True if a conversation has files."""
        known = max((len(each.source) for each in self._conversations if each.begins(messages)), default=0)
        return has_files(messages[known:])

    def encode(
        self, model: Model, messages: Sequence[ModelMessage], shape: ShapeId, begin: Callable[[], E]
    ) -> E:
        """Pair the calls of a conversation without files, and encode it. `begin` makes the encoding of an empty one."""
        found = next(
            (each for each in self._conversations if each.model == model and each.begins(messages)), None
        )
        if found is not None:
            self._conversations.remove(found)
        growing = found or _GrowingConversation(model, shape, begin())
        encoded = growing.extend(messages)
        self._conversations = [*self._conversations[1 - MAX_CONVERSATIONS :], growing]
        return encoded
