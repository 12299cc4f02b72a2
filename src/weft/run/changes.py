"""Record what the calls of an answer did to files."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from msgspec.structs import replace

from weft.errors import GitError, NotFoundError, SnapshotMissingError
from weft.host.tasks import undivided
from weft.model.diff import FileDiff, Patch
from weft.model.event import SessionWarned
from weft.model.ids import MessageID, SessionID
from weft.model.message import AnyMessage, AssistantMessage, MessageWithParts, UserMessage, UserSummary
from weft.model.part import CompletedState, ErrorState, ToolPart
from weft.model.transcript import Transcript
from weft.run.kit import Kit
from weft.run.processor import Processor
from weft.session.revert_point import patches_in, trees_of
from weft.tool.contract import Ask, ToolContext, Watch

SENDING = "task"


class Changes:
    """The changes of one answer. Every call's own are stored with it, so that it can be taken back without those
    before it; OpenCode knows only what a whole answer changed."""

    def __init__(self, kit: Kit, processor: Processor, transcript: Transcript) -> None:
        self._kit = kit
        self._snapshots = kit.undoer.snapshots
        self._processor = processor
        self._transcript = transcript
        self._found: list[Patch] = []
        self._closing = asyncio.Lock()

    @property
    def _session(self) -> SessionID:
        return self._processor.message.session_id

    def watch(self, call_id: str) -> Watch:
        """For a call: what it changes is stored as its own when it has changed it."""

        @asynccontextmanager
        async def watch(*files: str) -> AsyncIterator[None]:
            window = self._snapshots.watch(self._session, files or None)
            await window.__aenter__()
            try:
                yield
            finally:
                await undivided(self._close(window, call_id))

        return watch

    async def _close(self, window: AbstractAsyncContextManager[None], call_id: str) -> None:
        # One after the other, so that what two calls did at once is not told as the doing of one.
        async with self._closing:
            await window.__aexit__(None, None, None)
            await self.take(call_id)

    async def take(self, call_id: str = "") -> None:
        """Store what was changed since this was last asked, as the doing of a call if it is known which."""
        try:
            found = await self._snapshots.take(self._session)
        except (OSError, GitError) as error:
            said = f"what was just changed cannot be taken back: {error}"
            await self._kit.journal.commit(SessionWarned(session_id=self._session, message=said))
            return
        if found:
            await self._store(found, call_id)
            await self._snapshots.stored(self._session)

    async def take_sent(self, call_id: str) -> None:
        """Store what a child did that a call had sent out. It is the child's, and the doing of who sent it, too."""
        found = await self._sent_for(call_id)
        if found:
            await self._snapshots.pin(self._session, sorted(trees_of(found)))
            await self._store(found, call_id)

    async def _store(self, patches: Sequence[Patch], call_id: str) -> None:
        self._found += patches
        await self._kit.journal.commit(*self._processor.patched(patches, call_id), into=self._transcript)

    async def whole(self) -> Patch | None:
        """All of it as one, to be named where the answer begins and ends."""
        if len(self._found) < 2:  # noqa: PLR2004  one is a whole
            return next(iter(self._found), None)
        try:
            folded = await self._snapshots.fold(self._found)
        except (OSError, GitError, SnapshotMissingError):
            return None
        await self._snapshots.pin(self._session, (folded.hash, folded.until))
        return folded

    async def add_up(self, prompt: MessageID) -> None:
        """Say what the session, and the prompt that is being answered, did to files by now."""
        if not self._found:
            return
        history = self._transcript.messages()
        await self._kit.undoer.tell(self._session, patches_in(history))
        found = await self._kit.undoer.tally.add_up(prompt, patches_in(_answers(history, prompt)))
        if found is not None:
            await self._kit.journal.edit_message(
                self._session, prompt, lambda it: _with_diffs(it, found.diffs), into=self._transcript
            )

    async def _sent_for(self, call_id: str) -> Sequence[Patch]:
        part = next((part for part in self._calls() if part.call_id == call_id), None)
        if part is None or part.tool != SENDING or not isinstance(part.state, CompletedState | ErrorState):
            return ()
        child = _child_of(part.state.metadata)
        if child is None:
            return ()
        try:
            history = await self._kit.store.list_messages(child)
        except NotFoundError:
            return ()
        since = part.state.time.start
        return patches_in(message for message in history if message.info.time.created >= since)

    def _calls(self) -> Iterable[ToolPart]:
        found = self._transcript.find(self._processor.message.id)
        return [part for part in (found.parts if found else ()) if isinstance(part, ToolPart)]


def _with_diffs(message: AnyMessage, diffs: tuple[FileDiff, ...]) -> AnyMessage:
    if not isinstance(message, UserMessage):
        return message
    return replace(message, summary=replace(message.summary or UserSummary(), diffs=diffs))


def _child_of(metadata: dict[str, Any] | None) -> SessionID | None:
    named = (metadata or {}).get("sessionId")
    return SessionID(named) if isinstance(named, str) else None


def _answers(history: Iterable[MessageWithParts], prompt: MessageID) -> list[MessageWithParts]:
    return [
        message
        for message in history
        if isinstance(message.info, AssistantMessage) and message.info.parent_id == prompt
    ]


@asynccontextmanager
async def watched(context: ToolContext) -> AsyncIterator[ToolContext]:
    """The context for such a tool. While a person is asked nothing is watched: what they do meanwhile is theirs."""
    window = _Window(context.watch)
    await window.open()
    try:
        yield replace(context, ask=_asking(context, window))
    finally:
        await window.close()


class _Window:
    def __init__(self, watch: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._watch = watch
        self._held = AsyncExitStack()
        self._asking = 0

    async def open(self) -> None:
        await self._held.enter_async_context(self._watch())

    async def close(self) -> None:
        await self._held.aclose()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        self._asking += 1
        await self.close()
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                await self.open()


def _asking(context: ToolContext, window: _Window) -> Ask:
    async def ask(
        permission: str,
        *patterns: str,
        always: tuple[str, ...] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        async with window.away():
            await context.ask(permission, *patterns, always=always, metadata=metadata)

    return ask
