"""GitHub's login for devices: a code that a person types in at GitHub, and the token that comes of it.

The person goes to an address and types the code there; meanwhile GitHub is asked again and again whether they have. It
says how often that may be.
"""

from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec
from msgspec import Struct

from weft.errors import InvalidInputError, ProviderAuthError
from weft.host.clock import Clock
from weft.provider.catalog.access import is_loopback
from weft.version import VERSION

GITHUB: Final = "https://github.com"
COPILOT: Final = "github-copilot"
SCOPE: Final = "read:user"
GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
SECONDS: Final = 30.0
LARGEST: Final = 64 * 1024
# To be asked too often is answered with this much more to wait, as the standard says (RFC 8628, 3.5).
SLOWER: Final = 5.0
SHORTEST: Final = 1.0
LONGEST: Final = 60.0


class Device(Struct, frozen=True, kw_only=True):
    """What GitHub says to begin with: the code for us, the one for the person, where to type it, how often to ask."""

    device_code: str
    user_code: str
    verification_uri: str
    expires_in: float = 900.0
    interval: float = SLOWER


class Waiting(Struct, frozen=True, kw_only=True):
    """Not yet, or never: `error` says which. Some answers have a new interval in them."""

    access_token: str = ""
    error: str = ""
    interval: float | None = None


class GitHub:
    """Logins at one server: GitHub's own, or a company's."""

    def __init__(self, client_id: str, clock: Clock, *, server: str = GITHUB) -> None:
        self._client_id = client_id
        self._clock = clock
        self._server = server

    async def begin(self) -> Device:
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            asked = {"client_id": self._client_id, "scope": SCOPE}
            body = await self._post(client, "/login/device/code", asked)
        try:
            return msgspec.convert(body, Device)
        except msgspec.ValidationError:
            said = body.get("error_description") or body.get("error") if isinstance(body, dict) else None
            raise self._failed(f"did not begin a login{f': {said}' if said else ''}") from None

    async def wait(self, device: Device) -> str:
        """The token, once the person has been there. Raises `ProviderAuthError` if they said no, or took too long."""
        pause, left = min(max(device.interval, SHORTEST), LONGEST), device.expires_in
        asked = {"client_id": self._client_id, "device_code": device.device_code, "grant_type": GRANT}
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            while left > 0:
                await self._clock.sleep(pause)
                left -= pause
                said = self._to_waiting(await self._post(client, "/login/oauth/access_token", asked))
                if said.access_token:
                    return said.access_token
                pause = self._next_pause(said, pause)
        raise self._failed("waited for the code as long as it does")

    def _next_pause(self, said: Waiting, pause: float) -> float:
        """How long to wait before asking again. Raises if there is nothing left to wait for."""
        match said.error:
            case "authorization_pending":
                return pause
            case "slow_down":
                return min(max(said.interval or 0, pause + SLOWER), LONGEST)
            case "access_denied":
                raise self._failed("was told no")
            case other:
                raise self._failed(f"ended the login: {other or 'without a reason'}")

    async def _post(self, client: httpx2.AsyncClient, path: str, body: dict[str, str]) -> Any:
        headers = {"accept": "application/json", "user-agent": f"weft/{VERSION}"}
        try:
            response = await client.post(f"{self._server}{path}", json=body, headers=headers)
        except httpx2.HTTPError as error:
            raise self._failed(f"cannot be reached ({type(error).__name__})") from error
        if response.is_error or len(response.content) > LARGEST:
            raise self._failed(f"answered with status {response.status_code}")
        try:
            return msgspec.json.decode(response.content)
        except msgspec.DecodeError:
            raise self._failed("answered with something that is no JSON") from None

    def _to_waiting(self, body: Any) -> Waiting:
        try:
            return msgspec.convert(body, Waiting)
        except msgspec.ValidationError:
            raise self._failed("answered with something else") from None

    def _failed(self, how: str) -> ProviderAuthError:
        return ProviderAuthError(COPILOT, f"{urlsplit(self._server).netloc} {how}")


def server_of(given: str) -> str:
    """The address of a company's server, however it was typed; GitHub's own for nothing."""
    typed = given.strip()
    if not typed:
        return GITHUB
    parts = urlsplit(typed if "://" in typed else f"https://{typed}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.username is not None or (parts.scheme != "https" and not is_loopback(typed)):
        raise InvalidInputError(
            "enterpriseUrl", "that is no address of a server", hint="like company.ghe.com"
        )
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}"
