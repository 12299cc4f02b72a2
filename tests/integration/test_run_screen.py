"""How `weft run` and `weft session show` show child sessions."""

import json
import unicodedata
from pathlib import Path

import pytest
from msgspec.structs import replace

from given.conversation import SESSION, assistant_message, tool_part
from given.engine import text_prompt
from given.subtask_engine import open_subtask_engine, start, task_call
from weft.cli.exit import ExitCode
from weft.cli.follow import follow
from weft.cli.output import Paint, escape_json, write_json
from weft.cli.run_screen import JsonScreen, TextScreen
from weft.cli.session_show import format_transcript
from weft.model.event import Event, MessageUpdated, PartGrew, PartUpdated, SessionWarned
from weft.model.ids import MessageID, PartID
from weft.model.part import ReasoningPart, Span, TextPart
from weft.provider.scripted import Say, UseTool
from weft.testing.clock import HandClock

SCRIPTS = {
    "go": [[task_call("look")], [Say(text="There it is.")]],
    "look": [
        [UseTool(tool="echo", input={"words": "x"}), UseTool(tool="nosuch", input={})],
        [Say(text="found it")],
    ],
}


async def test_a_run_shows_a_line_for_each_call_of_a_child_and_not_its_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_subtask_engine(SCRIPTS) as engine:
        session = await engine.api.get_session(await start(engine))
        code = await follow(engine.api, session, text_prompt("go"), TextScreen())
    out, err = capsys.readouterr()

    assert code == ExitCode.DONE
    assert out == "There it is.\n"
    *calls, task, total = err.splitlines()
    # They run at the same time.
    assert sorted(calls) == [
        "  · Echo    Echo x",
        "  · Nosuch  there is no tool 'nosuch'; there are echo",
    ]
    assert task == "| Task    Do look"
    assert total.startswith("4 steps · ")


def test_a_child_that_works_while_its_parent_streams_does_not_break_the_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen, place = TextScreen(), {"session_id": SESSION, "message_id": MessageID("A1")}
    part = TextPart(id=PartID("prt_1"), **place, text="one ", time=Span(start=1))
    grown = PartGrew(**place, part_id=part.id, field="text", delta="two", offset=4)
    screen.feed(PartUpdated(part=part, delta="one "))
    screen.feed_child(PartUpdated(part=tool_part("B1")))
    screen.feed(grown)
    screen.feed(PartUpdated(part=replace(part, text="one two", time=Span(start=1, end=2))))
    out, err = capsys.readouterr()

    assert (out, err) == ("one two\n", "  · Read    t\n")


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (PartUpdated(part=tool_part("A1", 5)), "| Read    t"),
        (SessionWarned(session_id=SESSION, message="the share is behind"), "warning: the share is behind"),
    ],
)
def test_what_happens_while_a_text_is_streamed_is_printed_after_it(
    capsys: pytest.CaptureFixture[str], event: Event, line: str
) -> None:
    screen, place = TextScreen(), {"session_id": SESSION, "message_id": MessageID("A1")}
    part = TextPart(id=PartID("prt_1"), **place, text="one ", time=Span(start=1))
    grown = PartGrew(**place, part_id=part.id, field="text", delta="two", offset=4)
    screen.feed(PartUpdated(part=part, delta="one "))
    screen.feed(event)
    screen.feed(grown)
    assert capsys.readouterr() == ("one two", "")
    screen.feed(PartUpdated(part=replace(part, text="one two", time=Span(start=1, end=2))))
    assert capsys.readouterr() == ("\n", f"{line}\n")


def test_a_text_that_began_while_events_were_missed_is_printed_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen, place = TextScreen(), {"session_id": SESSION, "message_id": MessageID("A1")}
    whole = TextPart(id=PartID("prt_1"), **place, text="one", time=Span(start=1, end=2))
    begun = TextPart(id=PartID("prt_2"), **place, text="two ", time=Span(start=3))
    discarded = TextPart(id=PartID("prt_3"), **place, text="no", ignored=True, time=Span(start=1, end=2))
    # A prompt, or an answer that a dead run left open: its parts are closed before the message is.
    screen.feed(PartUpdated(part=replace(whole, id=PartID("prt_0"), message_id=MessageID("U1"))))
    screen.feed(MessageUpdated(info=assistant_message("A1", 1, "U1").info))
    screen.feed(PartUpdated(part=discarded))
    screen.feed(PartUpdated(part=whole))
    screen.feed(PartUpdated(part=whole))
    screen.feed(PartUpdated(part=begun))
    screen.feed(PartGrew(**place, part_id=begun.id, field="text", delta="three", offset=4))
    screen.feed(PartUpdated(part=replace(begun, text="two three", time=Span(start=3, end=4))))

    assert capsys.readouterr() == ("one\ntwo three\n", "")


def test_a_text_that_begins_empty_is_printed_as_it_grows(capsys: pytest.CaptureFixture[str]) -> None:
    """OpenCode 1.18 sends it in this way, with reasoning that stays empty."""
    screen, place = TextScreen(), {"session_id": SESSION, "message_id": MessageID("A1")}
    thought = ReasoningPart(id=PartID("prt_1"), **place, text="", time=Span(start=1))
    part = TextPart(id=PartID("prt_2"), **place, text="", time=Span(start=2))
    screen.feed(MessageUpdated(info=assistant_message("A1", 1, "U1").info))
    screen.feed(PartUpdated(part=thought))
    screen.feed(PartUpdated(part=replace(thought, time=Span(start=1, end=2))))
    screen.feed(PartUpdated(part=part))
    screen.feed(PartGrew(**place, part_id=part.id, field="text", delta="one", offset=0))
    screen.feed(PartUpdated(part=replace(part, text="one", time=Span(start=2, end=3))))

    assert capsys.readouterr() == ("one\n", "")


def test_an_intermediate_summary_is_not_taken_for_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    screen = TextScreen()
    for id, words, summary in (("A1", "so far", True), ("A2", "the answer", False)):
        place = {"session_id": SESSION, "message_id": MessageID(id)}
        part = TextPart(id=PartID(f"prt_{id}"), **place, text=words, time=Span(start=1))
        info = replace(assistant_message(id, 1, "U1").info, summary=summary)
        screen.feed(MessageUpdated(info=info))
        screen.feed(PartUpdated(part=part, delta=words))
        screen.feed(PartUpdated(part=replace(part, time=Span(start=1, end=2))))

    assert capsys.readouterr() == ("the answer\n", "so far\n")


async def test_json_lines_show_a_child_only_in_the_call_of_its_parent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_subtask_engine(SCRIPTS) as engine:
        session = await start(engine)
        before = await engine.api.get_session(session)
        await follow(engine.api, before, text_prompt("go"), JsonScreen(session, engine.clock))
    lines = capsys.readouterr().out.splitlines()

    assert sum('"type":"tool_use"' in line for line in lines) == 1
    assert all(f'"sessionID":"{session}"' in line for line in lines)


async def test_a_transcript_names_the_child_of_a_call(tmp_path: Path) -> None:
    async with open_subtask_engine(SCRIPTS) as engine:
        session = await engine.api.get_session(await start(engine))
        await engine.api.prompt(session.id, text_prompt("go"))
        (child,) = await engine.api.list_children(session.id)
        messages = await engine.api.list_messages(session.id)
        with (tmp_path / "plain").open("w") as plain:
            spending = await engine.api.get_spending(session.id)
            shown = format_transcript(session, messages, spending, Paint(plain), now=session.time.updated)
            lines = list(shown)

    assert f"| Task Do look · {child.id}" in lines


STEERING = "\x1b[31m \x7f \x9b2J \x85 \u202e\u2066 \u200f\u061c \u2028\u2029 \ufeff \U000e0041 é 漢 👍 \x07"


def list_control_characters(text: str) -> list[str]:
    """Return the control characters in a text, without line ends."""
    return [char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") and char != "\n"]


def test_json_lines_contain_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    part = TextPart(
        id=PartID("P1"),
        session_id=SESSION,
        message_id=MessageID("A1"),
        text=STEERING,
        time=Span(start=1, end=2),
    )
    JsonScreen(SESSION, HandClock()).feed(PartUpdated(part=part))
    out = capsys.readouterr().out

    assert list_control_characters(out) == []
    assert json.loads(out)["part"]["text"] == STEERING


def test_escaping_leaves_no_control_character() -> None:
    every = "".join(map(chr, (*range(0x20, 0xD800), *range(0xE000, 0x110000))))
    encoded = json.dumps(every, ensure_ascii=False)

    assert list_control_characters(escape_json(encoded)) == []
    assert json.loads(escape_json(encoded)) == every


def test_the_json_of_other_commands_contains_no_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_json({"title": STEERING})
    out = capsys.readouterr().out

    assert list_control_characters(out) == []
    assert json.loads(out) == {"title": STEERING}


@pytest.mark.parametrize("thinking", [True, False])
def test_json_lines_contain_reasoning_on_request(capsys: pytest.CaptureFixture[str], thinking: bool) -> None:
    screen = JsonScreen(SESSION, HandClock(1), thinking=thinking)
    place = {"session_id": SESSION, "message_id": MessageID("A1")}
    part = ReasoningPart(id=PartID("prt_1"), **place, text="hm", time=Span(start=1))
    screen.feed(PartUpdated(part=part))
    screen.feed(PartUpdated(part=replace(part, text="hmm", time=Span(start=1, end=2))))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["type"], line["part"]["text"]) for line in lines] == (
        [("reasoning", "hmm")] if thinking else []
    )
