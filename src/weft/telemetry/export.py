"""Export spans and measurements through OpenTelemetry's SDK, to a collector, standard error or nowhere."""

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
from weft.telemetry import names
from weft.telemetry.record import Attributes, Measurement, Record, SpanRecord
from weft.version import VERSION

Report = Callable[[str], None]
# The package that speaks each protocol of a collector, and the module in it.
PACKAGES: Final = {
    "http/protobuf": ("opentelemetry-exporter-otlp-proto-http", "opentelemetry.exporter.otlp.proto.http"),
    "grpc": ("opentelemetry-exporter-otlp-proto-grpc", "opentelemetry.exporter.otlp.proto.grpc"),
}
UNTAKEN: Final = "the collector did not take it"


class Outlets(Struct, frozen=True, kw_only=True):
    """Who is sent spans, and who reads measurements; None is nobody."""

    spans: SpanExporter | None = None
    metrics: MetricReader | None = None


class Once:
    """Tells the first trouble there is, and no other."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._told = False

    def tell(self, what: str) -> None:
        if not self._told:
            self._told = True
            self._report(what)


class Careful(SpanExporter):
    """An exporter whose trouble is told once. Spans that could not be sent are gone."""

    def __init__(self, exporter: SpanExporter, once: Once) -> None:
        self._exporter = exporter
        self._once = once

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001  an exporter is a stranger's code, in a thread of its own
            self._once.tell(f"{type(error).__name__}: {error}")
            return SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            self._once.tell(UNTAKEN)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class CarefulMetrics(MetricExporter):
    """The same for measurements."""

    def __init__(self, exporter: MetricExporter, once: Once) -> None:
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)  # noqa: SLF001  as its own reader reads them
        self._exporter = exporter
        self._once = once

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **more: Any
    ) -> MetricExportResult:
        try:
            result = self._exporter.export(metrics_data, timeout_millis, **more)
        except Exception as error:  # noqa: BLE001  as above
            self._once.tell(f"{type(error).__name__}: {error}")
            return MetricExportResult.FAILURE
        if result is not MetricExportResult.SUCCESS:
            self._once.tell(UNTAKEN)
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **more: Any) -> None:
        self._exporter.shutdown(timeout_millis, **more)


def find_outlets(endpoint: str | None, env: Mapping[str, str], once: Once) -> Outlets:
    """As the environment says, in OpenTelemetry's own words; a collector unless it says otherwise."""
    spans = _spans(env.get("OTEL_TRACES_EXPORTER") or "otlp", endpoint, env)
    metrics = _metrics(env.get("OTEL_METRICS_EXPORTER") or "otlp", endpoint, env)
    return Outlets(
        spans=None if spans is None else Careful(spans, once),
        metrics=None if metrics is None else PeriodicExportingMetricReader(CarefulMetrics(metrics, once)),
    )


def _spans(kind: str, endpoint: str | None, env: Mapping[str, str]) -> SpanExporter | None:
    match kind:
        case "none":
            return None
        case "console":
            return ConsoleSpanExporter(out=sys.stderr)
        case "otlp":
            made: SpanExporter = _make(env, "trace_exporter.OTLPSpanExporter", endpoint, "/v1/traces")
            return made
        case _:
            raise InvalidInputError("OTEL_TRACES_EXPORTER", f"{kind[:40]!r} is none of otlp, console, none")


def _metrics(kind: str, endpoint: str | None, env: Mapping[str, str]) -> MetricExporter | None:
    match kind:
        case "none":
            return None
        case "console":
            return ConsoleMetricExporter(out=sys.stderr)
        case "otlp":
            made: MetricExporter = _make(env, "metric_exporter.OTLPMetricExporter", endpoint, "/v1/metrics")
            return made
        case _:
            raise InvalidInputError("OTEL_METRICS_EXPORTER", f"{kind[:40]!r} is none of otlp, console, none")


def _protocol(env: Mapping[str, str]) -> str:
    said = env.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
    if said not in PACKAGES:
        raise InvalidInputError(
            "OTEL_EXPORTER_OTLP_PROTOCOL", f"{said[:40]!r} is none of {', '.join(PACKAGES)}"
        )
    return said


def _make(env: Mapping[str, str], named: str, endpoint: str | None, path: str) -> Any:
    """Return an exporter of the package that the environment asks for. Raises `UnsupportedError` if there is none, or if
    it cannot be loaded: packages that do not fit one another raise all kinds of errors on import."""
    package, place = PACKAGES[_protocol(env)]
    if not _is_there(place):
        raise UnsupportedError(
            "sending telemetry to a collector, without its package", hint=f"pip install {package}"
        )
    # It says by itself, again and again, what we tell once.
    logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)
    module, _, kind = named.partition(".")
    try:
        return getattr(import_module(f"{place}.{module}"), kind)(**_at(endpoint, env, path))
    except Exception as error:
        raise UnsupportedError(
            f"sending telemetry by {package}, which cannot be loaded: {type(error).__name__}: {error}",
            hint=f"pip install --force-reinstall {package}",
        ) from error


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even what it would be in
        return False


def _at(endpoint: str | None, env: Mapping[str, str], path: str) -> dict[str, str]:
    """Where to; nothing if the environment is to say it, which the exporter reads by itself."""
    if endpoint is None:
        return {}
    return {"endpoint": endpoint if _protocol(env) == "grpc" else endpoint.rstrip("/") + path}


KINDS: Final = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
NS: Final = 1_000_000
MOST_TRACES: Final = 1024
# As the conventions advise.
TOKEN_STEPS: Final = tuple(4.0**power for power in range(14))
SECOND_STEPS: Final = tuple(0.01 * 2.0**power for power in range(14))
SHARE_STEPS: Final = tuple(tenth / 10 for tenth in range(11))


class Given(IdGenerator):
    """Ids that were chosen before: a child's span is over, and sent, before its parent's is."""

    def __init__(self) -> None:
        self.trace = self.span = 1

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class Emitter:
    """Takes records, and never waits: they are queued within bounds, and sent by threads of the SDK."""

    def __init__(self, outlets: Outlets) -> None:
        ours = Resource.create({"service.name": "weft", "service.version": VERSION})
        resource = ours.merge(OTELResourceDetector().detect())  # what the environment says goes before
        self._ids = Given()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        if outlets.spans is not None:
            self._provider.add_span_processor(BatchSpanProcessor(outlets.spans))
        self._tracer = self._provider.get_tracer("weft", VERSION)
        readers = [] if outlets.metrics is None else [outlets.metrics]
        self._meters = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
        self._instruments = to_instruments(self._meters.get_meter("weft", VERSION))
        self._sampled: dict[int, bool] = {}

    def take(self, record: Record) -> None:
        match record:
            case SpanRecord():
                self._span(record)
            case Measurement(name=name, value=value, attributes=attributes):
                match self._instruments[name]:
                    case Counter() as counter:
                        counter.add(value, attributes)
                    case Histogram() as histogram:
                        histogram.record(value, attributes)

    def flush(self) -> None:
        """Send what is left, and end. This waits: call it in a thread."""
        self._provider.shutdown()
        self._meters.shutdown()

    def _span(self, record: SpanRecord) -> None:
        self._ids.trace, self._ids.span = record.trace, record.id
        span = self._tracer.start_span(
            record.name,
            context=self._above(record),
            kind=KINDS[record.kind],
            attributes=_with_error(record),
            start_time=record.start * NS,
            record_exception=False,
        )
        for mark in record.marks:
            span.add_event(mark.name, mark.attributes, timestamp=mark.at * NS)
        if record.error is not None:
            span.set_status(Status(StatusCode.ERROR))
        span.end(record.end * NS)

    def _above(self, record: SpanRecord) -> Context:
        """The span above, by its name: it may not have been sent yet. A trace is sampled as a whole, or not at all."""
        if record.parent is None:
            return Context()
        flags = TraceFlags(TraceFlags.SAMPLED if self._is_sampled(record.trace) else TraceFlags.DEFAULT)
        above = SpanContext(record.trace, record.parent, is_remote=False, trace_flags=flags)
        return set_span_in_context(NonRecordingSpan(above), Context())

    def _is_sampled(self, trace: int) -> bool:
        if trace not in self._sampled:
            if len(self._sampled) >= MOST_TRACES:
                self._sampled.clear()
            result = self._provider.sampler.should_sample(Context(), trace, "invoke_agent")
            self._sampled[trace] = result.decision is Decision.RECORD_AND_SAMPLE
        return self._sampled[trace]


def to_instruments(meter: Meter) -> dict[str, Counter | Histogram]:
    def histogram(name: str, unit: str, about: str, steps: tuple[float, ...]) -> Histogram:
        return meter.create_histogram(
            name, unit=unit, description=about, explicit_bucket_boundaries_advisory=steps
        )

    return {
        names.TOKEN_USAGE: histogram(
            names.TOKEN_USAGE, "{token}", "Tokens that a model's call used.", TOKEN_STEPS
        ),
        names.DURATION: histogram(names.DURATION, "s", "How long a model's call took.", SECOND_STEPS),
        names.CACHE_RATE: histogram(
            names.CACHE_RATE, "1", "Which share of what a model read was cached.", SHARE_STEPS
        ),
        names.TOKENS: meter.create_counter(names.TOKENS, unit="{token}", description="Tokens, of each kind."),
        names.COST: meter.create_counter(
            names.COST, unit="USD", description="Dollars, as far as prices are known."
        ),
        names.RETRIES: meter.create_counter(
            names.RETRIES, unit="{attempt}", description="Attempts that failed and were made again."
        ),
        names.COMPACTIONS: meter.create_counter(
            names.COMPACTIONS, unit="{compaction}", description="Conversations that were summed up."
        ),
    }


def _with_error(record: SpanRecord) -> Attributes:
    return record.attributes if record.error is None else record.attributes | {names.ERROR: record.error}
