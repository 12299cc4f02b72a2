"""Keep the checkpoints of LangGraph in a store of weft: `builder.compile(checkpointer=WeftCheckpointer(store))`.

Checkpoints are private values of the store, not sessions: the state of a graph is whatever the graph defines, and only LangGraph can read
it. A thread has a list of its checkpoints. A checkpoint is stored before it is listed, so that one that is listed can be read.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from weft.agent.sessions import SessionStore
from weft.errors import InvalidInputError, UnsupportedError
from weft.integrations.packages import require_package

require_package("langgraph", "weft[langgraph]")

from langgraph.checkpoint.base import (  # noqa: E402
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.serde.base import SerializerProtocol

T = TypeVar("T")

FRAMEWORK = "langgraph"
THREADS = (FRAMEWORK, "threads")
CHECKPOINTS, WRITES = "checkpoints", "writes"

Value = Mapping[str, Any]


class CheckpointKey(NamedTuple):
    """Names a checkpoint: ids of LangGraph are any text, so the keys of the store are made from their hashes."""

    thread: str
    namespace: str
    id: str

    @property
    def document(self) -> tuple[str, ...]:
        return (*thread_key(self.thread), _hash(self.namespace), _hash(self.id))

    @property
    def writes(self) -> tuple[str, ...]:
        return (*self.document, WRITES)

    def to_config(self) -> "RunnableConfig":
        return {
            "configurable": {
                "thread_id": self.thread,
                "checkpoint_ns": self.namespace,
                "checkpoint_id": self.id,
            }
        }


class WeftCheckpointer(BaseCheckpointSaver[int]):
    """A checkpointer in a store of weft. Several processes may use the same threads.

    Create it in the event loop of the store. The methods without `a` are for other threads; they wait for that loop.
    """

    def __init__(self, store: SessionStore, *, serde: "SerializerProtocol | None" = None) -> None:
        super().__init__(serde=serde)
        self._store = store
        self._loop = asyncio.get_running_loop()

    # --- asynchronous ---

    async def aget_tuple(self, config: "RunnableConfig") -> CheckpointTuple | None:
        """Return the checkpoint that a config names, or the last one of its thread and namespace; None if there is none."""
        thread, namespace = _read_thread(config), _read_namespace(config) or ""
        id = get_checkpoint_id(config)
        if not id:
            listed = (await self._list_ids(thread)).get(namespace)
            if not listed:
                return None
            id = max(listed)
        return await self._find(CheckpointKey(thread, namespace, id))

    async def alist(
        self,
        config: "RunnableConfig | None",
        *,
        filter: dict[str, Any] | None = None,
        before: "RunnableConfig | None" = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield the checkpoints that match, the newest first. Without a config, list those of all threads."""
        left = limit
        for key in await self._list_keys(config, before):
            if left is not None and left <= 0:
                return
            found = await self._find(key)
            if found is not None and _matches(found.metadata, filter):
                left = None if left is None else left - 1
                yield found

    async def aput(
        self,
        config: "RunnableConfig",
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> "RunnableConfig":
        """Store a checkpoint. Its parent is the one that the config names."""
        del new_versions  # a checkpoint is stored with all its channels
        key = CheckpointKey(_read_thread(config), _read_namespace(config) or "", checkpoint["id"])
        document = {
            "parent": get_checkpoint_id(config),
            "checkpoint": self._dump(checkpoint),
            "metadata": self._dump(get_checkpoint_metadata(config, metadata)),
        }
        await self._store.put_value(key.document, document)
        await self._enlist(key, CHECKPOINTS)
        return key.to_config()

    async def aput_writes(
        self,
        config: "RunnableConfig",
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task. Writing them again changes nothing, except for errors, interrupts and resumes."""
        id = get_checkpoint_id(config)
        if not id:
            raise InvalidInputError(
                "config", "it has no checkpoint_id", hint="pass the config that put returned"
            )
        key = CheckpointKey(_read_thread(config), _read_namespace(config) or "", id)
        new: dict[str, dict[str, Any]] = {
            f"{WRITES_IDX_MAP.get(channel, index)} {task_id}": {
                "task": task_id,
                "index": WRITES_IDX_MAP.get(channel, index),
                "path": task_path,
                "channel": channel,
                "value": self._dump(value),
            }
            for index, (channel, value) in enumerate(writes)
        }

        def add(stored: Value | None) -> Value:
            known = dict((stored or {}).get(WRITES, {}))
            for name, write in new.items():
                if name not in known or write["index"] < 0:
                    known[name] = write
            return {WRITES: known}

        # Listed first, and even if the checkpoint itself is never stored: deleting the thread finds the writes by this list.
        await self._enlist(key, WRITES)
        await self._store.update_value(key.writes, add)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints and writes of a thread."""
        listed = [
            CheckpointKey(thread_id, namespace, id)
            for of in (CHECKPOINTS, WRITES)
            for namespace, ids in (await self._list_ids(thread_id, of)).items()
            for id in ids
        ]
        for key in dict.fromkeys(listed):
            await self._store.put_value(key.document, None)
            await self._store.put_value(key.writes, None)
        # Last, so that deleting again finishes what was cut short.
        await self._store.put_value(thread_key(thread_id), None)
        await self._store.update_value(THREADS, lambda known: _without(known, _hash(thread_id)))

    # --- from other threads ---

    def get_tuple(self, config: "RunnableConfig") -> CheckpointTuple | None:
        return self._wait(self.aget_tuple(config))

    def list(
        self,
        config: "RunnableConfig | None",
        *,
        filter: dict[str, Any] | None = None,
        before: "RunnableConfig | None" = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        found = self.alist(config, filter=filter, before=before, limit=limit)
        return iter(self._wait(_collect(found)))

    def put(
        self,
        config: "RunnableConfig",
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> "RunnableConfig":
        return self._wait(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: "RunnableConfig",
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self._wait(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        self._wait(self.adelete_thread(thread_id))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            work.close()
            raise UnsupportedError(
                "a blocking call of a checkpointer in the event loop of its store",
                hint="use ainvoke, astream and aget_state, or run the graph in a thread: asyncio.to_thread(graph.invoke, …)",
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # --- documents ---

    async def _find(self, key: CheckpointKey) -> CheckpointTuple | None:
        found: Any = await self._store.find_value(key.document)
        if found is None:
            return None
        parent = found["parent"]
        return CheckpointTuple(
            config=key.to_config(),
            checkpoint=self._load(found["checkpoint"]),
            metadata=self._load(found["metadata"]),
            parent_config=key._replace(id=parent).to_config() if parent else None,
            pending_writes=[*await self._list_writes(key)],
        )

    async def _list_writes(self, key: CheckpointKey) -> Sequence[PendingWrite]:
        found: Any = await self._store.find_value(key.writes)
        stored = sorted(
            (found or {}).get(WRITES, {}).values(),
            key=lambda write: writes_sort_key(write["path"], write["task"], write["index"]),
        )
        return [(write["task"], write["channel"], self._load(write["value"])) for write in stored]

    async def _list_ids(self, thread: str, of: str = CHECKPOINTS) -> dict[str, Any]:
        """Return the ids of a thread's checkpoints, by namespace."""
        found: Any = await self._store.find_value(thread_key(thread))
        return {} if found is None else dict(found.get(of, {}))

    async def _list_keys(
        self, config: "RunnableConfig | None", before: "RunnableConfig | None"
    ) -> Sequence[CheckpointKey]:
        """Return the listed checkpoints that a config names, the newest first: ids of checkpoints are in the order of time."""
        known: Any = await self._store.find_value(THREADS) if config is None else None
        threads = list((known or {}).values()) if config is None else [_read_thread(config)]
        namespace = None if config is None else _read_namespace(config)
        only = None if config is None else get_checkpoint_id(config)
        end = None if before is None else get_checkpoint_id(before)
        keys = [
            CheckpointKey(thread, each, id)
            for thread in threads
            for each, ids in (await self._list_ids(thread)).items()
            for id in ids
            if namespace in (None, each) and only in (None, "", id) and (not end or id < end)
        ]
        return sorted(keys, key=lambda key: key.id, reverse=True)

    async def _enlist(self, key: CheckpointKey, of: str) -> None:
        """Add a checkpoint to a list of its thread, and the thread to the list of threads."""

        def add(stored: Value | None) -> Value:
            listed = dict((stored or {}).get(of, {}))
            listed[key.namespace] = sorted({*listed.get(key.namespace, ()), key.id})
            return {**(stored or {}), "thread": key.thread, of: listed}

        found: Any = await self._store.find_value(thread_key(key.thread))
        if found is None:
            name = _hash(key.thread)
            await self._store.update_value(THREADS, lambda known: {**(known or {}), name: key.thread})
        elif key.id in found.get(of, {}).get(key.namespace, ()):
            return
        await self._store.update_value(thread_key(key.thread), add)

    def _dump(self, value: Any) -> dict[str, str]:
        type, raw = self.serde.dumps_typed(value)
        return {"type": type, "data": base64.b64encode(raw).decode()}

    def _load(self, stored: Value) -> Any:
        return self.serde.loads_typed((stored["type"], base64.b64decode(stored["data"])))


def thread_key(thread: str) -> tuple[str, ...]:
    """Return the key of the list of a thread's checkpoints."""
    return FRAMEWORK, _hash(thread)


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _read_thread(config: "RunnableConfig") -> str:
    thread = config.get("configurable", {}).get("thread_id")
    if thread is None:
        raise InvalidInputError(
            "config", "it has no thread_id", hint='pass {"configurable": {"thread_id": "…"}}'
        )
    return str(thread)


def _read_namespace(config: "RunnableConfig") -> str | None:
    namespace: str | None = config["configurable"].get("checkpoint_ns")
    return namespace


def _matches(metadata: CheckpointMetadata, filter: dict[str, Any] | None) -> bool:
    found: Mapping[str, Any] = {**metadata}
    return all(found.get(name) == value for name, value in (filter or {}).items())


def _without(known: Value | None, name: str) -> Value:
    return {each: thread for each, thread in (known or {}).items() if each != name}


async def _collect(found: AsyncIterator[T]) -> list[T]:
    return [each async for each in found]
