"""Open an agent in a directory of this machine."""

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, Unpack, overload

from weft.agent.agent import Agent, Host, QuestionArguments
from weft.agent.opening import Opening, open_agent
from weft.agent.options import QuestionOptions, read_options
from weft.agent.schema import Json
from weft.errors import DirectoryError, WeftError
from weft.local.assembly import ignore_warning
from weft.local.open import OpenOptions, open_directory
from weft.provider.tape import Tape

V = TypeVar("V")


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
    async with open_directory(options) as api, open_agent(Host(api, api), own) as agent:
        yield agent
