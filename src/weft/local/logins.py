"""Log in to providers: built-in methods, methods of plugins, and logins under way."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from inspect import isawaitable
from typing import Any, Final, NoReturn

from msgspec import Struct

from weft.config.schema import Config
from weft.errors import InvalidInputError, NotFoundError, ProviderAuthError
from weft.host.clock import Clock
from weft.host.tasks import Deadline
from weft.model.provider import AnyAuth, AuthMethod, Authorization, AuthPrompt, OAuth, ProviderInfo
from weft.model.wire import to_plain
from weft.plugin.auth import ApiMethod, Auth, Authorized, Inputs, Login, OAuthMethod
from weft.provider.catalog.models import Plain
from weft.provider.catalog.offers import Load

COPILOT: Final = "github-copilot"
CLIENT_ID: Final = "clientId"
SERVER: Final = "enterpriseUrl"
ASK_FOR_SERVER: Final = AuthPrompt(
    key=SERVER,
    message="the address of your company's GitHub; nothing for github.com",
    placeholder="company.ghe.com",
)


def list_built_in(vouched: Config, clock: Clock) -> list[Login]:
    """Only what a person has vouched for says who we are to GitHub."""
    entry = (vouched.provider or {}).get(COPILOT)
    options: Mapping[str, Any] = {} if entry is None else to_plain(entry).get("options") or {}
    return [_own(_copilot(str(options.get(CLIENT_ID) or ""), clock), clock)]


def _own(auth: Auth, clock: Clock) -> Login:
    """Our own functions need no room, but they end in time all the same."""

    async def ask(work: Callable[[], Any], seconds: float) -> Any:
        async with Deadline(f"login with {auth.provider}", seconds, clock).running():
            given = work()
            return await given if isawaitable(given) else given

    return Login(auth=auth, ask=ask)


def _copilot(client_id: str, clock: Clock) -> Auth:
    async def authorize(inputs: Inputs) -> Authorized:
        if not client_id:
            # OpenCode has an application of its own registered with GitHub. We have none, and do not go by its name.
            raise ProviderAuthError(
                COPILOT,
                f"GitHub wants to know which application asks: set provider.{COPILOT}.options.{CLIENT_ID}, "
                "or log in with OpenCode, whose login is used here too",
            )
        # Nothing that speaks HTTP is imported before it is needed.
        github = import_module("weft.provider.github_login")
        server: str = github.server_of(inputs.get(SERVER, ""))
        hub = github.GitHub(client_id, clock, server=server)
        device = await hub.begin()

        async def finish(_: str | None) -> OAuth:
            token: str = await hub.wait(device)
            own = server.partition("://")[2] if server != github.GITHUB else None
            return OAuth(refresh=token, access=token, expires=0, enterprise_url=own)

        said = f"Enter code: {device.user_code}"
        return Authorized(url=device.verification_uri, instructions=said, method="auto", callback=finish)

    method = OAuthMethod(label="Login with GitHub Copilot", authorize=authorize, prompts=(ASK_FOR_SERVER,))
    return Auth(provider=COPILOT, methods=(method,))


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
