"""What an OpenCode server leaves to its clients: making message ids, choosing a model for summaries."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from weft.model.ids import HEX_LENGTH, PER_MS, RANDOM_LENGTH, WRAP, MessageID, PartID
from weft.model.input import CommandInput, PromptInput
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import ModelRef

MakeLetters = Callable[[int], str]


def make_next_id(newest: str | None, created: int, make_letters: MakeLetters) -> MessageID:
    """Make the id of the next message: after the newest one, and before any id that the server will make.

    OpenCode orders messages by id, so it would treat a prompt with a smaller id as answered. The id is derived from the
    newest id and not from this machine's clock, which may differ from the server's.
    """
    head = (newest or "").partition("_")[2][:HEX_LENGTH]
    try:
        number = int(head, 16) + 1
    except ValueError:
        number = created * PER_MS + 1
    return MessageID(f"msg_{number % WRAP:0{HEX_LENGTH}x}{make_letters(RANDOM_LENGTH)}")


def add_ids(input: PromptInput, id: MessageID, make_letters: MakeLetters) -> PromptInput:
    """Return the prompt with an id, and with ids for its parts, so that sending it twice stores it once."""
    head = id.partition("_")[2][:HEX_LENGTH]
    parts = tuple(
        replace(part, id=PartID(f"prt_{head}{number:03d}{make_letters(RANDOM_LENGTH - 3)}"))
        if part.id is None
        else part
        for number, part in enumerate(input.parts)
    )
    return replace(input, message_id=id, parts=parts)


def find_unsupported(input: PromptInput | CommandInput) -> str | None:
    """Return the first feature of a prompt that OpenCode would silently ignore, or None."""
    if input.budget is not None:
        return "a budget"
    if input.format is not None:
        return "structured output"
    return None


def find_last_model(messages: Sequence[MessageWithParts]) -> ModelRef | None:
    """Return the model that was used last, or None."""
    for message in reversed(messages):
        match message.info:
            case UserMessage(model=model) if model is not None:
                return model
            case AssistantMessage(provider_id=provider, model_id=model_id) if model_id:
                return ModelRef(provider_id=provider, model_id=model_id)
            case _:
                continue
    return None
