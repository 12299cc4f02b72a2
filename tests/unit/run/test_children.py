"""What a child session may do, what it is shown, and what it returns."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from given.conversation import SESSION, assistant_message, ids, text, tool_part, user_message
from weft.errors import ToolError
from weft.model.agent import AgentInfo
from weft.model.event import PartRemoved, PartUpdated
from weft.model.failure import aborted_failure, unknown_failure
from weft.model.ids import GLOBAL_PROJECT, MessageID, SessionID
from weft.model.input import AgentInput, FileInput, TextInput
from weft.model.part import CallTime, ErrorState, ModelRef, RunningState, Span, ToolPart
from weft.model.permission import Action, Rule, Ruleset
from weft.model.project import Place, Project, ProjectTime
from weft.model.session import SessionInfo, SessionTime, get_weft_data
from weft.permission.rules import STRICTEST_FIRST, evaluate, judge, to_rulesets
from weft.run.attachments import MentionScope, list_mentions, resolve_mentions
from weft.run.child_rules import NO_ANSWER, ChildProgress, get_child_text, list_denied, narrow_child

PERMISSIONS = ("bash", "edit", "read", "task")
PATTERNS = ("*", "a*", "ab", "b")
ACTIONS: tuple[Action, ...] = ("allow", "ask", "deny")
ALLOW = Rule(permission="*", pattern="*", action="allow")

rules = st.builds(
    Rule,
    permission=st.sampled_from(("*", *PERMISSIONS)),
    pattern=st.sampled_from(PATTERNS),
    action=st.sampled_from(ACTIONS),
)
rulesets = st.lists(rules, max_size=6).map(tuple)


def session(id: str, permission: Ruleset = (), parent: str | None = None) -> SessionInfo:
    return SessionInfo(
        id=SessionID(id),
        parent_id=SessionID(parent) if parent else None,
        permission=permission,
        time=SessionTime(created=1, updated=1),
    )


def agent(*permission: Rule, name: str = "general") -> AgentInfo:
    return AgentInfo(name=name, mode="subagent", permission=permission)


def deny(permission: str, pattern: str = "*") -> Rule:
    return Rule(permission=permission, pattern=pattern, action="deny")


def rank(action: Action) -> int:
    return -STRICTEST_FIRST.index(action)


def judge_by_rules(ruleset: Ruleset, permission: str, pattern: str) -> Action:
    """Return the verdict of rules alone; without a rule it is allow."""
    return evaluate(permission, pattern, (ALLOW, *ruleset)).action


@given(rulesets, rulesets, rulesets, st.sampled_from(PERMISSIONS), st.sampled_from(("ab", "b", "x")))
def test_a_child_may_do_no_more_than_the_rules_of_its_parent_session(
    above: Ruleset, doing: Ruleset, own: Ruleset, permission: str, pattern: str
) -> None:
    worker = agent(*doing)
    parent = session("ses_a", above)
    child = narrow_child(session("ses_b", own, "ses_a"), parent, list_denied(worker, (), deepest=False), None)
    verdict = judge(permission, pattern, to_rulesets(worker, child)).action

    assert rank(verdict) >= rank(judge_by_rules(above, permission, pattern))


@given(rulesets, rulesets, rulesets, st.sampled_from(("ab", "b", "x")))
def test_a_grandchild_may_do_no_more_than_the_rules_of_the_first_session(
    above: Ruleset, doing: Ruleset, own: Ruleset, pattern: str
) -> None:
    worker = agent(*doing)
    top = session("ses_a", above)
    child = narrow_child(session("ses_b", (), "ses_a"), top, (), None)
    grandchild = narrow_child(session("ses_c", own, "ses_b"), child, (), None)
    verdict = judge("bash", pattern, to_rulesets(worker, grandchild)).action

    assert rank(verdict) >= rank(judge_by_rules(above, "bash", pattern))


@given(rulesets, rulesets, rulesets, st.sampled_from(("ab", "b", "x")))
def test_a_child_of_an_agent_that_may_not_edit_may_not_edit(
    sending: Ruleset, doing: Ruleset, own: Ruleset, pattern: str
) -> None:
    sender, worker = agent(ALLOW, *sending), agent(*doing)
    said = tuple(rule for rule in sending if rule.permission == "edit")
    child = narrow_child(session("ses_b", own, "ses_a"), session("ses_a"), (), sender)
    grandchild = narrow_child(session("ses_c", (), "ses_b"), child, (), worker)
    if judge_by_rules(said, "edit", pattern) == "deny":
        for each in (child, grandchild):
            assert judge("edit", pattern, to_rulesets(worker, each)).action == "deny"


@given(rulesets, rulesets, rulesets)
def test_narrowing_is_idempotent(above: Ruleset, sending: Ruleset, own: Ruleset) -> None:
    parent, sender = session("ses_a", above), agent(*sending)
    denied = list_denied(sender, ("secret",), deepest=True)
    once = narrow_child(session("ses_b", own, "ses_a"), parent, denied, sender)

    assert narrow_child(once, parent, denied, sender) == once


def test_a_child_keeps_tools_that_its_agent_allows_by_name_except_task_at_the_deepest_level() -> None:
    named = agent(
        Rule(permission="task", pattern="*", action="allow"),
        Rule(permission="todowrite", pattern="*", action="allow"),
    )

    assert list_denied(agent(ALLOW), (), deepest=False) == (
        deny("todowrite"), deny("todoread"), deny("task"),
    )  # fmt: skip
    assert list_denied(named, ("speak",), deepest=False) == (deny("todoread"), deny("speak"))
    assert list_denied(named, (), deepest=True) == (deny("todoread"), deny("task"))


def test_rules_that_deny_no_file_add_no_limits() -> None:
    child = session("ses_b", (), "ses_a")
    for sender in (None, agent(ALLOW), agent(deny("bash")), agent(deny("*"))):
        assert get_weft_data(narrow_child(child, session("ses_a"), (), sender)).limits == ()


# --- mentions ---


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("see @src/a.py.", ["src/a.py"]),
        ("@a, @b and @a", ["a", "b"]),
        ("mail me@here or `@there`", []),
        ("a lone @ and @ again", []),
        ("@.env and @../x/y.tar.gz", [".env", "../x/y.tar.gz"]),
        ("(@docs/)", ["docs/)"]),
    ],
)
def test_mentions_are_found(words: str, names: list[str]) -> None:
    assert list_mentions(words) == names


def reader(directory: Path, *permission: Rule, **more: Any) -> MentionScope:
    project = Project(id=GLOBAL_PROJECT, worktree=str(directory), time=ProjectTime(created=1, updated=1))
    place = Place(project=project, directory=str(directory), worktree=str(directory))
    return MentionScope(place=place, rulesets=((ALLOW, *permission),), agents=more.get("agents", {}))


async def test_mentioned_files_and_directories_of_the_project_are_attached(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "a file.py").write_text("x")
    (tmp_path / "b.py").write_text("x")
    words = "look at @b.py and @src"

    assert await resolve_mentions(words, reader(tmp_path)) == (
        TextInput(text=words),
        FileInput(mime="text/plain", filename="b.py", url=(tmp_path / "b.py").as_uri()),
        FileInput(mime="application/x-directory", filename="src", url=(tmp_path / "src").as_uri()),
    )


async def test_a_mention_outside_of_the_project_or_that_would_ask_stays_text(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    outside.mkdir()
    (outside / "key").write_text("secret")
    (project / ".env").write_text("secret")
    os.symlink(outside / "key", project / "link")
    os.symlink(project / ".env", project / "plain")
    ask = Rule(permission="read", pattern="*.env", action="ask")
    words = f"@{outside}/key @~/key @link @.env @plain @nothing.py"

    assert await resolve_mentions(words, reader(project, ask)) == (TextInput(text=words),)


async def test_an_agent_is_mentioned_only_to_a_child_that_may_delegate(tmp_path: Path) -> None:
    agents = {"explore": agent(ALLOW, name="explore")}

    assert await resolve_mentions("ask @explore", reader(tmp_path, agents=agents)) == (
        TextInput(text="ask @explore"),
        AgentInput(name="explore"),
    )
    assert await resolve_mentions("ask @explore", reader(tmp_path, deny("task"), agents=agents)) == (
        TextInput(text="ask @explore"),
    )


# --- the result of a child ---


def test_the_result_of_a_child_is_its_last_text() -> None:
    answer = assistant_message(
        "A1", 2, "U1", text("A1", "let me see", 1), tool_part("A1", 2), text("A1", "there", 3)
    )

    assert get_child_text(answer, SESSION) == "there"


def test_without_a_text_the_failed_calls_are_listed() -> None:
    call = tool_part("A1")
    state = ErrorState(input={}, error="The user said no", time=CallTime(start=1, end=2))

    assert get_child_text(assistant_message("A1", 2, "U1", replace(call, state=state)), SESSION) == (
        f"{NO_ANSWER}\nread: The user said no"
    )
    assert get_child_text(assistant_message("A1", 2, "U1"), SESSION) == NO_ANSWER


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (user_message("U1", 1), NO_ANSWER),
        (assistant_message("A1", 2, "U1", error=unknown_failure("boom")), "The subagent failed: boom."),
        (
            assistant_message("A1", 2, "U1", text("A1", "half"), error=aborted_failure()),
            "Before that it said: half",
        ),
    ],
)
def test_a_child_that_did_not_finish_is_an_error(answer: Any, said: str) -> None:
    with pytest.raises(ToolError) as raised:
        get_child_text(answer, SESSION)
    assert said in str(raised.value)
    assert f"session_id {SESSION}" in str(raised.value)


def test_progress_has_a_line_for_each_call_of_the_child() -> None:
    progress = ChildProgress(
        SESSION, ModelRef(provider_id="p", model_id="m"), [assistant_message("A1", 2, "U1", tool_part("A1"))]
    )
    running = ToolPart(
        **ids("A2", 2), call_id="c", tool="bash", state=RunningState(input={}, time=Span(start=1))
    )
    stranger = replace(running, session_id=SessionID("ses_other"))
    first = {"id": tool_part("A1").id, "tool": "read", "state": {"status": "completed", "title": "t"}}
    second = {"id": running.id, "tool": "bash", "state": {"status": "running"}}

    assert not progress.feed([PartUpdated(part=stranger), PartUpdated(part=text("A2", "words"))])
    assert progress.feed([PartUpdated(part=running)])
    assert not progress.feed([PartUpdated(part=running)])
    assert progress.metadata() == {
        "summary": [first, second],
        "sessionId": SESSION,
        "model": {"providerID": "p", "modelID": "m"},
    }
    gone = PartRemoved(session_id=SESSION, message_id=MessageID("A2"), part_id=running.id)
    assert progress.feed([gone])
    assert progress.metadata()["summary"] == [first]
