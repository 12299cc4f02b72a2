"""Permission requests and questions: what is shown, and what typed words mean."""

import pytest
from msgspec.structs import replace

from unit.tui.test_view import REQUEST
from weft.model.ids import QuestionID
from weft.model.permission import DEFAULT_GRANT_TERMS, GrantTerms, Option, Question, QuestionRequest, Reply
from weft.tui.dialog import (
    DialogChoice,
    is_answer,
    is_reply,
    list_choices,
    render_permission,
    render_question,
    to_answers,
    to_reply,
)
from weft.tui.text import to_plain_text

LASTING = replace(REQUEST, always=("ls *",))
QUESTION = Question(
    question="Which?",
    header="h",
    options=(Option(label="red", description="fire"), Option(label="blue", description="water")),
)


@pytest.mark.parametrize(
    ("typed", "reply", "message", "terms"),
    [
        ("1", "once", "", DEFAULT_GRANT_TERMS),
        ("2", "always", "", DEFAULT_GRANT_TERMS),
        ("3", "always", "", GrantTerms(scope="turn")),
        ("4", "always", "", GrantTerms(scope="project")),
        ("5 use git", "reject", "use git", DEFAULT_GRANT_TERMS),
        ("y", "once", "", DEFAULT_GRANT_TERMS),
        ("no not that", "reject", "not that", DEFAULT_GRANT_TERMS),
        ("use git", "reject", "use git", DEFAULT_GRANT_TERMS),
        ("9", "reject", "9", DEFAULT_GRANT_TERMS),
        ("", "reject", "", DEFAULT_GRANT_TERMS),
    ],
)
def test_a_reply_is_a_number_a_word_or_a_reason(
    typed: str, reply: Reply, message: str, terms: GrantTerms
) -> None:
    assert to_reply(typed, list_choices(LASTING)) == (reply, message, terms)


def test_without_a_lasting_grant_there_are_two_choices() -> None:
    assert to_reply("2", list_choices(REQUEST)) == ("reject", "", DEFAULT_GRANT_TERMS)


def test_a_permission_is_shown_with_its_parts_and_reasons() -> None:
    assert to_plain_text(render_permission(LASTING, 60, agent="build")).split("\n") == [
        "? Allow bash?",
        "  • ls",
        "    asked because: rm is not allowed",
        "  1 once",
        "  2 always (ls *)",
        "  3 until this turn ends",
        "  4 always in this project",
        "  5 no; type a reason after the number",
    ]


@pytest.mark.parametrize(
    ("permission", "metadata", "agent", "source"),
    [
        ("bash", {}, "plan", "a rule asks for it (weft permission explain --agent plan)"),
        ("bash", {}, "my own", "a rule asks for it (weft permission explain --agent 'my own')"),
        (
            "external_directory",
            {"command": "ls /"},
            "build",
            "a rule asks for it (weft permission explain --agent build)",
        ),
        ("bash", {}, "", "a rule asks for it (weft permission log)"),
        ("webfetch", {"url": "https://a.b"}, "build", "a rule asks for it (weft permission log)"),
        ("bash", {}, None, "the server's rules ask for it"),
    ],
)
def test_a_request_without_a_reason_says_where_its_rule_is_found(
    permission: str, metadata: dict[str, str], agent: str | None, source: str
) -> None:
    request = replace(REQUEST, permission=permission, metadata=metadata)
    shown = to_plain_text(render_permission(request, 100, agent=agent)).split("\n")
    assert shown[2] == f"    asked because: {source}"


def test_a_question_is_shown_with_numbers() -> None:
    request = QuestionRequest(id=QuestionID("que_1"), session_id=REQUEST.session_id, questions=(QUESTION,))
    assert to_plain_text(render_question(request, 0, 80)).split("\n") == [
        "? Which?",
        "  1 red  fire",
        "  2 blue  water",
        "  type a number or your own words; an empty line rejects the question",
    ]


@pytest.mark.parametrize(
    ("typed", "answers"), [("2", ("blue",)), ("red", ("red",)), ("green", ("green",)), ("", ())]
)
def test_an_answer_is_a_number_a_label_or_free_text(typed: str, answers: tuple[str, ...]) -> None:
    assert to_answers(QUESTION, typed) == answers


@pytest.mark.parametrize(
    ("typed", "answers"),
    [
        ("", False),
        ("  ", False),
        ("9", False),
        ("0", False),
        ("1", True),
        ("no thanks", True),
        ("2 files are enough", True),
    ],
)
def test_a_slip_of_the_finger_is_no_reply(typed: str, answers: bool) -> None:
    choices = [DialogChoice(label="once", word="once"), DialogChoice(label="no", word="no")]
    assert is_reply(typed, choices) is answers


@pytest.mark.parametrize(
    ("question", "typed", "answers"),
    [
        (QUESTION, "2", True),
        (QUESTION, "3", False),
        (QUESTION, "0", False),
        (QUESTION, "green", True),
        (QUESTION, "", True),
        (replace(QUESTION, custom=False), "green", False),
        (replace(QUESTION, multiple=True), "1, 2", True),
        (replace(QUESTION, options=()), "40", True),
    ],
)
def test_a_slip_of_the_finger_is_no_answer(question: Question, typed: str, answers: bool) -> None:
    assert is_answer(question, typed) is answers


def test_a_number_of_thousands_of_digits_is_no_choice() -> None:
    many = "9" * 5000
    choices = list_choices(REQUEST)
    assert not is_reply(many, choices)
    assert to_reply(many, choices)[0] == "reject"
    assert not is_answer(QUESTION, many)
