"""The TOML file of OpenCode's earliest versions."""

import re
import tomllib
from typing import Any

from weft.errors import ConfigError

_PLACE = re.compile(r"at line (\d+), column (\d+)")


def from_toml(path: str, text: str) -> dict[str, Any]:
    """What a TOML configuration says, in today's keys. Raises `ConfigError`.

    OpenCode rewrites it as `config.json` and deletes it. We read it where it lies, and leave a person's files alone.
    """
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        place = _PLACE.search(str(error))
        at = (int(place[1]), int(place[2])) if place else (0, 0)
        # Its own text may quote the file.
        raise ConfigError(path, "not TOML", at=at) from None
    provider, model = found.pop("provider", None), found.pop("model", None)
    if isinstance(provider, str) and isinstance(model, str):
        found["model"] = f"{provider}/{model}"
    return found
