"""GitHub Copilot: OpenAI's APIs, with headers of its own and refusals that need a word of explanation."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import httpx2
from msgspec.structs import replace

from weft.errors import ProviderError
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest, UserTurn
from weft.provider.endpoint import Endpoint
from weft.provider.media import files_of, modality
from weft.provider.openai_chat.adapter import OpenAIChat
from weft.provider.openai_responses.adapter import OpenAIResponses

FORBIDDEN: Final = 403
SETTINGS: Final = "https://github.com/settings/copilot/features"
UNSUPPORTED: Final = "The requested model is not supported"
_GPT: Final = re.compile(r"gpt-(\d+)")
FIRST_NEWER: Final = 5


class Copilot:
    """Copilot over either of OpenAI's APIs, as the model wants it. The token of a login goes as a bearer token."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: Endpoint) -> None:
        self._chat = OpenAIChat(client, endpoint)
        self._responses = OpenAIResponses(client, endpoint)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        adapter = self._responses if speaks_responses(request.model.api.id) else self._chat
        asked = request.parameters
        headers = own_headers(request) | asked.headers
        question = replace(request, parameters=replace(asked, headers=headers))
        try:
            async with aclosing(adapter.stream(question)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ProviderError as error:
            raise explained(error) from error


def speaks_responses(id: str) -> bool:
    """GPT-5 and what came after it, but for the small one."""
    found = _GPT.match(id)
    return found is not None and int(found[1]) >= FIRST_NEWER and not id.startswith("gpt-5-mini")


def own_headers(request: ModelRequest) -> dict[str, str]:
    """Who asks (a person's words are counted, the steps after them are not), and whether there is something to see."""
    last = request.messages[-1] if request.messages else None
    sees = {"copilot-vision-request": "true"} if _has_picture(request) else {}
    return {
        "x-initiator": "user" if isinstance(last, UserTurn) else "agent",
        "openai-intent": "conversation-edits",
        **sees,
    }


def _has_picture(request: ModelRequest) -> bool:
    files = [file for turn in request.messages for file in files_of(turn)]
    return any(modality(file.mime) == "image" for file in files)


def explained(error: ProviderError) -> ProviderError:
    """The refusal with the way out in it."""
    message = str(error)
    if error.status == FORBIDDEN:
        message = (
            "Copilot does not let this login in: sign in to GitHub Copilot again, and store the new login"
        )
    elif UNSUPPORTED in message:
        message = f"{message}\n\nIt may have to be switched on for your account: {SETTINGS}"
    else:
        return error
    told = ProviderError(
        message, status=error.status, retryable=error.retryable, headers=error.headers, body=error.body
    )
    told.kind, told.wait_ms = error.kind, error.wait_ms
    return told
