"""What every `Api` must do about finding sessions again and counting what they spent."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from weft.api import Api
from weft.model.input import PromptInput, SessionInput, TextInput, prompt
from weft.model.message import AssistantMessage
from weft.model.spent import add_up, within_parent


async def words_that_were_said_are_found(api: Api) -> None:
    session = await api.create_session(SessionInput(title="Loom"))
    kept = await api.prompt(
        session.id, PromptInput(no_reply=True, parts=(TextInput(text="where is the quarrelsome shuttle"),))
    )
    (hit,) = await api.search("quarrel shuttle")
    assert (hit.session_id, hit.message_id, hit.title) == (session.id, kept.info.id, "Loom")
    assert [hit.snippet[start:end] for start, end in hit.marks] == ["quarrelsome", "shuttle"]
    assert await api.search("quarrel shuttle", limit=0) == []
    assert await api.search("nobody said this") == []


async def whatever_is_typed_is_a_search(api: Api) -> None:
    for words in ("", '"', "a AND", "NEAR(", "\0", "-", "x" * 100_000):
        await api.search(words, everywhere=True)


async def what_was_spent_is_what_the_answers_say(api: Api) -> None:
    parent = await api.create_session(SessionInput())
    child = await api.create_session(SessionInput(parent_id=parent.id))
    for session in (parent.id, child.id, child.id):
        await api.prompt(session, prompt("hello"))
    own, below = await api.get_spending(parent.id), await api.get_spending(child.id)
    # The time of a child passes inside a step of its parent, and is counted there.
    assert own.tree == add_up((own.own, within_parent(below.tree)))
    for session in (parent.id, child.id):
        answers = [message.info for message in await api.list_messages(session)]
        costs = [each.cost for each in answers if isinstance(each, AssistantMessage)]
        assert (await api.get_spending(session)).own.cost == sum(costs)


async def figures_count_sessions_messages_and_tokens(api: Api) -> None:
    session = await api.create_session(SessionInput())
    await api.prompt(session.id, prompt("hello"))
    messages, spent = await api.list_messages(session.id), (await api.get_spending(session.id)).own
    found = await api.get_figures()
    money = replace(spent, steps=0, ms=0)
    assert (found.sessions, found.messages, found.spent) == (1, len(messages), money)
    project = await api.current_project()
    assert await api.get_figures(project=project.id) == found


FINDING_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    words_that_were_said_are_found,
    whatever_is_typed_is_a_search,
    what_was_spent_is_what_the_answers_say,
    figures_count_sessions_messages_and_tokens,
)
