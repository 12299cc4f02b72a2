"""Exit codes: what a script learns from how a command ended."""

from enum import IntEnum

from weft.errors import NotPermittedError, ProviderError, StoreError, WeftError


class Exit(IntEnum):
    DONE = 0
    FAILED = 1  # the model, its provider or the store failed
    USAGE = 2  # what was asked for cannot be meant: unknown session, bad flag, no model, broken configuration
    REFUSED = 3  # a permission was refused
    BUDGET = 4
    TIMEOUT = 5
    LOOP = 6
    INTERRUPTED = 130


EXPLAINED = """exit codes:
  0 done    1 the model or the store failed    2 wrong usage (unknown session, no model, broken config)
  3 a permission was refused    130 interrupted"""


def exit_for(error: WeftError) -> Exit:
    match error:
        case ProviderError() | StoreError():
            return Exit.FAILED
        case NotPermittedError():
            return Exit.REFUSED
        case _:
            return Exit.USAGE
