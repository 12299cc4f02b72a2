"""Detect tool calls that repeat in a loop (pure).

OpenCode calls such a loop a doom loop, and so does the permission `doom_loop`.
"""

from collections.abc import Iterable, Sequence
from itertools import islice, takewhile
from typing import Any, Literal

from msgspec import Struct

from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import CompletedState, ErrorState, PendingState, RunningState, TextPart, ToolPart
from weft.model.permission import CallRef

LOOP_REPEATS = 3  # of the same calls with the same outcomes
POLLING_REPEATS = 10  # of the same call with different outcomes: a few of them are legitimate polling
MAX_CYCLE_LENGTH = 4
INVALID_TOOL = "invalid"
MAX_INVALID_CALLS = 4  # in a row
MAX_FAILED_CALLS = 10  # in a row
LOOP_TEXTS = 4  # identical texts in a row, each followed by a call
MIN_TEXT_LENGTH = 20  # shorter texts repeat naturally
# What a call says about itself, by tool. It does nothing, and models word it anew each time.
LABELS = {"bash": "description"}
BLOCKED_PREFIX = "This call was not carried out:"


class PastCall(Struct, frozen=True):
    """A call that was made. `input` lacks what it says about itself. `outcome` is its output or error; None while it runs."""

    tool: str
    input: dict[str, Any]
    outcome: str | None
    failed: bool = False

    @property
    def was_blocked(self) -> bool:
        return self.outcome is not None and self.outcome.startswith(BLOCKED_PREFIX)

    def is_like(self, other: "PastCall") -> bool:
        """Return True if both are the same call with the same outcome. A call that still runs matches any outcome."""
        same = (self.tool, self.input) == (other.tool, other.input)
        return same and (None in (self.outcome, other.outcome) or self.outcome == other.outcome)


class CallLoop(Struct, frozen=True, kw_only=True):
    """A loop of calls that bring nothing new.

    * `calls`: the same `length` calls, for the `times`-th time;
    * `invalid`, `failures`, `words`: `times` invalid calls, failed calls or identical texts in a row.
    """

    length: int = 1
    times: int
    kind: Literal["calls", "invalid", "failures", "words"] = "calls"


def list_calls(
    history: Sequence[MessageWithParts], prompt: UserMessage, *, before: CallRef | None = None
) -> list[PastCall]:
    """Return the calls made in answering a prompt, oldest first: those `before` a call, or all."""
    after = list(takewhile(lambda message: message.info.id != prompt.id, reversed(history)))
    calls = (
        part
        for message in reversed(after)
        if isinstance(message.info, AssistantMessage) and message.info.parent_id == prompt.id
        for part in message.parts
        if isinstance(part, ToolPart)
    )
    # Some servers number the calls of each answer from one, so that a call id alone is not unique.
    earlier = takewhile(
        lambda part: CallRef(message_id=part.message_id, call_id=part.call_id) != before, calls
    )
    return [_to_past_call(part, part.state) for part in earlier if not isinstance(part.state, PendingState)]


def _to_past_call(part: ToolPart, state: RunningState | CompletedState | ErrorState) -> PastCall:
    match state:
        case RunningState():
            return PastCall(part.tool, _without_label(part.tool, state.input), None)
        case CompletedState():
            return PastCall(part.tool, _without_label(part.tool, state.input), state.output)
        case ErrorState():
            return PastCall(part.tool, _without_label(part.tool, state.input), state.error, failed=True)


def _without_label(tool: str, input: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in input.items() if name != LABELS.get(tool)}


def list_recent_texts(history: Sequence[MessageWithParts], prompt: UserMessage) -> list[str]:
    """Return the texts of the last `LOOP_TEXTS` answers to a prompt, the newest first."""
    after = takewhile(lambda message: message.info.id != prompt.id, reversed(history))
    answers = (message for message in after if isinstance(message.info, AssistantMessage))
    return [
        "".join(
            part.text for part in message.parts if isinstance(part, TextPart) and not part.ignored
        ).strip()
        for message in islice(answers, LOOP_TEXTS)
    ]


def find_loop(
    calls: Sequence[PastCall], tool: str, input: dict[str, Any], texts: Sequence[str] = ()
) -> CallLoop | None:
    """Return the loop that this call would continue, or None. Blocked calls do not count."""
    return _find_repetition(calls, tool, _without_label(tool, input)) or _find_stall(calls, tool, texts)


def _find_stall(calls: Sequence[PastCall], tool: str, texts: Sequence[str]) -> CallLoop | None:
    """Return a row of invalid calls, of failed calls or of identical texts, or None. Counting starts anew after a blocked call."""
    recent = list(takewhile(lambda call: not call.was_blocked, reversed(calls)))
    invalid_calls = sum(1 for _ in takewhile(lambda call: call.tool == INVALID_TOOL, recent))
    if tool == INVALID_TOOL and invalid_calls >= MAX_INVALID_CALLS:
        return CallLoop(times=invalid_calls + 1, kind="invalid")
    settled = (call for call in recent if call.outcome is not None)
    failed_calls = sum(1 for _ in takewhile(lambda call: call.failed or call.tool == INVALID_TOOL, settled))
    if failed_calls >= MAX_FAILED_CALLS:
        return CallLoop(times=failed_calls + 1, kind="failures")
    is_repeated = len(texts) == LOOP_TEXTS and len(set(texts)) == 1 and len(texts[0]) >= MIN_TEXT_LENGTH
    return CallLoop(times=LOOP_TEXTS, kind="words") if is_repeated else None


def _find_repetition(calls: Sequence[PastCall], tool: str, input: dict[str, Any]) -> CallLoop | None:
    """Return the cycle of calls that this call would repeat once too often, or None."""
    calls = [call for call in calls if not call.was_blocked]
    for length in range(1, MAX_CYCLE_LENGTH + 1):
        if _closes_cycle(calls, (tool, input), length, LOOP_REPEATS):
            return CallLoop(length=length, times=LOOP_REPEATS)
    repeats = _count_repeats(calls, tool, input)
    return CallLoop(length=1, times=repeats + 1) if repeats + 1 >= POLLING_REPEATS else None


def was_blocked(calls: Iterable[PastCall]) -> bool:
    """Return True if one of these calls was blocked because of a loop."""
    return any(call.was_blocked for call in calls)


def describe_loop(loop: CallLoop) -> str:
    """Return the text that the model reads instead of a result."""
    return f"{BLOCKED_PREFIX} {_describe(loop)} Do something else, or tell the user what is in the way."


def _describe(loop: CallLoop) -> str:
    match loop.kind:
        case "calls":
            what = "the same call" if loop.length == 1 else f"the same {loop.length} calls"
            return f"you have made {what} {loop.times - 1} times without progress."
        case "invalid":
            return f"your last {loop.times - 1} calls could not be read, or named a tool that does not exist."
        case "failures":
            return f"your last {loop.times - 1} calls have all failed."
        case "words":
            return f"your last {loop.times} answers were the same, word for word."


def _closes_cycle(
    calls: Sequence[PastCall], call: tuple[str, dict[str, Any]], length: int, times: int
) -> bool:
    """Return True if the last calls and this one are the same `length` calls, `times` times over, with the same outcomes."""
    count = length * times - 1
    if len(calls) < count:
        return False
    recent_calls = calls[len(calls) - count :]
    cycle = recent_calls[:length]
    if (cycle[-1].tool, cycle[-1].input) != call:
        return False
    if length > 1 and all(other.is_like(cycle[0]) for other in cycle):
        return False  # a single repeated call is a cycle of length one
    return all(other.is_like(cycle[index % length]) for index, other in enumerate(recent_calls))


def _count_repeats(calls: Sequence[PastCall], tool: str, input: dict[str, Any]) -> int:
    """Return how many of the last calls are the same as this one."""
    count = 0
    for call in reversed(calls):
        if (call.tool, call.input) != (tool, input):
            break
        count += 1
    return count
