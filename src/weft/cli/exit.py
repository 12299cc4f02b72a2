"""Exit codes of commands, for scripts."""

from enum import IntEnum

from weft.errors import (
    BlockedError,
    CorrectedError,
    DeniedError,
    McpError,
    NobodyError,
    ProviderError,
    RejectedError,
    RestoreFailedError,
    ServerError,
    SessionBusyError,
    SharingDisabledError,
    SharingError,
    SnapshotMissingError,
    StoreError,
    WeftError,
)


class ExitCode(IntEnum):
    """How a command ended. Codes above 128 are 128 plus the number of the signal that ended it."""

    DONE = 0
    FAILED = 1  # the model, its provider, the store or weft itself failed, and the work is not done
    USAGE = 2  # wrong usage: unknown session, bad flag, no model, broken configuration
    REFUSED = 3  # the run ended because a person refused a permission, or nobody could be asked
    BUDGET = 4  # the next request to the model would have exceeded a budget
    TIMEOUT = 5  # a deadline passed: of the turn, or of a provider that did not answer
    LOOP = 6  # the model repeated the same calls and was stopped
    ASK = 7  # `permission explain`: the rules neither allow nor deny it, so a person would be asked
    BUSY = 8  # another process runs the session, is changing it, or uses its worktree
    HUNG_UP = 129
    INTERRUPTED = 130
    BROKEN_PIPE = 141  # the reader of our output closed the pipe
    TERMINATED = 143


EXIT_CODES = """exit codes:
  0 done    1 the model or the store failed    2 wrong usage (unknown session, no model, broken config)
  3 a permission was refused    4 a budget is used up    5 a deadline passed    6 stopped in a loop
  8 another process runs the session
  130 interrupted    143 terminated    129 the terminal closed    141 nobody read the output"""


def to_exit_code(error: WeftError) -> ExitCode:
    match error:
        case SharingDisabledError():
            return ExitCode.USAGE
        case (
            ProviderError()
            | StoreError()
            | SnapshotMissingError()
            | RestoreFailedError()
            | McpError()
            | SharingError()
            | ServerError()
        ):
            return ExitCode.FAILED
        # Not every `NotPermittedError`: a server that refuses a password, a token or a directory was called wrongly.
        case DeniedError() | BlockedError() | RejectedError() | CorrectedError() | NobodyError():
            return ExitCode.REFUSED
        case SessionBusyError():
            return ExitCode.BUSY
        case _:
            return ExitCode.USAGE
