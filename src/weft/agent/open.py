"""Open an agent in a directory of this machine, or on a server."""

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from weft.agent.agent import Agent, Host, QuestionArguments
from weft.agent.blocking import BlockingAgent, start_blocking
from weft.agent.options import QuestionOptions, read_options
from weft.agent.schema import Json
from weft.client.api import connect as connect_api
from weft.errors import ClosedError, DirectoryError, WeftError
from weft.local.assembly import ignore_warning
from weft.local.open import OpenOptions, open_directory
from weft.provider.tape import Tape

T = TypeVar("T")
V = TypeVar("V")


class Opening(Generic[T]):
    """An agent that is not open yet: use it in `async with`, in `with`, or call `start` in a notebook."""

    def __init__(self, enter: Callable[[], AbstractAsyncContextManager[Agent[T]]], named: str) -> None:
        self._enter = enter
        self._named = named
        self._context: AbstractAsyncContextManager[Agent[T]] | None = None
        self._blocking: BlockingAgent[T] | None = None

    def __repr__(self) -> str:
        return f"{self._named}  # not open yet: use it in `async with` or `with`"

    async def __aenter__(self) -> Agent[T]:
        self._check_unused()
        self._context = self._enter()
        return await self._context.__aenter__()

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
        self._blocking = start_blocking(self._enter())
        return self._blocking

    def _check_unused(self) -> None:
        if self._context is not None or self._blocking is not None:
            raise ClosedError("this was opened before", hint=f"call {self._named.partition('(')[0]} again")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"{name!r}: the agent is not open yet; write `async with {self._named} as agent:`, "
                f"`with {self._named} as agent:`, or `agent = {self._named}.start()`"
            )


@overload
def open(
    directory: str | os.PathLike[str] = ".",
    *,
    schema: None = None,
    store: str | None = None,
    tape: Tape | None = None,
    plugins: Sequence[object] = (),
    env: Mapping[str, str] | None = None,
    warn: Callable[[WeftError], None] = ignore_warning,
    **options: Unpack[QuestionArguments],
) -> Opening[str]: ...


@overload
def open(
    directory: str | os.PathLike[str] = ".",
    *,
    schema: type[V],
    store: str | None = None,
    tape: Tape | None = None,
    plugins: Sequence[object] = (),
    env: Mapping[str, str] | None = None,
    warn: Callable[[WeftError], None] = ignore_warning,
    **options: Unpack[QuestionArguments],
) -> Opening[V]: ...


@overload
def open(
    directory: str | os.PathLike[str] = ".",
    *,
    schema: Mapping[str, object],
    store: str | None = None,
    tape: Tape | None = None,
    plugins: Sequence[object] = (),
    env: Mapping[str, str] | None = None,
    warn: Callable[[WeftError], None] = ignore_warning,
    **options: Unpack[QuestionArguments],
) -> Opening[Json]: ...


def open(
    directory: str | os.PathLike[str] = ".",
    *,
    schema: object = None,
    store: str | None = None,
    tape: Tape | None = None,
    plugins: Sequence[object] = (),
    env: Mapping[str, str] | None = None,
    warn: Callable[[WeftError], None] = ignore_warning,
    **options: Unpack[QuestionArguments],
) -> Opening[Any]:
    """Open an agent in a directory, with the same configuration as `weft run` has there.

    `store` is an address; `memory:` stores nothing on disk. `tape` records the answers of models or replays them
    (`weft.testing`). `plugins` are modules, hooks or tools besides those that are configured. `env` replaces the
    environment variables. `warn` receives problems of the configuration that do not prevent work. For the other arguments,
    see `QuestionArguments`.
    """
    path = os.fspath(directory)
    if not os.path.isdir(path):
        raise DirectoryError(path, "there is no such directory", hint="pass the path of a project")
    own = read_options(schema=schema, **options)
    given = OpenOptions(
        directory=path,
        store=store,
        answered=True,
        tape=tape,
        plugins=tuple(plugins),
        env=os.environ if env is None else env,
        warn=warn,
    )
    return Opening(lambda: _open_local(given, own), f"weft.open({path!r})")


@asynccontextmanager
async def _open_local(options: OpenOptions, own: QuestionOptions) -> AsyncIterator[Agent[Any]]:
    async with open_directory(options) as api, _closing(Host(api, api), own) as agent:
        yield agent


@asynccontextmanager
async def _closing(host: Host, options: QuestionOptions) -> AsyncIterator[Agent[Any]]:
    """Check model and agent before the first question is asked, and end what still runs at the end."""
    await host.prepare(options)
    try:
        yield Agent(host, options)
    finally:
        await host.close()


@overload
def connect(
    url: str,
    *,
    schema: None = None,
    directory: str | None = None,
    password: str | None = None,
    patience: float | None = 60.0,
    **options: Unpack[QuestionArguments],
) -> Opening[str]: ...


@overload
def connect(
    url: str,
    *,
    schema: type[V],
    directory: str | None = None,
    password: str | None = None,
    patience: float | None = 60.0,
    **options: Unpack[QuestionArguments],
) -> Opening[V]: ...


@overload
def connect(
    url: str,
    *,
    schema: Mapping[str, object],
    directory: str | None = None,
    password: str | None = None,
    patience: float | None = 60.0,
    **options: Unpack[QuestionArguments],
) -> Opening[Json]: ...


def connect(
    url: str,
    *,
    schema: object = None,
    directory: str | None = None,
    password: str | None = None,
    patience: float | None = 60.0,
    **options: Unpack[QuestionArguments],
) -> Opening[Any]:
    """Open an agent on a weft or OpenCode server.

    `directory` is a path on the server's machine; the default is the server's own directory. Without `password`, it is
    taken from the URL, from `OPENCODE_SERVER_PASSWORD`, or from the file of `weft serve` on this machine. A server that is
    gone is retried for `patience` seconds, or forever if that is None; then `UnreachableError` is raised.
    """
    own = read_options(schema=schema, **options)

    @asynccontextmanager
    async def open_remote() -> AsyncIterator[Agent[Any]]:
        async with (
            connect_api(url, directory=directory, password=password, patience=patience) as api,
            _closing(Host(api, None), own) as agent,
        ):
            yield agent

    return Opening(open_remote, f"weft.connect({url!r})")
