"""Which models failed lately, and for how long they are left alone."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from weft.errors import FaultKind, ProviderError
from weft.model.part import ModelRef

COOL_MS: Final = 60_000
# A key, a purse or a name: none of them mends itself, somebody has to.
COOL_LONG_MS: Final = 10 * 60_000
LONGEST_MS: Final = 60 * 60_000
LASTING: Final[frozenset[FaultKind]] = frozenset({"auth", "quota", "not-found"})


class Cooling(Struct, frozen=True, kw_only=True):
    """A model that failed so many times on end, and when it is to be asked again."""

    failures: int
    until: int


class Health:
    """Kept for one process. It orders a choice and never narrows it: with all of them cooling, all can be asked."""

    def __init__(self) -> None:
        self._cooling: dict[tuple[str, str], Cooling] = {}

    def fail(self, model: ModelRef, error: ProviderError, now: int) -> None:
        before = self._cooling.get(_name(model))
        failures = before.failures + 1 if before is not None else 1
        self._cooling[_name(model)] = Cooling(failures=failures, until=now + cool_ms(error, failures))

    def work(self, model: ModelRef) -> None:
        """It answered: nothing is held against it."""
        self._cooling.pop(_name(model), None)

    def order(self, chain: Iterable[ModelRef], now: int) -> tuple[ModelRef, ...]:
        """Those that can be asked as they stand, then those that cool, by when they come back. None twice."""
        once = {_name(model): model for model in chain}
        return tuple(sorted(once.values(), key=lambda model: self._back_at(model, now)))

    def _back_at(self, model: ModelRef, now: int) -> int:
        cooling = self._cooling.get(_name(model))
        return cooling.until if cooling is not None and cooling.until > now else now


def cool_ms(error: ProviderError, failures: int) -> int:
    """How long to leave a model alone after it failed the n-th time on end; at least as long as it asks itself."""
    first = COOL_LONG_MS if error.kind in LASTING else COOL_MS
    doubled = min(first << min(failures - 1, 16), LONGEST_MS)
    return max(doubled, error.wait_ms or 0)


def _name(model: ModelRef) -> tuple[str, str]:
    return model.provider_id, model.model_id
