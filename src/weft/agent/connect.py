"""Open an agent on a server. This needs an HTTP client, but not the engine."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar, Unpack, overload

from weft.agent.agent import Host, QuestionArguments
from weft.agent.opening import Opening, open_host
from weft.agent.options import describe_type, read_options
from weft.agent.schema import Json
from weft.client.api import connect as connect_api
from weft.errors import InvalidInputError

V = TypeVar("V")


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
    """Return an agent on a weft or OpenCode server, to be opened by `with` or `async with`.

    `directory` is a path on the server's machine; the default is the server's own directory. Without `password`, which
    may be a token, it is taken from the URL, from `WEFT_TOKEN` or `OPENCODE_SERVER_PASSWORD`, or from the file of `weft serve`
    on this machine. A server that is gone is retried for `patience` seconds, or forever if that is None; then `UnreachableError` is raised.
    """
    if not isinstance(url, str):
        raise InvalidInputError(
            "url", f"it is {describe_type(url)}", hint='pass an address such as "http://127.0.0.1:4096"'
        )
    own = read_options(schema=schema, **options)
    named = f"weft.connect({url!r})"

    @asynccontextmanager
    async def open_remote() -> AsyncIterator[Host]:
        async with (
            connect_api(url, directory=directory, password=password, patience=patience) as api,
            open_host(Host(api, None, named), own) as host,
        ):
            yield host

    return Opening(open_remote, own, named)
