"""What a long session costs that nobody has changed: CPU for reading it again, and for saying it to a model again.

    python bench/reading.py

On files: the first reading of a process, the next, the next after a message was written, and one that looks at every
document. Of requests: the body as it is made afresh, and as it is made when the request before it was remembered.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from running import MODEL, history

from weft.context.view import View
from weft.model.event import MessageUpdated, SessionCreated
from weft.model.message import MessageWithParts
from weft.provider.anthropic import request as claude
from weft.provider.body import CacheMessages, ModelMessageCache, encode_uncached, to_bytes
from weft.provider.contract import ModelRequest
from weft.provider.conversation import ConversationCache
from weft.provider.openai_chat import request as chat
from weft.provider.openai_responses import request as responses
from weft.store.files.store import FileStore
from weft.testing.store_samples import SESSION, session

T = TypeVar("T")
MESSAGES = 5_000


def show(label: str, work: Callable[[], T]) -> T:
    before = time.process_time()
    given = work()
    print(f"  {label:<44} {1000 * (time.process_time() - before):8.1f} ms")
    return given


def measure_reading() -> list[MessageWithParts]:
    print(f"reading {MESSAGES} messages of files")
    events = list(history(SESSION, MESSAGES))
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as scratch:
        root = str(Path(scratch, "storage"))
        asyncio.run(FileStore(root).apply(SessionCreated(info=session()), *events))
        store = FileStore(root)

        def read() -> list[MessageWithParts]:
            return asyncio.run(store.list_messages(SESSION))

        found = show("for the first time", read)
        show("again", read)
        written = found[-1].info
        asyncio.run(store.apply(MessageUpdated(info=written)))
        show("after one of them was written", read)
        asyncio.run(FileStore(root).apply(MessageUpdated(info=written)))
        show("after another process wrote one", read)
    return found


def measure_bodies(messages: list[MessageWithParts]) -> None:
    print(f"the body of a request of {MESSAGES} messages")
    turns = View().show(messages, MODEL, plan_files=False).messages
    asked = ModelRequest(model=MODEL, system=("You weave.",), messages=turns)

    def made(to_body: Callable[..., Any], remembering: CacheMessages, *kept: ConversationCache[Any]) -> bytes:
        return to_bytes(to_body(asked, remembering, *kept))

    for name, to_body, written in (
        ("chat completions", chat.to_body, True),
        ("anthropic", claude.to_body, False),
        ("responses", responses.to_body, True),
    ):
        memory = ModelMessageCache()
        remembering = memory.cache_json if written else memory.cache_values
        show(f"{name}, afresh", lambda to_body=to_body: made(to_body, encode_uncached))
        kept = ConversationCache[Any]()
        made(to_body, remembering, kept)
        show(f"{name}, again", lambda to_body=to_body, again=(remembering, kept): made(to_body, *again))


if __name__ == "__main__":
    measure_bodies(measure_reading())
