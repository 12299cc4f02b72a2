"""Record which files the tool calls of an answer changed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from msgspec.structs import replace

from weft.errors import GitError, NotFoundError, SnapshotMissingError
from weft.host.tasks import run_to_completion
from weft.model.diff import FileDiff, Patch
from weft.model.event import SessionWarned
from weft.model.ids import MessageID, SessionID
from weft.model.message import AnyMessage, AssistantMessage, MessageWithParts, UserMessage, UserSummary
from weft.model.part import CompletedState, ErrorState, ToolPart
from weft.model.transcript import Transcript
from weft.run.processor import Processor
from weft.run.runtime import Runtime
from weft.session.revert_point import get_patch_trees, list_patches
from weft.snapshot.contract import Coverage
from weft.tool.contract import AskPermission, ToolContext, WatchChanges

TASK_TOOL = "task"


class AnswerChanges:
    """The file changes of one answer. They are stored for each call, so that one call can be undone without those before it.

    OpenCode records only the changes of a whole answer.
    """

    def __init__(self, runtime: Runtime, processor: Processor, transcript: Transcript) -> None:
        self._runtime = runtime
        self._snapshots = runtime.undo_context.snapshots
        self._processor = processor
        self._transcript = transcript
        self._patches: list[Patch] = []
        self._close_lock = asyncio.Lock()
        self._has_warned = False

    @property
    def _session(self) -> SessionID:
        return self._processor.message.session_id

    def watch(self, call_id: str) -> WatchChanges:
        """Return a function that opens a context: files that change while it is open are stored as changes of this call."""

        @asynccontextmanager
        async def watch(*files: str) -> AsyncIterator[None]:
            before = self._snapshots.coverage()
            window = self._snapshots.watch(self._session, files or None, call_id)
            await window.__aenter__()
            try:
                yield
            finally:
                await run_to_completion(self._close(window, call_id))
                await self._warn_if_stopped(before)

        return watch

    async def _close(self, window: AbstractAsyncContextManager[None], call_id: str) -> None:
        # One after the other, so that changes of two concurrent calls are not recorded for one of them.
        async with self._close_lock:
            await window.__aexit__(None, None, None)
            await self.take(call_id)

    async def _warn_if_stopped(self, before: Coverage) -> None:
        """Warn the person if recording failed during a call: nothing that tools change is recorded from now on."""
        now = self._snapshots.coverage()
        if now.extent == "none" and before.extent != "none" and not self._has_warned:
            self._has_warned = True  # a concurrent call may see the same failure
            warning = f"what tools change from now on cannot be undone: {now.reason}"
            await self._runtime.journal.commit(SessionWarned(session_id=self._session, message=warning))

    async def take(self, call_id: str = "") -> None:
        """Store the changes since the last call of this method, for a tool call if it is known which one made them."""
        try:
            patches = await self._snapshots.take(self._session)
        except (OSError, GitError) as error:
            warning = f"the last changes cannot be undone: {error}"
            await self._runtime.journal.commit(SessionWarned(session_id=self._session, message=warning))
            return
        if patches:
            await self._store(patches, call_id)
            await self._snapshots.mark_stored(self._session)

    async def take_from_child(self, call_id: str) -> None:
        """Store the changes that a child session made for a call. They belong to both sessions."""
        patches = await self._list_child_patches(call_id)
        if patches:
            await self._snapshots.pin(self._session, sorted(get_patch_trees(patches)))
            await self._store(patches, call_id)

    async def _store(self, patches: Sequence[Patch], call_id: str) -> None:
        self._patches += patches
        await self._runtime.journal.commit(
            *self._processor.to_patch_events(patches, call_id), into=self._transcript
        )

    async def combine(self) -> Patch | None:
        """Return all changes of the answer as one patch, or None if there are none or they cannot be read."""
        if len(self._patches) < 2:  # noqa: PLR2004  one patch needs no combining
            return next(iter(self._patches), None)
        try:
            patch = await self._snapshots.fold(self._patches)
        except (OSError, GitError, SnapshotMissingError):
            return None
        await self._snapshots.pin(self._session, (patch.before, patch.after))
        return patch

    async def store_totals(self, prompt: MessageID) -> None:
        """Store the totals of changed files for the session and for the prompt."""
        if not self._patches:
            return
        history = self._transcript.messages()
        await self._runtime.undo_context.update_session(self._session, list_patches(history))
        total = await self._runtime.undo_context.totals.add_up(
            prompt, list_patches(_list_answers(history, prompt))
        )
        if total is not None:
            await self._runtime.journal.edit_message(
                self._session,
                prompt,
                lambda message: _with_diffs(message, total.diffs),
                into=self._transcript,
            )

    async def _list_child_patches(self, call_id: str) -> Sequence[Patch]:
        part = next((part for part in self._list_calls() if part.call_id == call_id), None)
        if part is None or part.tool != TASK_TOOL or not isinstance(part.state, CompletedState | ErrorState):
            return ()
        child = _find_child_id(part.state.metadata)
        if child is None:
            return ()
        try:
            history = await self._runtime.store.list_messages(child)
        except NotFoundError:
            return ()
        since = part.state.time.start  # an earlier call may have used the same child
        return list_patches(message for message in history if message.info.time.created >= since)

    def _list_calls(self) -> Iterable[ToolPart]:
        message = self._transcript.find(self._processor.message.id)
        return [part for part in (message.parts if message else ()) if isinstance(part, ToolPart)]


def _with_diffs(message: AnyMessage, diffs: tuple[FileDiff, ...]) -> AnyMessage:
    if not isinstance(message, UserMessage):
        return message
    return replace(message, summary=replace(message.summary or UserSummary(), diffs=diffs))


def _find_child_id(metadata: dict[str, Any] | None) -> SessionID | None:
    id = (metadata or {}).get("sessionId")
    return SessionID(id) if isinstance(id, str) else None


def _list_answers(history: Iterable[MessageWithParts], prompt: MessageID) -> list[MessageWithParts]:
    return [
        message
        for message in history
        if isinstance(message.info, AssistantMessage) and message.info.parent_id == prompt
    ]


@asynccontextmanager
async def watch_tool(context: ToolContext) -> AsyncIterator[ToolContext]:
    """Watch all file changes while a tool runs, except while a person is asked: changes in that time are the person's own."""
    window = _Window(context.watch)
    await window.open()
    try:
        yield replace(context, ask=_pause_while_asking(context, window))
    finally:
        await window.close()


class _Window:
    """The time in which file changes are watched. It is closed while a `pause` lasts; pauses may overlap."""

    def __init__(self, watch: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._watch = watch
        self._open_watch = AsyncExitStack()
        self._pauses = 0

    async def open(self) -> None:
        await self._open_watch.enter_async_context(self._watch())

    async def close(self) -> None:
        await self._open_watch.aclose()

    @asynccontextmanager
    async def pause(self) -> AsyncIterator[None]:
        self._pauses += 1
        await self.close()
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                await self.open()


def _pause_while_asking(context: ToolContext, window: _Window) -> AskPermission:
    async def ask(
        permission: str,
        *patterns: str,
        always: tuple[str, ...] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        async with window.pause():
            await context.ask(permission, *patterns, always=always, metadata=metadata)

    return ask
