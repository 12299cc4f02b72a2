"""Emit records through OpenTelemetry's SDK: ids are kept, and traces are sampled as a whole."""

from random import Random

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from weft.telemetry.export import Exporters, TelemetryEmitter
from weft.telemetry.record import SpanRecord

TRACES = 60


def emit_traces() -> dict[int, set[tuple[str, int, int | None]]]:
    """Return the exported spans by trace, the child first, as it ends first."""
    exporter, chance = InMemorySpanExporter(), Random(3)
    emitter = TelemetryEmitter(Exporters(spans=exporter))
    for _ in range(TRACES):
        trace = chance.getrandbits(128) or 1
        emitter.take(SpanRecord(trace=trace, id=2, parent=1, name="child", start=1, end=2))
        emitter.take(SpanRecord(trace=trace, id=1, name="root", start=1, end=2))
    emitter.flush()
    found: dict[int, set[tuple[str, int, int | None]]] = {}
    for span in exporter.get_finished_spans():
        above = span.parent.span_id if span.parent else None
        found.setdefault(span.context.trace_id, set()).add((span.name, span.context.span_id, above))
    return found


def test_a_child_span_sent_before_its_parent_is_below_it() -> None:
    assert list(emit_traces().values()) == [{("child", 2, 1), ("root", 1, None)}] * TRACES


@pytest.mark.parametrize("sampler", ["traceidratio", "parentbased_traceidratio"])
def test_a_trace_is_sampled_as_a_whole_or_not_at_all(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.3")
    traces = emit_traces()
    assert 0 < len(traces) < TRACES
    assert all(len(spans) == 2 for spans in traces.values())


def test_an_unsampled_trace_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    assert emit_traces() == {}
