"""Where an undo cuts a session, and what it removes and keeps."""

import pytest
from msgspec.structs import replace

from weft.errors import AmbiguousError, NotFoundError
from weft.model.diff import FileFate, Patch, Tree
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import (
    AssistantMessage,
    AssistantTime,
    MessagePath,
    MessageWithParts,
    UserMessage,
    find_newest_human_prompt_id,
)
from weft.model.part import (
    AnyPart,
    CallTime,
    CompletedState,
    ErrorState,
    Moment,
    PatchPart,
    StepStartPart,
    TextPart,
    ToolPart,
    WeftPatchData,
)
from weft.session.revert_point import (
    NO_SNAPSHOT,
    ONLY_OPENCODE_SNAPSHOT,
    HistoryCut,
    RevertPoint,
    choose_message,
    cut_history,
    find_first_line,
    get_history_trees,
    get_point,
    list_foreign_files,
    list_patches,
    list_unrecorded_files,
    may_reach_outside,
)
from weft.session.settle import ABORTED, INTERRUPTED
from weft.undo.revert import cut_diff

SESSION = SessionID("ses_1")


def ids(message: str, part: str) -> dict[str, str]:
    return {"session_id": SESSION, "message_id": MessageID(message), "id": PartID(part)}


def text_part(message: str, part: str, text: str = "words", *, synthetic: bool = False) -> TextPart:
    return TextPart(**ids(message, part), text=text, synthetic=synthetic)


def call(message: str, part: str, tool: str = "bash", **given: object) -> ToolPart:
    state = CompletedState(input=given, output="", title="", metadata={}, time=CallTime(start=1, end=2))
    return ToolPart(**ids(message, part), call_id=f"call_{part}", tool=tool, state=state)


def patch(message: str, part: str, call_id: str = "", *files: str) -> PatchPart:
    changed = Patch(before=Tree(f"{part}-before"), after=Tree(f"{part}-after"), files=files)
    own = WeftPatchData(patch=changed, call_id=call_id)
    return PatchPart(**ids(message, part), hash=changed.before, files=(), weft=own)


def prompt(id: str, *parts: AnyPart, at: int = 1) -> MessageWithParts:
    return MessageWithParts(
        info=UserMessage(id=MessageID(id), session_id=SESSION, time=Moment(created=at)),
        parts=parts or (text_part(id, f"{id}_p"),),
    )


def answer(id: str, *parts: AnyPart, to: str = "", at: int = 2) -> MessageWithParts:
    info = AssistantMessage(
        id=MessageID(id),
        session_id=SESSION,
        time=AssistantTime(created=at),
        parent_id=MessageID(to),
        path=MessagePath(cwd="/loom/below", root="/loom"),
    )
    return MessageWithParts(info=info, parts=parts)


# Ids that go down, as when the time in them has wrapped around (decision 12): nothing may depend on them.
HISTORY = [
    prompt("msg_9"),
    answer("msg_8", text_part("msg_8", "a"), call("msg_8", "b"), patch("msg_8", "c", "call_b")),
    answer("msg_7", call("msg_7", "d"), call("msg_7", "e"), patch("msg_7", "f", "call_d"), patch("msg_7", "g", "call_e")),
    prompt("msg_6"),
    answer("msg_5", text_part("msg_5", "h")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "part", "point"),
    [
        ("msg_9", None, RevertPoint(message_id=MessageID("msg_9"))),
        ("msg_8", None, RevertPoint(message_id=MessageID("msg_9"))),
        ("msg_7", None, RevertPoint(message_id=MessageID("msg_9"))),
        ("msg_7", "d", RevertPoint(message_id=MessageID("msg_9"))),
        ("msg_7", "e", RevertPoint(message_id=MessageID("msg_7"), part_id=PartID("e"))),
        ("msg_8", "b", RevertPoint(message_id=MessageID("msg_8"), part_id=PartID("b"))),
        ("msg_5", None, RevertPoint(message_id=MessageID("msg_6"))),
    ],
)
def test_an_answer_is_removed_with_its_prompt_unless_an_earlier_part_is_worth_keeping(
    message: str, part: str | None, point: RevertPoint
) -> None:
    assert get_point(HISTORY, MessageID(message), part and PartID(part)) == point


def test_a_message_without_a_prompt_before_it_is_the_point_itself() -> None:
    assert get_point([answer("msg_1")], MessageID("msg_1")) == RevertPoint(message_id=MessageID("msg_1"))


def test_an_unknown_message_or_part_is_not_found() -> None:
    with pytest.raises(NotFoundError):
        get_point(HISTORY, MessageID("msg_0"))
    with pytest.raises(NotFoundError):
        get_point(HISTORY, MessageID("msg_8"), PartID("d"))


def test_a_history_is_cut_by_position() -> None:
    parted = cut_history(HISTORY, RevertPoint(message_id=MessageID("msg_6")))
    assert parted == HistoryCut(kept=tuple(HISTORY[:3]), removed=tuple(HISTORY[3:]))
    assert cut_history(HISTORY, RevertPoint(message_id=MessageID("msg_0"))) == HistoryCut(kept=tuple(HISTORY))


def test_undoing_part_of_a_message_keeps_the_changes_of_its_earlier_calls() -> None:
    parted = cut_history(HISTORY, RevertPoint(message_id=MessageID("msg_7"), part_id=PartID("e")))
    assert [part.id for part in parted.kept[-1].parts] == ["d", "f"]
    assert [part.id for part in parted.removed[0].parts] == ["e", "g"]
    assert [each.before for each in list_patches(parted.kept)] == ["c-before", "f-before"]
    assert [each.before for each in list_patches(parted.removed)] == ["g-before"]


def test_only_our_own_snapshots_are_collected() -> None:
    opened = StepStartPart(**ids("msg_1", "s"), snapshot="whole")
    ours = answer("msg_1", opened, patch("msg_1", "p"))
    theirs = answer("msg_2", StepStartPart(**ids("msg_2", "s"), snapshot="theirs"))
    assert get_history_trees([ours, theirs]) == {"whole", "p-before", "p-after"}


def test_files_changed_by_another_program_or_without_a_snapshot_are_named() -> None:
    theirs = PatchPart(**ids("msg_1", "p"), hash="x", files=("/loom/b", "/loom/a"))
    done = answer(
        "msg_1",
        theirs,
        call("msg_1", "e", "edit", filePath="c"),
        call("msg_1", "w", "write", filePath="/loom/d"),
        patch("msg_1", "q", "call_w", "/loom/d"),
        call("msg_1", "r", "read", filePath="/loom/e"),
    )
    assert list_foreign_files([done]) == [
        FileFate(file=file, fate="uncovered", reason=ONLY_OPENCODE_SNAPSHOT)
        for file in ("/loom/a", "/loom/b")
    ]
    assert list_unrecorded_files([done]) == [
        FileFate(file="/loom/below/c", fate="uncovered", reason=NO_SNAPSHOT)
    ]


def test_a_turn_begins_with_a_human_prompt() -> None:
    ours = prompt("msg_4", text_part("msg_4", "i", "Continue", synthetic=True))
    assert find_newest_human_prompt_id([*HISTORY, ours]) == "msg_6"
    assert find_newest_human_prompt_id([ours]) is None
    assert find_newest_human_prompt_id([prompt("msg_5"), ours]) == "msg_5"
    assert (
        find_first_line([prompt("msg_1", text_part("msg_1", "p", "\n  first \nsecond"))], MessageID("msg_1"))
        == "first"
    )


def test_only_commands_and_foreign_tools_that_ran_or_may_have_run_have_unknown_effects() -> None:
    def failed_call(
        error: str, metadata: dict[str, object] | None = None, tool: str = "bash"
    ) -> list[MessageWithParts]:
        state = ErrorState(input={}, error=error, metadata=metadata, time=CallTime(start=1, end=2))
        return [answer("msg_2", replace(call("msg_2", "b", tool), state=state))]

    assert may_reach_outside([answer("msg_2", call("msg_2", "b"))])
    assert may_reach_outside(failed_call("the command could not be run", {"output": ""}))
    assert may_reach_outside(failed_call(ABORTED))
    assert may_reach_outside(failed_call(INTERRUPTED))
    assert not may_reach_outside(failed_call("The user rejected permission"))
    assert may_reach_outside([answer("msg_2", call("msg_2", "b", "loom_weave"))])
    assert may_reach_outside(failed_call("the server answered with an error", tool="loom_weave"))
    for tool in ("read", "write", "apply_patch", "todowrite", "invalid"):
        assert not may_reach_outside([answer("msg_2", call("msg_2", "b", tool))])


def test_a_message_is_chosen_by_id_or_prefix() -> None:
    history = [prompt("msg_10"), prompt("msg_1"), prompt("msg_2")]
    assert choose_message(history, "msg_1") == "msg_1"
    assert choose_message(history, "10") == "msg_10"
    assert choose_message(history, "2") == "msg_2"
    with pytest.raises(AmbiguousError):
        choose_message(history, "msg_")
    with pytest.raises(NotFoundError):
        choose_message(history, "3")


def test_a_long_diff_is_cut_between_files() -> None:
    files = [f"diff --git a/{name} b/{name}\n-{name}\n" for name in "abc"]
    whole = "".join(files)
    assert cut_diff(whole, len(whole)) == whole
    assert cut_diff(whole, len(whole) - 1) == files[0] + files[1]
    assert cut_diff(whole, 10) == ""
