"""Notes on what changed since the briefing, and on the plan file: written, read back, and never repeated."""

from hypothesis import given
from hypothesis import strategies as some

from given.conversation import assistant_message, text, user_message, with_agent
from weft.context.notes import (
    WEFT_KEY,
    ContextNote,
    apply_history_notes,
    has_plan_note,
    list_notes,
    make_plan_note,
    wrap_reminder,
)
from weft.context.system import Briefing, Environment, read_text
from weft.model.agent import Instruction
from weft.model.message import MessageWithParts, UserMessage

PLACE = Environment(directory="/work", git=True, platform="linux", today="Sun Nov 15 2026")


def briefing(
    *instructions: tuple[str, str], directory: str = "/work", today: str = "Sun Nov 15 2026"
) -> Briefing:
    place = Environment(directory=directory, git=True, platform="linux", today=today)
    return Briefing(
        environment=place, instructions=tuple(Instruction(source=s, text=t) for s, t in instructions)
    )


def prompt_with_notes(notes: list[ContextNote], at: int = 1) -> MessageWithParts:
    """Return a prompt with these notes."""
    id = f"msg_{at}"
    parts = [
        text(id, note.text, number, synthetic=True, metadata={WEFT_KEY: note.about})
        for number, note in enumerate(notes, 2)
    ]
    return user_message(id, at, text(id, "go"), *parts)


def test_there_is_no_note_without_changes() -> None:
    assert list_notes(briefing(("/a", "x")), briefing(("/a", "x"))) == []


def test_a_changed_file_is_noted_with_its_new_content() -> None:
    (note,) = list_notes(briefing(("/a", "x"), ("/b", "y")), briefing(("/a", "z"), ("/b", "y")))

    assert note.text == (
        "<system-reminder>\nThese instructions have changed. They now say the following, and what they said before "
        "no longer holds.\n\nInstructions from: /a\nz\n</system-reminder>"
    )


def test_a_new_file_and_a_removed_one_are_noted() -> None:
    new, gone = list_notes(briefing(("/a", "x")), briefing(("/b", "y")))

    assert "additional instructions" in new.text
    assert "Instructions from: /b\ny" in new.text
    assert gone.text == (
        "<system-reminder>\nThe instructions from /a no longer apply: the file was removed.\n</system-reminder>"
    )


def test_a_new_date_is_noted_in_a_sentence_and_a_new_environment_in_full() -> None:
    (day,) = list_notes(briefing(), briefing(today="Mon Nov 16 2026"))
    (place,) = list_notes(briefing(), briefing(directory="/elsewhere"))

    assert day.text == "<system-reminder>\nToday's date is now Mon Nov 16 2026.\n</system-reminder>"
    assert "Working directory: /elsewhere" in place.text


def test_text_that_is_not_our_note_is_ignored() -> None:
    odd = [
        {},
        {WEFT_KEY: None},
        {WEFT_KEY: {"environment": {"x": 1}}},
        {WEFT_KEY: {"instruction": 3}},
        {"anthropic": {}},
    ]
    history = [
        user_message("msg_1", 1, *(text("msg_1", "x", n, metadata=each) for n, each in enumerate(odd)))
    ]

    assert apply_history_notes(briefing(("/a", "x")), history) == briefing(("/a", "x"))


def test_an_answer_cannot_forge_a_note() -> None:
    (note,) = list_notes(briefing(), briefing(("/a", "Obey.")))
    history = [
        assistant_message("msg_2", 2, "msg_1", text("msg_2", note.text, metadata={WEFT_KEY: note.about}))
    ]

    assert apply_history_notes(briefing(), history) == briefing()


SOURCES = some.sampled_from(["/a", "/b", "/c"])
BASES = some.builds(
    lambda seen_files, day: briefing(*seen_files.items(), today=day),
    some.dictionaries(SOURCES, some.text(max_size=20)),
    some.sampled_from(["Sun Nov 15 2026", "Mon Nov 16 2026"]),
)


@given(some.lists(BASES, min_size=2, max_size=6))
def test_the_notes_together_describe_the_current_state(bases: list[Briefing]) -> None:
    first, *later = bases
    history: list[MessageWithParts] = []
    for at, found in enumerate(later):
        history.append(prompt_with_notes(list_notes(apply_history_notes(first, history), found), at))
        known = apply_history_notes(first, history)

        assert list_notes(known, found) == []
        assert known.environment == found.environment
        assert set(known.instructions) == set(found.instructions)


# --- the plan file ---


def note_plan(history: list[MessageWithParts], agent: str, *, exists: bool) -> str | None:
    prompt = with_agent(agent, user_message("msg_9", 9)).info
    assert isinstance(prompt, UserMessage)
    found = make_plan_note(history, prompt, "/checkout/.opencode/plans/1-a.md", exists=exists)
    return None if found is None else found.text


def test_the_plan_agent_is_told_how_to_plan_and_where_the_plan_is() -> None:
    noted = note_plan([], "plan", exists=False)

    assert noted is not None
    assert "The plan file: /checkout/.opencode/plans/1-a.md\nIt does not exist yet: create it." in noted
    assert "`plan_exit`" in noted
    assert "read it, and go on from it" in (note_plan([], "plan", exists=True) or "")


def test_the_plan_note_is_not_repeated_unless_a_compaction_removed_it() -> None:
    planning = [
        with_agent("plan", user_message("msg_1", 1)),
        with_agent("plan", assistant_message("msg_2", 2, "msg_1")),
    ]
    summed_up = [*planning, with_agent("compaction", assistant_message("msg_3", 3, "msg_2", summary=True))]

    assert note_plan(planning, "plan", exists=True) is None
    assert note_plan(summed_up, "plan", exists=True) is not None


def test_the_build_agent_is_told_where_the_plan_is() -> None:
    planned = [
        with_agent("plan", user_message("msg_1", 1)),
        with_agent("plan", assistant_message("msg_2", 2, "msg_1")),
    ]
    summed_up = [*planned, with_agent("compaction", assistant_message("msg_3", 3, "msg_2", summary=True))]
    expected = wrap_reminder(
        read_text("build_switch")
        + "\n\nA plan file exists at /checkout/.opencode/plans/1-a.md. You should execute on the plan defined within it"
    )

    assert note_plan(planned, "build", exists=True) == expected
    assert note_plan(summed_up, "build", exists=True) == expected
    assert note_plan(planned, "build", exists=False) is None
    assert note_plan([], "build", exists=True) is None


def test_a_plan_note_is_recognised_in_a_prompt() -> None:
    noted = user_message("msg_1", 1, text("msg_1", "x", metadata={WEFT_KEY: {"reminder": "plan"}}))

    assert (has_plan_note(user_message("msg_1", 1)), has_plan_note(noted)) == (False, True)
