"""Encode request bodies so that their prefix stays the same, and mark cache points."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from weakref import ref

import msgspec

from weft.model.catalog import Model
from weft.provider.contract import ModelMessage

Say = Callable[[ModelMessage], list[dict[str, Any]]]
Remembering = Callable[[Model, Say], Say]


def to_bytes(body: Any) -> bytes:
    """The body as JSON, its keys in the order given. Half a surrogate pair, which no API takes, is replaced."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(_paired(body))


def _paired(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_paired(name): _paired(item) for name, item in value.items()}
    return [_paired(item) for item in value] if isinstance(value, list | tuple) else value


def afresh(_: Model, say: Say) -> Say:
    """No memory: everything is said anew."""
    return say


class Memory:
    """How a turn is said to a model, in the words of its API, for as long as somebody keeps the turn.

    A conversation is sent whole with every request, and its turns are the same objects as before (decision 35): each is
    put into words once. The words are shared from then on, and nobody may change them.
    """

    def __init__(self) -> None:
        self._models: dict[str, tuple[Model, dict[int, tuple[object, list[Any]]]]] = {}

    def remembering(self, model: Model, say: Say) -> Say:
        """`say`, asked but once for each turn."""
        known, said = self._models.get(model.id, (None, {}))
        if known is not model and known != model:
            said = {}
            self._models[model.id] = model, said

        def remembered(turn: ModelMessage) -> list[Any]:
            key = id(turn)
            found = said.get(key)
            if found is None:
                # The entry goes with the turn, before anything else can come to lie at its address.
                found = said[key] = ref(turn, lambda _: said.pop(key, None)), say(turn)
            return found[1]

        return remembered

    def writing(self, model: Model, say: Say) -> Say:
        """The same with every piece as JSON already, for who does not look into it again."""

        def written(turn: ModelMessage) -> list[Any]:
            return [msgspec.Raw(to_bytes(piece)) for piece in say(turn)]

        return self.remembering(model, written)


MARK: Final[dict[str, Any]] = {"type": "ephemeral"}
SYSTEM: Final = 2
MESSAGES: Final = 2


def wants_marks(model: Model) -> bool:
    """Claude keeps what it is told to keep, by whichever road it is reached; others see to it themselves."""
    names = (model.api.id.lower(), model.id.lower())
    return (
        model.provider_id == "anthropic"
        or "anthropic" in model.api.npm
        or any(word in name for name in names for word in ("anthropic", "claude"))
    )


def system_marks(count: int) -> range:
    """Which of so many system entries: the first two."""
    return range(min(count, SYSTEM))


def message_marks(count: int) -> range:
    """Which of so many messages: the last two. The one before the last is where the request before this one ended."""
    return range(max(0, count - MESSAGES), count)
