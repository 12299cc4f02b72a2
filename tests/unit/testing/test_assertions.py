"""Assertions about answers: what they accept, what they return, and how they say what happened instead."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.agent.answer import Answer, Call, Step
from weft.model.diff import FileDiff
from weft.model.ids import SessionID
from weft.model.part import Tokens
from weft.testing import assert_called, assert_changed, assert_cost, assert_not_called, assert_unchanged

READ = Call(tool="read", input={"filePath": "a.txt", "limit": None}, output="one", status="completed")
DENIED = Call(tool="bash", input={"command": "rm -r /"}, error="denied", status="error")
EDIT = Call(tool="edit", input={"filePath": "b.txt"}, output="", status="completed")
TEXT = FileDiff(file="docs/a.md", additions=1, deletions=0)
CODE = FileDiff(file="src/b.py", additions=2, deletions=1)


def answer(
    *calls: Call, files: tuple[FileDiff, ...] = (), cost: Decimal | None = Decimal("0.05")
) -> Answer[str]:
    steps = [
        Step(model="a/b", text="", reasoning="", calls=(call,), tokens=Tokens(input=0, output=0), cost=cost)
        for call in calls
    ]
    return Answer(
        text="",
        outcome="",
        cost=cost,
        tokens=None,
        files=files,
        steps=tuple(steps),
        session=SessionID("ses_1"),
    )


def test_a_call_with_at_least_these_arguments_is_returned() -> None:
    again = Call(tool="read", input={"filePath": "a.txt", "limit": 3}, status="completed")
    found = answer(DENIED, READ, again)
    assert assert_called(found, "read") is READ
    assert assert_called(found, "read", filePath="a.txt") is READ
    assert assert_called(found, "read", limit=3) is again
    assert assert_called(found, "read", limit=None) is READ


@pytest.mark.parametrize(
    ("calls", "arguments", "message"),
    [
        ((), {}, "the agent did not call read(); it called nothing"),
        (
            (READ, EDIT),
            {"filePath": "b.txt"},
            "the agent did not call read(filePath='b.txt'); it called Call(read(filePath='a.txt', limit=None), completed), Call(edit(filePath='b.txt'), completed)",
        ),
        (
            (READ,),
            {"offset": None},
            "the agent did not call read(offset=None); it called Call(read(filePath='a.txt', limit=None), completed)",
        ),
    ],
)
def test_a_missing_call_shows_those_that_were_made(
    calls: tuple[Call, ...], arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(AssertionError) as caught:
        assert_called(answer(*calls), "read", **arguments)
    assert str(caught.value) == message


def test_a_failed_call_was_attempted_but_not_successful() -> None:
    with pytest.raises(AssertionError, match=r"did not call bash\(\); it called Call\(bash\(.*\), error\)$"):
        assert_called(answer(DENIED), "bash")
    with pytest.raises(AssertionError) as caught:
        assert_not_called(answer(READ, DENIED), "bash")
    assert str(caught.value) == "the agent called Call(bash(command='rm -r /'), error)"
    assert_not_called(answer(READ), "bash")


@pytest.mark.parametrize("name", ["docs/a.md", "a.md", "*.md", "docs/*"])
def test_a_changed_file_is_matched_by_path_name_or_pattern(name: str) -> None:
    found = answer(files=(CODE, TEXT))
    assert assert_changed(found, name) == (TEXT,)
    assert_unchanged(answer(files=(CODE,)), name)
    with pytest.raises(AssertionError) as caught:
        assert_unchanged(found, name)
    assert str(caught.value) == "the agent changed docs/a.md"


def test_changes_are_returned_sorted_by_name() -> None:
    found = answer(files=(CODE, TEXT))
    assert assert_changed(found, "a.md", "b.py") == (TEXT, CODE)
    assert assert_changed(found) == (CODE, TEXT)


@pytest.mark.parametrize(
    ("files", "names", "message"),
    [
        ((), (), "the agent changed nothing"),
        ((), ("a.md",), "the agent did not change a.md; it changed nothing"),
        (
            (TEXT, CODE),
            ("a.md", "c.md", "d.*"),
            "the agent did not change c.md, d.*; it changed docs/a.md, src/b.py",
        ),
    ],
)
def test_an_unchanged_file_shows_those_that_changed(
    files: tuple[FileDiff, ...], names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(AssertionError) as caught:
        assert_changed(answer(files=files), *names)
    assert str(caught.value) == message


def test_without_a_name_every_file_is_meant() -> None:
    assert_unchanged(answer())
    with pytest.raises(AssertionError) as caught:
        assert_unchanged(answer(files=(TEXT, CODE)))
    assert str(caught.value) == "the agent changed docs/a.md, src/b.py"


@given(
    st.lists(st.sampled_from(["a.md", "b/c.md", "d.py"]), unique=True),
    st.sampled_from(["a.md", "c.md", "*.md", "x"]),
)
def test_a_file_is_changed_or_unchanged_and_never_both(files: list[str], name: str) -> None:
    found = answer(files=tuple(FileDiff(file=file, additions=1, deletions=0) for file in files))
    outcomes = []
    for check in (assert_changed, assert_unchanged):
        try:
            check(found, name)
            outcomes.append(True)
        except AssertionError:
            outcomes.append(False)
    assert sorted(outcomes) == [False, True]


@pytest.mark.parametrize("limit", ["0.05", Decimal("0.05"), 0.05, 1])
def test_a_cost_may_equal_its_limit(limit: Decimal | float | str) -> None:
    assert_cost(answer(), at_most=limit)


def test_a_cost_above_its_limit_or_unknown_fails() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_cost(answer(), at_most="0.04")
    assert str(caught.value) == "the answer cost $0.05, more than $0.04"
    with pytest.raises(AssertionError) as caught:
        assert_cost(answer(cost=None), at_most="9")
    assert str(caught.value) == "the cost is not known: a model has no price"


@given(st.decimals(0, 10, places=6), st.decimals(0, 10, places=6))
def test_a_cost_is_compared_exactly(cost: Decimal, limit: Decimal) -> None:
    try:
        assert_cost(answer(cost=cost), at_most=str(limit))
        accepted = True
    except AssertionError:
        accepted = False
    assert accepted == (cost <= limit)
