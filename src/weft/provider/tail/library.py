"""pydantic-ai, which speaks to providers that we do not: found when it is needed, and told what it needs to know."""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from weft.errors import InvalidInputError, ProviderAuthError
from weft.provider.endpoint import Endpoint
from weft.provider.offer.access import missing_key

EXTRA: Final = 'pip install "weft[pydantic-ai]"'
NAMED: Final = 'name the provider and the model as pydantic-ai does: "groq:llama-3.3-70b-versatile"'
_KEY: Final = re.compile(r"\b[A-Z][A-Z0-9_]*_(?:KEY|TOKEN)\b")


class Library:
    """The parts of pydantic-ai we use. Importing it takes about a second: nobody pays for it who does not use it."""

    def __init__(self, provider: str) -> None:
        try:
            self.direct: Any = import_module("pydantic_ai.direct")
        except ImportError as error:
            raise InvalidInputError(
                f"provider.{provider}.npm", "pydantic-ai is not installed", hint=f"run: {EXTRA}"
            ) from error
        self.messages: Any = import_module("pydantic_ai.messages")
        self.models: Any = import_module("pydantic_ai.models")
        self.tools: Any = import_module("pydantic_ai.tools")
        self.errors: Any = import_module("pydantic_ai.exceptions")
        self._providers: Any = import_module("pydantic_ai.providers")

    def get_model(self, name: str, endpoint: Endpoint) -> Any:
        """A model by the name pydantic-ai has for it, `mistral:mistral-large-latest`; the key and the address are ours
        where we have them, else it looks for its own."""
        where = f"provider.{endpoint.provider_id}"
        try:
            return self.models.infer_model(name, provider_factory=self._maker(endpoint))
        except ImportError as error:
            raise InvalidInputError(
                f"{where}.options.model", f"{name!r} needs one more package", hint=str(error)
            ) from error
        except self.errors.UserError as error:
            keyless = find_missing_key(error, endpoint.provider_id)
            raise keyless or InvalidInputError(f"{where}.options.model", str(error), hint=NAMED) from error
        except (ValueError, TypeError) as error:
            raise InvalidInputError(f"{where}.options", f"pydantic-ai does not take them: {error}") from error

    def _maker(self, endpoint: Endpoint) -> Callable[[str], Any]:
        given = {
            name: value
            for name, value in (("api_key", endpoint.api_key), ("base_url", endpoint.base_url))
            if value
        }

        def make(provider: str) -> Any:
            try:
                found = self._providers.infer_provider_class(provider)
            except ValueError as error:
                raise self.errors.UserError(str(error)) from error
            return found(**given)

        return make


def find_missing_key(error: Exception, provider: str) -> ProviderAuthError | None:
    """What to set, where pydantic-ai complains of a key that is not there. It names the variable among much else."""
    names = list(dict.fromkeys(_KEY.findall(str(error))))
    return missing_key(provider, names, stored="") if names else None
