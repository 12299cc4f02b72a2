"""Open an agent in a directory of this machine."""

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, Unpack, overload

from weft.agent.agent import Host, QuestionArguments
from weft.agent.opening import Opening, open_host
from weft.agent.options import QuestionOptions, describe_type, read_options
from weft.agent.schema import Json
from weft.errors import DirectoryError, InvalidInputError, WeftError
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
    """Return an agent in a directory, to be opened by `with` or `async with`. It has the same configuration as `weft run` has there.

    `store` is an address; `memory:` stores nothing on disk. `tape` records the answers of models or replays them
    (`weft.testing`). `plugins` are modules, hooks or tools besides those that are configured. `env` replaces the
    environment variables. `warn` receives problems of the configuration that do not prevent work. For the other arguments,
    see `QuestionArguments`.

    Raise `DirectoryError` if the directory does not exist, `InvalidInputError` if an argument has the wrong type.
    """
    if not isinstance(directory, str | os.PathLike):
        raise InvalidInputError(
            "directory", f"it is {describe_type(directory)}", hint="pass the path of a project"
        )
    path = os.fspath(directory)
    if not os.path.isdir(path):
        reason = "it is a file" if os.path.exists(path) else "there is no such directory"
        raise DirectoryError(path, reason, hint="pass the path of a project")
    if store is not None and not isinstance(store, str):
        raise InvalidInputError(
            "store",
            f"it is {describe_type(store)}",
            hint='pass an address, such as "sqlite:sessions.db" or "memory:"',
        )
    if env is not None and not isinstance(env, Mapping):
        raise InvalidInputError("env", f"it is {describe_type(env)}", hint="pass a dict of variables")
    own = read_options(schema=schema, **options)
    given = OpenOptions(
        directory=path,
        store=store,
        can_ask=True,
        tape=tape,
        plugins=tuple(plugins),
        env=os.environ if env is None else env,
        warn=warn,
    )
    named = f"weft.open({path!r})"
    return Opening(lambda: _open_local(given, own, named), own, named)


@asynccontextmanager
async def _open_local(options: OpenOptions, own: QuestionOptions, named: str) -> AsyncIterator[Host]:
    async with open_directory(options) as api, open_host(Host(api, api, named), own) as host:
        yield host
