"""What a running call records of itself, and what became of a call whose process died."""

from typing import Any, Final, Literal

import msgspec

from weft.model.wire import Wire, always, to_plain

# The key of ours in the metadata of a call's state, beside those that OpenCode's clients read.
WEFT_KEY: Final = "weft"

# Tools that change nothing: neither files nor anything else that a person would have to look at.
READING_TOOLS: Final = frozenset(
    {"read", "glob", "grep", "list", "lsp", "todoread", "recall", "history", "skill", "question", "invalid"}
    | {"webfetch", "websearch", "codesearch"}
)
VerdictKind = Literal["not-started", "unchanged", "partial", "finished", "unknown"]


class FileIntent(Wire, frozen=True, kw_only=True):
    """A file that a call is about to change: the digests of its content before and after. None means that there is no file."""

    path: str
    before: str | None = None
    after: str | None = None


class CommandTrace(Wire, frozen=True, kw_only=True):
    """A command that is about to run: the token of its processes, and the file in which its supervisor records how it ended.

    Without a supervisor the file is "". `watched` says that changes of files meanwhile are recorded.
    """

    token: str
    record: str = ""
    watched: bool = False


class CallResult(Wire, frozen=True, kw_only=True):
    """The result that a call returns."""

    title: str = ""
    output: str
    metadata: dict[str, Any] = always({})


class CallEvidence(Wire, frozen=True, kw_only=True):
    """What a call records of itself while it runs. It has not begun to act until `files`, `command` or `server` is set.

    `machine` names where it runs; `covered` says that snapshots see each change of a file there. `server` is the MCP server to which
    the request was sent, and `read_only` its claim about the tool. `result` is what the call returned, or will return once all its
    `files` are as intended.
    """

    machine: str = ""
    covered: bool = False
    files: tuple[FileIntent, ...] = ()
    command: CommandTrace | None = None
    server: str = ""
    read_only: bool = False
    result: CallResult | None = None


class CallVerdict(Wire, frozen=True, kw_only=True):
    """What became of a call whose process died, why that is known, and which files it changed.

    Only a call that `finished` has a `result`. `repeatable` says that making the call again is safe.
    """

    kind: VerdictKind
    why: str
    files: tuple[str, ...] = ()
    result: CallResult | None = None
    repeatable: bool = False


def with_evidence(metadata: dict[str, Any] | None, evidence: CallEvidence | None) -> dict[str, Any] | None:
    """Return the metadata of a running call with its evidence."""
    if evidence is None:
        return metadata
    return {**(metadata or {}), WEFT_KEY: {"evidence": to_plain(evidence)}}


def with_verdict(metadata: dict[str, Any] | None, verdict: CallVerdict) -> dict[str, Any]:
    """Return the metadata of a call with its verdict in place of its evidence."""
    told: dict[str, Any] = {"verdict": verdict.kind, "why": verdict.why}
    told |= {"files": list(verdict.files)} if verdict.files else {}
    told |= {"repeatable": True} if verdict.repeatable else {}
    return {**(metadata or {}), WEFT_KEY: told}


def without_evidence(metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the metadata without what only matters after a crash; None if nothing is left."""
    return {name: value for name, value in (metadata or {}).items() if name != WEFT_KEY} or None


def find_evidence(metadata: dict[str, Any] | None) -> CallEvidence | None:
    """Return the evidence in the metadata of a call, None if there is none that can be read."""
    try:
        return msgspec.convert((metadata or {})[WEFT_KEY]["evidence"], CallEvidence)
    except (KeyError, TypeError, msgspec.ValidationError):
        return None


def find_verdict(metadata: dict[str, Any] | None) -> CallVerdict | None:
    """Return the verdict in the metadata of a call, None if there is none that can be read."""
    told = (metadata or {}).get(WEFT_KEY)
    if not isinstance(told, dict) or "verdict" not in told:
        return None
    try:
        fields = {name: value for name, value in told.items() if name != "verdict"}
        return msgspec.convert({**fields, "kind": told["verdict"]}, CallVerdict)
    except msgspec.ValidationError:
        return None
