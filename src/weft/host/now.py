"""The current time, without the event loop that `host.clock` imports."""

import time

from weft.model.display import bound_time


def now() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def day_of(at: int) -> str:
    """Return the local date of a time, as `2025-01-31`."""
    then = time.localtime(bound_time(at) / 1000)
    return f"{then.tm_year:04}-{then.tm_mon:02}-{then.tm_mday:02}"


def find_midnight(at: int) -> int:
    """Return when the local day of a time began, not counting a change to or from summer time on that day."""
    then = time.localtime(at / 1000)
    return at - ((then.tm_hour * 60 + then.tm_min) * 60 + then.tm_sec) * 1000 - at % 1000
