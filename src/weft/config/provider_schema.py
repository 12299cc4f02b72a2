"""Configuration of providers, their models, and MCP servers. Names are those in the files."""

from decimal import Decimal
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

Positive = Annotated[int, Meta(gt=0)]
Modality = Literal["text", "audio", "image", "video", "pdf"]


class ModelPrice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None


class ModelCost(ModelPrice, frozen=True, kw_only=True):
    context_over_200k: ModelPrice | None = None


class ModelLimit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    context: int
    input: int | None = None
    output: int


class ModelModalities(Struct, frozen=True, kw_only=True, omit_defaults=True):
    input: tuple[Modality, ...]
    output: tuple[Modality, ...]


class ModelInterleaved(Struct, frozen=True, kw_only=True, omit_defaults=True):
    field: Literal["reasoning_content", "reasoning_details"]


class ModelPackage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    npm: str
    api: str | None = None


class ModelConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a model, which override what the catalogue says about it."""

    id: str | None = None
    name: str | None = None
    family: str | None = None
    release_date: str | None = None
    attachment: bool | None = None
    reasoning: bool | None = None
    temperature: bool | None = None
    tool_call: bool | None = None
    structured_output: bool | None = None
    interleaved: bool | ModelInterleaved | None = None
    cost: ModelCost | None = None
    limit: ModelLimit | None = None
    modalities: ModelModalities | None = None
    experimental: bool | None = None
    status: Literal["alpha", "beta", "deprecated", "active"] | None = None
    options: dict[str, Any] | None = None
    headers: dict[str, str] | None = None
    provider: ModelPackage | None = None
    variants: dict[str, dict[str, Any]] | None = None


class ProviderOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options whose type we know. Any others are passed to the provider."""

    api_key: str | None = field(default=None, name="apiKey")
    base_url: str | None = field(default=None, name="baseURL")
    enterprise_url: str | None = field(default=None, name="enterpriseUrl")
    set_cache_key: bool | None = field(default=None, name="setCacheKey")
    timeout: Positive | bool | None = None
    headers: dict[str, str] | None = None


class ProviderConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    api: str | None = None
    name: str | None = None
    env: tuple[str, ...] | None = None
    id: str | None = None
    npm: str | None = None
    models: dict[str, ModelConfig] | None = None
    whitelist: tuple[str, ...] | None = None
    blacklist: tuple[str, ...] | None = None
    options: Annotated[dict[str, Any], Meta(extra={"like": ProviderOptions})] | None = None


class McpOAuthConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    client_id: str | None = field(default=None, name="clientId")
    client_secret: str | None = field(default=None, name="clientSecret")
    scope: str | None = None


class McpLocalConfig(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="local"):
    """An MCP server that weft starts."""

    command: tuple[str, ...]
    environment: dict[str, str] | None = None
    enabled: bool | None = None
    timeout: Positive | None = None


class McpRemoteConfig(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="remote"):
    """An MCP server at a URL. `oauth` is false if a login must not be attempted."""

    url: str
    headers: dict[str, str] | None = None
    oauth: McpOAuthConfig | bool | None = None
    enabled: bool | None = None
    timeout: Positive | None = None


McpServerConfig = McpLocalConfig | McpRemoteConfig
