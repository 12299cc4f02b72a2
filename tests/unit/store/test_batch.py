"""Which events must be flushed, and which lock each one takes."""

import pytest
from msgspec.structs import replace

from weft.model.event import (
    Durable,
    MessageRemoved,
    MessageUpdated,
    PartRemoved,
    PartUpdated,
    ProjectUpdated,
    SessionCreated,
    SessionDeleted,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import PartID
from weft.model.message import AssistantTime
from weft.model.project import Project, ProjectTime
from weft.store.files.batch import lock_of, must_flush
from weft.testing.store_samples import PROJECT, PROMPT, SESSION, answer, growth, prompt, session, text

PROMISES: list[Durable] = [
    SessionCreated(info=session()),
    SessionDeleted(info=session()),
    MessageUpdated(info=prompt()),
    MessageUpdated(info=replace(answer(), time=AssistantTime(created=1, completed=2))),
    MessageRemoved(session_id=SESSION, message_id=PROMPT),
    PartRemoved(session_id=SESSION, message_id=PROMPT, part_id=PartID("prt_1")),
]
OTHERS: list[Durable] = [
    SessionUpdated(info=session()),
    MessageUpdated(info=answer()),
    PartUpdated(part=text("prt_1", "a")),
    growth("prt_1", "a", 0),
    SessionDiffed(session_id=SESSION, diff=()),
    TodoUpdated(session_id=SESSION, todos=()),
]
PROJECT_TOLD = ProjectUpdated(info=Project(id=PROJECT, worktree="/", time=ProjectTime(created=1)))


@pytest.mark.parametrize("event", PROMISES, ids=lambda event: event.type)
def test_events_that_others_rely_on_must_be_flushed(event: Durable) -> None:
    assert must_flush(event)


@pytest.mark.parametrize("event", [*OTHERS, PROJECT_TOLD], ids=lambda event: event.type)
def test_events_of_a_running_step_need_no_flush(event: Durable) -> None:
    assert not must_flush(event)


def test_events_take_the_lock_of_their_session_or_project() -> None:
    assert {lock_of(event) for event in (*PROMISES, *OTHERS)} == {"session.ses_1"}
    assert lock_of(PROJECT_TOLD) == "project.p1"
