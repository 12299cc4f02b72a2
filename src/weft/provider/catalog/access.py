"""How to reach a model: its adapter, address, key, region and headers, or an error that says what is missing."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from weft.errors import InvalidInputError, ProviderAuthError
from weft.host.files import read_bytes
from weft.provider.catalog.credentials import ProviderKey, find_environment_key, list_key_variables
from weft.provider.endpoint import AwsKeys

_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
_AUTHORISING_HEADER: Final = re.compile(r"authorization|api-?key|token|cookie", re.IGNORECASE)
# These options are in other fields of an `Access`, or are not for adapters.
CONSUMED_OPTIONS: Final = frozenset({"apiKey", "baseURL", "endpoint", "headers"})
FEW_VARIABLES: Final = 2


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
    def key_from(self) -> str:
        """Say where the key came from, as a hint for the error if it is refused."""
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

    def value(found: re.Match[str]) -> str:
        if not env.get(found[1]):
            raise ProviderAuthError(provider, f"its address is unknown: set {found[1]}")
        return env[found[1]]

    return _VARIABLE.sub(value, url).rstrip("/").removesuffix("/chat/completions")


def check_url(url: str, provider: str) -> None:
    """Raise `InvalidInputError` if a URL is missing or not an HTTP address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        reason = f"{redact_url(url)!r} is not an HTTP address" if url else "is not set"
        raise InvalidInputError(
            f"provider.{provider}.options.baseURL", reason, hint='write it like "http://127.0.0.1:8080/v1"'
        )


def needs_key(url: str, names: Sequence[str], headers: Mapping[str, str]) -> bool:
    """Return True if a request without a key is pointless: not for a local server, and not if a header authorises it."""
    return bool(names) and not is_loopback(url) and not any(map(_AUTHORISING_HEADER.search, headers))


def make_missing_key_error(provider: str, variables: Sequence[str], *, stored: str) -> ProviderAuthError:
    """Make an error that says how to provide a key. Any of `variables` would hold one."""
    names = ", or ".join(variables) if len(variables) > FEW_VARIABLES else " or ".join(variables) or "its key"
    login = f"run: weft auth login {provider}"
    if stored:
        message = f"weft cannot use the stored login of type {stored!r}: set {names}, or {login}"
        return ProviderAuthError(provider, message)
    return ProviderAuthError(provider, f"no key: set {names}, or {login}")


def is_loopback(url: str) -> bool:
    """Return True if a URL leads to this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def redact_url(url: str) -> str:
    """Return a URL without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.netloc else url


DEFAULT_REGION: Final = "us-east-1"
# Ids that name their regions already, and ARNs.
REGION_PREFIXES: Final = ("global.", "us.", "us-gov.", "eu.", "apac.", "jp.", "au.", "ca.", "sa.", "arn:")
US_FAMILIES: Final = ("nova-micro", "nova-lite", "nova-pro", "nova-premier", "nova-2", "claude", "deepseek")
EU_FAMILIES: Final = ("claude", "nova-lite", "nova-micro", "llama3", "pixtral")
APAC_FAMILIES: Final = ("claude", "nova-lite", "nova-micro", "nova-pro")
AU_FAMILIES: Final = ("anthropic.claude-sonnet-4-5", "anthropic.claude-haiku")
EU_REGIONS: Final = (
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "eu-north-1",
    "eu-central-1",
    "eu-south-1",
    "eu-south-2",
)
AU_REGIONS: Final = ("ap-southeast-2", "ap-southeast-4")
TOKYO_REGION: Final = "ap-northeast-1"


def add_region_prefix(id: str, region: str) -> str:
    """Return a model's id with the prefix of its region group, if the model is served only under one."""
    if id.startswith(REGION_PREFIXES):
        return id
    prefix = _find_region_prefix(id, region)
    return f"{prefix}.{id}" if prefix else id


def _find_region_prefix(id: str, region: str) -> str:
    if region.startswith("us-") and not region.startswith("us-gov"):
        return "us" if _is_in_family(id, US_FAMILIES) else ""
    if region in EU_REGIONS:
        return "eu" if _is_in_family(id, EU_FAMILIES) else ""
    if not region.startswith("ap-"):
        return ""
    if region in AU_REGIONS and _is_in_family(id, AU_FAMILIES):
        return "au"
    if not _is_in_family(id, APAC_FAMILIES):
        return ""
    return "jp" if region == TOKYO_REGION else "apac"


def _is_in_family(id: str, families: tuple[str, ...]) -> bool:
    return any(family in id for family in families)


AWS_BEARER: Final = "AWS_BEARER_TOKEN_BEDROCK"
AWS_KEY_ID: Final = "AWS_ACCESS_KEY_ID"
AWS_SECRET: Final = "AWS_SECRET_ACCESS_KEY"
AWS_PROFILE: Final = "AWS_PROFILE"
AWS_KEY_SOURCES: Final = (AWS_BEARER, f"{AWS_KEY_ID} and {AWS_SECRET}", AWS_PROFILE)
MAX_BYTES: Final = 1024 * 1024
# Ways to sign in that only Amazon's own command supports.
INDIRECT_CREDENTIALS: Final = (
    "sso_session",
    "sso_start_url",
    "role_arn",
    "credential_process",
    "login_session",
)

Options = Mapping[str, Any]
Env = Mapping[str, str]


def find_aws_key(options: Options, env: Env, *, files: bool) -> ProviderKey | None:
    """Return a bearer token, or a key without a secret, which means that requests are signed.

    With `files`, keys in the default profile count, too. They serve many purposes, so by themselves they do not mean
    Bedrock.
    """
    if env.get(AWS_BEARER, "").strip():
        return ProviderKey(secret=env[AWS_BEARER].strip(), source="environment", variable=AWS_BEARER)
    if options.get("accessKeyId") or options.get("profile"):
        return ProviderKey(secret="", source="config")
    named = next((name for name in (AWS_PROFILE, AWS_KEY_ID) if env.get(name)), "")
    if not named and files and "aws_access_key_id" in _read_profile(options, env):
        named = AWS_PROFILE
    return ProviderKey(secret="", source="environment", variable=named) if named else None


def find_region(options: Options, env: Env) -> str:
    """Return the region: the configured one first, as in OpenCode; then the profile's, as in Amazon's tools; then the
    default.
    """
    region = options.get("region") or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    if region:
        return str(region)
    named = options.get("profile") or env.get(AWS_PROFILE)
    return (_read_profile(options, env).get("region") if named else None) or DEFAULT_REGION


def get_aws_keys(provider: str, options: Options, env: Env) -> AwsKeys:
    """Return the keys to sign with now. Raise `ProviderAuthError` that says what to set."""
    profile = _get_profile_name(options, env)
    if options.get("accessKeyId") and options.get("secretAccessKey"):
        return AwsKeys(
            id=options["accessKeyId"],
            secret=options["secretAccessKey"],
            token=options.get("sessionToken") or "",
        )
    if env.get(AWS_KEY_ID) and env.get(AWS_SECRET) and not options.get("profile"):
        return AwsKeys(id=env[AWS_KEY_ID], secret=env[AWS_SECRET], token=env.get("AWS_SESSION_TOKEN", ""))
    found = _read_profile(options, env)
    id, secret = found.get("aws_access_key_id"), found.get("aws_secret_access_key")
    if id and secret:
        return AwsKeys(id=id, secret=secret, token=found.get("aws_session_token", ""))
    if any(name in found for name in INDIRECT_CREDENTIALS):
        command = f'eval "$(aws configure export-credentials --profile {profile} --format env)"'
        message = f"the profile {profile!r} needs Amazon's command to get its keys; run: {command}"
        raise ProviderAuthError(provider, message)
    raise ProviderAuthError(
        provider, f"no keys in the profile {profile!r}: set {', or '.join(AWS_KEY_SOURCES)}"
    )


# --- AWS files ---


def _get_profile_name(options: Options, env: Env) -> str:
    return options.get("profile") or env.get(AWS_PROFILE) or "default"


def _read_profile(options: Options, env: Env) -> dict[str, str]:
    """Return the settings of the profile from both files. The credentials file wins."""
    profile, home = _get_profile_name(options, env), env.get("HOME") or os.devnull
    config = env.get("AWS_CONFIG_FILE") or os.path.join(home, ".aws", "config")
    keys = env.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.join(home, ".aws", "credentials")
    named = profile if profile == "default" else f"profile {profile}"
    return {**_read_section(config, named), **_read_section(keys, profile)}


def _read_section(path: str, section: str) -> dict[str, str]:
    try:
        text = read_bytes(path, limit=MAX_BYTES).decode(errors="replace")
    except OSError:
        return {}
    found: dict[str, str] = {}
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = " ".join(line.strip("[]").split()) == section
        elif inside and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            found[name.strip().lower()] = value.strip()
    return found


class AdapterPackage(NamedTuple):
    """`adapter` is `module:class` in `weft.provider`, imported when a model is used. `url` is the default address."""

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

_HOST_LABEL: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


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
    found = dict(env)
    if npm == BEDROCK:
        found["AWS_REGION"] = _check_name("region", find_region(options, env))
    if options.get("resourceName"):
        found |= dict.fromkeys(
            AZURE_RESOURCE_VARIABLES, _check_name("resourceName", str(options["resourceName"]))
        )
    return found


def _check_name(option: str, given: str) -> str:
    if not _HOST_LABEL.fullmatch(given):
        raise InvalidInputError(
            f"options.{option}", f"{given[:40]!r} may contain only letters, digits and hyphens"
        )
    return given


def add_region(npm: str, options: dict[str, Any], known: Env) -> dict[str, Any]:
    """Return the options with the AWS region, which the adapter cannot find by itself."""
    return {**options, "region": known["AWS_REGION"]} if npm == BEDROCK else options


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
    return partial(get_aws_keys, provider, options, env) if npm == BEDROCK else None
