"""GitHub Copilot: OpenAI's APIs with additional headers and explained errors."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from msgspec.structs import replace

from weft.errors import ProviderError
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest, UserModelMessage
from weft.provider.endpoint import ModelEndpoint
from weft.provider.http_client import HttpClient
from weft.provider.media import find_modality, list_files
from weft.provider.openai_chat.adapter import OpenAIChat
from weft.provider.openai_responses.adapter import OpenAIResponses

FORBIDDEN: Final = 403
SETTINGS_URL: Final = "https://github.com/settings/copilot/features"
UNSUPPORTED_MESSAGE: Final = "The requested model is not supported"
_GPT_VERSION: Final = re.compile(r"gpt-(\d+)")
FIRST_GPT_WITH_RESPONSES: Final = 5


class Copilot:
    """Provider for Copilot through the OpenAI API that fits the model. The login's token is sent as a bearer token."""

    def __init__(self, client: HttpClient, endpoint: ModelEndpoint) -> None:
        self._chat = OpenAIChat(client, endpoint)
        self._responses = OpenAIResponses(client, endpoint)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        adapter = self._responses if uses_responses_api(request.model.api.id) else self._chat
        headers = build_headers(request) | request.parameters.headers
        request = replace(request, parameters=replace(request.parameters, headers=headers))
        try:
            async with aclosing(adapter.stream(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ProviderError as error:
            raise explain_error(error) from error


def uses_responses_api(id: str) -> bool:
    """Return True for GPT-5 and later models, except gpt-5-mini."""
    version = _GPT_VERSION.match(id)
    return (
        version is not None
        and int(version[1]) >= FIRST_GPT_WITH_RESPONSES
        and not id.startswith("gpt-5-mini")
    )


def build_headers(request: ModelRequest) -> dict[str, str]:
    """Return headers that say who sent the last message and whether there are images. Copilot bills only messages of
    users.
    """
    last = request.messages[-1] if request.messages else None
    vision = {"copilot-vision-request": "true"} if _has_image(request) else {}
    return {
        "x-initiator": "user" if isinstance(last, UserModelMessage) else "agent",
        "openai-intent": "conversation-edits",
        **vision,
    }


def _has_image(request: ModelRequest) -> bool:
    files = [file for message in request.messages for file in list_files(message)]
    return any(find_modality(file.mime) == "image" for file in files)


def explain_error(error: ProviderError) -> ProviderError:
    """Return the error with a message that says what to do about it. Return other errors as they are."""
    message = str(error)
    if error.status == FORBIDDEN:
        message = "Copilot refuses this login: sign in to GitHub Copilot again and store the new login"
    elif UNSUPPORTED_MESSAGE in message:
        message = f"{message}\n\nIt may have to be enabled for your account: {SETTINGS_URL}"
    else:
        return error
    explained = ProviderError(
        message, status=error.status, retryable=error.retryable, headers=error.headers, body=error.body
    )
    explained.kind, explained.wait_ms = error.kind, error.wait_ms
    return explained
