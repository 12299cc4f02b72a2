"""An agent that is not open yet, and its opening and closing."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from weft.agent.agent import Agent, Host, to_caller
from weft.agent.blocking import BlockingAgent, start_blocking
from weft.agent.options import QuestionOptions
from weft.errors import ClosedError, WeftError

T = TypeVar("T")


class Opening(Generic[T]):
    """An agent that is not open yet: use it in `async with`, in `with`, or call `start` in a notebook."""

    def __init__(
        self, enter: Callable[[], AbstractAsyncContextManager[Host]], options: QuestionOptions, named: str
    ) -> None:
        self._enter = enter
        self._options = options
        self._named = named
        self._context: AbstractAsyncContextManager[Host] | None = None
        self._blocking: BlockingAgent[T] | None = None

    def __repr__(self) -> str:
        return f"{self._named}  # not open yet: use it in `async with` or `with`"

    async def __aenter__(self) -> Agent[T]:
        self._check_unused()
        self._context = self._enter()
        try:
            host = await self._context.__aenter__()
        except WeftError as error:
            raise to_caller(error) from error.__cause__
        host.context = self._context
        return Agent(host, self._options)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._context is not None, "it was entered"
        await self._context.__aexit__(kind, error, trace)

    def __enter__(self) -> BlockingAgent[T]:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._blocking is not None, "it was entered"
        self._blocking.close()

    def start(self) -> BlockingAgent[T]:
        """Open the agent for blocking calls. Close it with its `close`, at the latest at the end of the program."""
        self._check_unused()
        try:
            self._blocking = start_blocking(self._enter(), self._options)
        except WeftError as error:
            raise to_caller(error) from error.__cause__
        return self._blocking

    def _check_unused(self) -> None:
        if self._context is not None or self._blocking is not None:
            raise ClosedError("this was opened before", hint=f"call {self._named.partition('(')[0]} again")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"{name!r}: the agent is not open yet; write `async with {self._named} as agent:`, "
                f"`with {self._named} as agent:`, or `agent = {self._named}.start()`"
            )


@asynccontextmanager
async def open_host(host: Host, options: QuestionOptions) -> AsyncIterator[Host]:
    """Check the model and tools of an agent before the first question is asked, and end what still runs at the end."""
    await host.prepare(options)
    try:
        yield host
    finally:
        await host.close()
