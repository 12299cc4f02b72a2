"""Numbers for whoever looks after a server, in the text format that Prometheus reads."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
UNKNOWN_ROUTE: Final = "unknown"

Labels = tuple[tuple[str, str], ...]


class Visit(Struct, frozen=True, kw_only=True):
    """One request and how it went. `route` is the path as a pattern: ids in it would be endlessly many names."""

    method: str
    path: str
    route: str
    status: int
    seconds: float

    def line(self) -> str:
        return f"{self.method} {self.path} {self.status} {1000 * self.seconds:.0f}ms"


class Histogram:
    """How many took how long: the last place is for those longer than every bound."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._sum = 0.0

    def take(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str, labels: Labels) -> Iterable[str]:
        total = 0
        for bound, count in zip((*BOUNDS, None), self._counts, strict=True):
            total += count
            le = "+Inf" if bound is None else f"{bound:g}"
            yield f"{name}_bucket{to_labels((*labels, ('le', le)))} {total}"
        yield f"{name}_sum{to_labels(labels)} {self._sum:.6f}"
        yield f"{name}_count{to_labels(labels)} {total}"


class Requests:
    """Every request by its route, and how long those took that end."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self._times: dict[tuple[str, str], Histogram] = {}

    def take(self, visit: Visit, *, timed: bool) -> None:
        self._counts[visit.method, visit.route, visit.status] += 1
        if timed:
            self._times.setdefault((visit.method, visit.route), Histogram()).take(visit.seconds)

    def lines(self) -> Iterable[str]:
        yield from head("weft_requests_total", "counter", "Requests by route and status.")
        for (method, route, status), count in sorted(self._counts.items()):
            labels = (("method", method), ("route", route), ("status", str(status)))
            yield f"weft_requests_total{to_labels(labels)} {count}"
        name = "weft_request_seconds"
        yield from head(name, "histogram", "How long requests took; streams are not among them.")
        for (method, route), times in sorted(self._times.items()):
            yield from times.lines(name, (("method", method), ("route", route)))


def head(name: str, kind: str, about: str) -> tuple[str, str]:
    return f"# HELP {name} {about}", f"# TYPE {name} {kind}"


def single(name: str, kind: str, about: str, value: float) -> list[str]:
    return [*head(name, kind, about), f"{name} {value:.10g}"]


def by_label(name: str, about: str, label: str, values: Mapping[str, float]) -> list[str]:
    """A counter that is told apart by one label."""
    rows = (f"{name}{to_labels(((label, key),))} {value:.10g}" for key, value in sorted(values.items()))
    return [*head(name, "counter", about), *rows]


def to_labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{escape(value)}"' for name, value in labels) + "}"


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
