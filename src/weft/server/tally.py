"""What happens in all directories, counted: read off the events themselves."""

from collections import Counter, OrderedDict
from decimal import Decimal
from typing import Final

from weft.model.event import (
    Event,
    MessageUpdated,
    PartUpdated,
    SessionCompacted,
    SessionDeleted,
    SessionFailed,
    SessionRested,
    StatusChanged,
)
from weft.model.ids import SessionID
from weft.model.message import AssistantMessage
from weft.model.part import StepFinishPart
from weft.model.status import Busy, Idle, Retry
from weft.server.measure import by_label, single

REMEMBERED: Final = 10_000


class Tally:
    """Counts since the start. A copy of a message (a fork, an import) is told of like any other, so only what happens in
    a session that is being run is counted, and each thing once."""

    def __init__(self) -> None:
        self.told = 0
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
        self._seen: OrderedDict[str, None] = OrderedDict()

    def take(self, event: Event) -> None:
        self.told += 1
        match event:
            case StatusChanged(session_id=session, status=status):
                self._turn(session, status)
            case SessionRested(session_id=session):
                self._running.pop(session, None)
            case SessionDeleted(info=info):
                self._running.pop(info.id, None)
            case SessionCompacted():
                self._compactions += 1
            case SessionFailed(error=error):
                self._failures["unknown" if error is None else str(error.__struct_config__.tag)] += 1
            case MessageUpdated(info=AssistantMessage() as info) if info.session_id in self._running:
                self._prompts += self._is_new(info.parent_id)
            case PartUpdated(part=StepFinishPart() as part) if part.session_id in self._running:
                if self._is_new(part.id):
                    self._finish(part)
            case _:
                pass

    def _turn(self, session: SessionID, status: Idle | Busy | Retry) -> None:
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

    def _finish(self, part: StepFinishPart) -> None:
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

    def _is_new(self, id: str) -> bool:
        new = id not in self._seen
        self._seen[id] = None
        self._seen.move_to_end(id)
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return new

    def lines(self) -> list[str]:
        tokens = dict(self._tokens)
        return [
            *single("weft_events_total", "counter", "Events that happened in open directories.", self.told),
            *single("weft_streams", "gauge", "Listeners on event streams now.", self.streams),
            *single(
                "weft_listeners_dropped_total", "counter", "Listeners sent away: too slow.", self.dropped
            ),
            *single("weft_runs", "gauge", "Sessions that are being run now.", len(self._running)),
            *single("weft_runs_total", "counter", "Runs that began.", self._runs),
            *single("weft_prompts_total", "counter", "Prompts a model began to answer.", self._prompts),
            *single("weft_steps_total", "counter", "Answers of models that came to an end.", self._steps),
            *by_label("weft_tokens_total", "Tokens of those answers, as far as counted.", "kind", tokens),
            *single(
                "weft_cost_dollars_total", "counter", "What they cost, as far as known.", float(self._cost)
            ),
            *single("weft_retries_total", "counter", "Waits before a model was asked again.", self._retries),
            *single("weft_compactions_total", "counter", "Conversations summed up.", self._compactions),
            *by_label("weft_failures_total", "Runs that failed, by how.", "name", dict(self._failures)),
            *single("weft_store_errors_total", "counter", "Requests the store refused.", self.store_errors),
        ]
