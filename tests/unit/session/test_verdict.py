"""What became of a call whose process died, judged from its evidence."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from given.conversation import assistant_message, tool_part
from weft.model.event import PartUpdated
from weft.model.part import CompletedState, ErrorState, PendingState, RunningState, Span, ToolPart
from weft.model.verdict import (
    CallEvidence,
    CallResult,
    CallVerdict,
    CommandTrace,
    FileIntent,
    find_evidence,
    find_verdict,
    with_evidence,
)
from weft.session.settle import INTERRUPTED, is_interrupted, to_settling_events
from weft.session.verdict import ELSEWHERE, NEVER_STARTED, RESTARTED, CallFindings, judge_call

RESULT = CallResult(title="t", output="done")
TRACE = CommandTrace(token="0" * 32, record="/o/tool_1.exit", watched=True)


def running_call(tool: str, evidence: CallEvidence | None, **metadata: Any) -> ToolPart:
    state = RunningState(input={}, metadata=with_evidence(metadata or None, evidence), time=Span(start=1))
    return replace(tool_part("A1", 1, tool), state=state)


def judge(evidence: CallEvidence | None, tool: str = "bash", **found: Any) -> CallVerdict:
    return judge_call(running_call(tool, evidence, output="so far"), CallFindings(**found), "/project")


def files(*paths: str) -> CallEvidence:
    intents = tuple(
        FileIntent(path=f"/project/{path}", before=f"old {path}", after=f"new {path}") for path in paths
    )
    return CallEvidence(files=intents, result=RESULT)


def test_a_call_without_notes_did_not_start_if_its_tool_takes_notes() -> None:
    assert judge(CallEvidence()) == NEVER_STARTED
    assert judge(None, "my_tool").kind == "unknown"
    assert judge(None, "grep").kind == "unchanged"
    pending = replace(tool_part("A1"), state=PendingState(input={}, raw=""))
    assert judge_call(pending, CallFindings(), "/").kind == "not-started"


def test_after_a_reboot_nothing_proves_that_a_call_did_not_start() -> None:
    """A power cut loses what was noted last, and the record of a command."""
    pending = replace(tool_part("A1"), state=PendingState(input={}, raw=""))
    unknown = CallVerdict(kind="unknown", why=RESTARTED)
    assert judge_call(pending, CallFindings(restarted=True), "/") == unknown
    assert judge(CallEvidence(), restarted=True) == unknown
    assert judge(CallEvidence(command=TRACE), here=True, began=False, restarted=True) == unknown


def test_files_are_judged_by_their_present_content() -> None:
    old, new = "old a", "new a"
    assert judge(files("a"), here=True, contents={"/project/a": old}).kind == "unchanged"
    done = judge(files("a"), here=True, contents={"/project/a": new})
    assert (done.kind, done.files, done.result) == ("finished", ("a",), RESULT)
    other = judge(files("a"), here=True, contents={"/project/a": "of a person"})
    assert (other.kind, other.result) == ("unknown", None)
    assert judge(files("a"), here=True).kind == "unknown"
    half = judge(files("a", "b"), here=True, contents={"/project/a": new, "/project/b": "old b"})
    assert (half.kind, half.files) == ("partial", ("a",))
    assert half.why == "It is partly done. a is as intended. b is as before."


@given(states=some.lists(some.sampled_from(["old", "new", "else", "unreadable"]), min_size=1, max_size=6))
def test_a_call_is_finished_only_if_all_its_files_are_as_intended(states: list[str]) -> None:
    names = [f"f{number}" for number in range(len(states))]
    contents = {
        f"/project/{name}": f"{state} {name}"
        for name, state in zip(names, states, strict=True)
        if state != "unreadable"
    }
    verdict = judge(files(*names), "apply_patch", here=True, contents=contents)
    assert (verdict.kind == "finished") == (set(states) == {"new"})
    assert (verdict.kind == "unchanged") == (set(states) == {"old"})
    assert (verdict.kind == "partial") == (set(states) == {"old", "new"})
    assert (verdict.result is not None) == (verdict.kind == "finished")


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ({"here": False}, "unknown"),
        ({"here": True, "began": False}, "not-started"),
        ({"here": True, "began": True, "code": 0}, "finished"),
        ({"here": True, "began": True, "seen": True}, "unchanged"),
        ({"here": True, "began": True}, "unknown"),
        ({"here": True, "began": None, "seen": True}, "unknown"),
        ({"here": True, "began": True, "changed": ("/project/a",)}, "partial"),
        ({"here": True, "began": True, "changed": ("/project/a",), "shared": True}, "unknown"),
    ],
)
def test_a_command_is_judged_by_its_record_and_the_files_around_it(found: dict[str, Any], kind: str) -> None:
    assert judge(CallEvidence(command=TRACE), **found).kind == kind


def test_a_noted_result_counts_on_every_machine_and_no_other_evidence_does() -> None:
    noted = judge(CallEvidence(command=TRACE, result=RESULT))
    assert noted.kind == "finished"
    assert noted.result == replace(RESULT, metadata={"output": "done"})
    assert judge(CallEvidence(command=TRACE)).why == ELSEWHERE
    assert judge(files("a"), contents={"/project/a": "new a"}).why == ELSEWHERE


def test_the_claim_of_a_server_to_be_read_only_is_not_proof() -> None:
    asked = CallEvidence(server="loom")
    assert judge(asked).kind == "unknown"
    claimed = judge(replace(asked, read_only=True))
    assert (claimed.kind, claimed.repeatable) == ("unchanged", False)
    assert judge(replace(asked, result=RESULT)).kind == "finished"


def test_evidence_and_verdicts_survive_encoding() -> None:
    evidence = replace(files("a", "b"), machine="m", covered=True)
    part = running_call("write", evidence, output="x")
    assert isinstance(part.state, RunningState)
    assert find_evidence(part.state.metadata) == evidence
    assert find_evidence({"weft": {"evidence": "nonsense"}}) is None
    assert find_verdict({"weft": {"verdict": "nonsense", "why": ""}}) is None


def settle(verdict: CallVerdict) -> CompletedState | ErrorState:
    part = running_call("bash", CallEvidence(command=TRACE), output="so far")
    (event, *_) = to_settling_events([assistant_message("A1", 2, "U1", part)], {part.id: verdict})
    assert isinstance(event, PartUpdated)
    assert isinstance(event.part, ToolPart)
    assert isinstance(event.part.state, CompletedState | ErrorState)
    return event.part.state


def test_a_finished_call_is_completed_and_any_other_failed_with_its_verdict() -> None:
    done = CallVerdict(kind="finished", why="It finished.", result=RESULT)
    state = settle(done)
    assert isinstance(state, CompletedState)
    assert state.output == "done\n\n[weft died while this call was under way. It finished.]"
    assert find_verdict(state.metadata) == replace(done, result=None)
    half = CallVerdict(kind="partial", why="It is partly done.", files=("a",))
    failed = settle(half)
    assert isinstance(failed, ErrorState)
    assert is_interrupted(failed)
    assert failed.error == f"{INTERRUPTED}: weft died while this call was under way. It is partly done."
    assert find_verdict(failed.metadata) == half
    assert find_evidence(failed.metadata) is None
