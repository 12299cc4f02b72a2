"""What an OpenCode server leaves to its clients: filtering sessions, making message ids, choosing a model for summaries."""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from weft.model.ids import HEX_LENGTH, PER_MS, RANDOM_LENGTH, WRAP, MessageID, PartID
from weft.model.input import CommandInput, PromptInput
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import ModelRef
from weft.model.session import Session, SessionQuery, get_weft_data, is_archived, newest_sort_key

Letters = Callable[[int], str]


def select_sessions(sessions: Iterable[Session], query: SessionQuery) -> list[Session]:
    """Return the sessions that match a query, in its order."""
    found = [session for session in sessions if _matches(session, query)]
    found.sort(
        key=newest_sort_key if query.order == "created" else lambda each: (-each.time.updated, each.id)
    )
    return found if query.limit is None else found[: query.limit]


def _matches(session: Session, query: SessionQuery) -> bool:
    return (
        (not query.roots or session.parent_id is None)
        and (query.start is None or session.time.updated >= query.start)
        and (query.search is None or query.search.lower() in session.title.lower())
        and (query.tag is None or query.tag in get_weft_data(session).tags)
        and (query.directory is None or session.directory == query.directory)
        and (query.archived is None or query.archived == is_archived(session))
    )


def make_next_id(newest: str | None, created: int, letters: Letters) -> MessageID:
    """Make the id of the next message: after the newest one, and before any id that the server will make.

    OpenCode orders messages by id, so it would treat a prompt with a smaller id as answered. The id is derived from the
    newest id and not from this machine's clock, which may differ from the server's.
    """
    head = (newest or "").partition("_")[2][:HEX_LENGTH]
    try:
        number = int(head, 16) + 1
    except ValueError:
        number = created * PER_MS + 1
    return MessageID(f"msg_{number % WRAP:0{HEX_LENGTH}x}{letters(RANDOM_LENGTH)}")


def add_ids(input: PromptInput, id: MessageID, letters: Letters) -> PromptInput:
    """Return the prompt with an id, and with ids for its parts, so that sending it twice stores it once."""
    head = id.partition("_")[2][:HEX_LENGTH]
    parts = tuple(
        replace(part, id=PartID(f"prt_{head}{number:03d}{letters(RANDOM_LENGTH - 3)}"))
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
