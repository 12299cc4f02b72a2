"""Configuration, providers, credentials and MCP servers."""

from collections.abc import Mapping
from typing import Protocol

from weft.model.provider import AnyAuth, AuthMethod, LoginInstructions, ProviderList
from weft.model.workspace import AnyMcpStatus, McpResource


class Configuration(Protocol):
    """The configuration, and the providers and models that it makes available.

    * Secrets are redacted in everything that is returned.
    * `get` returns the effective configuration with every key binding. With `own`, it returns the person's own files
      only.
    * `update` merges a change into the project's file, or with `own` into the person's file, completely or not at all.
      Other keys and comments stay. The change takes effect when the directory is opened again. A change that would
      have no effect because the project is not trusted raises `NotPermittedError`.
    * A stored credential is readable only by its owner. Removing one that does not exist raises `NotFoundError`.
    * `method` is an index into the result of `list_auth_methods` for a provider. `authorize` begins a login in a
      browser. `finish_authorizing` waits for the browser or takes the code, and stores the credential. It raises
      `InvalidInputError` if no login was begun, and `ProviderAuthError` if the login fails.
    """

    async def get(self, *, own: bool = False) -> dict[str, object]: ...

    async def update(self, change: dict[str, object], *, own: bool = False) -> dict[str, object]: ...

    async def list_providers(self) -> ProviderList: ...

    async def list_auth_methods(self) -> dict[str, list[AuthMethod]]: ...

    async def authorize(
        self, provider: str, method: int, *, inputs: Mapping[str, str] | None = None
    ) -> LoginInstructions: ...

    async def finish_authorizing(self, provider: str, method: int, *, code: str | None = None) -> None: ...

    async def store_auth(self, provider: str, auth: AnyAuth) -> None: ...

    async def remove_auth(self, provider: str) -> None: ...


class Mcp(Protocol):
    """MCP servers, which offer tools, prompts and resources.

    * A server is started when it is first needed. `list_servers` returns the status of each. With `connect`, and always
      over HTTP, it first connects the enabled servers.
    * A server that fails has a status and raises no error. An unknown name raises `NotFoundError`.
    * `add_server` adds a server until the `Api` is closed, and connects it unless it is disabled.
    * `connect` returns True if the server is connected then. `disconnect` always returns True, as in OpenCode.
    * `start_login` returns the address where a person logs in, or "" if no login is needed. `finish_login` takes the
      code or waits for the browser. `log_in` does both with a browser on this machine. A server without OAuth raises
      `InvalidInputError`.
    """

    async def list_servers(self, *, connect: bool = False) -> dict[str, AnyMcpStatus]: ...

    async def list_resources(self) -> dict[str, McpResource]: ...

    async def add_server(self, name: str, config: dict[str, object]) -> AnyMcpStatus: ...

    async def connect(self, name: str) -> bool: ...

    async def disconnect(self, name: str) -> bool: ...

    async def start_login(self, name: str) -> str: ...

    async def finish_login(self, name: str, code: str | None = None) -> AnyMcpStatus: ...

    async def log_in(self, name: str) -> AnyMcpStatus: ...

    async def remove_login(self, name: str) -> None: ...
