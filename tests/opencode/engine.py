"""A whole engine in a sandbox, with user configuration, and a scripted model next to the configured ones."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace

from opencode.fake_model import TITLE
from opencode.sandbox import Sandbox
from weft.host.clock import SystemClock
from weft.local.api import LocalApi
from weft.local.open import OpenOptions, open_directory
from weft.model.catalog import Model
from weft.model.input import PromptInput, TextInput
from weft.model.part import ModelRef
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.registry import ServedModel
from weft.provider.scripted import AnyMove, Say, ScriptedProvider
from weft.run.title import TITLE_REQUEST
from weft.store.contract import Store
from weft.store.url import open_store

# Its name in the configuration of the sandbox: each program continues with the model that the other one used.
FAKE = replace(make_scripted_model("fake-model"), provider_id="fake")
UNPRICED = replace(make_scripted_model("unpriced"), provider_id="fake", cost=None)


class PromptProvider:
    """Plays the script. As in the fake model, titles are not part of it."""

    def __init__(self, script: ScriptedProvider) -> None:
        self._script = script

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        if _join_text(request.messages[0].content) == TITLE_REQUEST:
            return ScriptedProvider([[Say(text=TITLE)]], SystemClock()).stream(request)
        return self._script.stream(request)


class Engine(Struct, frozen=True, kw_only=True):
    api: LocalApi
    provider: ScriptedProvider

    @property
    def store(self) -> Store:
        return self.api.runtime.store

    def list_conversations(self) -> list[list[tuple[str, str]]]:
        """Return the conversation of each request: roles and texts."""
        return [
            [(str(turn.__struct_config__.tag), _join_text(turn.content)) for turn in request.messages]
            for request in self.provider.requests
        ]


def _join_text(content: Sequence[object]) -> str:
    return "".join(getattr(piece, "text", "") for piece in content)


@asynccontextmanager
async def open_engine(sandbox: Sandbox, *script: Sequence[AnyMove]) -> AsyncIterator[Engine]:
    provider = ScriptedProvider(script, SystemClock())
    speaking = PromptProvider(provider)
    async with open_with(sandbox, ServedModel(FAKE, speaking), ServedModel(UNPRICED, speaking)) as api:
        yield Engine(api=api, provider=provider)


def open_with(sandbox: Sandbox, *models: ServedModel) -> AbstractAsyncContextManager[LocalApi]:
    return open_directory(OpenOptions(directory=str(sandbox.project), env=sandbox.env, models=models))


def open_sandbox_store(sandbox: Sandbox) -> AbstractAsyncContextManager[Store]:
    return open_store(f"file:{sandbox.storage}")


def make_prompt(words: str, *, model: Model | None = None) -> PromptInput:
    ref = None if model is None else ModelRef(provider_id=model.provider_id, model_id=model.id)
    return PromptInput(parts=(TextInput(text=words),), model=ref)
