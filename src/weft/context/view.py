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
from weft.context.history import asks_for_summary, convert_message, is_undone
from weft.context.notes import list_note_parts
from weft.context.reminders import (
    ReminderState,
    find_json_format,
    is_missing_value,
    make_value_reminder,
    show_message,
)
from weft.model.catalog import Model
from weft.model.ids import MessageID, SessionID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage, count_same
from weft.model.part import CompletedState, TextPart, ToolPart
from weft.provider.contract import ModelMessage

MAX_CACHED_VIEWS: Final = 4

NO_POSITIONS: Mapping[MessageID, int] = {}
NO_PROMPTS: Mapping[MessageID, UserMessage] = {}


class ShownHistory(Struct, frozen=True, kw_only=True):
    """The part of a history that a model is shown.

    `messages` are the messages since the last compaction, `notes` the notes that it cut off. `is_cut` says that there was a compaction,
    `has_jobs` that a command was left running in the background.
    """

    messages: tuple[ModelMessage, ...]
    is_cut: bool
    notes: tuple[TextPart, ...]
    has_jobs: bool


class HistoryState(Struct, frozen=True, kw_only=True):
    """The facts about the messages so far that decide how the next ones are shown.

    `start` is the position of the last compaction, `summary_requests` are the positions of the requests for one, and `undone` are those
    that were undone. `value_prompts` are the prompts that ask for a value, `notes` the notes in prompts.
    """

    reminders: ReminderState = ReminderState()
    start: int = 0
    summary_requests: Mapping[MessageID, int] = NO_POSITIONS
    undone: frozenset[MessageID] = frozenset()
    value_prompts: Mapping[MessageID, UserMessage] = NO_PROMPTS
    notes: tuple[TextPart, ...] = ()
    has_jobs: bool = False


class View:
    """Converts one history again and again as it grows. Another history works, too, but clears the cache."""

    def __init__(self) -> None:
        self._key: object = None
        self._messages: list[MessageWithParts] = []
        self._refusals: list[Refusal] = []
        self._shown: list[tuple[MessageWithParts, ...]] = []
        self._model_messages: list[tuple[ModelMessage, ...]] = []
        self._states: list[HistoryState] = []

    def show(self, history: Sequence[MessageWithParts], model: Model, *, plan_files: bool) -> ShownHistory:
        """Return what this model is shown of the history."""
        self._drop_from(count_same(self._messages, history))
        new = range(len(self._messages), len(history))
        self._messages += history[len(self._messages) :]
        self._refusals += [(index, mark) for index in new for mark in list_refusals(history[index])]
        exclusions = find_exclusions(model, self._refusals)
        key = (model.provider_id, model.id, plan_files, exclusions)
        if key != self._key:
            self._key, self._shown, self._model_messages, self._states = key, [], [], []
        for index in range(len(self._model_messages), len(history)):
            self._convert(index, model, exclusions, plan_files=plan_files)
        last = self._states[-1] if self._states else HistoryState()
        return ShownHistory(
            messages=tuple(chain.from_iterable(self._model_messages[last.start :])),
            is_cut=last.start > 0,
            notes=self._states[last.start - 1].notes if last.start else (),
            has_jobs=last.has_jobs,
        )

    def list_shown(self) -> tuple[MessageWithParts, ...]:
        """Return the messages that were shown last, with reminders and without excluded content."""
        start = self._states[-1].start if self._states else 0
        pairs = zip(self._shown[start:], self._model_messages[start:], strict=True)
        return tuple(message for shown, model_messages in pairs if model_messages for message in shown)

    def _drop_from(self, index: int) -> None:
        for cache in (self._messages, self._shown, self._model_messages, self._states):
            del cache[index:]
        self._refusals = [refusal for refusal in self._refusals if refusal[0] < index]

    def _convert(self, index: int, model: Model, exclusions: Exclusions, *, plan_files: bool) -> None:
        state = self._states[-1] if self._states else HistoryState()
        message = exclude_from(self._messages[index], index, exclusions)
        reminded, reminders = show_message(message, state.reminders, plan_files=plan_files)
        shown_messages = _list_shown(reminded, state)
        self._shown.append(shown_messages)
        self._model_messages.append(
            tuple(
                chain.from_iterable(convert_message(shown_message, model) for shown_message in shown_messages)
            )
        )
        self._states.append(_next_state(state, index, message, reminders))


class Views:
    """The views of the sessions that ran last, so that the next run can use their caches."""

    def __init__(self) -> None:
        self._views: dict[SessionID, View] = {}

    @contextmanager
    def lend(self, session: SessionID) -> Generator[View]:
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
    if (
        isinstance(info, AssistantMessage)
        and info.parent_id in state.value_prompts
        and is_missing_value(message)
    ):
        return message, make_value_reminder(state.value_prompts[info.parent_id], info)
    return (message,)


def leaves_job(message: MessageWithParts) -> bool:
    """Return True if a call in the message left a background job running."""
    return any(
        isinstance(part, ToolPart) and isinstance(part.state, CompletedState) and "job" in part.state.metadata
        for part in message.parts
    )


def _next_state(
    state: HistoryState, index: int, message: MessageWithParts, reminders: ReminderState
) -> HistoryState:
    """Return the state after one more message. Most messages change only `reminders`."""
    info = message.info
    if reminders is not state.reminders:
        state = replace(state, reminders=reminders)
    if isinstance(info, AssistantMessage):
        if info.summary and info.finish and info.parent_id in state.summary_requests:
            state = replace(state, start=max(state.start, state.summary_requests[info.parent_id]))
        if not state.has_jobs and leaves_job(message):
            state = replace(state, has_jobs=True)
        return state
    if notes := list_note_parts(message):
        state = replace(state, notes=(*state.notes, *notes))
    if is_undone(message):
        state = replace(state, undone=state.undone | {info.id})
    if asks_for_summary(message):
        state = replace(state, summary_requests={**state.summary_requests, info.id: index})
    if find_json_format(info) is not None:
        state = replace(state, value_prompts={**state.value_prompts, info.id: info})
    return state
