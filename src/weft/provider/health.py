"""Remember which models failed recently, and for how long to avoid them."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from weft.errors import FaultKind, ProviderError
from weft.model.part import ModelRef

COOL_DOWN_MS: Final = 60_000
# A refused key, an empty account or a wrong model name does not fix itself.
LONG_COOL_DOWN_MS: Final = 10 * 60_000
MAX_COOL_DOWN_MS: Final = 60 * 60_000
LASTING_FAULTS: Final[frozenset[FaultKind]] = frozenset({"auth", "quota", "not-found"})


class CoolDown(Struct, frozen=True, kw_only=True):
    """A model that failed `failures` times in a row and is avoided until the time `until` (ms)."""

    failures: int
    until: int


class ModelHealth:
    """Failures of models in this process. They affect only the order of attempts: a model that cools down can still be
    asked.
    """

    def __init__(self) -> None:
        self._cooling: dict[tuple[str, str], CoolDown] = {}

    def fail(self, model: ModelRef, error: ProviderError, now: int) -> None:
        """Record a failure of a model."""
        previous = self._cooling.get(_to_key(model))
        failures = previous.failures + 1 if previous is not None else 1
        self._cooling[_to_key(model)] = CoolDown(
            failures=failures, until=now + compute_cool_down(error, failures)
        )

    def succeed(self, model: ModelRef) -> None:
        """Record that a model answered: forget its failures."""
        self._cooling.pop(_to_key(model), None)

    def order(self, chain: Iterable[ModelRef], now: int) -> tuple[ModelRef, ...]:
        """Return the models without duplicates: first those that are available, then those that cool down,
        soonest first.
        """
        models = {_to_key(model): model for model in chain}
        return tuple(sorted(models.values(), key=lambda model: self._get_available_time(model, now)))

    def _get_available_time(self, model: ModelRef, now: int) -> int:
        cooling = self._cooling.get(_to_key(model))
        return cooling.until if cooling is not None and cooling.until > now else now


def compute_cool_down(error: ProviderError, failures: int) -> int:
    """Return how many ms to avoid a model after this many failures in a row: at least as long as the API asked to
    wait.
    """
    base = LONG_COOL_DOWN_MS if error.kind in LASTING_FAULTS else COOL_DOWN_MS
    doubled = min(base << min(failures - 1, 16), MAX_COOL_DOWN_MS)
    return max(doubled, error.wait_ms or 0)


def _to_key(model: ModelRef) -> tuple[str, str]:
    return model.provider_id, model.model_id
