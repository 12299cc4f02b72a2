"""Logging in at a remote server by OAuth: the library does the talking, we keep what comes of it."""

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
from weft.tool.mcp.entry import OAuthTerms, RemoteEntry
from weft.tool.mcp.link import Login, LoginNeededError, RegistrationNeededError
from weft.tool.mcp.login import Book

NAME = "weft"


class Passport(Struct, frozen=True, kw_only=True):
    """Where logins are kept, where a browser comes back to, and who logs in now, if anybody does."""

    book: Book
    redirect: str
    login: Login | None = None


def to_auth(entry: RemoteEntry, passport: Passport) -> httpx2.Auth | None:
    if entry.oauth is None:
        return None
    storage = _Storage(entry.name, entry.url, entry.oauth, passport)
    provider = _Provider(
        entry.url,
        storage.metadata(),
        storage,
        redirect_handler=_show(passport.login),
        callback_handler=_bring(passport.login),
    )
    storage.provider = provider
    return provider


class _Provider(OAuthClientProvider):
    """The library's, which says apart that we would have to be registered by hand."""

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


def _show(login: Login | None) -> Any:
    async def show(url: str) -> None:
        if login is None:
            raise LoginNeededError
        await login.show(url)

    return show


def _bring(login: Login | None) -> Any:
    async def bring() -> AuthorizationCodeResult:
        if login is None:
            raise LoginNeededError
        code, state, issuer = await login.bring()
        return AuthorizationCodeResult(code=code, state=state, iss=issuer)

    return bring


class _Storage:
    """What the library wants kept, in OpenCode's words. Beside them stands, under our own name, where tokens are made
    anew: without it a login would not outlive the process by more than a token."""

    def __init__(self, name: str, url: str, terms: OAuthTerms, passport: Passport) -> None:
        self._name = name
        self._url = url
        self._terms = terms
        self._book = passport.book
        self._redirect = AnyUrl(passport.redirect)
        self.provider: OAuthClientProvider | None = None

    def metadata(self) -> OAuthClientMetadata:
        return OAuthClientMetadata(
            redirect_uris=[self._redirect],
            client_name=NAME,
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            token_endpoint_auth_method=self._method(self._terms.client_secret),
            scope=self._terms.scope or None,
        )

    @staticmethod
    def _method(secret: str | None) -> Any:
        return "client_secret_post" if secret else "none"

    async def get_tokens(self) -> OAuthToken | None:
        kept = (await self._kept()).get("tokens")
        if not isinstance(kept, dict) or not isinstance(kept.get("accessToken"), str):
            return None
        until = kept.get("expiresAt")
        token = OAuthToken(
            access_token=kept["accessToken"],
            refresh_token=kept.get("refreshToken"),
            expires_in=int(until - now() / 1000) if isinstance(until, int | float) else None,
            scope=kept.get("scope"),
        )
        if self.provider is not None:
            self.provider.context.update_token_expiry(token)
        return token

    async def set_tokens(self, tokens: OAuthToken) -> None:
        until = None if tokens.expires_in is None else now() // 1000 + tokens.expires_in
        said = {
            "accessToken": tokens.access_token,
            "refreshToken": tokens.refresh_token,
            "expiresAt": until,
            "scope": tokens.scope,
        }
        found = self.provider.context.oauth_metadata if self.provider is not None else None
        ours = found.model_dump(mode="json", exclude_none=True) if found is not None else None
        await self._keep({"tokens": _said(said), **({"weft": {"metadata": ours}} if ours else {})})

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        entry = await self._kept()
        self._recall_metadata(entry)
        if self._terms.client_id:
            return self._client(self._terms.client_id, self._terms.client_secret or None, {})
        kept = entry.get("clientInfo")
        if not isinstance(kept, dict) or not isinstance(kept.get("clientId"), str):
            return None
        until = kept.get("clientSecretExpiresAt")
        if isinstance(until, int | float) and 0 < until < now() / 1000:
            return None
        return self._client(kept["clientId"], kept.get("clientSecret"), kept)

    def _client(self, id: str, secret: str | None, kept: Mapping[str, Any]) -> OAuthClientInformationFull:
        return OAuthClientInformationFull(
            client_id=id,
            client_secret=secret,
            redirect_uris=[self._redirect],
            token_endpoint_auth_method=kept.get("method") or self._method(secret),
            issuer=kept.get("issuer"),
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        said = {
            "clientId": client_info.client_id,
            "clientSecret": client_info.client_secret,
            "clientIdIssuedAt": client_info.client_id_issued_at,
            "clientSecretExpiresAt": client_info.client_secret_expires_at,
            "issuer": client_info.issuer,
            "method": client_info.token_endpoint_auth_method,
        }
        await self._keep({"clientInfo": _said(said)})

    def _recall_metadata(self, entry: Mapping[str, Any]) -> None:
        ours = entry.get("weft")
        kept = ours.get("metadata") if isinstance(ours, dict) else None
        if kept is None or self.provider is None:
            return
        try:
            self.provider.context.oauth_metadata = OAuthMetadata.model_validate(kept)
        except ValidationError:
            return  # it is found out anew

    async def _kept(self) -> dict[str, Any]:
        return await asyncio.to_thread(self._book.find, self._name, self._url)

    async def _keep(self, change: dict[str, Any]) -> None:
        await asyncio.to_thread(self._book.put, self._name, self._url, change)


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
