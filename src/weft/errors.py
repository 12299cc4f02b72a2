"""Every exception we raise. The message is for a person; the facts are attributes; `hint` says the way out.

WeftError
├── NotFoundError            there is no such session, message, agent …
│   └── UnreadableError      there is one, and its document cannot be read
├── InvalidInputError        what a caller sent cannot be meant
│   ├── InvalidIdError       not an id of that kind
│   └── AmbiguousError       it could be several
├── ConflictError            it is not as whoever wants to change it thinks
├── DocumentError            stored or received JSON that is not what it should be
│   └── BundleError          a bundle that is not what it says, or reaches where it must not
├── StoreError               the store could not do what was asked
│   └── NewerFormatError     written by a version that knows more than we do
├── IndexFailedError         the search index cannot be used; the store can
├── DirectoryError           not a place we can work in
├── OutsideError             a path that leaves the project
├── UnsupportedError         a thing that weft does not do
├── ServerError              a server's answer is none
│   └── UnreachableError     no server answers
├── SharingError             a session could not be shown to others, or not taken back
│   └── SharingDisabledError  … because it is switched off
├── GitError                 git refused
├── SnapshotMissingError     what a file was like cannot be read any more
├── RestoreFailedError       files could not be brought back
├── ConfigError              a configuration file, and where in it
├── SessionBusyError         another run holds the session
├── CursorLostError          the event to resume after is no longer held
├── CompactionIneffectiveError  a summary did not make room
├── DeadlineError            it took longer than it may
├── RunFailedError           a prompt got no answer
├── NoModelError             nothing says which model to use
├── ModelNotFoundError       no such model, and the nearest names
├── ProviderError            a model's API failed
│   └── ProviderAuthError    … for want of a key
├── ToolError                a tool could not do it; the model reads why
├── McpError                 a server of tools could not do it
└── NotPermittedError        a call may not be carried out
    ├── DirectoryNotServedError  not one that a caller may name
    ├── DeniedError          a rule forbids it
    ├── BlockedError         a plugin forbids it
    ├── RejectedError        the person said no
    │   ├── DismissedError   … to a question
    │   └── UnansweredError  nobody was there to say yes, and that ends the run
    ├── CorrectedError       the person said no, and what to do instead
    └── NobodyError          nobody is there to answer
"""

from collections.abc import Mapping, Sequence
from typing import Literal

FaultKind = Literal[
    "rate-limit",
    "overload",
    "server",
    "network",
    "timeout",
    "auth",
    "quota",
    "overflow",
    "output-length",
    "content-filter",
    "media",
    "signature",
    "not-found",
    "bad-request",
    "protocol",
    "unknown",
]


SHOWN = 8  # candidates, where there are many


class WeftError(Exception):
    """Whatever goes wrong in weft, in one sentence, with the way out if there is one."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class NotFoundError(WeftError):
    def __init__(self, kind: str, id: str, *, near: Sequence[str] = (), hint: str = "") -> None:
        meant = f"did you mean {' or '.join(near)}?" if near else ""
        super().__init__(f"there is no {kind} {id!r}", hint=" ".join(part for part in (meant, hint) if part))
        self.kind = kind
        self.id = id
        self.near = tuple(near)


class UnreadableError(NotFoundError):
    """Its document is there and cannot be read. Whoever asks gets nothing, and nobody may take it for gone."""

    def __init__(self, kind: str, id: str) -> None:
        super().__init__(kind, id, hint="its document is there and cannot be read; weft doctor says more")


class InvalidInputError(WeftError):
    def __init__(self, field: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{field}: {reason}", hint=hint)
        self.field = field
        self.reason = reason


class InvalidIdError(InvalidInputError):
    def __init__(self, kind: str, given: str) -> None:
        super().__init__(f"{kind} id", f"{given[:80]!r} is not one")
        self.kind = kind
        self.given = given


class AmbiguousError(InvalidInputError):
    def __init__(self, kind: str, given: str, candidates: Sequence[str]) -> None:
        more = ", …" if len(candidates) > SHOWN else ""
        super().__init__(
            kind,
            f"{given!r} could be {len(candidates)} of them",
            hint=f"say more of it: {', '.join(candidates[:SHOWN])}{more}",
        )
        self.kind = kind
        self.given = given
        self.candidates = tuple(candidates)


class ConflictError(WeftError):
    def __init__(self, kind: str, id: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{kind} {id!r} {reason}", hint=hint)
        self.kind = kind
        self.id = id
        self.reason = reason


class DocumentError(WeftError):
    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason


class BundleError(DocumentError):
    pass


class StoreError(WeftError):
    pass


class NewerFormatError(StoreError):
    def __init__(self, where: str, found: int, known: int) -> None:
        super().__init__(
            f"{where} has format {found}, and this version knows up to {known}",
            hint="upgrade weft, or point --store at another place",
        )
        self.found = found
        self.known = known


class IndexFailedError(WeftError):
    """`broken` when its file is bad, so that it has to be made anew; otherwise it is busy, or out of reach."""

    def __init__(self, reason: str, *, broken: bool = False) -> None:
        super().__init__(f"the index of sessions cannot be used: {reason}")
        self.reason = reason
        self.broken = broken


class DirectoryError(WeftError):
    def __init__(self, path: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{path}: {reason}", hint=hint)
        self.path = path
        self.reason = reason


class OutsideError(WeftError):
    def __init__(self, path: str) -> None:
        super().__init__(f"{path[:200]!r} is not in the project", hint="links that lead out of it count, too")
        self.path = path


class UnsupportedError(WeftError):
    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(f"weft does not do this: {what}", hint=hint)
        self.what = what


class ServerError(WeftError):
    pass


class UnreachableError(ServerError):
    pass


class SharingError(WeftError):
    pass


class SharingDisabledError(SharingError):
    def __init__(self, by: str) -> None:
        super().__init__(
            "Sharing is disabled in configuration",
            hint=f"{by} says so; weft share ID --to FILE.html writes a page that nobody else sees",
        )
        self.by = by


class GitError(WeftError):
    def __init__(
        self, args: Sequence[str], code: int, stderr: str, *, hint: str = "", stdout: str = ""
    ) -> None:
        said = stderr.strip().splitlines()[-1:] or [f"exit code {code}"]
        super().__init__(f"git {' '.join(args)}: {said[0]}", hint=hint)
        self.code = code
        self.stderr = stderr
        self.stdout = stdout


class SnapshotMissingError(WeftError):
    """`files` are the ones it would take, as far as they are known."""

    def __init__(self, reason: str, *, files: Sequence[str] = ()) -> None:
        super().__init__(
            f"{reason}; nothing was changed", hint="files can be restored one by one, without it"
        )
        self.reason = reason
        self.files = tuple(files)


class RestoreFailedError(WeftError):
    """Files could not be brought back. `files` are those that could not be written, `left` those that were brought back
    and could not be put as they were again. What both need is kept, and the next attempt goes on from there."""

    def __init__(self, reason: str, *, files: Sequence[str] = (), left: Sequence[str] = ()) -> None:
        stand = f"{len(left)} stay as they were brought back" if left else "nothing was changed"
        super().__init__(
            f"{len(files)} files could not be brought back: {reason}; {stand}",
            hint="free some space, or make the files writable, and do it again; nothing is lost meanwhile",
        )
        self.reason = reason
        self.files = tuple(files)
        self.left = tuple(left)


class ConfigError(WeftError):
    """`at` is line and column as far as known, `key` the dotted key. Never carries a value: it may be a secret."""

    def __init__(
        self, path: str, reason: str, *, at: tuple[int, int] = (0, 0), key: str = "", near: str = ""
    ) -> None:
        place = ":".join([path, *(str(number) for number in at if number)])
        named = f"{key}: " if key else ""
        super().__init__(f"{place}: {named}{reason}", hint=f"did you mean {near!r}?" if near else "")
        self.path = path
        self.reason = reason
        self.line, self.column = at
        self.key = key
        self.near = near


class SessionBusyError(WeftError):
    def __init__(self, session: str, owner: str = "") -> None:
        super().__init__(f"Session {session} is busy", hint=f"it is being run by {owner}" if owner else "")
        self.session = session
        self.owner = owner


class CursorLostError(WeftError):
    def __init__(self, after: int, oldest: int) -> None:
        super().__init__(
            f"event {after} is no longer held; the oldest is {oldest}",
            hint="read the session again, then listen",
        )
        self.after = after
        self.oldest = oldest


class CompactionIneffectiveError(WeftError):
    def __init__(self, session: str) -> None:
        super().__init__(
            "the conversation does not fit the model's window, and summarising it made no room",
            hint="start a new session, or go on with a model that takes in more",
        )
        self.session = session


class DeadlineError(WeftError):
    """`limit` is whose deadline it was: the turn's, a tool's …"""

    def __init__(self, limit: str, seconds: float) -> None:
        super().__init__(
            f"the {limit} took longer than {seconds:g} seconds, and was ended",
            hint="a longer one can be set: experimental.weft.deadlines in opencode.json",
        )
        self.limit = limit
        self.seconds = seconds


class RunFailedError(WeftError):
    pass


class NoModelError(WeftError):
    def __init__(self) -> None:
        super().__init__(
            "no model is configured",
            hint='pass --model provider/model, or set "model" in opencode.json',
        )


class ModelNotFoundError(WeftError):
    def __init__(self, provider_id: str, model_id: str, *, near: Sequence[str] = (), hint: str = "") -> None:
        meant = f"did you mean {' or '.join(near)}?" if near else ""
        super().__init__(f"there is no model {provider_id}/{model_id}", hint=f"{hint} {meant}".strip())
        self.provider_id = provider_id
        self.model_id = model_id
        self.near = tuple(near)


class ProviderError(WeftError):
    """A model's API failed. `retryable` is the adapter's judgement; `wait_ms` is how long it asks us to wait.

    `kind` says what to do about it: `overflow` is too much history, `output-length` a limit of the answer set too
    high, `quota` an empty purse, `signature` a thought that is not the model's own, `protocol` an answer that is
    not in the API's language. `url` is the address that was asked, without what may be secret in it.
    """

    kind: FaultKind = "unknown"
    wait_ms: int | None = None
    url: str = ""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        headers: Mapping[str, str] | None = None,
        body: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.headers = dict(headers or {})
        self.body = body


class ProviderAuthError(ProviderError):
    kind: FaultKind = "auth"

    def __init__(self, provider_id: str, message: str) -> None:
        super().__init__(message)
        self.provider_id = provider_id


class ToolError(WeftError):
    pass


class McpError(WeftError):
    """An MCP server could not be reached, or did not do what was asked of it."""


class NotPermittedError(WeftError):
    pass


class DirectoryNotServedError(NotPermittedError):
    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path[:200]!r} is in no project that this server knows",
            hint=f"weft serve --allow-dir {path[:200]} lets it in; a git repository with a commit is also let in once "
            "weft or OpenCode has worked in it",
        )
        self.path = path


class DeniedError(NotPermittedError):
    def __init__(self, permission: str, pattern: str, rule: str) -> None:
        super().__init__(
            f"A rule forbids this call ({permission} {pattern!r}: {rule}). Find another way, or ask the user."
        )
        self.permission = permission
        self.pattern = pattern
        self.rule = rule


class BlockedError(NotPermittedError):
    pass


class RejectedError(NotPermittedError):
    def __init__(
        self, message: str = "The user rejected permission to use this specific tool call.", *, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)


class DismissedError(RejectedError):
    def __init__(self) -> None:
        super().__init__("The user dismissed this question")


class UnansweredError(RejectedError):
    def __init__(self, permission: str, patterns: Sequence[str], request: str) -> None:
        super().__init__(
            f"This needs the user's permission, and nobody is there to give it: {permission} {', '.join(patterns)}",
            hint=f"allow it with `weft permission reply {request} once` (or always), and go on",
        )
        self.permission = permission
        self.patterns = tuple(patterns)
        self.request = request


class CorrectedError(NotPermittedError):
    def __init__(self, feedback: str) -> None:
        super().__init__(
            f"The user rejected permission to use this specific tool call with the following feedback: {feedback}"
        )
        self.feedback = feedback


class NobodyError(NotPermittedError):
    def __init__(self, message: str = "Nobody is there to answer.", *, request: str = "") -> None:
        super().__init__(message)
        self.request = request
