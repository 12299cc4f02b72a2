"""Encode a conversation that grows from request to request: only what is new is paired and encoded."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from weft.model.catalog import Model
from weft.provider.body import EncodeMessage
from weft.provider.contract import ModelMessage, ToolModelMessage
from weft.provider.media import has_files
from weft.provider.normalise import ShapeId, UniqueIds, pair_more_calls

MAX_CONVERSATIONS: Final = 4


class EncodedConversation(NamedTuple):
    """The messages that have content, with their calls paired, and what each of them is encoded as."""

    messages: list[ModelMessage]
    groups: list[list[Any]]


class _GrowingConversation:
    """A conversation as far as it was encoded for a model."""

    def __init__(self, model: Model, shape: ShapeId) -> None:
        self.model = model
        self.source: tuple[ModelMessage, ...] = ()
        self._ids = UniqueIds(shape)
        self._messages: list[ModelMessage] = []
        self._groups: list[list[Any]] = []

    def begins(self, messages: Sequence[ModelMessage]) -> bool:
        """Return True if a conversation is this one, maybe with more messages. A result belongs to the message before it."""
        count = len(self.source)
        if count > len(messages) or (count and self.source[0] is not messages[0]):
            return False
        if count < len(messages) and isinstance(messages[count], ToolModelMessage):
            return False
        return self.source == tuple(messages[:count])  # it compares by identity first

    def extend(self, messages: Sequence[ModelMessage], encode: EncodeMessage) -> EncodedConversation:
        for message in pair_more_calls(messages[len(self.source) :], self._ids):
            group = encode(message)
            if group:
                self._messages.append(message)
                self._groups.append(group)
        self.source = tuple(messages)
        return EncodedConversation([*self._messages], [*self._groups])


class ConversationCache:
    """Keeps the conversations of the last requests as they were encoded.

    How a message is shown does not depend on later ones (decision 18), so a request mostly begins with the messages of the request
    before it. Conversations with files are not kept, because what is sent of a file depends on those after it.
    """

    def __init__(self) -> None:
        self._conversations: list[_GrowingConversation] = []  # that of the last request last

    def has_files(self, messages: Sequence[ModelMessage]) -> bool:
        """Return True if a conversation has files."""
        known = max((len(each.source) for each in self._conversations if each.begins(messages)), default=0)
        return has_files(messages[known:])

    def encode(
        self, model: Model, messages: Sequence[ModelMessage], shape: ShapeId, encode: EncodeMessage
    ) -> EncodedConversation:
        """Pair the calls of a conversation without files, and encode it."""
        found = next(
            (each for each in self._conversations if each.model == model and each.begins(messages)), None
        )
        if found is not None:
            self._conversations.remove(found)
        growing = found or _GrowingConversation(model, shape)
        encoded = growing.extend(messages, encode)
        self._conversations = [*self._conversations[1 - MAX_CONVERSATIONS :], growing]
        return encoded
