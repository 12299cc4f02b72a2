"""Every store that an earlier version or OpenCode wrote is opened by this version, whole or damaged, and goes on."""

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import weft
from given.museum import MUSEUM_PROJECT, describe, list_exhibits, read_manifest, unpack
from given.postgres import get_server
from weft.cli.main import run_command
from weft.model.ids import SessionID
from weft.model.part import TextPart
from weft.store.url import open_store
from weft.testing import Script

pytestmark = pytest.mark.slow

OURS = [name for prefix in ("files-", "sqlite-", "postgres-") for name in list_exhibits(prefix)]


@pytest.fixture(autouse=True)
def project() -> None:
    MUSEUM_PROJECT.mkdir(parents=True, exist_ok=True)


def test_the_museum_has_every_kind_of_store() -> None:
    assert {name.partition("-")[0] for name in OURS} == {"files", "sqlite", "postgres"}
    assert list_exhibits("opencode-") == ["opencode-1.1.34", "opencode-1.18.33"]


@pytest.mark.parametrize("name", OURS)
async def test_a_store_of_an_earlier_version_reads_the_same_and_can_be_continued(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, expected = unpack(name, tmp_path), read_manifest(name)
    script = Script("Go on.").says("Gladly.")
    async with weft.open(MUSEUM_PROJECT, model=script, store=url) as agent:
        assert [await describe(agent.api, each["id"]) for each in expected["sessions"]] == expected[
            "sessions"
        ]
        assert [session.id for each in await agent.api.list_trash() for session in each.sessions] == expected[
            "trash"
        ]
        first = SessionID(expected["sessions"][0]["id"])
        talk = await agent.converse(first)
        assert (await talk.ask("Go on.")).text == "Gladly."
        assert len(await talk.messages()) == len(expected["sessions"][0]["messages"]) + 2
        [back] = await agent.api.restore_session(SessionID(expected["trash"][0]))
        assert back.title == "In the trash"
    assert await asyncio.to_thread(run_command, ["storage", "verify", "--store", url]) == 0
    assert ", 0 problems" in capsys.readouterr().out


@pytest.mark.parametrize("name", OURS)
async def test_a_damaged_message_of_an_earlier_version_is_named_and_nothing_else_is_lost(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, expected = unpack(name, tmp_path), read_manifest(name)
    fork = expected["sessions"][1]
    damage_first_message(url, tmp_path, fork["id"])
    async with weft.open(MUSEUM_PROJECT, model=Script(), store=url) as agent:
        for each in (expected["sessions"][0], expected["sessions"][2]):
            assert await describe(agent.api, each["id"]) == each
        left = await describe(agent.api, fork["id"])
        assert left["messages"] == fork["messages"][1:]
    assert await asyncio.to_thread(run_command, ["storage", "verify", "--store", url]) != 0
    assert fork["id"] in capsys.readouterr().out


def damage_first_message(url: str, directory: Path, session: str) -> None:
    """Replace the document of the first message by the beginning of one, as a torn write leaves it."""
    if url.startswith("file:"):
        first = min((directory / "storage" / "message" / session).iterdir())
        first.write_bytes(first.read_bytes()[:40])
    elif url.startswith("sqlite:"):
        with closing(sqlite3.connect(directory / "sessions.db")) as database, database:
            database.execute(
                "UPDATE message SET document = x'7b' WHERE number = (SELECT message.number FROM message"
                " JOIN history ON history.number = message.history WHERE session = ? ORDER BY message.created LIMIT 1)",
                (session,),
            )
    else:
        database = url.rpartition("/")[2].partition("?")[0]
        get_server().query(
            "UPDATE museum.message SET document = '\\x7b' WHERE session = "
            f"'{session}' AND created = (SELECT min(created) FROM museum.message WHERE session = '{session}')",
            database,
        )


@pytest.mark.parametrize("name", list_exhibits("opencode-"))
def test_stores_of_opencode_are_imported_completely(name: str, tmp_path: Path) -> None:
    unpack(name, tmp_path)
    assert import_from(tmp_path) == 0
    assert list_imported_texts(tmp_path) == sorted(read_manifest(name)["texts"])


@pytest.mark.parametrize("name", list_exhibits("opencode-"))
def test_a_damaged_message_of_opencode_is_named_and_nothing_else_is_lost(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(name, tmp_path)
    damaged = damage_last_answer(tmp_path)
    assert import_from(tmp_path) == 1
    assert re.search(rf"^warning: .*{damaged}.*; it is left out$", capsys.readouterr().err, re.MULTILINE)
    left = [text for text in read_manifest(name)["texts"] if text != "Second."]
    assert list_imported_texts(tmp_path) == sorted(left)


async def test_a_tree_of_opencode_is_opened_where_it_is_whole_and_damaged(tmp_path: Path) -> None:
    unpack("opencode-1.1.34", tmp_path)
    url, texts = f"file:{tmp_path}/storage", read_manifest("opencode-1.1.34")["texts"]
    assert await list_texts(url) == sorted(texts)
    damage_last_answer(tmp_path)
    assert await list_texts(url) == sorted(text for text in texts if text != "Second.")


async def list_texts(url: str) -> list[str]:
    """Return the texts of all messages that weft finds in a store."""
    async with open_store(url) as store:
        histories = [await store.list_messages(each.id) for each in await store.list_sessions()]
    parts = [part for history in histories for message in history for part in message.parts]
    return sorted(part.text.strip() for part in parts if isinstance(part, TextPart))


def import_from(directory: Path) -> int:
    """Import what an OpenCode wrote into a database beside it. Return the exit code."""
    kind = "opencode-sqlite" if (directory / "opencode.db").exists() else "opencode"
    store = f"sqlite:{directory}/imported.db"
    return run_command(["import", "--from", kind, str(directory), "--store", store])


def list_imported_texts(directory: Path) -> list[str]:
    with closing(sqlite3.connect(directory / "imported.db")) as database:
        parts = [json.loads(row[0]) for row in database.execute("SELECT document FROM part")]
    return sorted(part["text"].strip() for part in parts if part["type"] == "text")


def damage_last_answer(directory: Path) -> str:
    """Replace the document of the newest message, the answer "Second.", by the beginning of one. Return its id."""
    if (directory / "opencode.db").exists():
        with closing(sqlite3.connect(directory / "opencode.db")) as database, database:
            (last,) = database.execute("SELECT max(id) FROM message").fetchone()
            database.execute("UPDATE message SET data = '{' WHERE id = ?", [last])
        return str(last)
    last = max((directory / "storage" / "message").glob("*/*.json"), key=lambda path: path.name)
    last.write_bytes(last.read_bytes()[:40])
    return last.stem
