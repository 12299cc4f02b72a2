"""Export spans and metrics through the OpenTelemetry SDK: to a collector, to standard error, or nowhere."""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from msgspec import Struct
from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram, Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricExporter,
    MetricExportResult,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from weft.errors import InvalidInputError, UnsupportedError
from weft.telemetry import conventions
from weft.telemetry.record import Attributes, Measurement, Record, SpanRecord
from weft.version import VERSION

ReportProblem = Callable[[str], None]
# The package for each collector protocol, and its module.
PACKAGES: Final = {
    "http/protobuf": ("opentelemetry-exporter-otlp-proto-http", "opentelemetry.exporter.otlp.proto.http"),
    "grpc": ("opentelemetry-exporter-otlp-proto-grpc", "opentelemetry.exporter.otlp.proto.grpc"),
}
REFUSED: Final = "the collector refused the data"


class Exporters(Struct, frozen=True, kw_only=True):
    """The exporter of spans and the reader of metrics; None disables one."""

    spans: SpanExporter | None = None
    metrics: MetricReader | None = None


class FirstErrorReporter:
    """Reports the first problem only."""

    def __init__(self, report: ReportProblem) -> None:
        self._report = report
        self._has_reported = False

    def report(self, problem: str) -> None:
        if not self._has_reported:
            self._has_reported = True
            self._report(problem)


class SafeSpanExporter(SpanExporter):
    """Wraps an exporter and reports its first problem. Spans that could not be sent are lost."""

    def __init__(self, exporter: SpanExporter, reporter: FirstErrorReporter) -> None:
        self._exporter = exporter
        self._reporter = reporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001  an exporter is third-party code in its own thread
            self._reporter.report(f"{type(error).__name__}: {error}")
            return SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            self._reporter.report(REFUSED)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class SafeMetricExporter(MetricExporter):
    """Wraps a metric exporter and reports its first problem."""

    def __init__(self, exporter: MetricExporter, reporter: FirstErrorReporter) -> None:
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)  # noqa: SLF001  as the SDK's reader does
        self._exporter = exporter
        self._reporter = reporter

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **more: Any
    ) -> MetricExportResult:
        try:
            result = self._exporter.export(metrics_data, timeout_millis, **more)
        except Exception as error:  # noqa: BLE001  as above
            self._reporter.report(f"{type(error).__name__}: {error}")
            return MetricExportResult.FAILURE
        if result is not MetricExportResult.SUCCESS:
            self._reporter.report(REFUSED)
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **more: Any) -> None:
        self._exporter.shutdown(timeout_millis, **more)


def make_exporters(endpoint: str | None, env: Mapping[str, str], reporter: FirstErrorReporter) -> Exporters:
    """Return the exporters that the `OTEL_*` environment variables select; by default those of a collector."""
    spans = _make_span_exporter(env.get("OTEL_TRACES_EXPORTER") or "otlp", endpoint, env)
    metrics = _make_metric_exporter(env.get("OTEL_METRICS_EXPORTER") or "otlp", endpoint, env)
    return Exporters(
        spans=None if spans is None else SafeSpanExporter(spans, reporter),
        metrics=None
        if metrics is None
        else PeriodicExportingMetricReader(SafeMetricExporter(metrics, reporter)),
    )


def _make_span_exporter(kind: str, endpoint: str | None, env: Mapping[str, str]) -> SpanExporter | None:
    match kind:
        case "none":
            return None
        case "console":
            return ConsoleSpanExporter(out=sys.stderr)
        case "otlp":
            exporter: SpanExporter = _make_exporter(
                env, "trace_exporter.OTLPSpanExporter", endpoint, "/v1/traces"
            )
            return exporter
        case _:
            raise InvalidInputError(
                "OTEL_TRACES_EXPORTER", f"{kind[:40]!r} is not one of: otlp, console, none"
            )


def _make_metric_exporter(kind: str, endpoint: str | None, env: Mapping[str, str]) -> MetricExporter | None:
    match kind:
        case "none":
            return None
        case "console":
            return ConsoleMetricExporter(out=sys.stderr)
        case "otlp":
            exporter: MetricExporter = _make_exporter(
                env, "metric_exporter.OTLPMetricExporter", endpoint, "/v1/metrics"
            )
            return exporter
        case _:
            raise InvalidInputError(
                "OTEL_METRICS_EXPORTER", f"{kind[:40]!r} is not one of: otlp, console, none"
            )


def _get_protocol(env: Mapping[str, str]) -> str:
    protocol = env.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
    if protocol not in PACKAGES:
        raise InvalidInputError(
            "OTEL_EXPORTER_OTLP_PROTOCOL", f"{protocol[:40]!r} is not one of: {', '.join(PACKAGES)}"
        )
    return protocol


def _make_exporter(env: Mapping[str, str], class_path: str, endpoint: str | None, path: str) -> Any:
    """Return an exporter of the package for the selected protocol. Raise `UnsupportedError` if it is missing or cannot
    be imported.

    Incompatible packages raise many kinds of errors on import.
    """
    package, package_module = PACKAGES[_get_protocol(env)]
    if not _is_installed(package_module):
        raise UnsupportedError(
            "sending telemetry to a collector without the exporter package", hint=f"pip install {package}"
        )
    # The package would log every failure. We report the first one ourselves.
    logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)
    module, _, class_name = class_path.partition(".")
    try:
        return getattr(import_module(f"{package_module}.{module}"), class_name)(
            **_to_endpoint(endpoint, env, path)
        )
    except Exception as error:
        raise UnsupportedError(
            f"sending telemetry with {package}, which cannot be imported: {type(error).__name__}: {error}",
            hint=f"pip install --force-reinstall {package}",
        ) from error


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def _to_endpoint(endpoint: str | None, env: Mapping[str, str], path: str) -> dict[str, str]:
    """Return the endpoint argument; nothing if the exporter is to read it from the environment."""
    if endpoint is None:
        return {}
    return {"endpoint": endpoint if _get_protocol(env) == "grpc" else endpoint.rstrip("/") + path}


SPAN_KINDS: Final = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
NS_PER_MS: Final = 1_000_000
MAX_SAMPLED_TRACES: Final = 1024
# Bucket boundaries that the conventions recommend.
TOKEN_BUCKETS: Final = tuple(4.0**power for power in range(14))
SECOND_BUCKETS: Final = tuple(0.01 * 2.0**power for power in range(14))
RATE_BUCKETS: Final = tuple(tenth / 10 for tenth in range(11))


class PresetIds(IdGenerator):
    """Returns ids that were set before: a child's span is sent before its parent's and must name its id."""

    def __init__(self) -> None:
        self.trace = self.span = 1

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class TelemetryEmitter:
    """Passes records to the SDK without waiting: they are queued up to a limit, and sent by the SDK's threads."""

    def __init__(self, exporters: Exporters) -> None:
        defaults = Resource.create({"service.name": "weft", "service.version": VERSION})
        resource = defaults.merge(OTELResourceDetector().detect())  # the environment takes precedence
        self._ids = PresetIds()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        if exporters.spans is not None:
            self._provider.add_span_processor(BatchSpanProcessor(exporters.spans))
        self._tracer = self._provider.get_tracer("weft", VERSION)
        readers = [] if exporters.metrics is None else [exporters.metrics]
        self._meters = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
        self._instruments = create_instruments(self._meters.get_meter("weft", VERSION))
        self._sampled: dict[int, bool] = {}

    def take(self, record: Record) -> None:
        """Add a record to the queue."""
        match record:
            case SpanRecord():
                self._emit_span(record)
            case Measurement(name=name, value=value, attributes=attributes):
                match self._instruments[name]:
                    case Counter() as counter:
                        counter.add(value, attributes)
                    case Histogram() as histogram:
                        histogram.record(value, attributes)

    def flush(self) -> None:
        """Send what is left and shut down. This blocks: call it in a thread."""
        self._provider.shutdown()
        self._meters.shutdown()

    def _emit_span(self, record: SpanRecord) -> None:
        self._ids.trace, self._ids.span = record.trace, record.id
        span = self._tracer.start_span(
            record.name,
            context=self._get_parent_context(record),
            kind=SPAN_KINDS[record.kind],
            attributes=_add_error(record),
            start_time=record.start * NS_PER_MS,
            record_exception=False,
        )
        for event in record.events:
            span.add_event(event.name, event.attributes, timestamp=event.at * NS_PER_MS)
        if record.error is not None:
            span.set_status(Status(StatusCode.ERROR))
        span.end(record.end * NS_PER_MS)

    def _get_parent_context(self, record: SpanRecord) -> Context:
        """Return the context of the parent span, which may not have been sent yet. A trace is sampled as a whole or not
        at all.
        """
        if record.parent is None:
            return Context()
        flags = TraceFlags(TraceFlags.SAMPLED if self._is_sampled(record.trace) else TraceFlags.DEFAULT)
        parent = SpanContext(record.trace, record.parent, is_remote=False, trace_flags=flags)
        return set_span_in_context(NonRecordingSpan(parent), Context())

    def _is_sampled(self, trace: int) -> bool:
        if trace not in self._sampled:
            if len(self._sampled) >= MAX_SAMPLED_TRACES:
                self._sampled.clear()
            result = self._provider.sampler.should_sample(Context(), trace, "invoke_agent")
            self._sampled[trace] = result.decision is Decision.RECORD_AND_SAMPLE
        return self._sampled[trace]


def create_instruments(meter: Meter) -> dict[str, Counter | Histogram]:
    def histogram(name: str, unit: str, description: str, buckets: tuple[float, ...]) -> Histogram:
        return meter.create_histogram(
            name, unit=unit, description=description, explicit_bucket_boundaries_advisory=buckets
        )

    return {
        conventions.TOKEN_USAGE: histogram(
            conventions.TOKEN_USAGE, "{token}", "Tokens used by one model request.", TOKEN_BUCKETS
        ),
        conventions.DURATION: histogram(
            conventions.DURATION, "s", "Duration of one model request.", SECOND_BUCKETS
        ),
        conventions.CACHE_RATE: histogram(
            conventions.CACHE_RATE, "1", "Share of the input tokens that was cached.", RATE_BUCKETS
        ),
        conventions.TOKENS: meter.create_counter(
            conventions.TOKENS, unit="{token}", description="Tokens by kind."
        ),
        conventions.COST: meter.create_counter(
            conventions.COST, unit="USD", description="Cost in US dollars, where prices are known."
        ),
        conventions.RETRIES: meter.create_counter(
            conventions.RETRIES, unit="{attempt}", description="Attempts that failed and were retried."
        ),
        conventions.COMPACTIONS: meter.create_counter(
            conventions.COMPACTIONS, unit="{compaction}", description="Conversations that were compacted."
        ),
    }


def _add_error(record: SpanRecord) -> Attributes:
    return (
        record.attributes if record.error is None else record.attributes | {conventions.ERROR: record.error}
    )
