"""Providers as a front end sees them, never with a readable key."""

from typing import Any, Literal

from msgspec import field

from weft.model.catalog import Model
from weft.model.wire import Wire, always


class ListedModel(Model, frozen=True, kw_only=True):
    """A model as clients want it: always with a price, which is 0 and not `priced` where it is unknown, and always with
    a family, for OpenCode's web page groups by it and drops a model that has none."""

    family: str | None = always("")
    priced: bool = True


class ProviderInfo(Wire, frozen=True, kw_only=True):
    """`source` is where its key or its entry comes from. Secrets in `options` are covered."""

    id: str
    name: str
    source: Literal["env", "config", "custom", "api"]
    env: tuple[str, ...]
    options: dict[str, Any] = always({})
    models: dict[str, ListedModel] = always({})


class ProviderList(Wire, frozen=True, kw_only=True):
    """Every provider; the model each is asked for if none is named; those that can be used as things are."""

    all: tuple[ProviderInfo, ...]
    default: dict[str, str]
    connected: tuple[str, ...]


class AuthChoice(Wire, frozen=True, kw_only=True):
    label: str
    value: str
    hint: str = ""


class AuthPrompt(Wire, frozen=True, kw_only=True):
    """Something to be answered before a login begins: in words, or by one of the `options`."""

    type: Literal["text", "select"] = always("text")
    key: str
    message: str
    placeholder: str = ""
    options: tuple[AuthChoice, ...] = ()


class AuthMethod(Wire, frozen=True, kw_only=True):
    """A way to get in with a provider. Later versions of OpenCode have `prompts`; 1.1.34 knows none."""

    type: Literal["oauth", "api"]
    label: str
    prompts: tuple[AuthPrompt, ...] = ()


class Authorization(Wire, frozen=True, kw_only=True):
    """A login that has begun: where the person goes, and whether they bring back a code."""

    url: str
    method: Literal["auto", "code"]
    instructions: str


class Auth(Wire, frozen=True, kw_only=True, tag_field="type"):
    """A credential, as OpenCode stores it."""


class ApiAuth(Auth, frozen=True, kw_only=True, tag="api"):
    key: str


class OAuth(Auth, frozen=True, kw_only=True, tag="oauth"):
    refresh: str
    access: str
    expires: float
    account_id: str | None = field(default=None, name="accountId")
    enterprise_url: str | None = None


class WellKnownAuth(Auth, frozen=True, kw_only=True, tag="wellknown"):
    key: str
    token: str


AnyAuth = OAuth | ApiAuth | WellKnownAuth
