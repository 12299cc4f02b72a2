"""Which events are promises, and which lock each one takes."""

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
from weft.store.files.batch import is_promise, lock_of
from weft.testing.store_values import PROJECT, PROMPT, SESSION, answer, growth, prompt, session, text

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
def test_what_somebody_is_told_is_done_is_a_promise(event: Durable) -> None:
    assert is_promise(event)


@pytest.mark.parametrize("event", [*OTHERS, PROJECT_TOLD], ids=lambda event: event.type)
def test_what_a_running_step_writes_is_none(event: Durable) -> None:
    assert not is_promise(event)


def test_all_that_is_of_a_session_takes_its_lock_and_a_project_takes_its_own() -> None:
    assert {lock_of(event) for event in (*PROMISES, *OTHERS)} == {"session.ses_1"}
    assert lock_of(PROJECT_TOLD) == "project.p1"
