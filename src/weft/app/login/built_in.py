"""The logins by a browser that weft has of its own."""

from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import isawaitable
from typing import Any, Final

from weft.config.schema import Config
from weft.errors import ProviderAuthError
from weft.host.clock import Clock
from weft.host.deadline import Deadline
from weft.model.around.provider import AuthPrompt, OAuth
from weft.model.wire import to_plain
from weft.plugin.auth import Auth, Authorized, Inputs, Login, OAuthMethod

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
        github = import_module("weft.provider.login.github")
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
