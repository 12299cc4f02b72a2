"""HTTP for what is configured: settings, providers and their models, credentials."""

from typing import Any

from weft.errors import InvalidInputError
from weft.model.provider import AnyAuth, AuthMethod, Authorization, ProviderInfo, ProviderList
from weft.model.wire import Wire
from weft.server.route import Call, route

OAUTH = "/provider/{providerID}/oauth"


class ConfiguredProviders(Wire, frozen=True, kw_only=True):
    """Those that can be used, and the model each is asked for if none is named."""

    providers: tuple[ProviderInfo, ...]
    default: dict[str, str]


class AuthorizeInput(Wire, frozen=True, kw_only=True):
    method: float
    inputs: dict[str, str] | None = None


class CallbackInput(Wire, frozen=True, kw_only=True):
    method: float
    code: str | None = None


async def get_config(call: Call) -> dict[str, Any]:
    """The configuration in force, its secrets covered."""
    return await call.api.configuration.get()


async def update_config(call: Call) -> dict[str, Any]:
    """Merge a change into the project's configuration file; null takes a key out. The directory is opened anew."""
    changed = await call.api.configuration.update(call.body)
    await call.premises.dispose(call.directory)
    return changed


async def get_own_config(call: Call) -> dict[str, Any]:
    """What the person's own files say, secrets covered."""
    return await call.api.configuration.get(own=True)


async def update_own_config(call: Call) -> dict[str, Any]:
    """Merge a change into the person's own configuration file. Every directory is opened anew."""
    changed = await call.api.configuration.update(call.body, own=True)
    await call.premises.dispose_all()
    return changed


async def list_configured(call: Call) -> ConfiguredProviders:
    """The providers that can be used as things are, with their models."""
    found = await call.api.configuration.list_providers()
    usable = tuple(each for each in found.all if each.id in found.connected)
    default = {id: model for id, model in found.default.items() if id in found.connected}
    return ConfiguredProviders(providers=usable, default=default)


async def list_providers(call: Call) -> ProviderList:
    """Every provider, and which of them can be used as things are."""
    return await call.api.configuration.list_providers()


async def list_auth_methods(call: Call) -> dict[str, list[AuthMethod]]:
    """How one gets in with each provider."""
    return await call.api.configuration.list_auth_methods()


async def authorize(call: Call) -> Authorization:
    """Begin to log in by a browser."""
    asked: AuthorizeInput = call.body
    provider, method = call.names["providerID"], _place(asked.method)
    return await call.api.configuration.authorize(provider, method, inputs=asked.inputs)


async def finish_authorizing(call: Call) -> bool:
    """Finish logging in by a browser: waits for the person to have been there. It holds from the next opening on."""
    asked: CallbackInput = call.body
    provider, method = call.names["providerID"], _place(asked.method)
    await call.api.configuration.finish_authorizing(provider, method, code=asked.code)
    return True


def _place(method: float) -> int:
    if not method.is_integer():
        raise InvalidInputError("method", "it is a place in a list, counted from 0")
    return int(method)


async def store_auth(call: Call) -> bool:
    """Store a credential of a provider."""
    auth: AnyAuth = call.body
    await call.api.configuration.store_auth(call.names["providerID"], auth)
    return True


async def remove_auth(call: Call) -> bool:
    """Forget the credential of a provider."""
    await call.api.configuration.remove_auth(call.names["providerID"])
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

# Configuration names programs: servers of tools, formatters, plugins. Whoever writes it has a shell.
SHELL_ROUTES = (
    route("PATCH", "/config", "config.update", update_config, takes=dict[str, Any]),
    route("PATCH", "/global/config", "global.config.update", update_own_config, takes=dict[str, Any]),
)
