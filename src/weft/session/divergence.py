"""Find the first step in which two sessions differ (pure).

Names that differ between any two runs are made equal first: the directory of the checkout, and times in outputs.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from weft.model.display import sanitize
from weft.model.part import CompletedState, ErrorState, ToolPart
from weft.model.trial import Divergence
from weft.model.wire import encode
from weft.session.steps import SessionStep

MAX_SIDE_LENGTH: Final = 2_000
ROOT_NAME: Final = "<checkout>"
NO_STEP: Final = "(no such step)"
# How long something took, a time of day, and an id of weft: they differ between any two runs.
_CHANGING: Final = re.compile(
    r"\b\d+(?:\.\d+)?\s?(?:ms|s|sec|seconds?|minutes?)\b|\b\d\d:\d\d:\d\d(?:\.\d+)?\b"
    r"|\b(?:ses|msg|prt|call)_[0-9A-Za-z.]{6,}\b"
)

# The files that a step changed, each with the name of its content, by the number of the step.
StepOutcomes = Mapping[int, frozenset[tuple[str, str]]]
NO_OUTCOMES: Final[StepOutcomes] = {}


def find_divergence(
    one: Sequence[SessionStep],
    other: Sequence[SessionStep],
    *,
    results: bool = True,
    files_of_one: StepOutcomes = NO_OUTCOMES,
    files_of_other: StepOutcomes = NO_OUTCOMES,
) -> Divergence | None:
    """Return where two sessions first differ, None if they do not. Steps are counted from the first that is given.

    `results` says whether the results of calls are compared, too.
    """
    for index in range(max(len(one), len(other))):
        if index >= len(one) or index >= len(other):
            sides = [_describe(steps[index]) if index < len(steps) else NO_STEP for steps in (one, other)]
            return _make("end", index, *sides)
        first, second = one[index], other[index]
        found = _compare_answers(index, first, second)
        if found is None and results:
            found = _compare_results(index, first, second)
        if found is None:
            found = _compare_files(index, files_of_one.get(first.number), files_of_other.get(second.number))
        if found is not None:
            return found
    return None


def _compare_answers(index: int, one: SessionStep, other: SessionStep) -> Divergence | None:
    calls = [[_format_call(call, step) for call in step.calls] for step in (one, other)]
    if calls[0] != calls[1]:
        return _make(
            "call",
            index,
            *("\n".join(side) or _describe(step) for side, step in zip(calls, (one, other), strict=True)),
        )
    texts = [normalise(step.text, step).strip() for step in (one, other)]
    return None if texts[0] == texts[1] else _make("text", index, *texts)


def _compare_results(index: int, one: SessionStep, other: SessionStep) -> Divergence | None:
    for first, second in zip(one.calls, other.calls, strict=True):
        results = [normalise(_get_result(call), step) for call, step in ((first, one), (second, other))]
        if results[0] != results[1]:
            return _make("result", index, *(f"{first.tool}: {result}" for result in results))
    return None


def _compare_files(
    index: int, one: frozenset[tuple[str, str]] | None, other: frozenset[tuple[str, str]] | None
) -> Divergence | None:
    first, second = one or frozenset(), other or frozenset()
    if first == second:
        return None
    return _make(
        "files", index, *(_list_files(side - rest) for side, rest in ((first, second), (second, first)))
    )


def _list_files(files: frozenset[tuple[str, str]]) -> str:
    return (
        ", ".join(f"{path} ({content[:8] or 'removed'})" for path, content in sorted(files))
        or "no other files"
    )


def _make(what: str, index: int, one: str, other: str) -> Divergence:
    """Make a divergence whose sides begin a little before they differ."""
    start = max(0, _count_shared(one, other) - MAX_SIDE_LENGTH // 2)
    sides = [
        ("…" if start else "") + sanitize(side[start : start + MAX_SIDE_LENGTH]) for side in (one, other)
    ]
    return Divergence(step=index + 1, what=what, one=sides[0], other=sides[1])  # type: ignore[arg-type]


def _count_shared(one: str, other: str) -> int:
    return next(
        (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def _describe(step: SessionStep) -> str:
    """Describe a step in a few words: its calls, or what it says."""
    calls = "\n".join(_format_call(call, step) for call in step.calls)
    return calls or normalise(step.text, step).strip() or "(an empty answer)"


def _format_call(call: ToolPart, step: SessionStep) -> str:
    return normalise(f"{call.tool} {encode(call.state.input).decode()}", step)


def _get_result(call: ToolPart) -> str:
    match call.state:
        case CompletedState(output=output):
            return output
        case ErrorState(error=error):
            return f"failed: {error}"
        case _:
            return "(did not end)"


def normalise(text: str, step: SessionStep) -> str:
    """Return a text without what differs between any two runs."""
    path = step.info.path
    if path is not None and path.root not in ("", "/"):
        text = text.replace(path.root, ROOT_NAME)
    return _CHANGING.sub("<…>", text)
