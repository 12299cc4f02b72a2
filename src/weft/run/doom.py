"""Detect calls that repeat without end, and calls that a crash left unclear (pure)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import Any, Literal

from msgspec import Struct

from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import CompletedState, ErrorState, PendingState, RunningState, TextPart, ToolPart
from weft.model.permission import CallRef
from weft.session.settle import INTERRUPTED

SAME = 3  # this often the same call may be wanted, with the same outcome each time
SAME_BUT_NEWS = 10  # … when its outcome differs: whoever waits for something asks for it again and again
LONGEST_CYCLE = 4
INVALID = "invalid"
UNREADABLE = 4  # so many calls in a row that nobody could make; the next such is one too many
FRUITLESS = 10  # so many calls in a row that failed, whatever they were
SAME_WORDS = 4  # answers in a row in the same words, each with a call behind them
ENOUGH_WORDS = 20  # shorter ones are said again and again by anybody
BLOCKED = "This call was not carried out:"


class Made(Struct, frozen=True):
    """A call that was made, and what came of it; None while it is under way."""

    tool: str
    input: dict[str, Any]
    outcome: str | None
    failed: bool = False

    @property
    def was_blocked(self) -> bool:
        return self.outcome is not None and self.outcome.startswith(BLOCKED)

    def is_like(self, other: "Made") -> bool:
        """Whether both are the same call with the same outcome. One that is under way may come to any."""
        same = (self.tool, self.input) == (other.tool, other.input)
        return same and (None in (self.outcome, other.outcome) or self.outcome == other.outcome)


class Doom(Struct, frozen=True, kw_only=True):
    """A loop: so many calls, over and over, the last of them about to be made for the `times`-th time; or calls that
    bring nothing, or words, over and over."""

    length: int = 1
    times: int
    kind: Literal["calls", "invalid", "failures", "words"] = "calls"


def made_for(
    history: Sequence[MessageWithParts], prompt: UserMessage, *, before: CallRef | None = None
) -> list[Made]:
    """Return the calls made in answering a prompt, oldest first: those `before` a call, or all."""
    after = list(takewhile(lambda message: message.info.id != prompt.id, reversed(history)))
    calls = (
        part
        for message in reversed(after)
        if isinstance(message.info, AssistantMessage) and message.info.parent_id == prompt.id
        for part in message.parts
        if isinstance(part, ToolPart)
    )
    # Some servers begin to count anew in every answer, so that an id alone names several calls.
    earlier = takewhile(
        lambda part: CallRef(message_id=part.message_id, call_id=part.call_id) != before, calls
    )
    return [_to_made(part, part.state) for part in earlier if not isinstance(part.state, PendingState)]


def _to_made(part: ToolPart, state: RunningState | CompletedState | ErrorState) -> Made:
    match state:
        case RunningState():
            return Made(part.tool, state.input, None)
        case CompletedState():
            return Made(part.tool, state.input, state.output)
        case ErrorState():
            return Made(part.tool, state.input, state.error, failed=True)


def said_for(history: Sequence[MessageWithParts], prompt: UserMessage) -> list[str]:
    """The words of the last answers to a prompt, the newest first, as many as there is a need to compare."""
    after = takewhile(lambda message: message.info.id != prompt.id, reversed(history))
    answers = (message for message in after if isinstance(message.info, AssistantMessage))
    return [
        "".join(
            part.text for part in message.parts if isinstance(part, TextPart) and not part.ignored
        ).strip()
        for message in islice(answers, SAME_WORDS)
    ]


def find_doom(
    made: Sequence[Made], tool: str, input: dict[str, Any], said: Sequence[str] = ()
) -> Doom | None:
    """Whether making this call now would go round in a circle. What was not carried out is no part of one."""
    return _circle(made, tool, input) or _rut(made, tool, said)


def _rut(made: Sequence[Made], tool: str, said: Sequence[str]) -> Doom | None:
    """Calls that differ, and get nowhere all the same. What was blocked was pointed out; it counts from there anew."""
    recent = list(takewhile(lambda call: not call.was_blocked, reversed(made)))
    unreadable = sum(1 for _ in takewhile(lambda call: call.tool == INVALID, recent))
    if tool == INVALID and unreadable >= UNREADABLE:
        return Doom(times=unreadable + 1, kind="invalid")
    settled = (call for call in recent if call.outcome is not None)
    failures = sum(1 for _ in takewhile(lambda call: call.failed or call.tool == INVALID, settled))
    if failures >= FRUITLESS:
        return Doom(times=failures + 1, kind="failures")
    alike = len(said) == SAME_WORDS and len(set(said)) == 1 and len(said[0]) >= ENOUGH_WORDS
    return Doom(times=SAME_WORDS, kind="words") if alike else None


def _circle(made: Sequence[Made], tool: str, input: dict[str, Any]) -> Doom | None:
    made = [call for call in made if not call.was_blocked]
    for length in range(1, LONGEST_CYCLE + 1):
        if _closes_circle(made, (tool, input), length, SAME):
            return Doom(length=length, times=SAME)
    same = _tail(made, tool, input)
    return Doom(length=1, times=same + 1) if same + 1 >= SAME_BUT_NEWS else None


def was_blocked(made: Iterable[Made]) -> bool:
    """Whether a circle was pointed out before in this turn."""
    return any(call.was_blocked for call in made)


def hint(doom: Doom) -> str:
    """What the model reads instead of the result it has had before."""
    return f"{BLOCKED} {_found(doom)} Do something else, or tell the user what is in the way."


def _found(doom: Doom) -> str:
    match doom.kind:
        case "calls":
            what = "the same call" if doom.length == 1 else f"the same {doom.length} calls"
            return f"you have made {what} {doom.times - 1} times, and it brought nothing new."
        case "invalid":
            return f"your last {doom.times - 1} calls could not be read or name no tool there is."
        case "failures":
            return f"your last {doom.times - 1} calls have all failed."
        case "words":
            return f"your last {doom.times} answers were the same, word for word."


def _closes_circle(made: Sequence[Made], call: tuple[str, dict[str, Any]], length: int, times: int) -> bool:
    """Whether the last calls and this one are the same `length` calls, `times` over, outcomes and all."""
    needed = length * times - 1
    if len(made) < needed:
        return False
    recent = made[len(made) - needed :]
    cycle = recent[:length]
    if (cycle[-1].tool, cycle[-1].input) != call:
        return False
    if length > 1 and all(each.is_like(cycle[0]) for each in cycle):
        return False  # one call over and over is a circle of one, and is judged as that
    return all(each.is_like(cycle[index % length]) for index, each in enumerate(recent))


def _tail(made: Sequence[Made], tool: str, input: dict[str, Any]) -> int:
    """How many of the last calls were this very one."""
    count = 0
    for call in reversed(made):
        if (call.tool, call.input) != (tool, input):
            break
        count += 1
    return count


# Made twice, these change no more than made once.
HARMLESS = frozenset(
    {"read", "glob", "grep", "list", "lsp", "todoread", "todowrite", "recall", "skill", "question", "invalid"}
    | {"webfetch", "websearch", "codesearch", "task", "batch", "plan_enter", "plan_exit", "jobs"}
)
NOT_AGAIN = (
    "This call was cut off earlier, and may have had its effect. It was not made again, because nobody agreed to that. "
    "Look whether it took effect, and go on from there."
)


def is_unclear(history: Sequence[MessageWithParts], call_id: str, tool: str, input: dict[str, Any]) -> bool:
    """Whether the last call like this one was interrupted, so that nobody knows how far it came."""
    if tool in HARMLESS:
        return False
    alike = (
        part.state
        for part in _calls(history)
        if part.call_id != call_id and part.tool == tool and part.state.input == input
    )
    last = next(alike, None)
    return isinstance(last, ErrorState) and last.error == INTERRUPTED


def _calls(history: Sequence[MessageWithParts]) -> Iterator[ToolPart]:
    """The newest first."""
    for message in reversed(history):
        yield from (part for part in reversed(message.parts) if isinstance(part, ToolPart))
