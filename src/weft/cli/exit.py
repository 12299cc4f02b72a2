"""Exit codes: what a script learns from how a command ended."""

from enum import IntEnum

from weft.errors import (
    McpError,
    NotPermittedError,
    ProviderError,
    RestoreFailedError,
    ServerError,
    SharingDisabledError,
    SharingError,
    SnapshotMissingError,
    StoreError,
    WeftError,
)


class Exit(IntEnum):
    """How it ended. From 128 on: by the signal of that number less 128."""

    DONE = 0
    FAILED = 1  # the model, its provider, the store or weft itself failed, and the work is not done
    USAGE = 2  # what was asked for cannot be meant: unknown session, bad flag, no model, broken configuration
    REFUSED = (
        3  # a permission was refused, by a person or because nobody could be asked, and that ended the run
    )
    BUDGET = 4  # the next call of the model would have broken a budget
    TIMEOUT = 5  # a deadline passed: of the turn, or of a provider that did not answer
    LOOP = 6  # the model made the same calls over and over, and was stopped
    ASKED = 7  # `permission explain`: neither allowed nor denied, a person decides
    HUNG_UP = 129
    INTERRUPTED = 130
    UNREAD = 141  # whoever read our output stopped reading
    TERMINATED = 143


EXPLAINED = """exit codes:
  0 done    1 the model or the store failed    2 wrong usage (unknown session, no model, broken config)
  3 a permission was refused    4 a budget is used up    5 a deadline passed    6 caught in a loop
  130 interrupted    143 terminated    129 the terminal closed    141 nobody read the output"""


def exit_for(error: WeftError) -> Exit:
    match error:
        case SharingDisabledError():
            return Exit.USAGE
        case (
            ProviderError()
            | StoreError()
            | SnapshotMissingError()
            | RestoreFailedError()
            | McpError()
            | SharingError()
        ):
            return Exit.FAILED
        case ServerError():
            return Exit.FAILED
        case NotPermittedError():
            return Exit.REFUSED
        case _:
            return Exit.USAGE
