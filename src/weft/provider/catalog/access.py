"""How to reach a model: adapter, address, key, region and headers, or what is missing; cloud providers included."""

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
from weft.provider.catalog.credentials import Key, key_from_environment, key_variables
from weft.provider.endpoint import AwsKeys

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


DEFAULT_REGION: Final = "us-east-1"
# Names that say already which regions may answer; and ARNs, which say it all.
PLACED: Final = ("global.", "us.", "us-gov.", "eu.", "apac.", "jp.", "au.", "ca.", "sa.", "arn:")
AMERICAN: Final = ("nova-micro", "nova-lite", "nova-pro", "nova-premier", "nova-2", "claude", "deepseek")
EUROPEAN: Final = ("claude", "nova-lite", "nova-micro", "llama3", "pixtral")
ASIAN: Final = ("claude", "nova-lite", "nova-micro", "nova-pro")
AUSTRALIAN: Final = ("anthropic.claude-sonnet-4-5", "anthropic.claude-haiku")
EUROPE: Final = (
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "eu-north-1",
    "eu-central-1",
    "eu-south-1",
    "eu-south-2",
)
AUSTRALIA: Final = ("ap-southeast-2", "ap-southeast-4")
TOKYO: Final = "ap-northeast-1"


def placed_id(id: str, region: str) -> str:
    """A model's id with the prefix of the regions that share it, where it is served only so."""
    if id.startswith(PLACED):
        return id
    prefix = _prefix(id, region)
    return f"{prefix}.{id}" if prefix else id


def _prefix(id: str, region: str) -> str:
    if region.startswith("us-") and not region.startswith("us-gov"):
        return "us" if _names(id, AMERICAN) else ""
    if region in EUROPE:
        return "eu" if _names(id, EUROPEAN) else ""
    if not region.startswith("ap-"):
        return ""
    if region in AUSTRALIA and _names(id, AUSTRALIAN):
        return "au"
    if not _names(id, ASIAN):
        return ""
    return "jp" if region == TOKYO else "apac"


def _names(id: str, families: tuple[str, ...]) -> bool:
    return any(family in id for family in families)


BEARER: Final = "AWS_BEARER_TOKEN_BEDROCK"
KEY_ID: Final = "AWS_ACCESS_KEY_ID"
SECRET: Final = "AWS_SECRET_ACCESS_KEY"
PROFILE: Final = "AWS_PROFILE"
WAYS: Final = (BEARER, f"{KEY_ID} and {SECRET}", PROFILE)
MAX_BYTES: Final = 1024 * 1024
# Ways to sign in that Amazon's own command walks for us.
ELSEWHERE: Final = ("sso_session", "sso_start_url", "role_arn", "credential_process", "login_session")

Options = Mapping[str, Any]
Env = Mapping[str, str]


def find_aws_key(options: Options, env: Env, *, files: bool) -> Key | None:
    """A bearer token; else a key without a secret, which says that requests are signed, and by what.

    With `files`, the default profile counts, too: keys that are there for everything do not mean Bedrock by themselves.
    """
    if env.get(BEARER, "").strip():
        return Key(secret=env[BEARER].strip(), source="environment", variable=BEARER)
    if options.get("accessKeyId") or options.get("profile"):
        return Key(secret="", source="config")
    named = next((name for name in (PROFILE, KEY_ID) if env.get(name)), "")
    if not named and files and "aws_access_key_id" in _read_profile(options, env):
        named = PROFILE
    return Key(secret="", source="environment", variable=named) if named else None


def find_region(options: Options, env: Env) -> str:
    """The configured one first, as OpenCode has it; the profile's before the last resort, as Amazon's tools have it."""
    told = options.get("region") or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    if told:
        return str(told)
    named = options.get("profile") or env.get(PROFILE)
    return (_read_profile(options, env).get("region") if named else None) or DEFAULT_REGION


def get_keys(provider: str, options: Options, env: Env) -> AwsKeys:
    """The keys to sign with now. Raises `ProviderAuthError` and says what to set."""
    profile = _profile(options, env)
    if options.get("accessKeyId") and options.get("secretAccessKey"):
        return AwsKeys(
            id=options["accessKeyId"],
            secret=options["secretAccessKey"],
            token=options.get("sessionToken") or "",
        )
    if env.get(KEY_ID) and env.get(SECRET) and not options.get("profile"):
        return AwsKeys(id=env[KEY_ID], secret=env[SECRET], token=env.get("AWS_SESSION_TOKEN", ""))
    found = _read_profile(options, env)
    id, secret = found.get("aws_access_key_id"), found.get("aws_secret_access_key")
    if id and secret:
        return AwsKeys(id=id, secret=secret, token=found.get("aws_session_token", ""))
    if any(name in found for name in ELSEWHERE):
        command = f'eval "$(aws configure export-credentials --profile {profile} --format env)"'
        said = f"the profile {profile!r} has no keys but a way to get them, which weft does not walk; run: {command}"
        raise ProviderAuthError(provider, said)
    raise ProviderAuthError(provider, f"no keys in the profile {profile!r}: set {', or '.join(WAYS)}")


# --- the files ---


def _profile(options: Options, env: Env) -> str:
    return options.get("profile") or env.get(PROFILE) or "default"


def _read_profile(options: Options, env: Env) -> dict[str, str]:
    """What both files say of the profile; the one for keys has the last word."""
    profile, home = _profile(options, env), env.get("HOME") or os.devnull
    config = env.get("AWS_CONFIG_FILE") or os.path.join(home, ".aws", "config")
    keys = env.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.join(home, ".aws", "credentials")
    named = profile if profile == "default" else f"profile {profile}"
    return {**_read(config, named), **_read(keys, profile)}


def _read(path: str, section: str) -> dict[str, str]:
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


class Package(NamedTuple):
    """`adapter` is `module:class` in `weft.provider`, imported when a model is used; `url` where nothing says else."""

    adapter: str
    url: str = ""


RESPONSES: Final = "openai_responses.adapter:OpenAIResponses"
CHAT: Final = "openai_chat.adapter:OpenAIChat"
ANTHROPIC: Final = "anthropic.adapter:AnthropicMessages"
GEMINI: Final = "gemini.adapter:Gemini"

AZURE: Final = "@ai-sdk/azure"
BEDROCK: Final = "@ai-sdk/amazon-bedrock"
COPILOT: Final = "@ai-sdk/github-copilot"
LONG_TAIL: Final = "pydantic-ai"

COMPATIBLE: Final = "@ai-sdk/openai-compatible"

PACKAGES: Final[Mapping[str, Package]] = {
    "@ai-sdk/anthropic": Package(ANTHROPIC, "https://api.anthropic.com/v1"),
    "@ai-sdk/openai": Package(RESPONSES, "https://api.openai.com/v1"),
    AZURE: Package("azure:AzureOpenAI", "https://${AZURE_RESOURCE_NAME}.openai.azure.com/openai"),
    BEDROCK: Package("bedrock.adapter:Bedrock", "https://bedrock-runtime.${AWS_REGION}.amazonaws.com"),
    COPILOT: Package("copilot:Copilot", "https://api.githubcopilot.com"),
    LONG_TAIL: Package("pydantic_ai.adapter:LongTail"),
    "@ai-sdk/google": Package(GEMINI, "https://generativelanguage.googleapis.com/v1beta"),
    COMPATIBLE: Package(CHAT),
    "@ai-sdk/cerebras": Package(CHAT, "https://api.cerebras.ai/v1"),
    "@ai-sdk/cohere": Package(CHAT, "https://api.cohere.ai/compatibility/v1"),
    "@ai-sdk/deepinfra": Package(CHAT, "https://api.deepinfra.com/v1/openai"),
    "@ai-sdk/deepseek": Package(CHAT, "https://api.deepseek.com"),
    "@ai-sdk/fireworks": Package(CHAT, "https://api.fireworks.ai/inference/v1"),
    "@ai-sdk/gateway": Package(CHAT, "https://ai-gateway.vercel.sh/v1"),
    "@ai-sdk/groq": Package(CHAT, "https://api.groq.com/openai/v1"),
    "@ai-sdk/mistral": Package(CHAT, "https://api.mistral.ai/v1"),
    "@ai-sdk/perplexity": Package(CHAT, "https://api.perplexity.ai"),
    "@ai-sdk/togetherai": Package(CHAT, "https://api.together.xyz/v1"),
    "@ai-sdk/vercel": Package(CHAT, "https://api.v0.dev/v1"),
    "@ai-sdk/xai": Package(CHAT, "https://api.x.ai/v1"),
    "@aihubmix/ai-sdk-provider": Package(CHAT, "https://aihubmix.com/v1"),
    "@openrouter/ai-sdk-provider": Package(CHAT, "https://openrouter.ai/api/v1"),
    "venice-ai-sdk-provider": Package(CHAT, "https://api.venice.ai/api/v1"),
}

# Servers that people run on their own machine: they need no key, and only they know their models.
LOCAL: Final[Mapping[str, str]] = {
    "ollama": "http://127.0.0.1:11434/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
    "llamacpp": "http://127.0.0.1:8080/v1",
    "vllm": "http://127.0.0.1:8000/v1",
}


# Variables that say where Azure's server is; the option `resourceName` says the same.
RESOURCES: Final = ("AZURE_RESOURCE_NAME", "AZURE_COGNITIVE_SERVICES_RESOURCE_NAME")
URLS: Final = {
    "azure-cognitive-services": "https://${AZURE_COGNITIVE_SERVICES_RESOURCE_NAME}.cognitiveservices.azure.com/openai"
}

_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


def own_npm(provider: str) -> str:
    """The package of a provider that the catalogue files under another; empty if it is right there."""
    return COPILOT if provider.startswith("github-copilot") else ""


def has_address(npm: str) -> bool:
    """Whether an address is needed: pydantic-ai knows those of the providers it speaks to."""
    return npm != LONG_TAIL


def settings(npm: str, options: Options, env: Env) -> dict[str, str]:
    """The variables of an address that the options say, or that are found elsewhere.

    Raises `InvalidInputError` for a name that is more than one: it would lead the key to another address.
    """
    found = dict(env)
    if npm == BEDROCK:
        found["AWS_REGION"] = _name("region", find_region(options, env))
    if options.get("resourceName"):
        found |= dict.fromkeys(RESOURCES, _name("resourceName", str(options["resourceName"])))
    return found


def _name(option: str, given: str) -> str:
    if not _NAME.fullmatch(given):
        raise InvalidInputError(
            f"options.{option}", f"{given[:40]!r} is no name: letters, digits and hyphens make one"
        )
    return given


def with_region(npm: str, options: dict[str, Any], known: Env) -> dict[str, Any]:
    """The options for an adapter, which has no other way to know where Amazon is asked."""
    return {**options, "region": known["AWS_REGION"]} if npm == BEDROCK else options


def find_cloud_key(
    npm: str, variables: tuple[str, ...], options: Options, env: Env, *, files: bool
) -> Key | None:
    """The key of the environment. With `files`, those that lie on the disk count, too."""
    if npm == BEDROCK:
        return find_aws_key(options, env, files=files)
    return key_from_environment(variables, env)


def key_names(npm: str, variables: tuple[str, ...]) -> list[str]:
    """What to set so that there is a key, any of them."""
    return list(WAYS) if npm == BEDROCK else key_variables(variables)


def find_signer(npm: str, provider: str, options: Options, env: Env) -> Callable[[], AwsKeys] | None:
    return partial(get_keys, provider, options, env) if npm == BEDROCK else None
