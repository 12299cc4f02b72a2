"""OpenCode changes a large tree that has our order of sessions: our lists stay right, in an open store and in a new one."""

import json
import os
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from opencode.engine import open_sandbox_store
from opencode.fake_model import FakeModel, answer_text
from opencode.sandbox import Sandbox
from weft.model.event import SessionCreated
from weft.model.ids import SessionID
from weft.model.session import SessionInfo
from weft.model.session_query import SessionQuery, select_sessions
from weft.model.wire import decode
from weft.store.contract import Store
from weft.store.files.layout import Layout

pytestmark = pytest.mark.opencode

SESSIONS = 400


def prompt_opencode(sandbox: Sandbox, model: FakeModel, *options: str) -> SessionID:
    model.play(answer_text("Done."))
    [first, *_] = sandbox.opencode("run", "--format", "json", *options, "go").splitlines()
    return SessionID(json.loads(first)["sessionID"])


async def plant(sandbox: Sandbox, known: SessionID) -> list[SessionInfo]:
    """Store many sessions like a known one, one second apart, the first of them oldest; every tenth is a child."""
    async with open_sandbox_store(sandbox) as store:
        pattern = await store.get_session(known)
        planted: list[SessionInfo] = []
        for number in range(SESSIONS):
            at = pattern.time.created - (SESSIONS - number) * 1000
            planted.append(
                replace(
                    pattern,
                    id=SessionID(f"{known[:-4]}{number:04}"),
                    title=f"Session number {number}",
                    parent_id=known if number % 10 == 0 else None,
                    time=replace(pattern.time, created=at, updated=at),
                )
            )
        await store.apply(*(SessionCreated(info=each) for each in planted))
    return planted


def read_documents(sandbox: Sandbox) -> list[SessionInfo]:
    """Return all sessions from their files, without a store."""
    return [
        decode(path.read_bytes(), SessionInfo) for path in (sandbox.storage / "session").glob("*/ses_*.json")
    ]


async def check_lists(sandbox: Sandbox, store: Store, queries: Sequence[SessionQuery]) -> None:
    """Compare the answers of an open store, and of one that is opened now, with the documents."""
    documents = read_documents(sandbox)
    async with open_sandbox_store(sandbox) as other:
        for query in queries:
            expected = [each.id for each in select_sessions(documents, query)]
            for each in (store, other):
                assert [found.id for found in await each.query_sessions(query)] == expected, query
    assert await store.list_sessions() == sorted(
        documents, key=lambda session: (session.time.created, session.id)
    )


async def test_lists_stay_correct_while_opencode_changes_the_tree(sandbox: Sandbox, model: FakeModel) -> None:
    known = prompt_opencode(sandbox, model)
    planted = await plant(sandbox, known)
    old = planted[7]
    project = old.project_id
    queries = [
        SessionQuery(project_id=project, limit=20),
        SessionQuery(project_id=project, order="updated", limit=20),
        SessionQuery(order="updated", roots=True, archived=False, limit=20),
        SessionQuery(parent_id=known),
        SessionQuery(search="number 39", limit=20),
        SessionQuery(id_prefix=known[:-4]),
    ]
    layout = Layout(str(sandbox.storage))
    async with open_sandbox_store(sandbox) as store:
        await check_lists(sandbox, store, queries)
        assert list((sandbox.storage / ".weft").rglob("order.json")) != [], "our order is there"

        path, directory = layout.session(project, old.id), layout.sessions(project)
        before = os.stat(path), os.stat(directory)
        assert prompt_opencode(sandbox, model, "-s", old.id) == old.id
        after = os.stat(path), os.stat(directory)
        # A list by update must look at every document, because OpenCode overwrites documents in place.
        assert (after[0].st_ino, after[1].st_mtime_ns) == (before[0].st_ino, before[1].st_mtime_ns)
        assert after[0].st_mtime_ns > before[0].st_mtime_ns
        await check_lists(sandbox, store, queries)
        assert (await store.query_sessions(queries[1]))[0].id == old.id

        new = prompt_opencode(sandbox, model)
        await check_lists(sandbox, store, queries)
        assert [found[0].id for found in [await store.query_sessions(each) for each in queries[:3]]] == [
            new
        ] * 3
