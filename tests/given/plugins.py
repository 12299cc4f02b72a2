"""A trusted project with plugins, opened with a scripted model."""

import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

from weft.errors import ConfigError
from weft.host.clock import Clock, SystemClock
from weft.local.api import LocalApi
from weft.local.assembly import Seams
from weft.local.open import OpenOptions, open_directory
from weft.model.input import PromptInput, SessionInput, TextInput
from weft.model.message import MessageWithParts
from weft.model.part import CompletedState, ErrorState, ModelRef, TextPart, ToolPart
from weft.plugin.worker import PluginWorker
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.registry import ServedModel
from weft.provider.scripted import AnyMove, ScriptedProvider

MODEL = ModelRef(provider_id="scripted", model_id="test")


@asynccontextmanager
async def open_worker(name: str) -> AsyncIterator[PluginWorker]:
    worker = PluginWorker(name)
    try:
        yield worker
    finally:
        await worker.close()


class Project:
    """`warnings` are all that were shown to the user, `provider` is the one that was used last."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.root.mkdir(parents=True, exist_ok=True)
        self.warnings: list[ConfigError] = []
        self.provider = ScriptedProvider([], SystemClock())

    def write(self, name: str, code: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(code).lstrip("\n"))
        return path

    def plugin(self, name: str, code: str) -> Path:
        return self.write(f".opencode/plugin/{name}.py", code)

    def tool(self, name: str, code: str) -> Path:
        return self.write(f".opencode/tool/{name}.py", code)

    def configure(self, **config: Any) -> None:
        self.write("opencode.json", json.dumps(config))

    def options(
        self, *script: Sequence[AnyMove], clock: Clock | None = None, trusted: bool = True
    ) -> OpenOptions:
        used = clock or SystemClock()
        self.provider = ScriptedProvider(script, used)
        return OpenOptions(
            directory=str(self.root),
            env={**os.environ, "WEFT_TRUST": "1" if trusted else "0"},
            store="memory:",
            models=(ServedModel(make_scripted_model("test"), self.provider),),
            seams=Seams(clock=used),
            warn=self.warnings.append,
        )

    @asynccontextmanager
    async def open(self, *script: Sequence[AnyMove], **more: Any) -> AsyncIterator[LocalApi]:
        async with open_directory(self.options(*script, **more)) as local:
            yield local

    def list_warnings(self) -> list[str]:
        """Return the warnings, with paths relative to the project."""
        return [str(each).replace(f"{self.root}/", "") for each in self.warnings]


async def prompt(local: LocalApi, words: str = "go") -> list[MessageWithParts]:
    """Run a turn in a new session, and return its messages."""
    session = await local.create_session(SessionInput(title="Given"))
    await local.prompt(session.id, PromptInput(model=MODEL, parts=(TextInput(text=words),)))
    return await local.list_messages(session.id)


def text_of(messages: list[MessageWithParts]) -> str:
    return " ".join(part.text for message in messages for part in message.parts if isinstance(part, TextPart))


def list_calls(messages: list[MessageWithParts]) -> list[tuple[str, str]]:
    """Return each call with the result that the model read."""
    states = [
        (part.tool, part.state) for each in messages for part in each.parts if isinstance(part, ToolPart)
    ]
    return [
        (tool, state.output if isinstance(state, CompletedState) else state.error)
        for tool, state in states
        if isinstance(state, CompletedState | ErrorState)
    ]
