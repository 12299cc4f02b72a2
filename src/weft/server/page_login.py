"""Logins of browsers to our page: by a link that works once, or by the server's password.

A browser keeps its login in a cookie that scripts cannot read and other sites cannot send. The cookie is signed with a key that
is made from the password, so it outlives a restart, and a new password ends every login. A request that changes something also
needs a token that only our page can read.
"""

import hmac
import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct

from weft.api.tokens import EndedLogins
from weft.errors import InvalidInputError, StoreError
from weft.model.wire import encode
from weft.server.request import BodyTooLargeError, read_body
from weft.server.response import ErrorResponse, Receive, Scope, Send, read_headers, send_error
from weft.server.state import PasswordAttempts, Tickets, to_attempt_address

PAGE_ROOT: Final = "/web/"
LOGIN_PATH: Final = "/web/login"
COOKIE_HEADER: Final = "cookie"
# Our page sends it with every request; the value is the token, empty before the login.
PAGE_HEADER: Final = "x-weft-page"
LOGIN_SECONDS: Final = 30 * 24 * 60 * 60
LINK_SECONDS: Final = 300
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES: Final = frozenset({"same-origin", "none"})
MAX_REMEMBERED: Final = 10_000
CACHE_MS: Final = 1000

FORGED: Final = ErrorResponse(
    status=403, name="ForbiddenError", message="the request does not come from our page: open it again"
)
WRONG_LINK: Final = ErrorResponse(
    status=401,
    name="UnauthorizedError",
    message="the link was used already, or is too old: run `weft web` for a new one, or enter the password",
)
WRONG_PASSWORD: Final = ErrorResponse(
    status=401, name="UnauthorizedError", message="this is not the password of the server"
)
NOT_A_LOGIN: Final = ErrorResponse(
    status=400, name="InvalidInputError", message='a login is {"ticket": …} or {"password": …}'
)
TOO_MANY_ATTEMPTS: Final = ErrorResponse(
    status=429,
    name="TooManyAttemptsError",
    message="too many wrong passwords came from this address: wait a few seconds and try again",
)
STORE_AWAY: Final = ErrorResponse(
    status=507, name="StoreError", message="the store of the server does not answer now: try again"
)
WRONG_METHOD: Final = ErrorResponse(
    status=405, name="MethodError", message=f"{LOGIN_PATH} accepts GET, POST and DELETE only"
)


def is_page_path(path: str) -> bool:
    """Return True for the files of our page and for its login, which need no password."""
    return path == "/" or path.startswith(PAGE_ROOT)


class LoginInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a browser logs in with: the ticket of a link, or the password."""

    ticket: str = ""
    password: str = ""


class PageLogins:
    """Makes and checks the cookies of browsers. Without a password nobody has to log in.

    `now` returns the time in milliseconds. `ended` stores which logins were ended, for other nodes and after a restart.
    Without it, this process remembers them.
    """

    def __init__(
        self, password: str | None, now: Callable[[], int], ended: EndedLogins | None = None
    ) -> None:
        self.password = password
        self._key = hmac.digest((password or secrets.token_hex()).encode(), b"weft page login", "sha256")
        self._now = now
        self._ended = ended
        self._revoked: dict[str, None] = {}
        self._checked: dict[str, int] = {}

    def make(self) -> str:
        """Return the value of a new cookie."""
        login = f"{secrets.token_hex(16)}.{self._now() // 1000 + LOGIN_SECONDS}"
        return f"{login}.{self._sign('cookie', login)}"

    async def find(self, headers: Mapping[str, str]) -> str | None:
        """Return the login in the cookie of a request, None if there is no valid one."""
        cookie = read_cookie(headers.get(COOKIE_HEADER, ""), to_cookie_name(headers))
        login, _, signature = cookie.rpartition(".")
        if not login or not is_equal(signature, self._sign("cookie", login)):
            return None
        return None if await self._has_ended(login) else login

    async def is_valid(self, login: str) -> bool:
        """Return True if a login is still valid. What the store answers is cached for a second."""
        if self._has_ended_here(login):
            return False
        if self._now() - self._checked.get(login, 0) < CACHE_MS:
            return True
        self._checked[login] = self._now()
        _forget_oldest(self._checked)
        return not await self._has_ended(login)

    async def _has_ended(self, login: str) -> bool:
        if self._has_ended_here(login):
            return True
        if self._ended is None or not await self._ended.is_ended(login):
            return False
        self._remember(login)
        return True

    def _has_ended_here(self, login: str) -> bool:
        """Return True if a login has expired, or this process knows that it was ended."""
        return login in self._revoked or to_expiry(login) < self._now() // 1000

    def to_token(self, login: str) -> str:
        """Return the token that a login needs for requests that change something."""
        return self._sign("token", login)

    def check(self, login: str, method: str, headers: Mapping[str, str]) -> ErrorResponse | None:
        """Return None for a request of our page with this login, the error for one of another site."""
        if headers.get("sec-fetch-site", "none") not in OWN_SITES:
            return FORGED
        is_ours = is_equal(headers.get(PAGE_HEADER, ""), self.to_token(login))
        return None if method in SAFE_METHODS or is_ours else FORGED

    async def revoke(self, login: str) -> None:
        """End a login."""
        self._remember(login)
        if self._ended is not None:
            await self._ended.end(login, to_expiry(login))

    def _remember(self, login: str) -> None:
        self._revoked[login] = None
        _forget_oldest(self._revoked)

    def is_password(self, text: str) -> bool:
        return self.password is not None and is_equal(text, self.password)

    def _sign(self, purpose: str, login: str) -> str:
        return hmac.new(self._key, f"{purpose}:{login}".encode(), sha256).hexdigest()


def _forget_oldest(logins: dict[str, Any]) -> None:
    while len(logins) > MAX_REMEMBERED:
        del logins[next(iter(logins))]


def to_expiry(login: str) -> int:
    """Return when a login ends by itself, in seconds."""
    return int(login.rpartition(".")[2])


def is_equal(text: str, secret: str) -> bool:
    """Compare a text with a secret in a time that tells nothing about the secret."""
    return hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode("utf-8", "replace"))


def to_cookie_name(headers: Mapping[str, str]) -> str:
    """Return the name of the cookie. Browsers send cookies to every port of a host, so each port has its own name."""
    port = headers.get("host", "").rpartition(":")[2]
    return f"weft-{port}" if port.isdecimal() else "weft"


def read_cookie(header: str, name: str) -> str:
    """Return the value of a cookie, or an empty text."""
    # Not `SimpleCookie`: it reads nothing if other programs on this host have cookies that it does not understand.
    cookies = (each.strip().partition("=") for each in header.split(";"))
    return next((value for key, _, value in cookies if key == name), "")


class LoginEndpoint:
    """`/web/login`: GET says whether the browser is logged in, POST logs it in, DELETE logs it out."""

    def __init__(self, logins: PageLogins, tickets: Tickets, attempts: PasswordAttempts) -> None:
        self._logins = logins
        self._tickets = tickets
        self._attempts = attempts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        try:
            match scope["method"]:
                case "GET" | "HEAD":
                    await self._answer(send, await self._logins.find(headers))
                case "POST":
                    await self._log_in(scope, receive, send, headers)
                case "DELETE":
                    await self._log_out(send, headers)
                case _:
                    await send_error(send, WRONG_METHOD)
        except StoreError:
            await send_error(send, STORE_AWAY)

    async def _log_in(self, scope: Scope, receive: Receive, send: Send, headers: Mapping[str, str]) -> None:
        try:
            input = msgspec.json.decode(await read_body(receive, dict(headers)), type=LoginInput)
        except (msgspec.DecodeError, UnicodeDecodeError, BodyTooLargeError, InvalidInputError):
            await send_error(send, NOT_A_LOGIN)
            return
        if self._logins.password is None:
            await self._answer(send, None)
        elif (error := await self._check(input, to_attempt_address(scope.get("client")))) is not None:
            await send_error(send, error)
        else:
            await self._welcome(send, headers)

    async def _check(self, input: LoginInput, address: str) -> ErrorResponse | None:
        """Return why a login is refused, None for a valid one. A ticket is too long to be guessed, so only passwords are counted."""
        if input.ticket:
            return None if self._tickets.take(input.ticket, LOGIN_PATH) else WRONG_LINK
        if not self._attempts.may_try(address):
            return TOO_MANY_ATTEMPTS
        if not self._logins.is_password(input.password):
            await self._attempts.fail(address)
            return WRONG_PASSWORD
        self._attempts.succeed(address)
        return None

    async def _welcome(self, send: Send, headers: Mapping[str, str]) -> None:
        cookie = self._logins.make()
        # A server does not know whether a proxy in front of it speaks TLS, but the origin of the page tells.
        secure = "; Secure" if headers.get("origin", "").startswith("https:") else ""
        attributes = f"Path=/; HttpOnly; SameSite=Strict; Max-Age={LOGIN_SECONDS}{secure}"
        cookie_header = f"{to_cookie_name(headers)}={cookie}; {attributes}"
        await self._answer(send, cookie.rpartition(".")[0], {"set-cookie": cookie_header})

    async def _log_out(self, send: Send, headers: Mapping[str, str]) -> None:
        login = await self._logins.find(headers)
        if login is not None and not is_equal(headers.get(PAGE_HEADER, ""), self._logins.to_token(login)):
            await send_error(send, FORGED)
            return
        if login is not None:
            await self._logins.revoke(login)
        cleared = f"{to_cookie_name(headers)}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
        await self._answer(send, None, {"set-cookie": cleared})

    async def _answer(self, send: Send, login: str | None, extra: Mapping[str, str] | None = None) -> None:
        value: dict[str, Any] = {
            "needed": self._logins.password is not None,
            "token": "" if login is None else self._logins.to_token(login),
        }
        body = encode(value)
        headers = {
            "content-type": "application/json",
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            "content-length": str(len(body)),
            **(extra or {}),
        }
        raw = [(name.encode(), text.encode()) for name, text in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        await send({"type": "http.response.body", "body": body})
