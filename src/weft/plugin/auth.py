"""Logins: how a plugin declares the login methods of a provider, and the options for requests to its models.

    ACME = Auth(
        provider="acme",
        methods=(OAuthMethod(label="Acme account", authorize=authorize),),
        loader=load,
    )

A plugin's module declares it under any name. Its functions are called like its hooks: in the plugin's worker, with a
deadline. A credential is stored as OpenCode stores it; the options made from it are never stored.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from weft.errors import DeadlineError, InvalidInputError, ProviderAuthError, WeftError
from weft.host.clock import Clock
from weft.host.tasks import Deadline
from weft.model.provider import AnyAuth, ApiAuth, AuthMethod, AuthPrompt, OAuth, ProviderInfo
from weft.model.wire import decode, encode
from weft.plugin.worker import Failed, PluginWorker, Returned

# A person needs time to switch to the browser, enter a password and confirm on a phone.
LOGIN_SECONDS: Final = 15 * 60.0
CALL_SECONDS: Final = 30.0
PROVIDER_NAME: Final = re.compile(r"[A-Za-z0-9][\w.:/@+-]{0,199}")
WEB_URL: Final = re.compile(r"https?://[!-~]{1,4000}")
MAX_INSTRUCTIONS_CHARS: Final = 4000

Inputs = Mapping[str, str]
# The credential, or None if the login failed.
LoginResult = AnyAuth | None | Awaitable[AnyAuth | None]


class Authorized(Struct, frozen=True, kw_only=True):
    """A login that has started: where the user goes, and what to call afterwards.

    With `auto` the callback itself waits for the user; with `code` it gets the code that the user brings back.
    """

    url: str
    callback: Callable[[str | None], LoginResult]
    instructions: str = ""
    method: Literal["auto", "code"] = "auto"


class OAuthMethod(Struct, frozen=True, kw_only=True):
    """A login in the browser. `authorize` gets the answers to the prompts by their keys."""

    label: str
    authorize: Callable[[Inputs], Authorized | Awaitable[Authorized]]
    prompts: tuple[AuthPrompt, ...] = ()


class ApiMethod(Struct, frozen=True, kw_only=True):
    """A key that the user types in."""

    label: str = "API key"


class PluginAuth(Struct, frozen=True, kw_only=True):
    """The login methods of a provider.

    `loader` turns the stored credential into the options for its models (`apiKey`, `baseURL`, `headers` …). It is
    called before every request and may renew the credential.
    """

    provider: str
    methods: tuple[OAuthMethod | ApiMethod, ...] = ()
    loader: Callable[[AnyAuth, ProviderInfo], Any] | None = None


# The earlier name of the class, which plugins import.
Auth = PluginAuth

# Calls a function, which may take the given seconds, and returns its result. Raises `WeftError`.
CallPlugin = Callable[[Callable[[], Any], float], Awaitable[Any]]


class ProviderLogin(Struct, frozen=True, kw_only=True):
    """A declared login and how to call its functions. Their errors become `ProviderAuthError`."""

    auth: PluginAuth
    call: CallPlugin

    def list_methods(self) -> list[AuthMethod]:
        return [
            AuthMethod(type="oauth", label=method.label, prompts=tuple(method.prompts))
            if isinstance(method, OAuthMethod)
            else AuthMethod(type="api", label=method.label)
            for method in self.auth.methods
        ]

    async def authorize(self, method: OAuthMethod, inputs: Inputs) -> Authorized:
        result = await self._call(lambda: method.authorize(dict(inputs)), CALL_SECONDS)
        if not isinstance(result, Authorized) or not _is_valid(result):
            raise self._to_error("did not return a URL to open")
        return result

    async def finish(self, started: Authorized, code: str | None) -> AnyAuth:
        return self._to_auth(await self._call(lambda: started.callback(code), LOGIN_SECONDS))

    async def load(self, auth: AnyAuth, provider: ProviderInfo) -> dict[str, Any]:
        loader = self.auth.loader
        if loader is None:
            return {}
        result = await self._call(lambda: loader(auth, provider), CALL_SECONDS)
        return self._to_options({} if result is None else result)

    async def _call(self, work: Callable[[], Any], seconds: float) -> Any:
        try:
            return await self.call(work, seconds)
        except DeadlineError as error:
            raise self._to_error(f"took longer than {error.seconds:g} seconds") from error
        except WeftError as error:
            raise self._to_error(f"failed: {error}") from error

    def _to_auth(self, result: Any) -> AnyAuth:
        if result is None:
            raise self._to_error("was refused")
        if not isinstance(result, ApiAuth | OAuth):
            raise self._to_error(f"returned a {type(result).__name__}, which is not a credential")
        try:
            auth: AnyAuth = decode(encode(result), AnyAuth, where="the credential")
        except WeftError as error:
            raise self._to_error("returned an invalid credential") from error
        return auth

    def _to_options(self, result: Any) -> dict[str, Any]:
        texts = ("apiKey", "baseURL")
        is_valid = isinstance(result, dict) and all(isinstance(result.get(name, ""), str) for name in texts)
        headers = result.get("headers", {}) if is_valid else None
        if not isinstance(headers, dict) or not all(
            isinstance(each, str) for pair in headers.items() for each in pair
        ):
            raise self._to_error("returned invalid options")
        return dict(result)

    def _to_error(self, problem: str) -> ProviderAuthError:
        return ProviderAuthError(self.auth.provider, f"the login with {self.auth.provider} {problem}")


def to_plugin_login(worker: PluginWorker, auth: PluginAuth, clock: Clock) -> ProviderLogin:
    """Return a login whose functions run in the plugin's worker."""

    async def call(work: Callable[[], Any], seconds: float) -> Any:
        async with Deadline(f"login with {auth.provider}", seconds, clock).running():
            outcome = await worker.do(work)
        match outcome:
            case Returned(value=value):
                return value
            case Failed(reason=reason):
                raise ProviderAuthError(auth.provider, reason)

    return ProviderLogin(auth=auth, call=call)


def list_auths(namespace: Mapping[str, Any]) -> list[PluginAuth]:
    """Return the logins that a plugin's module declares. Raise `InvalidInputError` for one that cannot be used."""
    auths = {id(each): each for each in namespace.values() if isinstance(each, PluginAuth)}
    for auth in auths.values():
        _check(auth)
    return list(auths.values())


def _check(auth: Any) -> None:
    # It comes from a plugin's module, so its types are not checked yet.
    if not isinstance(auth.provider, str) or PROVIDER_NAME.fullmatch(auth.provider) is None:
        raise InvalidInputError("Auth.provider", "that is not the name of a provider")
    where = f"Auth of {auth.provider}"
    if not isinstance(auth.methods, tuple | list):
        raise InvalidInputError(f"{where}: methods", "they are not a tuple")
    for method in auth.methods:
        if not isinstance(method, OAuthMethod | ApiMethod) or not isinstance(method.label, str):
            raise InvalidInputError(f"{where}: methods", "one of them is neither OAuthMethod nor ApiMethod")
        prompts = method.prompts if isinstance(method, OAuthMethod) else ()
        if not all(isinstance(each, AuthPrompt) for each in prompts):
            raise InvalidInputError(f"{where}: prompts", "one of them is not an AuthPrompt")


def _is_valid(started: Any) -> bool:
    """Return True if a started login has an address that may be shown and opened."""
    return (
        isinstance(started.url, str)
        and WEB_URL.fullmatch(started.url) is not None
        and isinstance(started.instructions, str)
        and len(started.instructions) <= MAX_INSTRUCTIONS_CHARS
        and started.method in ("auto", "code")
        and callable(started.callback)
    )
