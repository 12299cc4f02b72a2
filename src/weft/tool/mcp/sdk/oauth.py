"""Log in at a remote server by OAuth. The library speaks the protocol, and we store the results."""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthRegistrationError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from msgspec import Struct
from pydantic import AnyUrl, ValidationError

from weft.host.now import now
from weft.tool.mcp.connection import LoginNeededError, McpLogin, RegistrationNeededError
from weft.tool.mcp.entry import OAuthSettings, RemoteEntry
from weft.tool.mcp.login import McpLoginStore

CLIENT_NAME = "weft"


class OAuthContext(Struct, frozen=True, kw_only=True):
    """Where logins are stored, where a browser returns to, and the person who logs in now, if any."""

    logins: McpLoginStore
    redirect: str
    login: McpLogin | None = None


def to_auth(entry: RemoteEntry, oauth: OAuthContext) -> httpx2.Auth | None:
    """Return the authentication for requests to a server, or None if it uses none."""
    if entry.oauth is None:
        return None
    storage = _TokenStorage(entry.name, entry.url, entry.oauth, oauth)
    provider = _OAuthProvider(
        entry.url,
        storage.make_client_metadata(),
        storage,
        redirect_handler=_make_redirect_handler(oauth.login),
        callback_handler=_make_callback_handler(oauth.login),
    )
    storage.provider = provider
    return provider


class _OAuthProvider(OAuthClientProvider):
    """The library's provider, which raises a separate error if we have to be registered manually."""

    async def async_auth_flow(self, request: httpx2.Request) -> Any:
        flow = super().async_auth_flow(request)
        try:
            response = yield await anext(flow)
            while True:
                response = yield await flow.asend(response)
        except StopAsyncIteration:
            return
        except OAuthRegistrationError as error:
            raise RegistrationNeededError(str(error)) from error
        finally:
            await flow.aclose()


def _make_redirect_handler(login: McpLogin | None) -> Any:
    async def show(url: str) -> None:
        if login is None:
            raise LoginNeededError
        await login.show(url)

    return show


def _make_callback_handler(login: McpLogin | None) -> Any:
    async def wait_for_code() -> AuthorizationCodeResult:
        if login is None:
            raise LoginNeededError
        code, state, issuer = await login.wait_for_code()
        return AuthorizationCodeResult(code=code, state=state, iss=issuer)

    return wait_for_code


class _TokenStorage:
    """Stores tokens and client information for the library, under OpenCode's keys.

    The server's metadata is stored in addition, under our own key. It says where tokens are refreshed; without it, a
    login would end with its first token after a restart.
    """

    def __init__(self, name: str, url: str, settings: OAuthSettings, oauth: OAuthContext) -> None:
        self._name = name
        self._url = url
        self._settings = settings
        self._logins = oauth.logins
        self._redirect = AnyUrl(oauth.redirect)
        self.provider: OAuthClientProvider | None = None

    def make_client_metadata(self) -> OAuthClientMetadata:
        return OAuthClientMetadata(
            redirect_uris=[self._redirect],
            client_name=CLIENT_NAME,
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            token_endpoint_auth_method=self._choose_auth_method(self._settings.client_secret),
            scope=self._settings.scope or None,
        )

    @staticmethod
    def _choose_auth_method(secret: str | None) -> Any:
        return "client_secret_post" if secret else "none"

    async def get_tokens(self) -> OAuthToken | None:
        stored = (await self._load()).get("tokens")
        if not isinstance(stored, dict) or not isinstance(stored.get("accessToken"), str):
            return None
        expires_at = stored.get("expiresAt")
        token = OAuthToken(
            access_token=stored["accessToken"],
            refresh_token=stored.get("refreshToken"),
            expires_in=int(expires_at - now() / 1000) if isinstance(expires_at, int | float) else None,
            scope=stored.get("scope"),
        )
        if self.provider is not None:
            self.provider.context.update_token_expiry(token)
        return token

    async def set_tokens(self, tokens: OAuthToken) -> None:
        expires_at = None if tokens.expires_in is None else now() // 1000 + tokens.expires_in
        values = {
            "accessToken": tokens.access_token,
            "refreshToken": tokens.refresh_token,
            "expiresAt": expires_at,
            "scope": tokens.scope,
        }
        metadata = self.provider.context.oauth_metadata if self.provider is not None else None
        stored_metadata = (
            metadata.model_dump(mode="json", exclude_none=True) if metadata is not None else None
        )
        await self._save(
            {
                "tokens": _drop_none(values),
                **({"weft": {"metadata": stored_metadata}} if stored_metadata else {}),
            }
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        entry = await self._load()
        self._restore_metadata(entry)
        if self._settings.client_id:
            return self._make_client_info(self._settings.client_id, self._settings.client_secret or None, {})
        stored = entry.get("clientInfo")
        if not isinstance(stored, dict) or not isinstance(stored.get("clientId"), str):
            return None
        expires_at = stored.get("clientSecretExpiresAt")
        if isinstance(expires_at, int | float) and 0 < expires_at < now() / 1000:
            return None
        return self._make_client_info(stored["clientId"], stored.get("clientSecret"), stored)

    def _make_client_info(
        self, id: str, secret: str | None, stored: Mapping[str, Any]
    ) -> OAuthClientInformationFull:
        return OAuthClientInformationFull(
            client_id=id,
            client_secret=secret,
            redirect_uris=[self._redirect],
            token_endpoint_auth_method=stored.get("method") or self._choose_auth_method(secret),
            issuer=stored.get("issuer"),
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        values = {
            "clientId": client_info.client_id,
            "clientSecret": client_info.client_secret,
            "clientIdIssuedAt": client_info.client_id_issued_at,
            "clientSecretExpiresAt": client_info.client_secret_expires_at,
            "issuer": client_info.issuer,
            "method": client_info.token_endpoint_auth_method,
        }
        await self._save({"clientInfo": _drop_none(values)})

    def _restore_metadata(self, entry: Mapping[str, Any]) -> None:
        ours = entry.get("weft")
        stored = ours.get("metadata") if isinstance(ours, dict) else None
        if stored is None or self.provider is None:
            return
        try:
            self.provider.context.oauth_metadata = OAuthMetadata.model_validate(stored)
        except ValidationError:
            return  # it is discovered again

    async def _load(self) -> dict[str, Any]:
        return await asyncio.to_thread(self._logins.find, self._name, self._url)

    async def _save(self, change: dict[str, Any]) -> None:
        await asyncio.to_thread(self._logins.put, self._name, self._url, change)


def _drop_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
