"""Keep the checkpoints of LangGraph in a store of weft: `builder.compile(checkpointer=WeftCheckpointer(store))`.

Checkpoints are private values of the store, not sessions: a graph defines its own state, and only LangGraph can
read it. A thread has a list of its checkpoints. A checkpoint is stored before it is listed, so that one that is listed can be read.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
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
STRATEGIES = ("keep_latest", "delete")

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
        await self._enlist(key.thread, [key], CHECKPOINTS)
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
        await self._enlist(key.thread, [key], WRITES)
        await self._store.update_value(key.writes, add)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints and writes of a thread."""
        for key in {*await self._list_keys_of(thread_id), *await self._list_keys_of(thread_id, WRITES)}:
            await self._delete(key)
        # Last, so that deleting again finishes what was cut short.
        await self._store.put_value(thread_key(thread_id), None)
        await self._store.update_value(THREADS, lambda known: _without(known, _hash(thread_id)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs created, with their writes.

        A checkpoint stays if the value of a `DeltaChannel` in a later checkpoint of another run is rebuilt from it.
        """
        runs = set(run_ids)
        for thread in await self._list_threads() if runs else ():
            loaded = await self._load_metadata(await self._list_keys_of(thread))
            doomed = {key for key, metadata in loaded.items() if metadata.get("run_id") in runs}
            if doomed:
                await self._remove(thread, doomed - await self._find_history(loaded.keys() - doomed))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to another one, which shows them all at once."""
        if source_thread_id == target_thread_id:
            return
        listed = await self._list_keys_of(source_thread_id)
        written = await self._list_keys_of(source_thread_id, WRITES)
        source = list(dict.fromkeys([*listed, *written]))
        # Deleting the target finds a copy that was cut short by its list of writes.
        await self._enlist(
            target_thread_id, [key._replace(thread=target_thread_id) for key in source], WRITES
        )
        for key in source:
            target = key._replace(thread=target_thread_id)
            for old, new in ((key.document, target.document), (key.writes, target.writes)):
                found = await self._store.find_value(old)
                if found is not None:
                    await self._store.put_value(new, found)
        await self._enlist(
            target_thread_id, [key._replace(thread=target_thread_id) for key in listed], CHECKPOINTS
        )

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete the checkpoints of threads: all but the last one of each namespace, or all with the strategy `delete`.

        `keep_latest` also keeps the checkpoints from which the values of `DeltaChannel`s in the last one are rebuilt.
        """
        if strategy not in STRATEGIES:
            raise InvalidInputError(
                "strategy", f"{strategy!r} is unknown", hint=f"pass one of {', '.join(STRATEGIES)}"
            )
        for thread in thread_ids:
            if strategy == "delete":
                await self.adelete_thread(thread)
            else:
                await self._keep_latest(thread)

    async def _keep_latest(self, thread: str) -> None:
        listed = await self._list_keys_of(thread)
        last = {key.namespace: key for key in listed}  # they are in the order of time
        kept = {*last.values(), *await self._find_history(last.values())}
        written = await self._list_keys_of(thread, WRITES)
        # Writes can be stored before their checkpoint is: what is newer than the last checkpoint stays.
        old = {key for key in (*listed, *written) if key.namespace in last and key < last[key.namespace]}
        await self._remove(thread, old - kept)

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

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._wait(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._wait(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._wait(self.aprune(thread_ids, strategy=strategy))

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
        threads = await self._list_threads() if config is None else [_read_thread(config)]
        namespace = None if config is None else _read_namespace(config)
        only = None if config is None else get_checkpoint_id(config)
        end = None if before is None else get_checkpoint_id(before)
        keys = [
            key
            for thread in threads
            for key in await self._list_keys_of(thread)
            if namespace in (None, key.namespace) and only in (None, "", key.id) and (not end or key.id < end)
        ]
        return sorted(keys, key=lambda key: key.id, reverse=True)

    async def _list_keys_of(self, thread: str, of: str = CHECKPOINTS) -> Sequence[CheckpointKey]:
        """Return the checkpoints of a thread, those of one namespace after those of another, the oldest first."""
        listed = await self._list_ids(thread, of)
        return [CheckpointKey(thread, namespace, id) for namespace, ids in listed.items() for id in ids]

    async def _list_threads(self) -> Sequence[str]:
        known: Any = await self._store.find_value(THREADS)
        return [*(known or {}).values()]

    async def _load_metadata(self, keys: Iterable[CheckpointKey]) -> dict[CheckpointKey, Value]:
        found: dict[CheckpointKey, Any] = {key: await self._store.find_value(key.document) for key in keys}
        return {key: self._load(value["metadata"]) for key, value in found.items() if value is not None}

    async def _find_history(self, kept: Iterable[CheckpointKey]) -> set[CheckpointKey]:
        """Return the ancestors from which LangGraph rebuilds values that these checkpoints do not contain."""
        history: set[CheckpointKey] = set()
        for key in kept:
            found = await self._find(key)
            missing = set() if found is None else _list_deltas(found)
            while found is not None and missing and found.parent_config is not None:
                parent = key._replace(id=found.parent_config["configurable"]["checkpoint_id"])
                history.add(parent)
                found = await self._find(parent)
                missing -= set() if found is None else found.checkpoint["channel_values"].keys()
        return history

    async def _enlist(self, thread: str, keys: Sequence[CheckpointKey], of: str) -> None:
        """Add checkpoints to a list of their thread, and the thread to the list of threads."""

        def add(stored: Value | None) -> Value:
            listed = dict((stored or {}).get(of, {}))
            for key in keys:
                listed[key.namespace] = sorted({*listed.get(key.namespace, ()), key.id})
            return {**(stored or {}), "thread": thread, of: listed}

        found: Any = await self._store.find_value(thread_key(thread))
        if found is None:
            name = _hash(thread)
            await self._store.update_value(THREADS, lambda known: {**(known or {}), name: thread})
        elif all(key.id in found.get(of, {}).get(key.namespace, ()) for key in keys):
            return
        await self._store.update_value(thread_key(thread), add)

    async def _remove(self, thread: str, keys: set[CheckpointKey]) -> None:
        """Delete some checkpoints of a thread. No reader sees one that is listed and gone."""
        if not keys:
            return
        # Until its documents are deleted, a checkpoint stays in the list of writes: deleting the thread finds it there.
        await self._enlist(thread, sorted(keys), WRITES)
        await self._delist(thread, keys, CHECKPOINTS)
        for key in keys:
            await self._delete(key)
        await self._delist(thread, keys, WRITES)

    async def _delist(self, thread: str, keys: set[CheckpointKey], of: str) -> None:
        def leave(stored: Value | None) -> Value | None:
            if stored is None:
                return None
            listed: dict[str, Any] = stored.get(of, {})
            left = {
                namespace: [id for id in ids if CheckpointKey(thread, namespace, id) not in keys]
                for namespace, ids in listed.items()
            }
            return {**stored, of: {namespace: ids for namespace, ids in left.items() if ids}}

        await self._store.update_value(thread_key(thread), leave)

    async def _delete(self, key: CheckpointKey) -> None:
        await self._store.put_value(key.document, None)
        await self._store.put_value(key.writes, None)

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


def _list_deltas(found: CheckpointTuple) -> set[str]:
    """Return the channels whose values a checkpoint leaves to its ancestors."""
    # LangGraph counts the steps of a `DeltaChannel` since its value was stored; other channels without a value are empty.
    deltas = set(found.metadata.get("counters_since_delta_snapshot") or ())
    checkpoint = found.checkpoint
    return deltas & checkpoint["channel_versions"].keys() - checkpoint["channel_values"].keys()


def _without(known: Value | None, name: str) -> Value:
    return {each: thread for each, thread in (known or {}).items() if each != name}


async def _collect(found: AsyncIterator[T]) -> list[T]:
    return [each async for each in found]
