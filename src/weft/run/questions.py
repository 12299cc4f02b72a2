"""Ask the person on behalf of a session's tools, and hand the work to another agent."""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

from weft.errors import NotFoundError
from weft.model.ids import MessageID, SessionID
from weft.model.input import PromptInput, TextInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.permission import CallRef, Question, QuestionRequest
from weft.model.session import Session
from weft.permission.gate import Whereabouts
from weft.run.kit import Kit
from weft.session.lifecycle import plan_path
from weft.store.contract import Store
from weft.tool.contract import Answers, Desk, Inquire


class Runs(Protocol):
    """Whoever puts words into a session whose run is under way."""

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts: ...


def turned(kit: Kit, runs: Runs) -> Callable[[SessionID], Desk]:
    """The desks of a kit, with a person on the other side."""

    def desk(session: SessionID) -> Desk:
        return replace(
            kit.desk(session), inquire=inquirer(kit, session), handover=SessionHandover(kit, runs, session)
        )

    return desk


def inquirer(kit: Kit, session: SessionID) -> Inquire:
    async def inquire(questions: Sequence[Question], *, agent: str, call: CallRef) -> Answers:
        request = QuestionRequest(
            id=kit.mint.question(), session_id=session, questions=tuple(questions), tool=call
        )
        return await kit.questions.ask(request, agent=agent)

    return inquire


class SessionHandover:
    def __init__(self, kit: Kit, runs: Runs, session: SessionID) -> None:
        self._kit = kit
        self._runs = runs
        self._session = session

    async def find_plan(self) -> str:
        session = await self._kit.store.get_session(self._session)
        return plan_path(session, self._kit.place, self._kit.plans)

    async def hand_to(self, agent: str, words: str) -> None:
        # The run goes on with the newest prompt, and with whom that names. OpenCode keeps to the model of the one
        # before; here an agent that has a model of its own is asked with that.
        said = TextInput(text=words, synthetic=True)
        await self._runs.prompt(self._session, PromptInput(agent=agent, no_reply=True, parts=(said,)))


DEEPEST = 100


async def find_whereabouts(kit: Kit, session: Session, call: CallRef) -> Whereabouts:
    return Whereabouts(
        root_id=await find_root(kit.store, session), turn_id=await _find_turn(kit.store, session.id, call)
    )


async def find_root(store: Store, session: Session) -> SessionID:
    """The topmost session there is above this one. Documents that were tampered with may go round in a circle."""
    for _ in range(DEEPEST):
        if session.parent_id is None:
            break
        try:
            session = await store.get_session(session.parent_id)
        except NotFoundError:
            break
    return session.id


async def _find_turn(store: Store, session: SessionID, call: CallRef) -> MessageID | None:
    found = await store.find_message(session, call.message_id)
    info = found.info if found else None
    return info.parent_id if isinstance(info, AssistantMessage) else None
