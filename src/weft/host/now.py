"""What time it is, for those who need no event loop."""

import time


def now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def day_of(at: int) -> str:
    """The day a time falls on where the person is."""
    then = time.localtime(at / 1000)
    return f"{then.tm_year:04}-{then.tm_mon:02}-{then.tm_mday:02}"
