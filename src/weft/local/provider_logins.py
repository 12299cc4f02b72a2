"""Log in to providers, with built-in methods and methods of plugins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from msgspec import Struct

from weft.config.load import LoadedConfig
from weft.config.schema import Config
from weft.errors import ConfigError, InvalidInputError, NotFoundError, ProviderAuthError
from weft.host.clock import Clock
from weft.host.tasks import Deadline
from weft.model.provider import AnyAuth, AuthMethod, AuthPrompt, LoginInstructions, OAuth, ProviderInfo
from weft.model.wire import to_plain
from weft.plugin.auth import (
    ApiMethod,
    Authorized,
    Inputs,
    OAuthMethod,
    PluginAuth,
    ProviderLogin,
    list_auths,
    to_plugin_login,
)
from weft.provider.catalog.models import Plain
from weft.provider.catalog.offers import LoadLogin

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.local.plugin_tools import Plugin

# --- built-in methods ---

COPILOT: Final = "github-copilot"
CLIENT_ID: Final = "clientId"
SERVER: Final = "enterpriseUrl"
ASK_FOR_SERVER: Final = AuthPrompt(
    key=SERVER,
    message="the address of your company's GitHub; nothing for github.com",
    placeholder="company.ghe.com",
)


def list_built_in_logins(trusted_config: Config, clock: Clock) -> list[ProviderLogin]:
    """Return the built-in logins. The GitHub client id is read from trusted configuration only."""
    entry = (trusted_config.provider or {}).get(COPILOT)
    options: Mapping[str, Any] = {} if entry is None else to_plain(entry).get("options") or {}
    return [_to_built_in_login(_make_copilot_auth(str(options.get(CLIENT_ID) or ""), clock), clock)]


def _to_built_in_login(auth: PluginAuth, clock: Clock) -> ProviderLogin:
    """Make a login of built-in functions. They need no worker thread, but a deadline."""

    async def call(work: Callable[[], Any], seconds: float) -> Any:
        async with Deadline(f"login with {auth.provider}", seconds, clock).running():
            result = work()
            return await result if isawaitable(result) else result

    return ProviderLogin(auth=auth, call=call)


def _make_copilot_auth(client_id: str, clock: Clock) -> PluginAuth:
    async def authorize(inputs: Inputs) -> Authorized:
        if not client_id:
            # OpenCode has registered an application with GitHub. weft has none and does not use OpenCode's id.
            raise ProviderAuthError(
                COPILOT,
                f"GitHub needs the client id of an application: set provider.{COPILOT}.options.{CLIENT_ID}, "
                "or log in with OpenCode; weft uses that login too",
            )
        # Imported late, because it loads the HTTP client.
        github = import_module("weft.provider.github_login")
        server: str = github.parse_server(inputs.get(SERVER, ""))
        hub = github.GitHubLogin(client_id, clock, server=server)
        device = await hub.begin()

        async def finish(_: str | None) -> OAuth:
            token: str = await hub.wait(device)
            own = server.partition("://")[2] if server != github.GITHUB else None
            return OAuth(refresh=token, access=token, expires=0, enterprise_url=own)

        instructions = f"Enter code: {device.user_code}"
        return Authorized(
            url=device.verification_uri, instructions=instructions, method="auto", callback=finish
        )

    method = OAuthMethod(label="Login with GitHub Copilot", authorize=authorize, prompts=(ASK_FOR_SERVER,))
    return PluginAuth(provider=COPILOT, methods=(method,))


# --- all methods ---

API_KEY_METHOD: Final = AuthMethod(type="api", label="API key")
MAX_CODE_LENGTH: Final = 8192

# Find the stored credential of a provider, and describe the provider.
FindAuth = Callable[[str], Awaitable[AnyAuth | None]]
Describe = Callable[[str], ProviderInfo | None]


class StartedLogin(Struct, frozen=True):
    """A login that was begun and not finished."""

    method: int
    login: ProviderLogin
    authorized: Authorized


class LoginMethods:
    """The login methods of each provider, and the logins that were begun. Methods that are added later replace the earlier ones of their provider."""

    def __init__(self, logins: Iterable[ProviderLogin] = ()) -> None:
        self._logins = {each.auth.provider: each for each in logins}
        self._pending: dict[str, StartedLogin] = {}

    def add(self, login: ProviderLogin) -> None:
        self._logins[login.auth.provider] = login

    def find(self, provider: str) -> ProviderLogin | None:
        return self._logins.get(provider)

    def list_methods(self, known: Iterable[str]) -> dict[str, list[AuthMethod]]:
        """Return the methods of each provider in `known` and of each with a declared login. An API key works for all."""
        return {id: self._methods(id) for id in dict.fromkeys((*known, *self._logins))}

    async def authorize(self, provider: str, index: int, inputs: Mapping[str, str]) -> LoginInstructions:
        login = self._get(provider)
        method = self._method(login, index)
        if not isinstance(method, OAuthMethod):
            raise InvalidInputError(
                "method",
                "this method does not use a browser",
                hint="store the key: weft auth login --key-stdin",
            )
        started = await login.authorize(method, inputs)
        self._pending[provider] = StartedLogin(index, login, started)
        return LoginInstructions(url=started.url, method=started.method, instructions=started.instructions)

    async def finish(self, provider: str, index: int, code: str | None) -> AnyAuth:
        """Finish a login and return the credential. A login can be finished once."""
        pending = self._pending.get(provider)
        if pending is None or pending.method != index:
            raise InvalidInputError("method", f"no such login with {provider[:80]} was begun")
        if pending.authorized.method == "code" and not code:
            raise InvalidInputError("code", "no code was given")
        if code is not None and len(code) > MAX_CODE_LENGTH:
            raise InvalidInputError("code", "too long for a code")
        del self._pending[provider]
        return await pending.login.finish(pending.authorized, code)

    def _methods(self, provider: str) -> list[AuthMethod]:
        login = self._logins.get(provider)
        own = [] if login is None else login.list_methods()
        # Appended, so that the indexes of a plugin's own methods do not change.
        return own if any(each.type == "api" for each in own) else [*own, API_KEY_METHOD]

    def _get(self, provider: str) -> ProviderLogin:
        return self._logins.get(provider) or self._unknown(provider)

    def _unknown(self, provider: str) -> NoReturn:
        raise NotFoundError(
            "browser login for",
            provider[:80],
            hint=f"these have one: {', '.join(self._logins) or 'none'}; store a key with weft auth login",
        )

    def _method(self, login: ProviderLogin, index: int) -> OAuthMethod | ApiMethod:
        methods = login.auth.methods
        if not 0 <= index < len(methods):
            raise InvalidInputError("method", f"there are {len(methods)} methods, counted from 0")
        return methods[index]


def find_login_methods(
    loaded: LoadedConfig, plugins: Iterable[Plugin], clock: Clock, warn: Callable[[ConfigError], None]
) -> LoginMethods:
    """Return the login methods. Those of plugins replace the built-in ones; invalid ones are reported and left out."""
    logins = LoginMethods(list_built_in_logins(loaded.trusted_config, clock))
    for plugin in plugins:
        try:
            declared = list_auths(plugin.contents.namespace)
        except InvalidInputError as error:
            warn(ConfigError(plugin.source.where, str(error)))
            continue
        for auth in declared:
            logins.add(to_plugin_login(plugin.worker, auth, clock))
    return logins


def find_options_loader(
    logins: LoginMethods, provider: str, find: FindAuth, describe: Describe
) -> LoadLogin | None:
    """Return a function that loads the options of a login, or None if the provider's login has no loader."""
    login = logins.find(provider)
    if login is None or login.auth.loader is None:
        return None
    declared = login

    async def load() -> Plain:
        auth, info = await find(provider), describe(provider)
        return {} if auth is None or info is None else await declared.load(auth, info)

    return load
