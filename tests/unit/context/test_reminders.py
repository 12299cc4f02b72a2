"""Reminders on plan mode, on messages sent during a run, and on the last step; none changes once it was shown."""

from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from given.conversation import assistant_message, text, tool_part, user_message, with_agent
from weft.context.notes import wrap_reminder
from weft.context.reminders import add_reminders, with_last_step
from weft.context.system import read_text
from weft.model.failure import aborted_failure
from weft.model.ids import MessageID
from weft.model.message import AssistantMessage, AssistantTime, MessageWithParts
from weft.model.part import CompactionPart, TextPart
from weft.provider.contract import (
    AssistantModelMessage,
    ResultContent,
    TextContent,
    ToolModelMessage,
    UserModelMessage,
)

PLAN_AGENT = wrap_reminder(read_text("plan"))
SWITCH = wrap_reminder(read_text("build_switch"))
WRAPPED = """<system-reminder>
The user sent the following message:
stop that

Please address this message and continue with your tasks.
</system-reminder>"""


def with_end(message: MessageWithParts, until: int | None) -> MessageWithParts:
    info = message.info
    assert isinstance(info, AssistantMessage)
    time = AssistantTime(created=info.time.created, completed=until)
    return replace(message, info=replace(info, time=time))


def list_texts(message: MessageWithParts) -> list[str]:
    return [part.text for part in message.parts if isinstance(part, TextPart)]


def show(*history: MessageWithParts, plan_files: bool = False) -> list[list[str]]:
    return [list_texts(message) for message in add_reminders(history, plan_files=plan_files)]


def test_a_prompt_for_the_plan_agent_gets_the_plan_reminder() -> None:
    history = (
        with_agent("plan", user_message("msg_1", 1)),
        with_agent("plan", assistant_message("msg_2", 2, "msg_1")),
    )

    assert show(*history) == [["prompt msg_1", PLAN_AGENT], []]


def test_the_first_prompt_after_planning_says_that_planning_is_over() -> None:
    history = (
        with_agent("plan", user_message("msg_1", 1)),
        with_agent("plan", assistant_message("msg_2", 2, "msg_1")),
        user_message("msg_3", 3),
        assistant_message("msg_4", 4, "msg_3"),
        user_message("msg_5", 5),
    )

    assert show(*history) == [
        ["prompt msg_1", PLAN_AGENT],
        [],
        ["prompt msg_3", SWITCH],
        [],
        ["prompt msg_5"],
    ]


def test_with_plan_files_only_stored_reminders_are_shown() -> None:
    history = (
        with_agent("plan", user_message("msg_1", 1)),
        with_agent("plan", assistant_message("msg_2", 2, "msg_1")),
        user_message("msg_3", 3),
    )

    assert show(*history, plan_files=True) == [["prompt msg_1"], [], ["prompt msg_3"]]


def test_a_message_sent_during_a_run_is_wrapped_and_synthetic_text_is_not() -> None:
    history = (
        user_message("msg_1", 1),
        with_end(assistant_message("msg_2", 2, "msg_1", tool_part("msg_2")), 9),
        user_message(
            "msg_3",
            5,
            text("msg_3", "stop that"),
            text("msg_3", "read", 2, synthetic=True),
            text("msg_3", " ", 3),
        ),
        assistant_message("msg_4", 10, "msg_3"),
        user_message("msg_5", 11),
    )

    assert show(*history) == [
        ["prompt msg_1"],
        [],
        [
            WRAPPED,
            "read",
            " ",
        ],
        [],
        ["prompt msg_5"],
    ]


def test_a_message_after_an_interrupted_run_is_not_wrapped() -> None:
    broken = with_end(assistant_message("msg_2", 2, "msg_1", error=aborted_failure("gone")), 99)

    assert show(user_message("msg_1", 1), broken, user_message("msg_3", 5))[-1] == ["prompt msg_3"]


def test_a_request_for_a_summary_is_not_changed() -> None:
    part = CompactionPart(
        id=text("msg_3", "").id,
        session_id=text("msg_3", "").session_id,
        message_id=MessageID("msg_3"),
        auto=True,
    )
    history = (
        user_message("msg_1", 1),
        with_agent("plan", assistant_message("msg_2", 2, "msg_1")),
        user_message("msg_3", 3, part),
    )

    assert add_reminders(history, plan_files=False)[-1] == history[-1]


def test_the_last_step_reminder_is_at_the_end_of_the_last_message() -> None:
    notice = TextContent(text=wrap_reminder(read_text("last_step")))
    asking = UserModelMessage(content=(TextContent(text="go"),))
    saying = AssistantModelMessage(content=(TextContent(text="I go"),))
    result = ToolModelMessage(content=(ResultContent(call_id="c", tool="t", output="o"),))

    assert with_last_step((asking,)) == (UserModelMessage(content=(TextContent(text="go"), notice)),)
    assert with_last_step((asking, saying, result)) == (
        asking,
        saying,
        result,
        UserModelMessage(content=(notice,)),
    )


@some.composite
def histories(draw: some.DrawFn) -> list[MessageWithParts]:
    """Generate prompts and answers of several agents; some prompts arrive during an answer."""
    history: list[MessageWithParts] = []
    for at in range(draw(some.integers(1, 8))):
        agent = draw(some.sampled_from(["build", "plan", "other"]))
        id = f"msg_{at}"
        if at == 0 or draw(some.booleans()):
            history.append(with_agent(agent, user_message(id, at * 10)))
        else:
            until = draw(some.sampled_from([at * 10, at * 10 + 15, at * 10 + 25]))
            error = draw(some.sampled_from([None, aborted_failure("x")]))
            history.append(
                with_agent(agent, with_end(assistant_message(id, at * 10, "msg_0", error=error), until))
            )
    return history


@given(histories(), some.integers(0, 8), some.booleans())
def test_how_a_message_is_shown_does_not_depend_on_later_messages(
    history: list[MessageWithParts], cut: int, plan_files: bool
) -> None:
    whole = add_reminders(history, plan_files=plan_files)

    assert add_reminders(history[:cut], plan_files=plan_files) == whole[:cut]
