"""Decide what became of a call whose process died, from its own notes and from what was found afterwards, and whether to make it again (pure)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.model.message import MessageWithParts
from weft.model.part import ErrorState, PendingState, RunningState, ToolPart
from weft.model.verdict import (
    READING_TOOLS,
    CallEvidence,
    CallResult,
    CallVerdict,
    CommandTrace,
    FileIntent,
    find_evidence,
    find_verdict,
)
from weft.session.settle import OPEN_STATES, is_interrupted

MAX_NAMED_FILES: Final = 10

READS_ONLY: Final = "It only reads, so nothing was changed."
NO_EVIDENCE: Final = "It is not known whether it took effect."
RESTARTED: Final = (
    "The machine was restarted since. If its power failed, the record that the call began may be lost: "
    "it is not known whether it took effect."
)
ELSEWHERE: Final = "It ran on another machine, so it is not known whether it took effect."
WAS_ENDED: Final = "It was running when weft died, and was ended with it."
OUTPUT_MAY_LACK_ITS_END: Final = "The end of its output may be missing."

NEVER_STARTED: Final = CallVerdict(
    kind="not-started", why="It did not start, and nothing was changed.", repeatable=True
)


class CallFindings(Struct, frozen=True, kw_only=True):
    """What was found of a call after its process died. `here` says that this is the machine on which it ran.

    `contents` are digests of the files that it meant to change, None for a missing file; a file that cannot be read is not in it.
    `began` says whether its command was started, None if that is not known; `code` is the command's exit code, if it ended.
    `changed` are files that changed while it ran. `seen` says that these are all of them, `shared` that other calls ran meanwhile and
    may have changed some.
    `restarted` says that the machine was started after the call: a power cut may have lost what the call noted last.
    """

    here: bool = False
    contents: Mapping[str, str | None] = {}
    began: bool | None = None
    code: int | None = None
    changed: tuple[str, ...] = ()
    seen: bool = False
    shared: bool = False
    restarted: bool = False


def judge_call(part: ToolPart, findings: CallFindings, directory: str) -> CallVerdict:
    """Return what became of a call that was open when its process died. Files below `directory` are named relative to it."""
    state = part.state
    assert isinstance(state, OPEN_STATES), "only an open call needs a verdict"
    findings = replace(findings, changed=tuple(_shorten(file, directory) for file in findings.changed))
    verdict = (
        _judge_unstarted(findings)
        if isinstance(state, PendingState)
        else _judge_running(part.tool, state, findings, directory)
    )
    return replace(verdict, files=tuple(_shorten(file, directory) for file in verdict.files))


def _judge_running(tool: str, state: RunningState, findings: CallFindings, directory: str) -> CallVerdict:
    evidence = find_evidence(state.metadata)
    if evidence is None:
        return _judge_without_evidence(tool, (state.metadata or {}).get("sessionId"), findings)
    if evidence.files:
        return _judge_files(evidence, findings, directory)
    if evidence.command is not None:
        return _judge_command(evidence.command, evidence, findings, _to_last_result(state))
    if evidence.server:
        return _judge_request(evidence, findings)
    return _judge_unstarted(findings)  # it has noted nothing that it is about to do


def _judge_unstarted(findings: CallFindings) -> CallVerdict:
    if findings.restarted:
        why = _join(RESTARTED, _describe_changed(findings))
        return CallVerdict(kind="unknown", why=why, files=findings.changed)
    return NEVER_STARTED


def _judge_without_evidence(tool: str, child: object, findings: CallFindings) -> CallVerdict:
    if tool in READING_TOOLS:
        return CallVerdict(kind="unchanged", why=READS_ONLY, repeatable=True)
    if tool == "batch":
        why = "It changes nothing itself: each call that it made has a verdict of its own."
        return CallVerdict(kind="unchanged", why=why)
    if tool == "task" and isinstance(child, str):
        return CallVerdict(kind="partial", why=f"The session {child} shows how far it came.")
    return CallVerdict(
        kind="unknown", why=_join(NO_EVIDENCE, _describe_changed(findings)), files=findings.changed
    )


# --- file tools ---


def _judge_files(evidence: CallEvidence, findings: CallFindings, directory: str) -> CallVerdict:
    if not findings.here:
        return CallVerdict(kind="unknown", why=ELSEWHERE)
    done = [file for file in evidence.files if _has(findings, file, file.after)]
    kept = [file for file in evidence.files if _has(findings, file, file.before) and file not in done]
    other = [file for file in evidence.files if file not in done and file not in kept]
    names = {file.path: _shorten(file.path, directory) for file in evidence.files}
    if other:
        why = f"{_name(other, names)} {_be(other)} neither as before nor as intended: a formatter or somebody else changed {_them(other)}."
        return CallVerdict(
            kind="unknown", why=_join(why, _describe_rest(done, kept, names)), files=_paths(done)
        )
    if not done:
        why = f"It started, and changed nothing: {_name(kept, names)} {_be(kept)} as before."
        return CallVerdict(kind="unchanged", why=why, repeatable=True)
    if kept:
        why = f"It is partly done. {_describe_rest(done, kept, names)}"
        return CallVerdict(kind="partial", why=why, files=_paths(done))
    why = f"It finished, but its result was not recorded: {_name(done, names)} {_be(done)} as intended."
    return CallVerdict(kind="finished", why=why, files=_paths(done), result=evidence.result)


def _has(findings: CallFindings, file: FileIntent, digest: str | None) -> bool:
    return file.path in findings.contents and findings.contents[file.path] == digest


def _describe_rest(done: list[FileIntent], kept: list[FileIntent], names: Mapping[str, str]) -> str:
    return _join(
        f"{_name(done, names)} {_be(done)} as intended." if done else "",
        f"{_name(kept, names)} {_be(kept)} as before." if kept else "",
    )


# --- commands and servers ---


def _judge_command(
    command: CommandTrace, evidence: CallEvidence, findings: CallFindings, last: CallResult
) -> CallVerdict:
    if evidence.result is not None:
        why = "It finished, but its result was not recorded with the call."
        metadata = {**evidence.result.metadata, "output": evidence.result.output}
        result = replace(evidence.result, metadata=metadata)
        return CallVerdict(kind="finished", why=why, files=findings.changed, result=result)
    if not findings.here:
        return CallVerdict(kind="unknown", why=ELSEWHERE)
    if findings.began is False:
        return _judge_unstarted(findings)
    if findings.code is not None:
        return _judge_exit(findings, last)
    ended = WAS_ENDED if findings.began else "It is not known how it ended."
    if findings.shared and findings.changed:
        why = f"{ended} {_describe_changed(findings)} Other calls ran at the same time."
        return CallVerdict(kind="unknown", why=why, files=findings.changed)
    if findings.changed:
        return CallVerdict(
            kind="partial", why=_join(ended, _describe_changed(findings)), files=findings.changed
        )
    if findings.began and findings.seen and command.watched:
        why = f"{ended} It changed no file of the project that git does not ignore; whether it did something elsewhere is not known."
        return CallVerdict(kind="unchanged", why=why)
    return CallVerdict(kind="unknown", why=_join(ended, "It is not known which files it changed."))


def _judge_exit(findings: CallFindings, last: CallResult) -> CallVerdict:
    """Return the verdict on a command whose end only its supervisor recorded."""
    why = f"It finished with exit code {findings.code}, but its result was not recorded. {OUTPUT_MAY_LACK_ITS_END}"
    result = replace(last, metadata={**last.metadata, "exit": findings.code, "truncated": False})
    return CallVerdict(kind="finished", why=why, files=findings.changed, result=result)


def _to_last_result(state: RunningState) -> CallResult:
    """Return what is known of the result of a command from its last report."""
    output, title = (state.metadata or {}).get("output"), state.input.get("description")
    output = output if isinstance(output, str) else ""
    return CallResult(
        title=title if isinstance(title, str) else "", output=output, metadata={"output": output}
    )


def _judge_request(evidence: CallEvidence, findings: CallFindings) -> CallVerdict:
    if evidence.result is not None:
        why = f"The server {evidence.server} answered, but the answer was not recorded with the call."
        return CallVerdict(kind="finished", why=why, files=findings.changed, result=evidence.result)
    sent = f"The request was sent to the server {evidence.server}, and no answer is known."
    if evidence.read_only and not findings.changed:
        return CallVerdict(kind="unchanged", why=f"{sent} The server says that this tool changes nothing.")
    return CallVerdict(
        kind="unknown", why=_join(sent, NO_EVIDENCE, _describe_changed(findings)), files=findings.changed
    )


# --- making a call again ---

# Tools that have no effects, or can safely run twice.
REPEATABLE_TOOLS: Final = READING_TOOLS | {"todowrite", "task", "batch", "plan_enter", "plan_exit", "jobs"}
NOT_REPEATED: Final = (
    "This call was cut off earlier, and may have had its effect. It was not made again, because nobody agreed to that. "
    "Look whether it took effect, and go on from there."
)


def is_unsafe_to_repeat(
    history: Sequence[MessageWithParts], call_id: str, tool: str, input: dict[str, Any]
) -> bool:
    """Return True if the last call like this one was interrupted, unless it is known that making it again is safe."""
    if tool in REPEATABLE_TOOLS:
        return False
    states = (
        part.state
        for part in _iterate_calls(history)
        if part.call_id != call_id and part.tool == tool and part.state.input == input
    )
    last = next(states, None)
    if not isinstance(last, ErrorState) or not is_interrupted(last):
        return False
    verdict = find_verdict(last.metadata)
    return verdict is None or not verdict.repeatable


def _iterate_calls(history: Sequence[MessageWithParts]) -> Iterator[ToolPart]:
    """Yield all tool calls, the newest first."""
    for message in reversed(history):
        yield from (part for part in reversed(message.parts) if isinstance(part, ToolPart))


# --- words ---


def _describe_changed(findings: CallFindings) -> str:
    if not findings.changed:
        return ""
    return f"Since it began, {_enumerate(findings.changed)} changed."


def _paths(files: Iterable[FileIntent]) -> tuple[str, ...]:
    return tuple(file.path for file in files)


def _name(files: list[FileIntent], names: Mapping[str, str]) -> str:
    return _enumerate([names[file.path] for file in files])


def _enumerate(paths: Sequence[str]) -> str:
    named = list(paths[:MAX_NAMED_FILES])
    named += [f"{len(paths) - len(named)} more"] if len(paths) > len(named) else []
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _be(files: list[FileIntent]) -> str:
    return "is" if len(files) == 1 else "are"


def _them(files: list[FileIntent]) -> str:
    return "it" if len(files) == 1 else "them"


def _join(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def _shorten(path: str, directory: str) -> str:
    return path.removeprefix(f"{directory.rstrip('/')}/")
