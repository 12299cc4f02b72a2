"""Amazon's regions and keys: which prefix a Bedrock model needs, and where AWS keys are configured."""

import os
from collections.abc import Mapping
from typing import Any, Final

from weft.errors import ProviderAuthError
from weft.host.files import read_bytes
from weft.provider.catalog.credentials import ProviderKey
from weft.provider.endpoint import AwsKeys

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
MAX_AWS_FILE_BYTES: Final = 1024 * 1024
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
    """Return a bearer token, or a key with an empty secret, which means that requests are signed; None if there is none.

    With `files`, keys in the default profile count, too. They serve many purposes: a user who has them
    need not want Bedrock.
    """
    if env.get(AWS_BEARER, "").strip():
        return ProviderKey(secret=env[AWS_BEARER].strip(), source="environment", variable=AWS_BEARER)
    if options.get("accessKeyId") or options.get("profile"):
        return ProviderKey(secret="", source="config")
    variable = next((name for name in (AWS_PROFILE, AWS_KEY_ID) if env.get(name)), "")
    if not variable and files and "aws_access_key_id" in _read_profile(options, env):
        variable = AWS_PROFILE
    return ProviderKey(secret="", source="environment", variable=variable) if variable else None


def choose_region(options: Options, env: Env) -> str:
    """Return the configured region, as OpenCode does, else the profile's, as Amazon's tools do, else the default."""
    region = options.get("region") or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    if region:
        return str(region)
    profile = options.get("profile") or env.get(AWS_PROFILE)
    return (_read_profile(options, env).get("region") if profile else None) or DEFAULT_REGION


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
    section = _read_profile(options, env)
    id, secret = section.get("aws_access_key_id"), section.get("aws_secret_access_key")
    if id and secret:
        return AwsKeys(id=id, secret=secret, token=section.get("aws_session_token", ""))
    if any(name in section for name in INDIRECT_CREDENTIALS):
        command = f'eval "$(aws configure export-credentials --profile {profile} --format env)"'
        message = f"the profile {profile!r} needs Amazon's command to get its keys; run: {command}"
        raise ProviderAuthError(provider, message)
    raise ProviderAuthError(
        provider, f"no keys in the profile {profile!r}: set {', or '.join(AWS_KEY_SOURCES)}"
    )


def _get_profile_name(options: Options, env: Env) -> str:
    return options.get("profile") or env.get(AWS_PROFILE) or "default"


def _read_profile(options: Options, env: Env) -> dict[str, str]:
    """Return the settings of the profile from both files. The credentials file wins."""
    profile, home = _get_profile_name(options, env), env.get("HOME") or os.devnull
    config = env.get("AWS_CONFIG_FILE") or os.path.join(home, ".aws", "config")
    credentials = env.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.join(home, ".aws", "credentials")
    section = profile if profile == "default" else f"profile {profile}"
    return {**_read_section(config, section), **_read_section(credentials, profile)}


def _read_section(path: str, section: str) -> dict[str, str]:
    try:
        text = read_bytes(path, limit=MAX_AWS_FILE_BYTES).decode(errors="replace")
    except OSError:
        return {}
    values: dict[str, str] = {}
    is_in_section = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            is_in_section = " ".join(line.strip("[]").split()) == section
        elif is_in_section and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            values[name.strip().lower()] = value.strip()
    return values
