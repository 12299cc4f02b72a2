"""Convert a growing history into what a model is shown, and cache the result for each message (pure).

A step adds one or two messages to a history of maybe thousands. How a message is shown depends only on the messages before it, so
the result of one step is valid for the next. Only the refusal of an API changes how earlier messages are shown; then all of them
are converted again.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.context.exclusions import Exclusions, Refusal, exclude_from, find_exclusions, list_refusals
from weft.context.history import asks_for_summary, is_undone, to_turns
from weft.context.notes import list_note_parts
from weft.context.reminders import (
    ReminderState,
    get_json_format,
    is_missing_value,
    make_value_reminder,
    show_message,
)
from weft.model.catalog import Model
from weft.model.ids import MessageID, SessionID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import CompletedState, TextPart, ToolPart
from weft.provider.contract import ModelMessage

MAX_CACHED_VIEWS: Final = 4

NO_MARKS: Mapping[MessageID, int] = {}
NO_PROMPTS: Mapping[MessageID, UserMessage] = {}


class ShownHistory(Struct, frozen=True, kw_only=True):
    """What a model is shown of a history.

    `turns` are the messages since the last compaction, `notes` those that it cut off. `is_cut` says that there was a compaction,
    `has_jobs` that a command was left running in the background.
    """

    turns: tuple[ModelMessage, ...]
    is_cut: bool
    notes: tuple[TextPart, ...]
    has_jobs: bool


class HistoryState(Struct, frozen=True, kw_only=True):
    """What the messages so far mean for the next ones.

    `start` is the position of the last compaction, `marks` are the positions of the requests for one, and `undone` are those
    that were undone. `valued` are the prompts that ask for a value, `notes` the notes in prompts.
    """

    before: ReminderState = ReminderState()
    start: int = 0
    marks: Mapping[MessageID, int] = NO_MARKS
    undone: frozenset[MessageID] = frozenset()
    valued: Mapping[MessageID, UserMessage] = NO_PROMPTS
    notes: tuple[TextPart, ...] = ()
    has_jobs: bool = False


class View:
    """Converts one history again and again as it grows. Another history works, too, but clears the cache."""

    def __init__(self) -> None:
        self._of: object = None
        self._known: list[MessageWithParts] = []
        self._refusals: list[Refusal] = []
        self._shown: list[tuple[MessageWithParts, ...]] = []
        self._turns: list[tuple[ModelMessage, ...]] = []
        self._states: list[HistoryState] = []

    def show(self, history: Sequence[MessageWithParts], model: Model, *, plan_files: bool) -> ShownHistory:
        """Return what this model is shown of the history."""
        self._drop_from(self._count_same(history))
        new = range(len(self._known), len(history))
        self._known += history[len(self._known) :]
        self._refusals += [(at, mark) for at in new for mark in list_refusals(history[at])]
        exclusions = find_exclusions(model, self._refusals)
        asked = (model.provider_id, model.id, plan_files, exclusions)
        if asked != self._of:
            self._of, self._shown, self._turns, self._states = asked, [], [], []
        for at in range(len(self._turns), len(history)):
            self._take(at, model, exclusions, plan_files=plan_files)
        last = self._states[-1] if self._states else HistoryState()
        return ShownHistory(
            turns=tuple(chain.from_iterable(self._turns[last.start :])),
            is_cut=last.start > 0,
            notes=self._states[last.start - 1].notes if last.start else (),
            has_jobs=last.has_jobs,
        )

    def list_shown(self) -> tuple[MessageWithParts, ...]:
        """Return the messages that were shown last, with reminders and without excluded content."""
        start = self._states[-1].start if self._states else 0
        pairs = zip(self._shown[start:], self._turns[start:], strict=True)
        return tuple(message for shown, turns in pairs if turns for message in shown)

    def _count_same(self, history: Sequence[MessageWithParts]) -> int:
        """Return how many cached messages are still the first ones of the history."""
        many = min(len(self._known), len(history))
        while many and self._known[many - 1] is not history[many - 1]:
            many -= 1
        # Comparing lists checks identity first, so this is cheap for unchanged messages.
        return many if self._known[:many] == list(history[:many]) else 0

    def _drop_from(self, place: int) -> None:
        for cache in (self._known, self._shown, self._turns, self._states):
            del cache[place:]
        self._refusals = [each for each in self._refusals if each[0] < place]

    def _take(self, at: int, model: Model, exclusions: Exclusions, *, plan_files: bool) -> None:
        state = self._states[-1] if self._states else HistoryState()
        message = exclude_from(self._known[at], at, exclusions)
        shown, before = show_message(message, state.before, plan_files=plan_files)
        seen = _list_shown(shown, state)
        self._shown.append(seen)
        self._turns.append(tuple(turn for each in seen for turn in to_turns(each, model)))
        self._states.append(_next_state(state, at, message, before))


class Views:
    """The views of the sessions that ran last, so that the next run can use their caches."""

    def __init__(self) -> None:
        self._views: dict[SessionID, View] = {}

    @contextmanager
    def of(self, session: SessionID) -> Generator[View]:
        """Lend the view of a session to a run. It is kept for the next run if the body does not raise."""
        view = self._views.pop(session, None) or View()
        yield view
        # After a run that failed, the next one starts with an empty cache.
        self._views[session] = view
        while len(self._views) > MAX_CACHED_VIEWS:
            del self._views[next(iter(self._views))]


def _list_shown(message: MessageWithParts, state: HistoryState) -> tuple[MessageWithParts, ...]:
    info = message.info
    # A compaction that was undone shows neither its request nor its summary.
    if is_undone(message) or (isinstance(info, AssistantMessage) and info.parent_id in state.undone):
        return ()
    if isinstance(info, AssistantMessage) and info.parent_id in state.valued and is_missing_value(message):
        return message, make_value_reminder(state.valued[info.parent_id], info)
    return (message,)


def leaves_job(message: MessageWithParts) -> bool:
    """Return True if a call in the message left a background job running."""
    return any(
        isinstance(part, ToolPart) and isinstance(part.state, CompletedState) and "job" in part.state.metadata
        for part in message.parts
    )


def _next_state(
    state: HistoryState, at: int, message: MessageWithParts, before: ReminderState
) -> HistoryState:
    """Return the state after one more message. Most messages change only `before`."""
    info = message.info
    if before is not state.before:
        state = replace(state, before=before)
    if isinstance(info, AssistantMessage):
        if info.summary and info.finish and info.parent_id in state.marks:
            state = replace(state, start=max(state.start, state.marks[info.parent_id]))
        if not state.has_jobs and leaves_job(message):
            state = replace(state, has_jobs=True)
        return state
    if notes := list_note_parts(message):
        state = replace(state, notes=(*state.notes, *notes))
    if is_undone(message):
        state = replace(state, undone=state.undone | {info.id})
    if asks_for_summary(message):
        state = replace(state, marks={**state.marks, info.id: at})
    if get_json_format(info) is not None:
        state = replace(state, valued={**state.valued, info.id: info})
    return state
