"""Trials over HTTP: created, run on the server, compared, shown as a page, adopted, replayed and bisected."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx2
import pytest

from given.long_session import CHECK, LoomProvider, bash_call, git, make_repository, open_loom
from given.served_engine import open_server
from weft.api import Api
from weft.client.api import RemoteApi, open_remote
from weft.client.http import ConnectionOptions
from weft.errors import ConflictError, NotFoundError
from weft.model.input import SessionInput, prompt
from weft.model.trial import AdoptInput, BisectInput, CompareInput, Pick, ReplayInput, TrialInput
from weft.model.wire import to_plain
from weft.provider.scripted import Say

BREAK = "sed -i 's/thread . 2/thread * 3/' loom.py"


class TrialServer:
    """A repository that a server serves, its address, and a client."""

    def __init__(self, root: Path, url: str, api: RemoteApi) -> None:
        self.root = root
        self.url = url
        self.api = api

    async def send(self, method: str, path: str, body: object = None) -> httpx2.Response:
        async with httpx2.AsyncClient(base_url=self.url, params={"directory": str(self.root)}) as client:
            return await client.request(method, path, json=None if body is None else to_plain(body))


@pytest.fixture
async def trial_server(tmp_path: Path) -> AsyncIterator[TrialServer]:
    root = make_repository(tmp_path / "cloth")
    provider = LoomProvider({"break it": [(bash_call(BREAK),), (Say(text="Done."),)]})

    def open(directory: str) -> AbstractAsyncContextManager[Api]:
        return open_loom(Path(directory), provider)

    async with (
        open_server(open, default_directory=str(root)) as url,
        open_remote(url, ConnectionOptions(directory=str(root)), env={}) as api,
    ):
        yield TrialServer(root, url, api)


async def test_trials_run_on_the_server_and_one_is_adopted(trial_server: TrialServer) -> None:
    input = TrialInput(prompt=prompt("break it"), count=2, check=CHECK, check_seconds=60)
    created = await trial_server.send("POST", "/weft/try", input)
    assert created.status_code == 200, created.text
    trials = created.json()
    while True:
        rows = (await trial_server.send("GET", "/weft/compare")).json()["sessions"]
        if all(row["outcome"] == "finished" for row in rows):
            break
        await asyncio.sleep(0.01)
    compared = await trial_server.api.trials.compare(CompareInput(run_check=True))
    assert [row.check and row.check.outcome for row in compared.sessions] == ["failed", "failed"]
    page = (await trial_server.send("GET", f"/weft/compare/page?session={trials[0]['session']}")).json()[
        "html"
    ]
    assert page.startswith("<!doctype html>")

    adopted = await trial_server.api.trials.adopt(
        AdoptInput(picks=(Pick(session=trials[1]["session"]),), discard=True)
    )
    assert [each.path for each in adopted.paths] == ["loom.py"]
    assert len(git(trial_server.root, "worktree", "list").splitlines()) == 1
    assert [each.path for each in (await trial_server.api.trials.undo_adoption()).paths] == ["loom.py"]
    with pytest.raises(NotFoundError):
        await trial_server.api.trials.undo_adoption()


async def test_a_session_is_replayed_and_bisected_on_the_server(trial_server: TrialServer) -> None:
    session = await trial_server.api.create_session(SessionInput(title="A cloth"))
    await trial_server.api.prompt(session.id, prompt("break it"))
    replayed = await trial_server.api.trials.replay(session.id, ReplayInput())
    assert (replayed.divergence, replayed.steps) == (None, 2)
    found = await trial_server.api.trials.bisect(session.id, BisectInput(check=CHECK, seconds=60))
    assert found.culprit is not None
    assert (found.verdict, found.culprit.step, found.culprit.tool) == ("found", 1, "bash")
    empty = await trial_server.api.create_session(SessionInput(title="Empty"))
    with pytest.raises(ConflictError, match="changed no file"):
        await trial_server.api.trials.bisect(empty.id, BisectInput(check=CHECK))
    assert len(git(trial_server.root, "worktree", "list").splitlines()) == 1
