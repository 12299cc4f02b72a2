"""Configuration that an organisation publishes for those who logged in to it, at `/.well-known/opencode`."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from weft.config.jsonc import Document
from weft.config.layer import Layer, Origin, Problems, make_layer, read_text
from weft.config.substitute import resolver
from weft.errors import ConfigError, WeftError

# Gives the body of a URL that answered with success. Raises `OSError` or `WeftError` for anything else.
Fetch = Callable[[str], bytes]


class Login(Struct, frozen=True):
    """`token` is what the variable `key` is to hold for what this organisation configures."""

    url: str
    key: str
    token: str


def list_logins(auth_file: str, problems: Problems) -> list[Login]:
    """The organisations logged in to, as the credentials file lists them."""
    try:
        text = read_text(auth_file)
    except ConfigError as error:
        problems.errors.append(error)
        return []
    try:
        entries = json.loads(text) if text and text.strip() else {}
    except (ValueError, RecursionError):
        # Never with the parser's words: this file is all secrets.
        problems.errors.append(ConfigError(auth_file, "not JSON"))
        return []
    found = entries.items() if isinstance(entries, dict) else ()
    return [login for url, entry in found if (login := _to_login(url, entry)) is not None]


def _to_login(url: str, entry: Any) -> Login | None:
    match entry:
        case {"type": "wellknown", "key": str(key), "token": str(token)}:
            return Login(url.rstrip("/"), key, token)
        case _:
            return None


def fetch_layer(
    login: Login, fetch: Fetch | None, env: Mapping[str, str], problems: Problems
) -> Layer | None:
    """What an organisation configures. OpenCode does not start if one does not answer; we note it and go on."""
    url = f"{login.url}/.well-known/opencode"
    origin = Origin(kind="well-known", path=url, own=True)
    if fetch is None:
        problems.warnings.append(ConfigError(url, "not fetched"))
        return None
    try:
        document = Document(url, _config_of(url, fetch(url)), resolver(env, directory=None, home=""))
    except ConfigError as error:
        problems.errors.append(error)
        return None
    except (OSError, WeftError) as error:
        problems.errors.append(ConfigError(url, f"did not answer ({type(error).__name__})"))
        return None
    problems.note(origin, None, document.findings)
    return make_layer(origin, document.value, None, problems)


def _config_of(url: str, body: bytes) -> str:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise ConfigError(url, "the answer is not JSON") from None
    return json.dumps(answer.get("config") or {}) if isinstance(answer, dict) else "{}"
