"""All exceptions of weft, except those that a question without an answer raises (`weft.agent.answer`).

The message is for a person, the facts are attributes, and `hint` says what to do.

WeftError
├── NotFoundError            a session, message, agent … does not exist
│   └── UnreadableError      it exists, but its document cannot be read
├── InvalidInputError        the caller sent something invalid
│   ├── InvalidIdError       not an id of that kind
│   └── AmbiguousError       several things match
├── ConflictError            the current state does not allow the change
├── DocumentError            stored or received JSON is not valid
│   └── BundleError          a bundle is not valid, or contains paths outside of itself
├── StoreError               the store failed
│   ├── NewerFormatError     a newer version wrote the store
│   ├── DamagedStoreError    the file of the store is damaged
│   └── LeaseLostError       another process has taken over the session
├── IndexFailedError         the search index failed; the store still works
├── DirectoryError           the directory cannot be worked in
├── OutsideError             a path leads out of the project
├── UnsupportedError         weft does not do this
├── MissingPackageError      an optional package is not installed (also an ImportError)
├── ServerError              the server failed, or its answer is not valid
│   └── UnreachableError     no server answers
├── SharingError             a session could not be shared or unshared
│   └── SharingDisabledError  … because sharing is switched off
├── GitError                 git failed
├── SnapshotMissingError     the earlier contents of a file cannot be read
├── RestoreFailedError       files could not be restored
├── ConfigError              a configuration file is not valid, and where
├── SessionBusyError         another run has the session
├── LimitReachedError        a principal uses as much as it may
├── HandedOverError          another node continues the run
├── EndingError              the server is shutting down
├── CursorLostError          the event to resume after is no longer held
├── CompactionIneffectiveError  a summary did not make the conversation fit
├── DeadlineError            a deadline passed
├── ClosedError              the agent or store was closed
├── NoModelError             no model is available
├── ModelNotFoundError       the model does not exist; names the nearest
├── ProviderError            the API of a model failed
│   └── ProviderAuthError    … because a key is missing or wrong
├── ToolError                a tool failed; the model reads the message
├── McpError                 an MCP server failed
└── NotPermittedError        a call is not permitted
    ├── DirectoryNotServedError  the server does not serve this directory
    ├── DeniedError          a rule denies it
    ├── BlockedError         a plugin denies it
    ├── RejectedError        the person rejected it
    │   ├── DismissedError   … a question
    │   └── UnansweredError  nobody could answer, and that ends the run
    ├── CorrectedError       the person rejected it and said what to do instead
    └── NobodyError          nobody is there to answer
"""

from collections.abc import Iterable, Mapping, Sequence
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

MAX_CANDIDATES = 8  # how many of them a message lists


class WeftError(Exception):
    """The base of all errors: a message in one sentence, and a hint if there is one."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    @property
    def hint(self) -> str:
        """What to do about it, or ""."""
        return self._hint

    @hint.setter
    def hint(self, hint: str) -> None:
        self._hint = hint
        self.__notes__ = [f"Hint: {hint}"] if hint else []  # a traceback shows it


def find_similar(name: str, names: Iterable[str], *, n: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return the names that are most similar to a mistyped one, best first, for `near` of an error."""
    from difflib import get_close_matches  # noqa: PLC0415  only a mistake needs it

    return get_close_matches(name, list(names), n=n, cutoff=cutoff)


class NotFoundError(WeftError):
    """A session, a message, an agent or something else does not exist. `near` are names that are similar."""

    def __init__(self, kind: str, id: str, *, near: Sequence[str] = (), hint: str = "") -> None:
        suggestion = f"did you mean {' or '.join(near)}?" if near else ""
        super().__init__(
            f"there is no {kind} {id!r}", hint=" ".join(part for part in (suggestion, hint) if part)
        )
        self.kind = kind
        self.id = id
        self.near = tuple(near)


class UnreadableError(NotFoundError):
    """The document exists but cannot be read. Callers must not treat it as removed."""

    def __init__(self, kind: str, id: str) -> None:
        super().__init__(kind, id, hint="its document exists but cannot be read; run weft doctor for details")


class InvalidInputError(WeftError):
    """An argument or a field is not valid. `field` names it."""

    def __init__(self, field: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{field}: {reason}", hint=hint)
        self.field = field
        self.reason = reason


class InvalidIdError(InvalidInputError):
    def __init__(self, kind: str, given: str) -> None:
        super().__init__(
            f"{kind} id",
            f"{given[:80]!r} is not one",
            hint="an id consists of letters, digits and underscores",
        )
        self.kind = kind
        self.given = given


class AmbiguousError(InvalidInputError):
    def __init__(self, kind: str, given: str, candidates: Sequence[str]) -> None:
        more = ", …" if len(candidates) > MAX_CANDIDATES else ""
        super().__init__(
            kind,
            f"{given!r} matches {len(candidates)} of them",
            hint=f"give more of the id: {', '.join(candidates[:MAX_CANDIDATES])}{more}",
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
    def __init__(self, where: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{where}: {reason}", hint=hint)
        self.where = where
        self.reason = reason


class BundleError(DocumentError):
    pass


class StoreError(WeftError):
    pass


class NewerFormatError(StoreError):
    def __init__(self, where: str, found: int, known: int) -> None:
        super().__init__(
            f"{where} has format {found}, but this version supports only up to {known}",
            hint="upgrade weft, or use another store with --store",
        )
        self.found = found
        self.known = known


class DamagedStoreError(StoreError):
    """The file of a store is damaged, so that little or nothing in it can be read. Only a repair changes it."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(
            f"{where} is damaged: {reason}",
            hint="weft doctor --fix moves it aside and keeps what can still be read",
        )
        self.where = where
        self.reason = reason


class LeaseLostError(StoreError):
    """A writer no longer holds the lease of its session. `owner` is the process that took it over, if it is known."""

    def __init__(self, session: str, owner: str = "") -> None:
        super().__init__(
            f"Session {session} is now run by {owner or 'another process'}",
            hint="this process stops working on it and changes nothing; the other one continues it",
        )
        self.session = session
        self.owner = owner


class IndexFailedError(WeftError):
    """`broken` means that the index file is damaged and must be rebuilt; otherwise the index is busy or not accessible."""

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
        super().__init__(
            f"{path[:200]!r} is not in the project",
            hint="a link that leads out of the project counts as outside",
        )
        self.path = path


class UnsupportedError(WeftError):
    """weft, or the server it is connected to, does not do this."""

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(f"weft does not do this: {what}", hint=hint)
        self.what = what


class MissingPackageError(WeftError, ImportError):
    """An extra of weft is not installed. `requirement` is `weft[…]` with its name.

    The hint installs from the checkout: on a package index, `weft` may be another project.
    """

    def __init__(self, module: str, requirement: str) -> None:
        command = f"pip install '.{requirement.removeprefix('weft')}'"
        super().__init__(
            f"the package of the module {module!r} is not installed; in weft's checkout: {command}",
            hint=f"in weft's checkout: {command}",
        )
        self.module = module
        self.requirement = requirement


class ServerError(WeftError):
    pass


class UnreachableError(ServerError):
    """No server answers."""


class SharingError(WeftError):
    pass


class SharingDisabledError(SharingError):
    def __init__(self, by: str) -> None:
        super().__init__(
            "Sharing is disabled in configuration",
            hint=f"{by} disables it; weft share ID --to FILE.html writes a local page",
        )
        self.by = by


class GitError(WeftError):
    def __init__(
        self, args: Sequence[str], code: int, stderr: str, *, hint: str = "", stdout: str = ""
    ) -> None:
        last_line = stderr.strip().splitlines()[-1:] or [f"exit code {code}"]
        super().__init__(f"git {' '.join(args)}: {last_line[0]}", hint=hint)
        self.code = code
        self.stderr = stderr
        self.stdout = stdout


class SnapshotMissingError(WeftError):
    """`files` are the files whose contents are missing, as far as known."""

    def __init__(self, reason: str, *, files: Sequence[str] = ()) -> None:
        super().__init__(f"{reason}; nothing was changed", hint="the other files can be restored one by one")
        self.reason = reason
        self.files = tuple(files)


class RestoreFailedError(WeftError):
    """Files could not be restored. `files` could not be written; `left` were restored and could not be put back.

    The data for both is kept, and the next attempt continues from there.
    """

    def __init__(self, reason: str, *, files: Sequence[str] = (), left: Sequence[str] = ()) -> None:
        stay = "stays" if len(left) == 1 else "stay"
        outcome = f"{_count_files(left)} {stay} restored" if left else "nothing was changed"
        super().__init__(
            f"{_count_files(files)} could not be restored: {reason}; {outcome}",
            hint="free some space or make the files writable, then try again; no data is lost",
        )
        self.reason = reason
        self.files = tuple(files)
        self.left = tuple(left)


def _count_files(files: Sequence[str]) -> str:
    return "1 file" if len(files) == 1 else f"{len(files)} files"


class ConfigError(WeftError):
    """`at` is line and column, if known; `key` is the dotted key. The message has no value, because it may be a secret."""

    def __init__(
        self,
        path: str,
        reason: str,
        *,
        at: tuple[int, int] = (0, 0),
        key: str = "",
        near: str = "",
        hint: str = "",
    ) -> None:
        place = ":".join([path, *(str(number) for number in at if number)])
        prefix = f"{key}: " if key else ""
        super().__init__(f"{place}: {prefix}{reason}", hint=f"did you mean {near!r}?" if near else hint)
        self.path = path
        self.reason = reason
        self.line, self.column = at
        self.key = key
        self.near = near


class SessionBusyError(WeftError):
    """Another run has the session. `owner` is the process, if it is known."""

    def __init__(self, session: str, owner: str = "", *, hint: str = "") -> None:
        hint = hint or (f"{owner} is running it; wait until it is done" if owner else "")
        super().__init__(f"Session {session} is busy", hint=hint)
        self.session = session
        self.owner = owner


class LimitReachedError(WeftError):
    """A principal has reached a limit, which `limit` names."""

    def __init__(self, limit: str, reason: str, *, hint: str = "") -> None:
        super().__init__(reason, hint=hint)
        self.limit = limit
        self.reason = reason


class HandedOverError(WeftError):
    """The process that ran a session is ending, and leaves the rest of the run to another one."""

    def __init__(self, session: str) -> None:
        super().__init__(
            f"Session {session} is being handed over to another node", hint="it continues there by itself"
        )
        self.session = session


class EndingError(WeftError):
    """The server is shutting down, and did not carry out the request."""

    def __init__(self) -> None:
        super().__init__(
            "the server is shutting down, and accepts no more work", hint="send the request again"
        )


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
            "the conversation does not fit the model's context, even after a summary",
            hint="start a new session, or use a model with a larger context",
        )
        self.session = session


class DeadlineError(WeftError):
    """`limit` names the deadline: the turn, a tool …"""

    def __init__(
        self,
        limit: str,
        seconds: float,
        *,
        hint: str = "set a longer one in experimental.weft.deadlines of opencode.json",
    ) -> None:
        super().__init__(f"the {limit} took longer than {seconds:g} seconds, and was ended", hint=hint)
        self.limit = limit
        self.seconds = seconds


class ClosedError(WeftError):
    """The agent or the store was closed, and cannot be used any more."""


class NoModelError(WeftError):
    """No model was named, and none is configured."""

    def __init__(self) -> None:
        super().__init__(
            "no model is available",
            hint="log in (weft auth login anthropic), or set a key such as ANTHROPIC_API_KEY;"
            ' for a model that needs no key, pass --model provider/model or set "model" in opencode.json',
        )


class ModelNotFoundError(WeftError):
    """The model does not exist. `near` are models with similar names."""

    def __init__(self, provider_id: str, model_id: str, *, near: Sequence[str] = (), hint: str = "") -> None:
        suggestion = f"did you mean {' or '.join(near)}?" if near else ""
        super().__init__(f"there is no model {provider_id}/{model_id}", hint=f"{hint} {suggestion}".strip())
        self.provider_id = provider_id
        self.model_id = model_id
        self.near = tuple(near)


class ProviderError(WeftError):
    """The API of a model failed. `retryable` is the adapter's judgement; the API asks to wait `wait_ms`.

    `kind` is the cause: `overflow` is too much history, `output-length` too high a limit for the answer, `quota` no credit
    left, `signature` reasoning of another model, `protocol` an answer that does not follow the API. `url` is the address of
    the request, without secrets. `may_be_charged` is True if the API took the request and never said how it ended.
    """

    kind: FaultKind = "unknown"
    wait_ms: int | None = None
    url: str = ""
    may_be_charged: bool = False

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
    """An MCP server could not be reached, or a request to it failed."""


class NotPermittedError(WeftError):
    """A rule, a plugin or a person does not permit this. `ToolCallContext.ask` raises it."""


class DirectoryNotServedError(NotPermittedError):
    def __init__(self, path: str, *, hint: str = "") -> None:
        super().__init__(
            f"{path[:200]!r} is in no project of this server",
            hint=hint
            or f"weft serve --allow-dir {path[:200]} allows it; a git repository with a commit is also allowed once "
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
            hint=f"allow it with `weft permission reply {request} once` (or always), then continue",
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
