"""What a model is shown of a stored history."""

from msgspec.structs import replace

from given.conversation import assistant_message, ids, text, tool_part, user_message
from weft.context.history import since_compaction, to_model_messages
from weft.model.catalog import Limit, Model, ModelApi
from weft.model.failure import ApiData, ApiFailure, aborted_failure
from weft.model.message import MessageWithParts
from weft.model.part import (
    AgentPart,
    AnyToolState,
    CallTime,
    CompactionPart,
    CompletedState,
    ErrorState,
    FilePart,
    PatchPart,
    PendingState,
    ReasoningPart,
    RunningState,
    Span,
    StepStartPart,
    SubtaskPart,
    ToolPart,
)
from weft.provider.contract import (
    AssistantModelMessage,
    CallContent,
    MediaContent,
    ReasoningContent,
    ResultContent,
    TextContent,
    ToolModelMessage,
    UserModelMessage,
)

MODEL = Model(id="m", provider_id="p", name="M", api=ModelApi(id="m"), limit=Limit(context=0, output=0))


def call(state: AnyToolState) -> ToolPart:
    return ToolPart(**ids("A1", 1), call_id="c1", tool="read", state=state)


def compaction(id: str) -> CompactionPart:
    return CompactionPart(**ids(id, 1), auto=True)


def show(*history: MessageWithParts) -> list[object]:
    return list(to_model_messages(history, MODEL))


def test_a_history_starts_at_its_last_finished_compaction() -> None:
    before = [user_message("U1", 1), assistant_message("A1", 2, "U1")]
    cut = user_message("U2", 3, compaction("U2"))
    summary = assistant_message("A2", 4, "U2", text("A2", "so far"), summary=True)
    after = user_message("U3", 5)

    assert since_compaction([*before, cut, summary, after]) == [cut, summary, after]
    unfinished = [*before, cut, assistant_message("A2", 4, "U2", summary=True, finish=None), after]
    assert since_compaction(unfinished) == unfinished


def test_text_before_and_after_a_step_boundary_becomes_two_messages() -> None:
    parts = (text("A1", "one", 1), StepStartPart(**ids("A1", 2)), text("A1", "two", 3))

    assert show(assistant_message("A1", 1, "U1", *parts)) == [
        AssistantModelMessage(content=(TextContent(text="one"),)),
        AssistantModelMessage(content=(TextContent(text="two"),)),
    ]


def test_a_call_is_followed_by_its_result_with_attached_images() -> None:
    picture = FilePart(**ids("A1", 9), mime="image/png", url="data:image/png;base64,Zm9v")
    linked = FilePart(**ids("A1", 9), mime="image/png", url="https://example.test/a.png")
    done = CompletedState(
        input={"filePath": "a.png"},
        output="read",
        title="a.png",
        metadata={},
        time=CallTime(start=1, end=2),
        attachments=(picture, linked),
    )

    assert show(assistant_message("A1", 1, "U1", call(done))) == [
        AssistantModelMessage(content=(CallContent(call_id="c1", tool="read", input={"filePath": "a.png"}),)),
        ToolModelMessage(
            content=(
                ResultContent(
                    call_id="c1",
                    tool="read",
                    output="read",
                    files=(MediaContent(url="data:image/png;base64,Zm9v", mime="image/png"),),
                ),
            )
        ),
    ]


def test_every_call_has_exactly_one_result_however_it_ended() -> None:
    time = CallTime(start=1, end=2)
    forgotten = CompletedState(
        input={}, output="long", title="", metadata={}, time=replace(time, compacted=3)
    )
    outcomes = [
        (forgotten, "[Old tool result content cleared]", False),
        (ErrorState(input={}, error="no such file", time=time), "no such file", True),
        (PendingState(input={}, raw=""), "[Tool execution was interrupted]", True),
        (RunningState(input={}, time=Span(start=1)), "[Tool execution was interrupted]", True),
    ]
    for state, output, failed in outcomes:
        turns = show(assistant_message("A1", 1, "U1", call(state)))
        assert turns[1] == ToolModelMessage(
            content=(ResultContent(call_id="c1", tool="read", output=output, error=failed),)
        )


def test_a_failed_answer_is_omitted_and_an_aborted_one_kept_if_it_has_content() -> None:
    broke = ApiFailure(data=ApiData(message="boom", is_retryable=False))
    thought = ReasoningPart(**ids("A1", 1), text="hm", time=Span(start=1))
    start = StepStartPart(**ids("A1", 0))

    assert show(assistant_message("A1", 1, "U1", text("A1", "half"), error=broke)) == []
    assert show(assistant_message("A1", 1, "U1", start, thought, error=aborted_failure())) == []
    assert show(
        assistant_message("A1", 1, "U1", start, thought, text("A1", "half", 2), error=aborted_failure())
    ) == [AssistantModelMessage(content=(ReasoningContent(text="hm"), TextContent(text="half")))]


def test_provider_metadata_is_shown_only_to_the_model_it_came_from() -> None:
    signed = ReasoningPart(**ids("A1", 1), text="hm", time=Span(start=1), metadata={"p": {"signature": "s"}})
    own = assistant_message("A1", 1, "U1", signed)
    foreign = replace(own, info=replace(own.info, model_id="other"))

    assert show(own) == [
        AssistantModelMessage(content=(ReasoningContent(text="hm", metadata={"p": {"signature": "s"}}),))
    ]
    assert show(foreign) == [AssistantModelMessage(content=(ReasoningContent(text="hm"),))]


def test_parts_of_a_prompt_are_shown_unless_ignored_or_already_shown_as_text() -> None:
    parts = (
        text("U1", "look", 1),
        text("U1", "not this", 2, ignored=True),
        FilePart(**ids("U1", 3), mime="text/plain", url="file:///a.txt"),
        FilePart(**ids("U1", 4), mime="image/png", url="data:image/png;base64,Zm9v", filename="a.png"),
        AgentPart(**ids("U1", 5), name="general"),
        compaction("U1"),
        SubtaskPart(**ids("U1", 7), prompt="p", description="d", agent="general"),
    )

    assert show(user_message("U1", 1, *parts)) == [
        UserModelMessage(
            content=(
                TextContent(text="look"),
                MediaContent(url="data:image/png;base64,Zm9v", mime="image/png", filename="a.png"),
                TextContent(text="What did we do so far?"),
                TextContent(text="The following tool was executed by the user"),
            )
        )
    ]


def test_empty_messages_are_omitted() -> None:
    patch = PatchPart(**ids("A1", 2), hash="h", files=())

    assert (
        show(
            user_message("U1", 1, text("U1", "")),
            assistant_message("A1", 2, "U1", patch),
            assistant_message("A2", 3, "U1"),
        )
        == []
    )


def test_calls_of_one_step_share_one_message_of_results() -> None:
    turns = show(assistant_message("A1", 1, "U1", tool_part("A1", 1), tool_part("A1", 2)))

    assert [type(turn) for turn in turns] == [AssistantModelMessage, ToolModelMessage]
    assert isinstance(turns[1], ToolModelMessage)
    assert [result.call_id for result in turns[1].content] == ["call_1", "call_2"]
