"""OpenCode changes a large tree that has our order of sessions: our lists stay right, in an open store and in a new one."""

import json
import os
import re
from collections.abc import Sequence
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from msgspec.structs import replace

from given.reporting_directory import count_queues
from opencode.engine import open_sandbox_store
from opencode.fake_model import FakeModel, answer_text
from opencode.sandbox import PATIENCE, Sandbox
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
        # Neither its name nor its directory tells that OpenCode overwrote the document in place.
        assert (after[0].st_ino, after[1].st_mtime_ns) == (before[0].st_ino, before[1].st_mtime_ns)
        assert after[0].st_mtime_ns > before[0].st_mtime_ns
        await check_lists(sandbox, store, queries)
        assert (await store.query_sessions(queries[1]))[0].id == old.id

        new = prompt_opencode(sandbox, model)
        await check_lists(sandbox, store, queries)
        assert [found[0].id for found in [await store.query_sessions(each) for each in queries[:3]]] == [
            new
        ] * 3


def ask(method: str, url: str, body: object) -> Any:
    """Send a request to the server of OpenCode, and return its answer."""
    raw, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    request = Request(url, data=raw, method=method, headers=headers)
    with build_opener(ProxyHandler({})).open(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read())


async def test_what_a_running_opencode_changes_is_in_the_next_list_of_a_running_weft(
    sandbox: Sandbox, model: FakeModel
) -> None:
    planted = await plant(sandbox, prompt_opencode(sandbox, model))
    old, archived, removed = planted[11], planted[12], planted[13]
    queries = [
        SessionQuery(project_id=old.project_id, order="updated", limit=20),
        SessionQuery(project_id=old.project_id, search="renamed by opencode"),
        SessionQuery(project_id=old.project_id, archived=True),
    ]
    async with open_sandbox_store(sandbox) as store:
        before = count_queues()
        for _ in range(2):
            await check_lists(sandbox, store, queries)
        assert count_queues() == before + 1, "the kernel reports changes from the second list on"

        with sandbox.run_opencode("serve", "--hostname", "127.0.0.1", "--port", "0") as opencode:
            assert opencode.stdout is not None
            lines = iter(opencode.stdout.readline, "")
            server = next(
                found[1] for line in lines if (found := re.search(r"listening on (http://\S+)", line))
            )
            for title in ("Renamed by OpenCode", "Renamed by OpenCode again"):
                ask("PATCH", f"{server}/session/{old.id}", {"title": title})
                [found] = await store.query_sessions(queries[1])
                assert (found.id, found.title) == (old.id, title)
            ask("PATCH", f"{server}/session/{archived.id}", {"time": {"archived": 5}})
            assert [found.id for found in await store.query_sessions(queries[2])] == [archived.id]
            ask("DELETE", f"{server}/session/{removed.id}", None)
            new = SessionID(ask("POST", f"{server}/session", {"title": "Renamed by OpenCode: new"})["id"])
            assert [found.id for found in await store.query_sessions(queries[1])] == [new, old.id]
            await check_lists(sandbox, store, queries)
