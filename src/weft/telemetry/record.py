"""Telemetry records: spans with their times, and measurements. Plain values, independent of any library."""

from typing import Literal

from msgspec import Struct

Value = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, Value]


class SpanEvent(Struct, frozen=True, kw_only=True):
    """Something that happened within a span, and when (ms)."""

    name: str
    at: int
    attributes: Attributes = {}


class SpanRecord(Struct, frozen=True, kw_only=True):
    """An operation with its start and end (ms), its trace and its parent span. `error` is the type of its failure, if
    it failed.
    """

    trace: int
    id: int
    parent: int | None = None
    name: str
    kind: Literal["internal", "client"] = "internal"
    start: int
    end: int
    attributes: Attributes = {}
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None


class Measurement(Struct, frozen=True, kw_only=True):
    """A value of a metric, with its attributes."""

    name: str
    value: float
    attributes: Attributes = {}


Record = SpanRecord | Measurement
