"""What belongs together is stored in one write."""

from collections.abc import Sequence

from given.engine import open_engine, text_prompt
from weft.model.event import Durable, MessageUpdated, PartUpdated
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage
from weft.model.session import get_weft_data
from weft.provider.scripted import Say
from weft.store.contract import NO_LEASES
from weft.store.lease import LeaseToken
from weft.store.memory import MemoryStore


class CountingStore(MemoryStore):
    """Records what each write contains: the kinds of parts and messages, and whether the session is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[list[str]] = []

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        self.writes.append([name_of(event) for event in events])
        await super().apply(*events, leases=leases)


def name_of(event: Durable) -> str:
    match event:
        case MessageUpdated(info=info):
            return info.role
        case PartUpdated(part=part):
            return part.type
        case _:
            return event.type


async def test_a_prompt_and_the_end_of_an_answer_are_stored_together_with_the_session() -> None:
    store = CountingStore()
    async with open_engine([Say(text="one")], store=store) as engine:
        session = await engine.api.create_session(SessionInput(title="t"))
        store.writes.clear()
        answer = await engine.api.prompt(session.id, text_prompt("go"))
        spent = get_weft_data(await engine.api.get_session(session.id)).spent
    assert store.writes[0] == ["user", "text", "session.updated"]
    assert ["text", "step-finish", "assistant", "session.updated"] in store.writes
    assert isinstance(answer.info, AssistantMessage)
    assert spent is not None
    assert spent.own.output == answer.info.tokens.output
