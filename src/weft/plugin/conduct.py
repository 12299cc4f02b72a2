"""The conduct of plugins: every fault is told, and who has had three is left alone."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from weft.errors import ConfigError

FAULTS: Final = 3

Report = Callable[[ConfigError], None]


class Conduct:
    """Counts faults by plugin. `report` is how a person hears of them."""

    def __init__(self, report: Report, *, faults: int = FAULTS) -> None:
        self._report = report
        self._allowed = faults
        self._faults: Counter[str] = Counter()

    def is_off(self, plugin: str) -> bool:
        return self._faults[plugin] >= self._allowed

    def fault(self, plugin: str, reason: str, *, line: int = 0) -> None:
        """Note a fault of a plugin, by the path it came from, and tell it. One that is left alone is not heard any more."""
        if self.is_off(plugin):
            return
        self._faults[plugin] += 1
        count = self._faults[plugin]
        after = f"; that was fault {count} of {self._allowed}"
        if self.is_off(plugin):
            after = f"; after {count} faults its hooks are not asked any more"
        self._report(ConfigError(plugin, f"{reason}{after}", at=(line, 0)))

    def give_up(self, plugin: str, reason: str, *, line: int = 0) -> None:
        """Tell what went wrong, and leave the plugin alone at once."""
        if not self.is_off(plugin):
            self._faults[plugin] = self._allowed
            self._report(ConfigError(plugin, f"{reason}; its hooks are not asked", at=(line, 0)))

    def remark(self, plugin: str, reason: str) -> None:
        """Tell something that is not held against the plugin."""
        self._report(ConfigError(plugin, reason))
