"""GitHub's device login: show a code that the user types at GitHub, then poll for the token."""

from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec
from msgspec import Struct

from weft.errors import DocumentError, InvalidInputError, ProviderAuthError
from weft.host.clock import Clock
from weft.model.wire import parse
from weft.provider.catalog.access import is_loopback
from weft.provider.catalog.credentials import COPILOT_ID
from weft.version import VERSION

GITHUB: Final = "https://github.com"
SCOPE: Final = "read:user"
GRANT_TYPE: Final = "urn:ietf:params:oauth:grant-type:device_code"
HTTP_TIMEOUT: Final = 30.0
MAX_RESPONSE_BYTES: Final = 64 * 1024
# RFC 8628 sets both: the pause if the server names none (3.2), and how much longer it gets after `slow_down` (3.5).
DEFAULT_POLL_SECONDS: Final = 5.0
SLOW_DOWN_SECONDS: Final = 5.0
MIN_POLL_SECONDS: Final = 1.0
MAX_POLL_SECONDS: Final = 60.0


class DeviceCode(Struct, frozen=True, kw_only=True):
    """GitHub's first response: the code for polling, the code for the user, where to type it, and how often to poll."""

    device_code: str
    user_code: str
    verification_uri: str
    expires_in: float = 900.0
    interval: float = DEFAULT_POLL_SECONDS


class TokenPoll(Struct, frozen=True, kw_only=True):
    """The response to a poll: the token, or an `error` that says to wait or to stop. It may hold a new interval."""

    access_token: str = ""
    error: str = ""
    interval: float | None = None


class GitHubLogin:
    """Device logins at one server: GitHub's own, or a company's."""

    def __init__(self, client_id: str, clock: Clock, *, server: str = GITHUB) -> None:
        self._client_id = client_id
        self._clock = clock
        self._server = server

    async def begin(self) -> DeviceCode:
        """Start a login. Raise `ProviderAuthError` if GitHub refuses."""
        async with httpx2.AsyncClient(timeout=HTTP_TIMEOUT) as client:
            form = {"client_id": self._client_id, "scope": SCOPE}
            body = await self._post(client, "/login/device/code", form)
        try:
            return msgspec.convert(body, DeviceCode)
        except msgspec.ValidationError:
            reason = body.get("error_description") or body.get("error") if isinstance(body, dict) else None
            raise self._make_error(f"did not start a login{f': {reason}' if reason else ''}") from None

    async def wait(self, device: DeviceCode) -> str:
        """Poll until the user has typed the code, and return the token. Raise `ProviderAuthError` if they refuse or
        take too long.
        """
        pause, seconds_left = min(max(device.interval, MIN_POLL_SECONDS), MAX_POLL_SECONDS), device.expires_in
        form = {"client_id": self._client_id, "device_code": device.device_code, "grant_type": GRANT_TYPE}
        async with httpx2.AsyncClient(timeout=HTTP_TIMEOUT) as client:
            while seconds_left > 0:
                await self._clock.sleep(pause)
                seconds_left -= pause
                poll = self._to_poll(await self._post(client, "/login/oauth/access_token", form))
                if poll.access_token:
                    return poll.access_token
                pause = self._get_next_pause(poll, pause)
        raise self._make_error("stopped waiting: the code has expired")

    def _get_next_pause(self, poll: TokenPoll, pause: float) -> float:
        """Return how long to wait before the next poll. Raise `ProviderAuthError` if the login has ended."""
        match poll.error:
            case "authorization_pending":
                return pause
            case "slow_down":
                return min(max(poll.interval or 0, pause + SLOW_DOWN_SECONDS), MAX_POLL_SECONDS)
            case "access_denied":
                raise self._make_error("reports that the login was refused")
            case other:
                raise self._make_error(f"ended the login: {other or 'no reason given'}")

    async def _post(self, client: httpx2.AsyncClient, path: str, body: dict[str, str]) -> Any:
        headers = {"accept": "application/json", "user-agent": f"weft/{VERSION}"}
        try:
            response = await client.post(f"{self._server}{path}", json=body, headers=headers)
        except httpx2.HTTPError as error:
            raise self._make_error(f"cannot be reached ({type(error).__name__})") from error
        if response.is_error or len(response.content) > MAX_RESPONSE_BYTES:
            raise self._make_error(f"answered with status {response.status_code}")
        try:
            return parse(response.content)
        except DocumentError:
            raise self._make_error("answered with something that is not JSON") from None

    def _to_poll(self, body: Any) -> TokenPoll:
        try:
            return msgspec.convert(body, TokenPoll)
        except msgspec.ValidationError:
            raise self._make_error("answered with an unexpected document") from None

    def _make_error(self, reason: str) -> ProviderAuthError:
        return ProviderAuthError(COPILOT_ID, f"{urlsplit(self._server).netloc} {reason}")


def parse_server(text: str) -> str:
    """Parse the address of a company's server as a user types it. Return GitHub's own if it is empty.

    Raise `InvalidInputError` if it is not the HTTPS address of a host.
    """
    address = text.strip()
    if not address:
        return GITHUB
    try:
        parts = urlsplit(address if "://" in address else f"https://{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if not host or parts.username is not None or (parts.scheme != "https" and not is_loopback(address)):
        raise InvalidInputError(
            "enterpriseUrl", "is not the address of a server", hint="write it like company.ghe.com"
        )
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}"
