"""What weft does with a session leaves its chain intact: runs, forks, imports, undo, prunes, the trash, migrations, garbage collection."""

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from given.engine import NOW, Engine, open_engine, text_prompt
from weft.host.now import now
from weft.maintenance.migrate import migrate
from weft.maintenance.prune import PrunePolicy, choose_families, prune
from weft.maintenance.verify import verify_store
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.provider.scripted import AnyMove, End, Say, UseTool
from weft.store.contract import Store
from weft.store.findings import GC_LABEL
from weft.store.maintenance import open_maintenance
from weft.store.url import open_store

DAY = 24 * 60 * 60 * 1000
ANSWERS: Sequence[Sequence[AnyMove]] = (
    [UseTool(tool="echo", input={"words": "warp"}), End(reason="tool-calls")],
    [Say(text="First."), End()],
    [Say(text="Second."), End()],
    [Say(text="Third."), End()],
)


def make_url(kind: str, tmp_path: Path, name: str = "store") -> str:
    return f"file:{tmp_path}/{name}/storage" if kind == "files" else f"sqlite:{tmp_path}/{name}.db"


def list_verdicts(url: str) -> dict[str, str]:
    """Return the verdict on each session. Fail if the store is not sound or anything was found."""
    result = verify_store(open_maintenance(url), now=now())
    assert result.is_sound
    assert [proof.findings for proof in result.proofs if proof.findings] == []
    return {proof.session: proof.verdict for proof in result.proofs}


@asynccontextmanager
async def open_conversation(url: str) -> AsyncIterator[tuple[Engine, SessionID]]:
    """Open an engine on a store, with a session of two prompts."""
    async with open_store(url) as store, open_engine(*ANSWERS, store=store, skip_waits=True) as engine:
        session = await engine.api.create_session(SessionInput(title="Told"))
        for words in ("weave", "mend"):
            await engine.api.prompt(session.id, text_prompt(words))
        yield engine, session.id


@pytest.mark.parametrize("kind", ["files", "sqlite"])
async def test_runs_forks_imports_and_migrations_leave_intact_chains(kind: str, tmp_path: Path) -> None:
    url = make_url(kind, tmp_path)
    async with open_conversation(url) as (engine, id):
        assert list_verdicts(url) == {id: "intact"}
        fork = await engine.api.fork_session(id)
        assert list_verdicts(url) == {id: "intact", fork.id: "intact"}
        other = make_url("sqlite" if kind == "files" else "files", tmp_path, "other")
        async with open_store(other) as target, open_engine(store=target, seed=2) as second:
            await second.api.import_session(await engine.api.export_session(id))
            assert list_verdicts(other) == {id: "intact"}
            migration = await migrate(engine.store, target)
            assert migration.complete
            assert list_verdicts(other) == {id: "intact", fork.id: "intact"}
        assert list_verdicts(url) == {id: "intact", fork.id: "intact"}


@pytest.mark.parametrize("kind", ["files", "sqlite"])
async def test_undo_prune_and_restore_leave_intact_chains(kind: str, tmp_path: Path) -> None:
    url = make_url(kind, tmp_path)
    async with open_conversation(url) as (engine, id):
        prompts = [each for each in await engine.api.list_messages(id) if each.info.role == "user"]
        await engine.api.revert(id, prompts[1].info.id)
        assert list_verdicts(url) == {id: "intact"}
        await engine.api.prompt(id, text_prompt("again"))  # removes what was undone
        assert len(await engine.api.list_messages(id)) == len(prompts) + 3
        assert list_verdicts(url) == {id: "intact"}
        [bundle] = await prune_all(engine.store)
        assert list_verdicts(url) == {}
        await engine.store.restore(bundle)
        assert list_verdicts(url) == {id: "intact"}


async def prune_all(store: Store) -> list[str]:
    later = max(NOW, now()) + DAY
    choice = choose_families(await store.list_sessions(), {}, PrunePolicy(before=later), now=later)
    return [bundle for _, bundle in (await prune(store, choice, now=later)).discarded]


def delete_as_opencode_does(root: Path, id: SessionID) -> None:
    """Remove the documents of a session, and nothing of weft's."""
    for message in (root / "message" / id).iterdir():
        shutil.rmtree(root / "part" / message.stem)
    shutil.rmtree(root / "message" / id)
    [document] = root.glob(f"session/*/{id}.json")
    document.unlink()


async def test_the_chain_of_a_session_that_opencode_deleted_is_collected(tmp_path: Path) -> None:
    url, root = make_url("files", tmp_path), tmp_path / "store/storage"
    async with open_conversation(url) as (engine, id):
        kept = await engine.api.fork_session(id)
        delete_as_opencode_does(root, id)
        assert verify_store(open_maintenance(url), now=now()).is_sound  # told as deleted outside weft
        before = now() + DAY
        leftovers = open_maintenance(url).find_leftovers(before=before)
        assert [each.where for each in leftovers if each.kind == "chain"] == [f"{root}/.weft/chain/{id}"]
        repairer = open_maintenance(url).make_repairer(GC_LABEL, now=now())
        assert repairer.remove_leftovers(leftovers, before=before).failed == ()
        assert list_verdicts(url) == {kept.id: "intact"}
        assert open_maintenance(url).list_chains() == [kept.id]
        assert (Path(repairer.backup) / ".weft/chain" / id).is_file()
