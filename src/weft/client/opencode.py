"""What OpenCode's server leaves to the client: choosing sessions, message ids, a model for summaries."""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from weft.model.ids import HEX_LENGTH, PER_MS, RANDOM_LENGTH, WRAP, MessageID, PartID
from weft.model.input import CommandInput, PromptInput
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import ModelRef
from weft.model.session import Session, SessionQuery, is_archived, newest_first, own_of

Letters = Callable[[int], str]


def select(sessions: Iterable[Session], query: SessionQuery) -> list[Session]:
    """Those that are asked for."""
    found = [session for session in sessions if _wanted(session, query)]
    found.sort(key=newest_first if query.order == "created" else lambda each: (-each.time.updated, each.id))
    return found if query.limit is None else found[: query.limit]


def _wanted(session: Session, query: SessionQuery) -> bool:
    return (
        (not query.roots or session.parent_id is None)
        and (query.start is None or session.time.updated >= query.start)
        and (query.search is None or query.search.lower() in session.title.lower())
        and (query.tag is None or query.tag in own_of(session).tags)
        and (query.directory is None or session.directory == query.directory)
        and (query.archived is None or query.archived == is_archived(session))
    )


def next_id(newest: str | None, created: int, letters: Letters) -> MessageID:
    """A name for the next message: after the newest there is, and before any that the server will make up.

    OpenCode tells by ids what comes after what, so a prompt whose name is too small is taken for answered. Its own clock is
    the only one that counts.
    """
    head = (newest or "").partition("_")[2][:HEX_LENGTH]
    try:
        number = int(head, 16) + 1
    except ValueError:
        number = created * PER_MS + 1
    return MessageID(f"msg_{number % WRAP:0{HEX_LENGTH}x}{letters(RANDOM_LENGTH)}")


def named(input: PromptInput, id: MessageID, letters: Letters) -> PromptInput:
    """The prompt with its name and names for its parts: sent twice, it is stored once."""
    head = id.partition("_")[2][:HEX_LENGTH]
    parts = tuple(
        replace(part, id=PartID(f"prt_{head}{number:03d}{letters(RANDOM_LENGTH - 3)}"))
        if part.id is None
        else part
        for number, part in enumerate(input.parts)
    )
    return replace(input, message_id=id, parts=parts)


def only_known(input: PromptInput | CommandInput) -> str | None:
    """What a prompt asks for that OpenCode knows nothing of, and would pass over without a word."""
    if input.budget is not None:
        return "a budget"
    if input.format is not None:
        return "a value instead of words"
    return None


def model_in(messages: Sequence[MessageWithParts]) -> ModelRef | None:
    """The model that was used last."""
    for message in reversed(messages):
        match message.info:
            case UserMessage(model=model) if model is not None:
                return model
            case AssistantMessage(provider_id=provider, model_id=model_id) if model_id:
                return ModelRef(provider_id=provider, model_id=model_id)
            case _:
                continue
    return None
