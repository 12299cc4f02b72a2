"""Where telemetry goes: to a collector, to standard error, or nowhere. Trouble on the way is told once, and is nobody's failure."""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from msgspec import Struct
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricExporter,
    MetricExportResult,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult

from weft.errors import InvalidInputError, UnsupportedError

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
