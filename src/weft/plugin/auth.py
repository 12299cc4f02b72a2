"""Logging in: how a plugin says that one gets in with a provider, and with what its models are then asked for.

    ACME = Auth(
        provider="acme",
        methods=(OAuthMethod(label="Acme account", authorize=authorize),),
        loader=load,
    )

A plugin's module declares it under any name. Its functions are called like its hooks: in its own room, and with a deadline.
A credential is stored as OpenCode stores it; what a plugin makes of it is never stored.
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
from weft.plugin.worker import Failed, Gave, Room

# Somebody has to find the browser, the password and the telephone.
BY_HAND: Final = 15 * 60.0
AT_ONCE: Final = 30.0
PROVIDER: Final = re.compile(r"[A-Za-z0-9][\w.:/@+-]{0,199}")
ADDRESS: Final = re.compile(r"https?://[!-~]{1,4000}")
LONGEST: Final = 4000

Inputs = Mapping[str, str]
# A credential, or None when it did not come to one.
Ended = AnyAuth | None | Awaitable[AnyAuth | None]


class Authorized(Struct, frozen=True, kw_only=True):
    """A login that has begun: where the person goes, and what to call when they have been there.

    With `auto` the callback waits by itself until they have; with `code` it is given the one they bring back.
    """

    url: str
    callback: Callable[[str | None], Ended]
    instructions: str = ""
    method: Literal["auto", "code"] = "auto"


class OAuthMethod(Struct, frozen=True, kw_only=True):
    """By a browser. `authorize` is given what was answered to the prompts, by their keys."""

    label: str
    authorize: Callable[[Inputs], Authorized | Awaitable[Authorized]]
    prompts: tuple[AuthPrompt, ...] = ()


class ApiMethod(Struct, frozen=True, kw_only=True):
    """By a key that is typed in."""

    label: str = "API key"


class Auth(Struct, frozen=True, kw_only=True):
    """The ways to log in with a provider. `loader` makes the options its models are reached with (`apiKey`, `baseURL`,
    `headers` …) of the credential that is stored; it is called before every request, and may renew it."""

    provider: str
    methods: tuple[OAuthMethod | ApiMethod, ...] = ()
    loader: Callable[[AnyAuth, ProviderInfo], Any] | None = None


# Does it, and gives what came of it within so many seconds; raises `WeftError`.
Ask = Callable[[Callable[[], Any], float], Awaitable[Any]]


class Login(Struct, frozen=True, kw_only=True):
    """What was declared, and how its functions are called. A fault in them is a `ProviderAuthError`."""

    auth: Auth
    ask: Ask

    def list_methods(self) -> list[AuthMethod]:
        return [
            AuthMethod(type="oauth", label=each.label, prompts=tuple(each.prompts))
            if isinstance(each, OAuthMethod)
            else AuthMethod(type="api", label=each.label)
            for each in self.auth.methods
        ]

    async def authorize(self, method: OAuthMethod, inputs: Inputs) -> Authorized:
        given = await self._called(lambda: method.authorize(dict(inputs)), AT_ONCE)
        if not isinstance(given, Authorized) or not _is_sound(given):
            raise self._wrong("begun without an address to go to")
        return given

    async def finish(self, begun: Authorized, code: str | None) -> AnyAuth:
        return self._to_auth(await self._called(lambda: begun.callback(code), BY_HAND))

    async def load(self, auth: AnyAuth, provider: ProviderInfo) -> dict[str, Any]:
        loader = self.auth.loader
        if loader is None:
            return {}
        given = await self._called(lambda: loader(auth, provider), AT_ONCE)
        return self._to_options({} if given is None else given)

    async def _called(self, work: Callable[[], Any], seconds: float) -> Any:
        try:
            return await self.ask(work, seconds)
        except DeadlineError as error:
            raise self._wrong(f"not over within {error.seconds:g} seconds") from error
        except WeftError as error:
            raise self._wrong(f"not possible: {error}") from error

    def _to_auth(self, given: Any) -> AnyAuth:
        if given is None:
            raise self._wrong("refused")
        if not isinstance(given, ApiAuth | OAuth):
            raise self._wrong(f"ended with a {type(given).__name__}, which is no credential")
        try:
            auth: AnyAuth = decode(encode(given), AnyAuth, where="the credential")
        except WeftError as error:
            raise self._wrong("ended with a credential that is none") from error
        return auth

    def _to_options(self, given: Any) -> dict[str, Any]:
        texts = ("apiKey", "baseURL")
        sound = isinstance(given, dict) and all(isinstance(given.get(name, ""), str) for name in texts)
        headers = given.get("headers", {}) if sound else None
        if not isinstance(headers, dict) or not all(
            isinstance(each, str) for pair in headers.items() for each in pair
        ):
            raise self._wrong("loaded with options that are none")
        return dict(given)

    def _wrong(self, how: str) -> ProviderAuthError:
        return ProviderAuthError(self.auth.provider, f"the login with {self.auth.provider} was {how}")


def login_in(room: Room, auth: Auth, clock: Clock) -> Login:
    """A login whose functions are called in their plugin's room."""

    async def ask(work: Callable[[], Any], seconds: float) -> Any:
        async with Deadline(f"login with {auth.provider}", seconds, clock).running():
            outcome = await room.do(work)
        match outcome:
            case Gave(value=value):
                return value
            case Failed(reason=reason):
                raise ProviderAuthError(auth.provider, reason)

    return Login(auth=auth, ask=ask)


def list_auths(namespace: Mapping[str, Any]) -> list[Auth]:
    """Those that a plugin's module declares. Raises `InvalidInputError` for one that says nothing one could use."""
    found = {id(each): each for each in namespace.values() if isinstance(each, Auth)}
    for auth in found.values():
        _check(auth)
    return list(found.values())


def _check(auth: Any) -> None:
    # Nobody has held it against its hints yet: it comes out of a plugin's module.
    if not isinstance(auth.provider, str) or PROVIDER.fullmatch(auth.provider) is None:
        raise InvalidInputError("Auth.provider", "that is no name of a provider")
    where = f"Auth of {auth.provider}"
    if not isinstance(auth.methods, tuple | list):
        raise InvalidInputError(f"{where}: methods", "they are no tuple")
    for method in auth.methods:
        if not isinstance(method, OAuthMethod | ApiMethod) or not isinstance(method.label, str):
            raise InvalidInputError(f"{where}: methods", "one of them is neither OAuthMethod nor ApiMethod")
        prompts = method.prompts if isinstance(method, OAuthMethod) else ()
        if not all(isinstance(each, AuthPrompt) for each in prompts):
            raise InvalidInputError(f"{where}: prompts", "one of them is no AuthPrompt")


def _is_sound(begun: Any) -> bool:
    """An address that may be shown to a person and opened by them."""
    return (
        isinstance(begun.url, str)
        and ADDRESS.fullmatch(begun.url) is not None
        and isinstance(begun.instructions, str)
        and len(begun.instructions) <= LONGEST
        and begun.method in ("auto", "code")
        and callable(begun.callback)
    )
