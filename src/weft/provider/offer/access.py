"""Access: the address, the key and the headers with which a model is reached; or what is missing for it (pure)."""

import re
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from weft.errors import InvalidInputError, ProviderAuthError
from weft.provider.endpoint import AwsKeys
from weft.provider.offer.credentials import Key

_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
_AUTHORISES: Final = re.compile(r"authorization|api-?key|token|cookie", re.IGNORECASE)
# What these options say is said elsewhere in an `Access`, or is no business of an adapter.
SPENT: Final = frozenset({"apiKey", "baseURL", "endpoint", "headers"})
MANY: Final = 2


class Access(Struct, frozen=True, kw_only=True):
    """How a provider is reached. Showing one shows neither its key nor its headers nor its options."""

    provider_id: str
    npm: str
    url: str
    key: Key | None = None
    headers: dict[str, str] = {}
    options: dict[str, Any] = {}
    aws: Callable[[], AwsKeys] | None = None

    @property
    def key_from(self) -> str:
        """Where its key comes from: what to mend if it is refused."""
        key, again = self.key, f"weft auth login {self.provider_id}"
        if key is None:
            return f"no key was sent; {again} stores one"
        match key.source:
            case "config":
                return f"the key is that of provider.{self.provider_id}.options in the configuration"
            case "stored":
                return f"the key is the stored one; {again} stores another"
            case "environment":
                return f"the key is that of {key.variable}"
            case "public":
                return ""

    def __repr__(self) -> str:
        return f"Access(provider_id={self.provider_id!r}, npm={self.npm!r}, url={without_secret(self.url)!r})"


def fill_in(url: str, env: Mapping[str, str], provider: str) -> str:
    """The address with the variables in it replaced. Raises `ProviderAuthError` naming one that is not set."""

    def value(found: re.Match[str]) -> str:
        if not env.get(found[1]):
            raise ProviderAuthError(provider, f"nothing says where it is: set {found[1]}")
        return env[found[1]]

    return _VARIABLE.sub(value, url).rstrip("/").removesuffix("/chat/completions")


def check_url(url: str, provider: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        reason = f"{without_secret(url)!r} is no address" if url else "is not set"
        raise InvalidInputError(
            f"provider.{provider}.options.baseURL", reason, hint='write it like "http://127.0.0.1:8080/v1"'
        )


def needs_key(url: str, names: Sequence[str], headers: Mapping[str, str]) -> bool:
    """Whether there is no point in asking without a key: not for what runs here, nor where a header stands for it."""
    return bool(names) and not is_loopback(url) and not any(map(_AUTHORISES.search, headers))


def missing_key(provider: str, variables: Sequence[str], *, stored: str) -> ProviderAuthError:
    """`variables` are those that would hold a key, any of them."""
    names = ", or ".join(variables) if len(variables) > MANY else " or ".join(variables) or "its key"
    login = f"run: weft auth login {provider}"
    if stored:
        said = f"the stored login is of the kind {stored!r}, which weft cannot use: set {names}, or {login}"
        return ProviderAuthError(provider, said)
    return ProviderAuthError(provider, f"no key: set {names}, or {login}")


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def without_secret(url: str) -> str:
    """An address without the user and password it may carry, and without its query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.netloc else url
