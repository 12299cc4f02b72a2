"""Metrics of requests and events, in the text format of Prometheus."""

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

from msgspec import Struct

from weft.model.event import (
    Event,
    MessageUpdated,
    PartGrew,
    PartUpdated,
    SessionCompacted,
    SessionDeleted,
    SessionFailed,
    SessionIdled,
    StatusChanged,
)
from weft.model.ids import SessionID
from weft.model.message import AssistantMessage
from weft.model.part import StepFinishPart
from weft.model.session import Busy, Idle, Retry

DURATION_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
UNKNOWN_ROUTE: Final = "unknown"
MAX_SEEN_IDS: Final = 10_000

Labels = tuple[tuple[str, str], ...]


class RequestRecord(Struct, frozen=True, kw_only=True):
    """One request and its result. `route` is the pattern of its path: a metric label must not contain ids."""

    method: str
    path: str
    route: str
    status: int
    seconds: float

    def line(self) -> str:
        return f"{self.method} {self.path} {self.status} {1000 * self.seconds:.0f}ms"


class Histogram:
    """Counts durations by upper bound. The last count is for those above every bound."""

    def __init__(self) -> None:
        self._counts = [0] * (len(DURATION_BOUNDS) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(DURATION_BOUNDS, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str, labels: Labels) -> Iterable[str]:
        total = 0
        for bound, count in zip((*DURATION_BOUNDS, None), self._counts, strict=True):
            total += count
            le = "+Inf" if bound is None else f"{bound:g}"
            yield f"{name}_bucket{format_labels((*labels, ('le', le)))} {total}"
        yield f"{name}_sum{format_labels(labels)} {self._sum:.6f}"
        yield f"{name}_count{format_labels(labels)} {total}"


class RequestMetrics:
    """Counts requests by route and status, and their durations."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self._times: dict[tuple[str, str], Histogram] = {}

    def add(self, record: RequestRecord, *, timed: bool) -> None:
        self._counts[record.method, record.route, record.status] += 1
        if timed:
            self._times.setdefault((record.method, record.route), Histogram()).add(record.seconds)

    def lines(self) -> Iterable[str]:
        yield from format_head("weft_requests_total", "counter", "Requests by route and status.")
        for (method, route, status), count in sorted(self._counts.items()):
            labels = (("method", method), ("route", route), ("status", str(status)))
            yield f"weft_requests_total{format_labels(labels)} {count}"
        name = "weft_request_seconds"
        yield from format_head(name, "histogram", "Duration of requests, without streams.")
        for (method, route), times in sorted(self._times.items()):
            yield from times.lines(name, (("method", method), ("route", route)))


def format_head(name: str, kind: str, about: str) -> tuple[str, str]:
    return f"# HELP {name} {about}", f"# TYPE {name} {kind}"


def format_metric(name: str, kind: str, about: str, value: float) -> list[str]:
    return [*format_head(name, kind, about), f"{name} {value:.10g}"]


def format_by_label(name: str, about: str, label: str, values: Mapping[str, float]) -> list[str]:
    """Format a counter with one label."""
    rows = (f"{name}{format_labels(((label, key),))} {value:.10g}" for key, value in sorted(values.items()))
    return [*format_head(name, "counter", about), *rows]


def format_labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{escape_label(value)}"' for name, value in labels) + "}"


def escape_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class EventMetrics:
    """Counts events since the start.

    Forks and imports copy messages and publish them like new ones, so only events of running sessions count, and each
    id once.
    """

    def __init__(self) -> None:
        self.events = 0
        self.dropped = 0
        self.streams = 0
        self.store_errors = 0
        self._runs = self._retries = self._compactions = self._prompts = self._steps = 0
        self._cost = Decimal(0)
        self._tokens: Counter[str] = Counter(
            {"input": 0, "output": 0, "reasoning": 0, "cache_read": 0, "cache_write": 0}
        )
        self._failures: Counter[str] = Counter()
        self._running: dict[SessionID, bool] = {}
        self._seen: OrderedDict[str, SessionID] = OrderedDict()

    def add(self, event: Event) -> None:
        self.events += 1
        if type(event) is PartGrew:  # most events are
            return
        match event:
            case StatusChanged(session_id=session, status=status):
                self._count_status(session, status)
            case SessionIdled(session_id=session):
                self._running.pop(session, None)
            case SessionDeleted(info=info):
                self._running.pop(info.id, None)
                self._forget(info.id)
            case SessionCompacted():
                self._compactions += 1
            case SessionFailed(error=error):
                self._failures["unknown" if error is None else str(error.__struct_config__.tag)] += 1
            case MessageUpdated(info=AssistantMessage() as info) if info.session_id in self._running:
                self._prompts += self._is_new(info.parent_id, info.session_id)
            case PartUpdated(part=StepFinishPart() as part) if part.session_id in self._running:
                if self._is_new(part.id, part.session_id):
                    self._count_step(part)
            case _:
                pass

    def _count_status(self, session: SessionID, status: Idle | Busy | Retry) -> None:
        match status:
            case Idle():
                self._running.pop(session, None)
                return
            case Retry():
                self._retries += 1
            case Busy():
                pass
        self._runs += session not in self._running
        self._running[session] = True

    def _count_step(self, part: StepFinishPart) -> None:
        self._steps += 1
        self._cost += part.cost
        tokens = part.tokens
        self._tokens.update(
            input=tokens.input,
            output=tokens.output,
            reasoning=tokens.reasoning,
            cache_read=tokens.cache.read,
            cache_write=tokens.cache.write,
        )

    def _is_new(self, id: str, session: SessionID) -> bool:
        new = id not in self._seen
        self._seen[id] = session
        self._seen.move_to_end(id)
        if len(self._seen) > MAX_SEEN_IDS:
            self._seen.popitem(last=False)
        return new

    def _forget(self, session: SessionID) -> None:
        """Forget the ids of a removed session: no more events about it will come."""
        for id in [id for id, owner in self._seen.items() if owner == session]:
            del self._seen[id]

    def lines(self) -> list[str]:
        tokens = dict(self._tokens)
        return [
            *format_metric(
                "weft_events_total", "counter", "Events that happened in open directories.", self.events
            ),
            *format_metric("weft_streams", "gauge", "Listeners on event streams now.", self.streams),
            *format_metric(
                "weft_listeners_dropped_total",
                "counter",
                "Listeners dropped because they were too slow.",
                self.dropped,
            ),
            *format_metric("weft_runs", "gauge", "Sessions running now.", len(self._running)),
            *format_metric("weft_runs_total", "counter", "Runs started.", self._runs),
            *format_metric(
                "weft_prompts_total", "counter", "Prompts that a model began to answer.", self._prompts
            ),
            *format_metric("weft_steps_total", "counter", "Finished answers of models.", self._steps),
            *format_by_label(
                "weft_tokens_total", "Tokens of finished answers, as far as reported.", "kind", tokens
            ),
            *format_metric(
                "weft_cost_dollars_total",
                "counter",
                "Cost of finished answers, as far as known.",
                float(self._cost),
            ),
            *format_metric("weft_retries_total", "counter", "Retries of requests to models.", self._retries),
            *format_metric(
                "weft_compactions_total", "counter", "Compactions of conversations.", self._compactions
            ),
            *format_by_label(
                "weft_failures_total", "Failed runs by kind of failure.", "name", dict(self._failures)
            ),
            *format_metric(
                "weft_store_errors_total", "counter", "Requests that failed in the store.", self.store_errors
            ),
        ]
