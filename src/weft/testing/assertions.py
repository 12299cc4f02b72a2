"""Assertions about the answers of an agent, with messages that say what happened instead."""

import os
from decimal import Decimal
from fnmatch import fnmatchcase

from weft.agent.answer import Answer, Call
from weft.model.diff import FileDiff


def assert_called(answer: Answer[object], tool: str, /, **arguments: object) -> Call:
    """Check that the agent called a tool successfully with at least these arguments, and return the first such call."""
    for call in answer.calls:
        given = {name: value for name, value in call.input.items() if name in arguments}
        if call.tool == tool and given == arguments and call.status == "completed":
            return call
    wanted = f"{tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
    raise AssertionError(f"the agent did not call {wanted}; {_describe_calls(answer)}")


def assert_not_called(answer: Answer[object], tool: str) -> None:
    """Check that the agent never called a tool. A call that failed or was refused counts too."""
    found = [call for call in answer.calls if call.tool == tool]
    if found:
        raise AssertionError(f"the agent called {found[0]!r}")


def assert_changed(answer: Answer[object], *files: str) -> tuple[FileDiff, ...]:
    """Check that the agent changed each of these files, or any file at all if none is named, and return the changes.

    A file is named by its path, by its last name or by a glob pattern.
    """
    if not files and not answer.files:
        raise AssertionError("the agent changed nothing")
    found = [_find_change(answer, file) for file in files]
    missing = [file for file, change in zip(files, found, strict=True) if change is None]
    if missing:
        raise AssertionError(f"the agent did not change {', '.join(missing)}; {_describe_files(answer)}")
    return tuple(change for change in found if change is not None) if files else answer.files


def assert_unchanged(answer: Answer[object], *files: str) -> None:
    """Check that the agent changed none of these files, or no file at all if none is named."""
    changed = [
        change for change in answer.files if not files or any(_is_named(change, each) for each in files)
    ]
    if changed:
        raise AssertionError(f"the agent changed {', '.join(each.file for each in changed)}")


def assert_cost(answer: Answer[object], *, at_most: Decimal | float | str) -> None:
    """Check that the cost is known and not above a limit in dollars."""
    if answer.cost is None:
        raise AssertionError("the cost is not known: a model has no price")
    if answer.cost > Decimal(str(at_most)):
        raise AssertionError(f"the answer cost ${answer.cost}, more than ${at_most}")


def _find_change(answer: Answer[object], file: str) -> FileDiff | None:
    return next((change for change in answer.files if _is_named(change, file)), None)


def _is_named(change: FileDiff, file: str) -> bool:
    return fnmatchcase(change.file, file) or fnmatchcase(os.path.basename(change.file), file)


def _describe_calls(answer: Answer[object]) -> str:
    calls = ", ".join(f"{call!r}" for call in answer.calls)
    return f"it called {calls}" if calls else "it called nothing"


def _describe_files(answer: Answer[object]) -> str:
    files = ", ".join(change.file for change in answer.files)
    return f"it changed {files}" if files else "it changed nothing"
