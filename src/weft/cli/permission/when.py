"""Times as people read them: how long ago, or in how long."""

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


def span(ms: int) -> str:
    """The largest unit that fits."""
    return next((f"{ms // size}{unit}" for unit, size in _UNITS if ms >= size), "0s")


def within(ms: int) -> str:
    """The time left, to the nearest."""
    size = next((size for _, size in _UNITS if ms >= size), 1)
    return f"in {span(ms + size // 2)}"


def ago(ms: int) -> str:
    return f"{span(ms)} ago"
