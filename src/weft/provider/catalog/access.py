"""How to reach a model: its adapter, address, key, region and headers, or an error that says what is missing."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from weft.errors import InvalidInputError, ProviderAuthError
from weft.model.url import is_loopback_host, redact_url
from weft.provider.catalog.aws import AWS_KEY_SOURCES, choose_region, find_aws_key, get_aws_keys
from weft.provider.catalog.credentials import ProviderKey, find_environment_key, list_key_variables
from weft.provider.endpoint import AwsKeys

_URL_VARIABLE: Final = r"\$\{(\w+)\}"
_AUTHORISING_HEADER: Final = re.compile(r"authorization|api-?key|token|cookie", re.IGNORECASE)
# Options that an adapter does not get: other fields of `Access` hold them.
CONSUMED_OPTIONS: Final = frozenset({"apiKey", "baseURL", "endpoint", "headers"})
MAX_NAMES_WITHOUT_COMMA: Final = 2  # in a list joined by "or"


class Access(Struct, frozen=True, kw_only=True):
    """How to reach a provider. `repr` shows neither its key nor its headers nor its options."""

    provider_id: str
    npm: str
    url: str
    key: ProviderKey | None = None
    headers: dict[str, str] = {}
    options: dict[str, Any] = {}
    aws: Callable[[], AwsKeys] | None = None

    @property
    def key_hint(self) -> str:
        """Return a sentence on where the key came from, for the error if the key is refused."""
        key, login = self.key, f"weft auth login {self.provider_id}"
        if key is None:
            return f"no key was sent; run: {login}"
        match key.source:
            case "config":
                return f"the key comes from provider.{self.provider_id}.options in the configuration"
            case "stored":
                return f"the key is the stored one; to replace it, run: {login}"
            case "environment":
                return f"the key comes from the environment variable {key.variable}"
            case "public":
                return ""

    def __repr__(self) -> str:
        return f"Access(provider_id={self.provider_id!r}, npm={self.npm!r}, url={redact_url(self.url)!r})"


def fill_variables(url: str, env: Mapping[str, str], provider: str) -> str:
    """Replace the variables in an address. Raise `ProviderAuthError` that names a variable that is not set."""

    def get_value(variable: re.Match[str]) -> str:
        if not env.get(variable[1]):
            raise ProviderAuthError(provider, f"its address is unknown: set {variable[1]}")
        return env[variable[1]]

    return re.sub(_URL_VARIABLE, get_value, url).rstrip("/").removesuffix("/chat/completions")


def check_url(url: str, provider: str) -> None:
    """Raise `InvalidInputError` if a URL is missing or not an HTTP address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        reason = f"{redact_url(url)!r} is not an HTTP address" if url else "is not set"
        raise InvalidInputError(
            f"provider.{provider}.options.baseURL", reason, hint='write it like "http://127.0.0.1:8080/v1"'
        )


def needs_key(url: str, names: Sequence[str], headers: Mapping[str, str]) -> bool:
    """Return True if a request needs a key: the server is not local, and no header authorises the request."""
    return bool(names) and not is_loopback(url) and not any(map(_AUTHORISING_HEADER.search, headers))


def make_missing_key_error(provider: str, variables: Sequence[str], *, login_type: str) -> ProviderAuthError:
    """Make an error that says how to provide a key. Any of `variables` may hold it. `login_type` is "" without a login."""
    names = (
        ", or ".join(variables)
        if len(variables) > MAX_NAMES_WITHOUT_COMMA
        else " or ".join(variables) or "its key"
    )
    login = f"run: weft auth login {provider}"
    if login_type:
        message = f"weft cannot use the stored login of type {login_type!r}: set {names}, or {login}"
        return ProviderAuthError(provider, message)
    return ProviderAuthError(provider, f"no key: set {names}, or {login}")


def is_loopback(url: str) -> bool:
    """Return True if a URL leads to this machine."""
    host = urlsplit(url).hostname or ""
    return host.endswith(".localhost") or is_loopback_host(host)


Options = Mapping[str, Any]
Env = Mapping[str, str]


class AdapterPackage(Struct, frozen=True):
    """The adapter of an npm package, as `module:class` in `weft.provider`, and its default address."""

    adapter: str
    url: str = ""


RESPONSES: Final = "openai_responses.adapter:OpenAIResponses"
CHAT: Final = "openai_chat.adapter:OpenAIChat"
ANTHROPIC: Final = "anthropic.adapter:AnthropicMessages"
GEMINI: Final = "gemini.adapter:Gemini"

AZURE: Final = "@ai-sdk/azure"
BEDROCK: Final = "@ai-sdk/amazon-bedrock"
COPILOT: Final = "@ai-sdk/github-copilot"
PYDANTIC_AI: Final = "pydantic-ai"

COMPATIBLE: Final = "@ai-sdk/openai-compatible"

PACKAGES: Final[Mapping[str, AdapterPackage]] = {
    "@ai-sdk/anthropic": AdapterPackage(ANTHROPIC, "https://api.anthropic.com/v1"),
    "@ai-sdk/openai": AdapterPackage(RESPONSES, "https://api.openai.com/v1"),
    AZURE: AdapterPackage("azure:AzureOpenAI", "https://${AZURE_RESOURCE_NAME}.openai.azure.com/openai"),
    BEDROCK: AdapterPackage("bedrock.adapter:Bedrock", "https://bedrock-runtime.${AWS_REGION}.amazonaws.com"),
    COPILOT: AdapterPackage("copilot:Copilot", "https://api.githubcopilot.com"),
    PYDANTIC_AI: AdapterPackage("pydantic_ai.adapter:PydanticAiProvider"),
    "@ai-sdk/google": AdapterPackage(GEMINI, "https://generativelanguage.googleapis.com/v1beta"),
    COMPATIBLE: AdapterPackage(CHAT),
    "@ai-sdk/cerebras": AdapterPackage(CHAT, "https://api.cerebras.ai/v1"),
    "@ai-sdk/cohere": AdapterPackage(CHAT, "https://api.cohere.ai/compatibility/v1"),
    "@ai-sdk/deepinfra": AdapterPackage(CHAT, "https://api.deepinfra.com/v1/openai"),
    "@ai-sdk/deepseek": AdapterPackage(CHAT, "https://api.deepseek.com"),
    "@ai-sdk/fireworks": AdapterPackage(CHAT, "https://api.fireworks.ai/inference/v1"),
    "@ai-sdk/gateway": AdapterPackage(CHAT, "https://ai-gateway.vercel.sh/v1"),
    "@ai-sdk/groq": AdapterPackage(CHAT, "https://api.groq.com/openai/v1"),
    "@ai-sdk/mistral": AdapterPackage(CHAT, "https://api.mistral.ai/v1"),
    "@ai-sdk/perplexity": AdapterPackage(CHAT, "https://api.perplexity.ai"),
    "@ai-sdk/togetherai": AdapterPackage(CHAT, "https://api.together.xyz/v1"),
    "@ai-sdk/vercel": AdapterPackage(CHAT, "https://api.v0.dev/v1"),
    "@ai-sdk/xai": AdapterPackage(CHAT, "https://api.x.ai/v1"),
    "@aihubmix/ai-sdk-provider": AdapterPackage(CHAT, "https://aihubmix.com/v1"),
    "@openrouter/ai-sdk-provider": AdapterPackage(CHAT, "https://openrouter.ai/api/v1"),
    "venice-ai-sdk-provider": AdapterPackage(CHAT, "https://api.venice.ai/api/v1"),
}

# Servers that run on the user's own machine. They need no key, and only they know their models.
LOCAL_SERVERS: Final[Mapping[str, str]] = {
    "ollama": "http://127.0.0.1:11434/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
    "llamacpp": "http://127.0.0.1:8080/v1",
    "vllm": "http://127.0.0.1:8000/v1",
}


# Variables with the name of the Azure resource; the option `resourceName` has the same meaning.
AZURE_RESOURCE_VARIABLES: Final = ("AZURE_RESOURCE_NAME", "AZURE_COGNITIVE_SERVICES_RESOURCE_NAME")
SPECIAL_URLS: Final = {
    "azure-cognitive-services": "https://${AZURE_COGNITIVE_SERVICES_RESOURCE_NAME}.cognitiveservices.azure.com/openai"
}

_HOST_LABEL: Final = r"[A-Za-z0-9-]{1,64}"


def get_npm_override(provider: str) -> str:
    """Return the package of a provider that the catalogue lists under a wrong one, or ""."""
    return COPILOT if provider.startswith("github-copilot") else ""


def needs_address(npm: str) -> bool:
    """Return True if the package needs an address: pydantic-ai knows its providers' addresses."""
    return npm != PYDANTIC_AI


def resolve_variables(npm: str, options: Options, env: Env) -> dict[str, str]:
    """Return the variables for addresses: the environment, with those that options or AWS files define.

    Raise `InvalidInputError` if a name is not a plain host label: it would send the key to another address.
    """
    variables = dict(env)
    if npm == BEDROCK:
        variables["AWS_REGION"] = _check_host_label("region", choose_region(options, env))
    if options.get("resourceName"):
        variables |= dict.fromkeys(
            AZURE_RESOURCE_VARIABLES, _check_host_label("resourceName", str(options["resourceName"]))
        )
    return variables


def _check_host_label(option: str, value: str) -> str:
    if not re.fullmatch(_HOST_LABEL, value):
        raise InvalidInputError(
            f"options.{option}", f"{value[:40]!r} may contain only letters, digits and hyphens"
        )
    return value


def add_region(npm: str, options: dict[str, Any], variables: Env) -> dict[str, Any]:
    """Return the options with the AWS region, which the adapter cannot find by itself."""
    return {**options, "region": variables["AWS_REGION"]} if npm == BEDROCK else options


def find_cloud_key(
    npm: str, variables: tuple[str, ...], options: Options, env: Env, *, files: bool
) -> ProviderKey | None:
    """Return the key from the environment. With `files`, keys in the AWS files count, too."""
    if npm == BEDROCK:
        return find_aws_key(options, env, files=files)
    return find_environment_key(variables, env)


def list_key_names(npm: str, variables: tuple[str, ...]) -> list[str]:
    """Return what to set to provide a key; any of them is enough."""
    return list(AWS_KEY_SOURCES) if npm == BEDROCK else list_key_variables(variables)


def find_signer(npm: str, provider: str, options: Options, env: Env) -> Callable[[], AwsKeys] | None:
    """Return a function that returns the current AWS keys; None for packages that do not sign requests."""
    return partial(get_aws_keys, provider, options, env) if npm == BEDROCK else None
