"""HTTP routes for settings, providers and their models, and credentials."""

from typing import Any

from weft.errors import InvalidInputError
from weft.model.provider import AnyAuth, AuthMethod, LoginInstructions, ProviderInfo, ProviderList
from weft.model.wire import Wire
from weft.server.route import DirectoryCall, route

OAUTH = "/provider/{providerID}/oauth"


class ConfiguredProviders(Wire, frozen=True, kw_only=True):
    """The providers that can be used, and the default model of each."""

    providers: tuple[ProviderInfo, ...]
    default: dict[str, str]


class AuthorizeInput(Wire, frozen=True, kw_only=True):
    method: float
    inputs: dict[str, str] | None = None


class CallbackInput(Wire, frozen=True, kw_only=True):
    method: float
    code: str | None = None


async def get_config(call: DirectoryCall) -> dict[str, Any]:
    """Return the configuration in force, with secrets redacted."""
    return await call.api.configuration.get()


async def update_config(call: DirectoryCall) -> dict[str, Any]:
    """Merge a change into the project's configuration file; null removes a key. The directory is opened again."""
    changed = await call.api.configuration.update(call.body)
    await call.server.dispose(call.directory)
    return changed


async def get_own_config(call: DirectoryCall) -> dict[str, Any]:
    """Return the user's own configuration, with secrets redacted."""
    return await call.api.configuration.get(own=True)


async def update_own_config(call: DirectoryCall) -> dict[str, Any]:
    """Merge a change into the user's own configuration file. Every directory is opened again."""
    changed = await call.api.configuration.update(call.body, own=True)
    await call.server.dispose_all()
    return changed


async def list_configured(call: DirectoryCall) -> ConfiguredProviders:
    """List the providers that can be used now, with their models."""
    providers = await call.api.configuration.list_providers()
    usable = tuple(provider for provider in providers.all if provider.id in providers.connected)
    default = {id: model for id, model in providers.default.items() if id in providers.connected}
    return ConfiguredProviders(providers=usable, default=default)


async def list_providers(call: DirectoryCall) -> ProviderList:
    """List every provider, and which of them can be used now."""
    return await call.api.configuration.list_providers()


async def list_auth_methods(call: DirectoryCall) -> dict[str, list[AuthMethod]]:
    """List the login methods of each provider."""
    return await call.api.configuration.list_auth_methods()


async def authorize(call: DirectoryCall) -> LoginInstructions:
    """Start a login in the browser."""
    input: AuthorizeInput = call.body
    provider, method = call.path_params["providerID"], _to_index(input.method)
    return await call.api.configuration.authorize(provider, method, inputs=input.inputs)


async def finish_authorizing(call: DirectoryCall) -> bool:
    """Finish a login in the browser: wait for the user. It takes effect when a directory is next opened."""
    input: CallbackInput = call.body
    provider, method = call.path_params["providerID"], _to_index(input.method)
    await call.api.configuration.finish_authorizing(provider, method, code=input.code)
    return True


def _to_index(method: float) -> int:
    if not method.is_integer():
        raise InvalidInputError("method", "it must be a whole number, the index of a method")
    return int(method)


async def store_auth(call: DirectoryCall) -> bool:
    """Store a credential of a provider."""
    auth: AnyAuth = call.body
    await call.api.configuration.store_auth(call.path_params["providerID"], auth)
    return True


async def remove_auth(call: DirectoryCall) -> bool:
    """Remove the credential of a provider."""
    await call.api.configuration.remove_auth(call.path_params["providerID"])
    return True


ROUTES = (
    route("GET", "/config", "config.get", get_config),
    route("GET", "/config/providers", "config.providers", list_configured),
    route("GET", "/global/config", "global.config.get", get_own_config),
    route("GET", "/provider", "provider.list", list_providers),
    route("GET", "/provider/auth", "provider.auth", list_auth_methods),
    route("POST", f"{OAUTH}/authorize", "provider.oauth.authorize", authorize, takes=AuthorizeInput),
    route("POST", f"{OAUTH}/callback", "provider.oauth.callback", finish_authorizing, takes=CallbackInput),
    route("PUT", "/auth/{providerID}", "auth.set", store_auth, takes=AnyAuth),
    route("DELETE", "/auth/{providerID}", "auth.remove", remove_auth),
)

# Configuration names programs: MCP servers, formatters, plugins. A caller that may write it has a shell.
SHELL_ROUTES = (
    route("PATCH", "/config", "config.update", update_config, takes=dict[str, Any]),
    route("PATCH", "/global/config", "global.config.update", update_own_config, takes=dict[str, Any]),
)
