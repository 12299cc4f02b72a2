"""Call the hooks of all plugins in order, each with a deadline, and check what they return."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

from msgspec import Struct

from weft.errors import BlockedError, ConfigError, DeadlineError, InvalidInputError
from weft.host.clock import Clock
from weft.host.tasks import Deadline
from weft.model.wire import decode, encode, parse
from weft.plugin.hooks import HOOKS, Hook, InputT, NoChange, OutputT
from weft.plugin.loader import HookFunction
from weft.plugin.worker import CallResult, Failed, PluginWorker, Returned


def check_result(hook: Hook[Any, OutputT], output: OutputT, result: Any) -> OutputT:
    """Return the value of a hook: `output` if it returned None, else a copy of what it returned, so that nobody else holds it.

    A dict names the fields to change, with their JSON names. Raise `WeftError` for anything else.
    """
    if result is None or hook.output is NoChange:
        return output
    if isinstance(result, dict):
        plain = parse(encode(output))
        fields = [field for field in hook.output.__struct_encode_fields__ if field != "$extra"]
        for key in result:
            if key not in fields:
                hint = f"it may have {', '.join(fields)}"
                raise InvalidInputError("what it returned", f"unknown field {str(key)[:80]!r}", hint=hint)
        return decode(encode({**plain, **result}), hook.output, where="what it returned")
    if type(result) is not hook.output:
        expected = f"a {hook.output.__name__}, a dict or None"
        raise InvalidInputError("what it returned", f"is a {type(result).__name__}, and should be {expected}")
    return decode(encode(result), hook.output, where="what it returned")


def deep_copy(value: Any) -> Any:
    """Return a value with its own dicts and lists, so that a hook can change them without effect on others."""
    if isinstance(value, dict):
        return {key: deep_copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(deep_copy(item) for item in value)
    if isinstance(value, Struct):
        return type(value)(**{name: deep_copy(getattr(value, name)) for name in value.__struct_fields__})
    return value


MAX_FAULTS: Final = 3

ReportFault = Callable[[ConfigError], None]


class FaultCounter:
    """Counts the faults of each plugin, and disables one with too many. `report` shows them to the person."""

    def __init__(self, report: ReportFault, *, faults: int = MAX_FAULTS) -> None:
        self._report = report
        self._limit = faults
        self._faults: Counter[str] = Counter()

    def is_disabled(self, plugin: str) -> bool:
        return self._faults[plugin] >= self._limit

    def record(self, plugin: str, reason: str, *, line: int = 0) -> None:
        """Count and report a fault of a plugin, which is named by its path. Ignore the faults of a disabled one."""
        if self.is_disabled(plugin):
            return
        self._faults[plugin] += 1
        count = self._faults[plugin]
        suffix = f"; that was fault {count} of {self._limit}"
        if self.is_disabled(plugin):
            suffix = f"; after {count} faults its hooks are no longer called"
        self._report(ConfigError(plugin, f"{reason}{suffix}", at=(line, 0)))

    def disable(self, plugin: str, reason: str, *, line: int = 0) -> None:
        """Report an error, and disable the plugin."""
        if not self.is_disabled(plugin):
            self._faults[plugin] = self._limit
            self._report(ConfigError(plugin, f"{reason}; its hooks are not called", at=(line, 0)))

    def report(self, plugin: str, reason: str) -> None:
        """Report something that does not count as a fault."""
        self._report(ConfigError(plugin, reason))


HOOK_SECONDS: Final = 10.0


class RegisteredHook(Struct, frozen=True, kw_only=True):
    """A function or command that is called at a hook: its plugin, its deadline, and how to call it.

    With a `turn` it waits for that lock first, and the wait does not count as its time.
    """

    hook: str
    plugin: str
    ask: Callable[[Hook[Any, Any], Any, Any], Awaitable[CallResult]]
    seconds: float = HOOK_SECONDS
    turn: asyncio.Lock | None = None


def register_function(
    worker: PluginWorker, function: HookFunction, *, plugin: str, seconds: float
) -> RegisteredHook:
    """Return the hook of a function that runs in its plugin's worker. Its result is checked there, too: it is the plugin's object."""

    def work(hook: Hook[Any, Any], input: Any, output: Any) -> Any:
        result = function.function(deep_copy(input), deep_copy(output))
        return (
            _check_awaited(hook, output, result)
            if hasattr(result, "__await__")
            else check_result(hook, output, result)
        )

    async def ask(hook: Hook[Any, Any], input: Any, output: Any) -> CallResult:
        return await worker.do(partial(work, hook, input, output))

    turn = None if inspect.iscoroutinefunction(function.function) else worker.turn
    return RegisteredHook(hook=function.hook, plugin=plugin, ask=ask, seconds=seconds, turn=turn)


async def _check_awaited(hook: Hook[Any, Any], output: Any, result: Awaitable[Any]) -> Any:
    return check_result(hook, output, await result)


class HookChain:
    """`Hooks` over everything that was loaded."""

    def __init__(self, registered: Iterable[RegisteredHook], faults: FaultCounter, clock: Clock) -> None:
        self._registered: dict[str, list[RegisteredHook]] = {name: [] for name in HOOKS}
        for callee in registered:
            self._registered[callee.hook].append(callee)
        self._faults = faults
        self._clock = clock

    def any(self, hook: Hook[Any, Any]) -> bool:
        return any(not self._faults.is_disabled(callee.plugin) for callee in self._registered[hook.name])

    async def ask(self, hook: Hook[InputT, OutputT], input: InputT, output: OutputT) -> OutputT:
        for callee in self._registered[hook.name]:
            if not self._faults.is_disabled(callee.plugin):
                output = await self.ask_one(callee, hook, input, output)
        return output

    async def ask_one(
        self, callee: RegisteredHook, hook: Hook[InputT, OutputT], input: InputT, output: OutputT
    ) -> OutputT:
        """Return the value of one hook, or `output` if it is at fault. Raise `BlockedError` if it refuses and may."""
        what = f"hook {hook.name}"
        try:
            async with callee.turn or nullcontext(), Deadline(what, callee.seconds, self._clock).running():
                outcome = await callee.ask(hook, input, output)
        except DeadlineError:
            self._faults.record(callee.plugin, f"{what} took longer than {callee.seconds:g} seconds")
            return output
        match outcome:
            case Returned(value=value) if type(value) is hook.output:
                return value
            case Returned():
                self._faults.record(callee.plugin, f"{what} returned nothing that can be used")
            case Failed(error=BlockedError(), reason=reason) if hook.blocks:
                raise BlockedError(reason or f"{callee.plugin} does not allow it")
            case Failed(error=BlockedError()):
                self._faults.record(callee.plugin, f"{what} cannot block anything")
            case Failed(reason=reason, lines=lines):
                line = lines.get(callee.plugin, 0)
                self._faults.record(callee.plugin, f"{what}: {reason}", line=line)
        return output

    def list_registered(self, hook: Hook[Any, Any]) -> list[RegisteredHook]:
        """Return what is registered for a hook, in the order in which it is called."""
        return self._registered[hook.name]
