"""Spans and measurements into OpenTelemetry's SDK, by providers of our own: nothing global is touched."""

from typing import Final

from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram, Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
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

from weft.telemetry import names
from weft.telemetry.outlet import Outlets
from weft.telemetry.record import Attributes, Measurement, Record, SpanRecord
from weft.version import VERSION

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
