"""What is to be seen of runs from outside: spans with their times, and measurements. Values, of no library."""

from typing import Literal

from msgspec import Struct

Value = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, Value]


class Mark(Struct, frozen=True, kw_only=True):
    """Something that happened within a span, and when (ms)."""

    name: str
    at: int
    attributes: Attributes = {}


class SpanRecord(Struct, frozen=True, kw_only=True):
    """Something that took time: from when to when (ms), in which trace, below which span. `error` is its kind, if it failed."""

    trace: int
    id: int
    parent: int | None = None
    name: str
    kind: Literal["internal", "client"] = "internal"
    start: int
    end: int
    attributes: Attributes = {}
    marks: tuple[Mark, ...] = ()
    error: str | None = None


class Measurement(Struct, frozen=True, kw_only=True):
    """A number, of which instrument, about what."""

    name: str
    value: float
    attributes: Attributes = {}


Record = SpanRecord | Measurement
