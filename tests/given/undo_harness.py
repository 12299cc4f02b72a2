"""A directory with files, an agent that changes them through a whole engine, and undo and redo of its work."""

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from given.engine import text_prompt
from weft.local.api import LocalApi
from weft.local.open import OpenOptions, open_directory
from weft.model.diff import FileFate
from weft.model.ids import MessageID, SessionID
from weft.model.input import SessionInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import PatchPart
from weft.model.session import RevertResult
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.chunk import AnyChunk, Finished, Started, TextDelta, TextEnd, TextStart, ToolCall, Usage
from weft.provider.contract import ModelRequest
from weft.provider.registry import ServedModel

MODEL = make_scripted_model("loom")
PATCHING_MODEL = make_scripted_model("gpt-loom")  # gets the patch tool, like OpenAI's models


class ToolUse(Struct, frozen=True, kw_only=True):
    """A tool call of the agent."""

    tool: str
    input: dict[str, Any]


PersonAction = Callable[[], object]
Action = ToolUse | PersonAction


def call_bash(command: str) -> ToolUse:
    return ToolUse(tool="bash", input={"command": command, "description": "Does it"})


def call_write(path: Path | str, text: str) -> ToolUse:
    return ToolUse(tool="write", input={"filePath": str(path), "content": text})


def call_read(path: Path | str) -> ToolUse:
    return ToolUse(tool="read", input={"filePath": str(path)})


def call_edit(path: Path | str, old: str, new: str) -> ToolUse:
    return ToolUse(tool="edit", input={"filePath": str(path), "oldString": old, "newString": new})


class ActionProvider:
    """A model that gives one answer for each list of actions. A function among them is an action of a person while the
    model thinks."""

    def __init__(self) -> None:
        self.answers: list[Sequence[Action]] = []
        self._made = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        del request
        actions = self.answers.pop(0) if self.answers else ()
        yield Started()
        for action in actions:
            if isinstance(action, ToolUse):
                self._made += 1
                raw = msgspec.json.encode(action.input).decode()
                yield ToolCall(call_id=f"call_{self._made}", tool=action.tool, raw=raw)
            else:
                action()
        if not actions:
            yield TextStart(id="words")
            yield TextDelta(id="words", text="Done.")
            yield TextEnd(id="words")
        yield Finished(reason="tool-calls" if actions else "stop", usage=Usage())

    async def aclose(self) -> None:
        pass


class UndoHarness:
    """An agent and a person who change the files in `root`, with undo and redo."""

    def __init__(self, root: Path, api: LocalApi, provider: ActionProvider) -> None:
        self.root = root
        self.api = api
        self._puppet = provider
        self.session = SessionID("")

    async def create_session(self) -> SessionID:
        self.session = (await self.api.create_session(SessionInput(title="Weaving"))).id
        return self.session

    async def run_turn(self, *answers: Sequence[Action]) -> MessageID:
        """Prompt the agent, which gives these answers and then says that it is done. Return the id of the prompt."""
        if not self.session:
            await self.create_session()
        self._puppet.answers = [*answers, ()]
        answer = await self.api.prompt(self.session, text_prompt("Weave."))
        prompts = [each.info for each in await self.history() if isinstance(each.info, UserMessage)]
        assert getattr(answer.info, "error", None) is None, answer
        return prompts[-1].id

    async def run_step(self, *actions: Action) -> MessageID:
        """Run a turn with all actions in one answer."""
        return await self.run_turn(actions)

    async def history(self) -> list[MessageWithParts]:
        return await self.api.list_messages(self.session)

    async def patches(self) -> list[PatchPart]:
        return [
            part for message in await self.history() for part in message.parts if isinstance(part, PatchPart)
        ]

    async def undo(self, to: MessageID) -> dict[str, str]:
        """Return the fate of each file. A dry run before it reports the same and changes nothing."""
        preview = await self.api.revert(self.session, to, dry_run=True)
        done = await self.api.revert(self.session, to)
        assert preview.files == done.files
        return self.fates(done)

    async def redo(self) -> dict[str, str]:
        preview = await self.api.unrevert(self.session, dry_run=True)
        done = await self.api.unrevert(self.session)
        assert preview.files == done.files
        return self.fates(done)

    def fates(self, done: RevertResult) -> dict[str, str]:
        return {os.path.relpath(each.file, self.root): each.fate for each in done.files}

    def reason(self, done: RevertResult, name: str) -> str:
        return self.fate(done, name).reason

    def fate(self, done: RevertResult, name: str) -> FileFate:
        return next(each for each in done.files if each.file == str(self.root / name))


@asynccontextmanager
async def open_undo_harness(
    root: Path,
    *,
    directory: Path | None = None,
    config: dict[str, Any] | None = None,
    store: str | None = None,
) -> AsyncIterator[UndoHarness]:
    provider, real = ActionProvider(), _make_directory(root)
    opening = OpenOptions(
        directory=str(directory or root),
        env={**os.environ, "OPENCODE_CONFIG_CONTENT": json.dumps({**CONFIG, **(config or {})})},
        models=(ServedModel(MODEL, provider), ServedModel(PATCHING_MODEL, provider)),
        store=store,
    )
    async with open_directory(opening) as api:
        yield UndoHarness(real, api, provider)


def _make_directory(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    return root.resolve()


CONFIG: dict[str, Any] = {
    "model": f"{MODEL.provider_id}/{MODEL.id}",
    "permission": "allow",
    "formatter": False,
    "lsp": False,
}
