"""The view: what a model is shown of a history, remembered while that grows.

A step adds a message or two to what may be thousands. How a message is shown depends on what came before it and on
nothing after it, so what was worked out for one step stands for the next. Only what an API refused changes how earlier
messages are shown, and then all of them are looked at again.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.context.exclusions import LeftOut, Refusal, left_out_for, refusals_in, without
from weft.context.history import asks_for_summary, is_undone, to_turns
from weft.context.notes import notes_in
from weft.context.reminders import Before, is_without, reminder, show, wanted
from weft.model.catalog import Model
from weft.model.ids import MessageID, SessionID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import CompletedState, TextPart, ToolPart
from weft.provider.contract import ModelMessage

REMEMBERED: Final = 4

NO_MARKS: Mapping[MessageID, int] = {}
NO_PROMPTS: Mapping[MessageID, UserMessage] = {}


class Shown(Struct, frozen=True, kw_only=True):
    """What a model is shown: the turns since the last cut, if there was one, and the notes that it cut off.

    `has_jobs` says whether a command was ever left to run on by itself.
    """

    turns: tuple[ModelMessage, ...]
    is_cut: bool
    notes: tuple[TextPart, ...]
    has_jobs: bool


class Course(Struct, frozen=True, kw_only=True):
    """What of the messages so far matters for those to come.

    `start` is the place of the last cut, `marks` are where cuts were asked for, `undone` which of them were undone,
    `valued` the prompts that ask for a value, `notes` what we wrote into prompts.
    """

    before: Before = Before()
    start: int = 0
    marks: Mapping[MessageID, int] = NO_MARKS
    undone: frozenset[MessageID] = frozenset()
    valued: Mapping[MessageID, UserMessage] = NO_PROMPTS
    notes: tuple[TextPart, ...] = ()
    has_jobs: bool = False


class View:
    """Ask it for one conversation, over and over. It works with any, but then remembers nothing."""

    def __init__(self) -> None:
        self._of: object = None
        self._known: list[MessageWithParts] = []
        self._refusals: list[Refusal] = []
        self._shown: list[tuple[MessageWithParts, ...]] = []
        self._turns: list[tuple[ModelMessage, ...]] = []
        self._courses: list[Course] = []

    def show(self, history: Sequence[MessageWithParts], model: Model, *, plan_files: bool) -> Shown:
        self._forget_from(self._same(history))
        new = range(len(self._known), len(history))
        self._known += history[len(self._known) :]
        self._refusals += [(at, told) for at in new for told in refusals_in(history[at])]
        left_out = left_out_for(model, self._refusals)
        asked = (model.provider_id, model.id, plan_files, left_out)
        if asked != self._of:
            self._of, self._shown, self._turns, self._courses = asked, [], [], []
        for at in range(len(self._turns), len(history)):
            self._take(at, model, left_out, plan_files=plan_files)
        last = self._courses[-1] if self._courses else Course()
        return Shown(
            turns=tuple(chain.from_iterable(self._turns[last.start :])),
            is_cut=last.start > 0,
            notes=self._courses[last.start - 1].notes if last.start else (),
            has_jobs=last.has_jobs,
        )

    def list_shown(self) -> tuple[MessageWithParts, ...]:
        """The messages of which something was shown last, as they were: with our reminders, without what is left out."""
        start = self._courses[-1].start if self._courses else 0
        told = zip(self._shown[start:], self._turns[start:], strict=True)
        return tuple(message for shown, turns in told if turns for message in shown)

    def _same(self, history: Sequence[MessageWithParts]) -> int:
        """How many of the messages we know are still the first ones of the history."""
        many = min(len(self._known), len(history))
        while many and self._known[many - 1] is not history[many - 1]:
            many -= 1
        # Lists are compared by what their items are first, so this is done before a message is looked into.
        return many if self._known[:many] == list(history[:many]) else 0

    def _forget_from(self, place: int) -> None:
        for remembered in (self._known, self._shown, self._turns, self._courses):
            del remembered[place:]
        self._refusals = [each for each in self._refusals if each[0] < place]

    def _take(self, at: int, model: Model, left_out: LeftOut, *, plan_files: bool) -> None:
        course = self._courses[-1] if self._courses else Course()
        message = without(self._known[at], at, left_out)
        shown, before = show(message, course.before, plan_files=plan_files)
        seen = _seen(shown, course)
        self._shown.append(seen)
        self._turns.append(tuple(turn for each in seen for turn in to_turns(each, model)))
        self._courses.append(_next(course, at, message, before))


class Views:
    """The views of the conversations that were gone on with last: what was worked out in one run serves the next."""

    def __init__(self) -> None:
        self._views: dict[SessionID, View] = {}

    @contextmanager
    def of(self, session: SessionID) -> Generator[View]:
        """The view of a session, for a run of it."""
        view = self._views.pop(session, None) or View()
        yield view
        # Not of a run that broke off: whatever broke it, the next one begins with a clean sheet.
        self._views[session] = view
        while len(self._views) > REMEMBERED:
            del self._views[next(iter(self._views))]


def _seen(message: MessageWithParts, course: Course) -> tuple[MessageWithParts, ...]:
    info = message.info
    # Of a cut that was undone neither the mark is shown nor the summary.
    if is_undone(message) or (isinstance(info, AssistantMessage) and info.parent_id in course.undone):
        return ()
    if isinstance(info, AssistantMessage) and info.parent_id in course.valued and is_without(message):
        return message, reminder(course.valued[info.parent_id], info)
    return (message,)


def leaves_job(message: MessageWithParts) -> bool:
    """Whether a call in it left a command running."""
    return any(
        isinstance(part, ToolPart) and isinstance(part.state, CompletedState) and "job" in part.state.metadata
        for part in message.parts
    )


def _next(course: Course, at: int, message: MessageWithParts, before: Before) -> Course:
    """The course after one more message. Most change nothing but what is `before`."""
    info = message.info
    if before is not course.before:
        course = replace(course, before=before)
    if isinstance(info, AssistantMessage):
        if info.summary and info.finish and info.parent_id in course.marks:
            course = replace(course, start=max(course.start, course.marks[info.parent_id]))
        if not course.has_jobs and leaves_job(message):
            course = replace(course, has_jobs=True)
        return course
    if notes := notes_in(message):
        course = replace(course, notes=(*course.notes, *notes))
    if is_undone(message):
        course = replace(course, undone=course.undone | {info.id})
    if asks_for_summary(message):
        course = replace(course, marks={**course.marks, info.id: at})
    if wanted(info) is not None:
        course = replace(course, valued={**course.valued, info.id: info})
    return course
