"""Metrics: each event is counted once, in the text format that others read."""

import re
from decimal import Decimal

from given.conversation import SESSION, assistant_message
from weft.model.event import (
    Event,
    MessageUpdated,
    PartUpdated,
    SessionCompacted,
    SessionDeleted,
    SessionFailed,
    SessionIdled,
    StatusChanged,
)
from weft.model.failure import unknown_failure
from weft.model.ids import MessageID, PartID
from weft.model.part import CacheTokens, StepFinishPart, Tokens
from weft.model.session import Busy, Idle, Retry
from weft.server.http_server import STREAM_PATHS
from weft.server.metrics import (
    DURATION_BOUNDS,
    MAX_SEEN_IDS,
    EventMetrics,
    RequestMetrics,
    RequestRecord,
    format_labels,
)
from weft.server.routes.table import list_routes
from weft.testing.store_samples import session

LINE = re.compile(r'[a-z_]+(\{([a-z]+="([^"\\]|\\.)*",?)*\})? -?[0-9.e+-]+')


def value(lines: list[str], name: str) -> float:
    (line,) = [line for line in lines if line.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


def finish(id: str) -> Event:
    return PartUpdated(
        part=StepFinishPart(
            id=PartID(id),
            session_id=SESSION,
            message_id=MessageID("msg_1"),
            reason="stop",
            cost=Decimal("0.25"),
            tokens=Tokens(input=10, output=5, cache=CacheTokens(read=2)),
        )
    )


def test_everything_in_a_run_is_counted_once() -> None:
    tally = EventMetrics()
    busy = StatusChanged(session_id=SESSION, status=Busy())
    answer = MessageUpdated(info=assistant_message("msg_2", 2, "msg_1").info)
    for event in (busy, answer, answer, busy, finish("prt_1"), finish("prt_1"), finish("prt_2")):
        tally.add(event)
    tally.add(StatusChanged(session_id=SESSION, status=Retry(attempt=1, message="busy", next=5)))
    tally.add(SessionCompacted(session_id=SESSION))
    lines = tally.lines()
    assert {
        name: value(lines, f"weft_{name}")
        for name in (
            "events_total",
            "runs",
            "runs_total",
            "prompts_total",
            "steps_total",
            "cost_dollars_total",
            "retries_total",
            "compactions_total",
        )
    } == {
        "events_total": 9,
        "runs": 1,
        "runs_total": 1,
        "prompts_total": 1,
        "steps_total": 2,
        "cost_dollars_total": 0.5,
        "retries_total": 1,
        "compactions_total": 1,
    }
    assert 'weft_tokens_total{kind="input"} 20' in lines
    assert 'weft_tokens_total{kind="cache_read"} 4' in lines


def test_copied_messages_are_not_counted() -> None:
    tally = EventMetrics()
    tally.add(StatusChanged(session_id=SESSION, status=Busy()))
    tally.add(StatusChanged(session_id=SESSION, status=Idle()))
    tally.add(finish("prt_1"))
    tally.add(MessageUpdated(info=assistant_message("msg_2", 2, "msg_1").info))
    tally.add(SessionIdled(session_id=SESSION))
    lines = tally.lines()
    assert (value(lines, "weft_steps_total"), value(lines, "weft_prompts_total")) == (0, 0)
    assert value(lines, "weft_runs") == 0


def test_failures_are_counted_by_kind_and_memory_is_bounded() -> None:
    tally = EventMetrics()
    tally.add(SessionFailed(session_id=SESSION, error=unknown_failure("x")))
    assert any(line.startswith('weft_failures_total{name="Unknown') for line in tally.lines())
    tally.add(StatusChanged(session_id=SESSION, status=Busy()))
    for number in range(MAX_SEEN_IDS + 5):
        tally.add(finish(f"prt_{number}"))
    assert len(tally._seen) == MAX_SEEN_IDS
    tally.add(SessionDeleted(info=session("ses_other")))
    assert len(tally._seen) == MAX_SEEN_IDS
    tally.add(SessionDeleted(info=session(SESSION)))
    assert len(tally._seen) == 0


def test_requests_are_counted_by_route_and_buckets_add_up() -> None:
    requests = RequestMetrics()
    for seconds in (0.001, 0.005, 0.3, 1000.0):
        visit = RequestRecord(
            method="GET", path="/session/a", route="/session/{id}", status=200, seconds=seconds
        )
        requests.add(visit, timed=True)
    requests.add(
        RequestRecord(method="GET", path="/event", route="/event", status=200, seconds=1), timed=False
    )
    lines = list(requests.lines())
    assert 'weft_requests_total{method="GET",route="/session/{id}",status="200"} 4' in lines
    buckets = [int(line.rpartition(" ")[2]) for line in lines if "_bucket" in line]
    assert len(buckets) == len(DURATION_BOUNDS) + 1
    assert (buckets[0], buckets[-1], buckets == sorted(buckets)) == (2, 4, True)
    assert not any("_bucket" in line and '"/event"' in line for line in lines)


def test_every_line_of_the_metrics_is_valid() -> None:
    lines = [*EventMetrics().lines(), *RequestMetrics().lines()]
    assert all(line.startswith(("# HELP ", "# TYPE ")) or LINE.fullmatch(line) for line in lines)
    assert format_labels((("a", 'x"y\\z\n'),)) == '{a="x\\"y\\\\z\\n"}'


def test_every_route_that_streams_is_among_the_paths_that_are_not_timed() -> None:
    streams = {route.path for route in list_routes() if route.media == "text/event-stream"}
    # The rest waits for something, and then answers at once.
    assert set(STREAM_PATHS) - streams == {"/tui/control/next"}
    assert streams - set(STREAM_PATHS) == set()
