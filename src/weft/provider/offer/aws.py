"""Amazon's keys: as configured, from the environment, or from the profile that Amazon's own tools keep."""

import os
from collections.abc import Mapping
from typing import Any, Final

from weft.errors import ProviderAuthError
from weft.host.files import read_bytes
from weft.provider.converse.region import DEFAULT_REGION
from weft.provider.endpoint import AwsKeys
from weft.provider.offer.credentials import Key

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


def find_key(options: Options, env: Env, *, files: bool) -> Key | None:
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
