"""The ways to log in that there are: our own and those of plugins, and the logins that have begun."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NoReturn

from msgspec import Struct

from weft.errors import InvalidInputError, NotFoundError
from weft.model.around.provider import AnyAuth, AuthMethod, Authorization, ProviderInfo
from weft.plugin.auth import ApiMethod, Authorized, Login, OAuthMethod
from weft.provider.offer.entry import Plain
from weft.provider.offer.offer import Load

KEY: Final = AuthMethod(type="api", label="API key")
LONGEST_CODE: Final = 8192

# What is stored for a provider, and what is known of it.
FindAuth = Callable[[str], Awaitable[AnyAuth | None]]
Describe = Callable[[str], ProviderInfo | None]


class Begun(Struct, frozen=True):
    method: int
    login: Login
    at: Authorized


class Ways:
    """By provider. Plugins are loaded after this is made, and add theirs; a later one stands in place of an earlier one."""

    def __init__(self, logins: Iterable[Login] = ()) -> None:
        self._logins = {each.auth.provider: each for each in logins}
        self._begun: dict[str, Begun] = {}

    def add(self, login: Login) -> None:
        self._logins[login.auth.provider] = login

    def find(self, provider: str) -> Login | None:
        return self._logins.get(provider)

    def list_methods(self, known: Iterable[str]) -> dict[str, list[AuthMethod]]:
        """For each provider that is `known` or that somebody has declared; a key can be typed in for any."""
        return {id: self._methods(id) for id in dict.fromkeys((*known, *self._logins))}

    async def authorize(self, provider: str, place: int, inputs: Mapping[str, str]) -> Authorization:
        login = self._get(provider)
        method = self._method(login, place)
        if not isinstance(method, OAuthMethod):
            raise InvalidInputError(
                "method", "that one is not by a browser", hint="store the key: weft auth login --key-stdin"
            )
        begun = await login.authorize(method, inputs)
        self._begun[provider] = Begun(place, login, begun)
        return Authorization(url=begun.url, method=begun.method, instructions=begun.instructions)

    async def finish(self, provider: str, place: int, code: str | None) -> AnyAuth:
        """The credential that came of it. A login can be finished once."""
        begun = self._begun.get(provider)
        if begun is None or begun.method != place:
            raise InvalidInputError("method", f"no such login with {provider[:80]} has begun")
        if begun.at.method == "code" and not code:
            raise InvalidInputError("code", "none was given")
        if code is not None and len(code) > LONGEST_CODE:
            raise InvalidInputError("code", "it is too long for one")
        del self._begun[provider]
        return await begun.login.finish(begun.at, code)

    def _methods(self, provider: str) -> list[AuthMethod]:
        login = self._logins.get(provider)
        own = [] if login is None else login.list_methods()
        # Behind a plugin's own, so that theirs are counted as they were declared.
        return own if any(each.type == "api" for each in own) else [*own, KEY]

    def _get(self, provider: str) -> Login:
        return self._logins.get(provider) or self._unknown(provider)

    def _unknown(self, provider: str) -> NoReturn:
        raise NotFoundError(
            "login by a browser for",
            provider[:80],
            hint=f"there is one for {', '.join(self._logins) or 'none'}; a key is stored with weft auth login",
        )

    def _method(self, login: Login, place: int) -> OAuthMethod | ApiMethod:
        methods = login.auth.methods
        if not 0 <= place < len(methods):
            raise InvalidInputError("method", f"there are {len(methods)} of them, counted from 0")
        return methods[place]


def find_loader(ways: Ways, provider: str, find: FindAuth, describe: Describe) -> Load | None:
    """How to get the options that a login brings; None where nobody has declared how."""
    login = ways.find(provider)
    if login is None or login.auth.loader is None:
        return None
    declared = login

    async def load() -> Plain:
        auth, info = await find(provider), describe(provider)
        return {} if auth is None or info is None else await declared.load(auth, info)

    return load
