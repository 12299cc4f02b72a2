"""Record the spans and metrics of runs in memory, with OpenTelemetry's own exporters."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from weft.bus import Bus
from weft.local.telemetry import open_follower
from weft.telemetry.export import Exporters, TelemetryEmitter
from weft.telemetry.fold import TelemetryFold


class RecordedTelemetry:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self._points: list[tuple[str, Any]] = []
        self.exporters = Exporters(spans=self._exporter, metrics=self._reader)

    def collect(self) -> None:
        data = self._reader.get_metrics_data()
        if data is not None:
            self._points = [
                (metric.name, point)
                for resource in data.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
                for point in metric.data.data_points
            ]

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def spans_named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        [span] = self.spans_named(name)
        return span

    def children(self, span: ReadableSpan) -> list[ReadableSpan]:
        found = [each for each in self.spans if each.parent and each.parent.span_id == span.context.span_id]
        return sorted(found, key=lambda each: (each.start_time or 0, each.name))

    def tree(self, span: ReadableSpan | None = None) -> Any:
        """Return spans by name with their children; all roots without an argument."""
        if span is None:
            return [self.tree(each) for each in self.spans if each.parent is None]
        below = [self.tree(each) for each in self.children(span)]
        return (span.name, below) if below else span.name

    def sum_metric(self, name: str, **about: str) -> float:
        """Return the sum of a counter or histogram over the points with these attributes."""
        points = self._find_points(name, about)
        return sum(point.sum if hasattr(point, "sum") else point.value for point in points)

    def count_measurements(self, name: str, **about: str) -> int:
        """Return how many values a histogram took with these attributes."""
        return sum(point.count for point in self._find_points(name, about))

    def _find_points(self, name: str, about: dict[str, str]) -> list[Any]:
        wanted = {key.replace("__", "."): value for key, value in about.items()}
        return [
            point
            for metric, point in self._points
            if metric == name and wanted.items() <= dict(point.attributes).items()
        ]

    def all_text(self) -> str:
        """Return everything that was exported, as one text."""
        return "\n".join([*(span.to_json() for span in self.spans), repr(self._points)])


@asynccontextmanager
async def record_telemetry(bus: Bus, *, content: bool = False) -> AsyncIterator[RecordedTelemetry]:
    """Record the telemetry of a bus until the end of the block."""
    seen = RecordedTelemetry()
    emitter = TelemetryEmitter(seen.exporters)

    class MetricReader:
        """Reads the metrics before the SDK is shut down."""

        take = staticmethod(emitter.take)

        @staticmethod
        def flush() -> None:
            seen.collect()
            emitter.flush()

    async with open_follower(bus, TelemetryFold(Random(1).randbytes, content=content), MetricReader()):
        yield seen
