"""The history of a project: a search leaves out the session that asks, reading leaves out none."""

import pytest

from weft.errors import NotFoundError
from weft.local.history import ProjectHistory
from weft.model.event import MessageUpdated, PartUpdated, SessionCreated
from weft.model.ids import MessageID, SessionID
from weft.store.memory import MemoryStore
from weft.testing.store_samples import PROJECT, prompt, session, text

ASKING = SessionID("ses_1")
EARLIER = SessionID("ses_2")
ELSEWHERE = SessionID("ses_3")


@pytest.fixture
async def history() -> ProjectHistory:
    store = MemoryStore()
    await store.apply(
        SessionCreated(info=session(ASKING, title="Blue warp")),
        SessionCreated(info=session(EARLIER)),
        SessionCreated(info=session(ELSEWHERE, project="p2")),
    )
    for number, id in enumerate((ASKING, EARLIER, ELSEWHERE)):
        message = f"msg_{number}"
        await store.apply(
            MessageUpdated(info=prompt(message, of=id)),
            PartUpdated(part=text(f"prt_{number}", "We chose blue warp.", of=message, session=id)),
        )
    return ProjectHistory(store, PROJECT, ASKING)


async def test_the_session_that_asks_takes_no_place_among_the_matches(history: ProjectHistory) -> None:
    found = await history.search("blue warp", limit=1)
    assert [(match.session_id, match.message_id) for match in found] == [(EARLIER, MessageID("msg_1"))]


async def test_a_message_of_the_session_that_asks_can_be_read(history: ProjectHistory) -> None:
    assert (await history.read(ASKING, "msg_0")).excerpt == "We chose blue warp."
    assert (await history.read(EARLIER, "msg_1")).excerpt == "We chose blue warp."
    with pytest.raises(NotFoundError):
        await history.read(ELSEWHERE, "msg_2")
