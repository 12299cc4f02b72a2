"""Providers as front ends see them, without readable keys, and credentials."""

from typing import Any, Literal

from msgspec import field

from weft.model.catalog import Model
from weft.model.wire import Wire, always


class ListedModel(Model, frozen=True, kw_only=True):
    """A model as clients expect it.

    It always has a price; if the price is unknown, it is 0 and `priced` is False. It always has a family, because
    OpenCode's web page groups models by family and drops a model without one.
    """

    family: str | None = always("")
    priced: bool = True


class ProviderInfo(Wire, frozen=True, kw_only=True):
    """A provider. `source` is where its key or its entry comes from. Secrets in `options` are redacted."""

    id: str
    name: str
    source: Literal["env", "config", "custom", "api"]
    env: tuple[str, ...]
    options: dict[str, Any] = always({})
    models: dict[str, ListedModel] = always({})


class ProviderList(Wire, frozen=True, kw_only=True):
    """All providers, the default model of each, and the ids of those that can be used now."""

    all: tuple[ProviderInfo, ...]
    default: dict[str, str]
    connected: tuple[str, ...]


class AuthChoice(Wire, frozen=True, kw_only=True):
    label: str
    value: str
    hint: str = ""


class AuthPrompt(Wire, frozen=True, kw_only=True):
    """A question before a login begins, answered by text or by one of the `options`."""

    type: Literal["text", "select"] = always("text")
    key: str
    message: str
    placeholder: str = ""
    options: tuple[AuthChoice, ...] = ()


class AuthMethod(Wire, frozen=True, kw_only=True):
    """A method to log in to a provider. Later versions of OpenCode have `prompts`; 1.1.34 does not."""

    type: Literal["oauth", "api"]
    label: str
    prompts: tuple[AuthPrompt, ...] = ()


class LoginInstructions(Wire, frozen=True, kw_only=True):
    """A login that was begun: the URL for the person, and whether they return with a code."""

    url: str
    method: Literal["auto", "code"]
    instructions: str


class Credential(Wire, frozen=True, kw_only=True, tag_field="type"):
    """A credential, as OpenCode stores it."""


class ApiAuth(Credential, frozen=True, kw_only=True, tag="api"):
    key: str


class OAuth(Credential, frozen=True, kw_only=True, tag="oauth"):
    refresh: str
    access: str
    expires: float
    account_id: str | None = field(default=None, name="accountId")
    enterprise_url: str | None = None


class WellKnownAuth(Credential, frozen=True, kw_only=True, tag="wellknown"):
    key: str
    token: str


AnyAuth = OAuth | ApiAuth | WellKnownAuth
