"""Clouds: what it takes to reach providers that want more than an address and a key."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from weft.errors import InvalidInputError
from weft.provider.endpoint import AwsKeys
from weft.provider.offer import aws
from weft.provider.offer.credentials import Key, key_from_environment, key_variables
from weft.provider.offer.packages import BEDROCK, COPILOT, LONG_TAIL

# Variables that say where Azure's server is; the option `resourceName` says the same.
RESOURCES: Final = ("AZURE_RESOURCE_NAME", "AZURE_COGNITIVE_SERVICES_RESOURCE_NAME")
URLS: Final = {
    "azure-cognitive-services": "https://${AZURE_COGNITIVE_SERVICES_RESOURCE_NAME}.cognitiveservices.azure.com/openai"
}

_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,64}")

Options = Mapping[str, Any]
Env = Mapping[str, str]


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
        found["AWS_REGION"] = _name("region", aws.find_region(options, env))
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


def find_key(npm: str, variables: tuple[str, ...], options: Options, env: Env, *, files: bool) -> Key | None:
    """The key of the environment. With `files`, those that lie on the disk count, too."""
    if npm == BEDROCK:
        return aws.find_key(options, env, files=files)
    return key_from_environment(variables, env)


def key_names(npm: str, variables: tuple[str, ...]) -> list[str]:
    """What to set so that there is a key, any of them."""
    return list(aws.WAYS) if npm == BEDROCK else key_variables(variables)


def find_signer(npm: str, provider: str, options: Options, env: Env) -> Callable[[], AwsKeys] | None:
    return partial(aws.get_keys, provider, options, env) if npm == BEDROCK else None
