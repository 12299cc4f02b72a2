"""How two states of one session stand to each other: the same, one ahead of the other, or gone apart."""

from typing import Any, Literal

from weft.model.ids import MessageID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.parcel import Parcel
from weft.model.part import AnyPart, ReasoningPart, TextPart, ToolPart
from weft.model.wire import to_plain

Relation = Literal["same", "ahead", "behind", "apart"]


def relate(incoming: Parcel, present: Parcel) -> Relation:
    """Where `incoming` stands, seen from `present`. Only when apart would one have to lose something for the other."""
    there, here = _by_id(incoming), _by_id(present)
    ahead = all(_is_in(message, there) for message in present.messages)
    behind = all(_is_in(message, here) for message in incoming.messages)
    if ahead:
        return "same" if behind else "ahead"
    return "behind" if behind else "apart"


def parting(incoming: Parcel, present: Parcel) -> MessageWithParts | None:
    """The first message of `incoming` that what is here does not hold, or holds in other words."""
    here = _by_id(present)
    return next((message for message in incoming.messages if not _is_in(message, here)), None)


def _by_id(parcel: Parcel) -> dict[MessageID, MessageWithParts]:
    return {message.info.id: message for message in parcel.messages}


def _is_in(earlier: MessageWithParts, messages: dict[MessageID, MessageWithParts]) -> bool:
    later = messages.get(earlier.info.id)
    return later is not None and has_grown_from(earlier, later)


def has_grown_from(earlier: MessageWithParts, later: MessageWithParts) -> bool:
    """Whether all that the earlier one says is in the later one, which may have gone on from there."""
    if earlier == later:
        return True
    parts = {part.id: part for part in later.parts}
    return _info_has_grown(earlier, later) and all(
        part.id in parts and _part_has_grown(part, parts[part.id]) for part in earlier.parts
    )


def _info_has_grown(earlier: MessageWithParts, later: MessageWithParts) -> bool:
    match earlier.info, later.info:
        case AssistantMessage(time=time), AssistantMessage() if time.completed is None:
            return True
        case (UserMessage(), UserMessage()) | (AssistantMessage(), AssistantMessage()):
            # What a prompt led to is worked out again and again: it is no part of what was said.
            return _is_within(_without(earlier.info, "summary"), to_plain(later.info))
        case _:
            return False


def _part_has_grown(earlier: AnyPart, later: AnyPart) -> bool:
    match earlier, later:
        case (TextPart() | ReasoningPart()) as one, (TextPart() | ReasoningPart()) as other:
            is_open = one.time is None or one.time.end is None
            same_kind = type(one) is type(other)
            return same_kind and (one == other or (is_open and other.text.startswith(one.text)))
        case ToolPart(state=state) as one, ToolPart() as other:
            if state.__struct_config__.tag in ("pending", "running"):
                return one.call_id == other.call_id
            return _is_within(to_plain(one), to_plain(other))
        case _:
            return _is_within(to_plain(earlier), to_plain(later))


def _without(value: object, key: str) -> dict[str, Any]:
    return {name: item for name, item in to_plain(value).items() if name != key}


def _is_within(less: Any, more: Any) -> bool:
    """Whether everything `less` says `more` says too; objects may have more keys."""
    if isinstance(less, dict) and isinstance(more, dict):
        return all(key in more and _is_within(item, more[key]) for key, item in less.items())
    return bool(less == more)
