"""Shares at a remote share server: what is sent and what is not, failures on the way, and revoking."""

import asyncio
import base64
import json
import threading
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from given.engine import NOW, Engine, InstantClock, open_engine, text_prompt
from given.share_server import ShareServer, open_share_server
from weft.errors import (
    ConflictError,
    DocumentError,
    InvalidInputError,
    NotFoundError,
    SharingDisabledError,
    SharingError,
    StoreError,
)
from weft.maintenance.migrate import migrate
from weft.model.event import SessionWarned
from weft.model.input import SessionInput
from weft.model.session import SessionInfo, SessionShare
from weft.model.share import ShareTerms
from weft.model.wire import encode
from weft.provider.chunk import AnyChunk, Finished, Started, TextDelta, TextEnd, TextStart, Usage
from weft.provider.contract import ModelRequest
from weft.provider.scripted import Say, UseTool
from weft.share.contract import ShareSettings
from weft.share.records import RECORDS_KEY
from weft.store.contract import Key
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock
from weft.transfer.document import to_document

FAR = 4_000_000_000_000
KEY = "sk-ant-api03-aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY"


@pytest.fixture
def shares() -> Iterator[ShareServer]:
    with open_share_server() as shares:
        yield shares


def engine(shares: ShareServer, *script: Any, mode: Any = "manual", **more: Any) -> Any:
    settings = ShareSettings(mode=mode, server=shares.url, host=more.pop("host", ""))
    return open_engine(*script, sharing=settings, skip_waits=True, **more)


async def share_session(engine: Engine) -> SessionInfo:
    session = await engine.api.create_session(SessionInput(title="warp"))
    return await engine.api.sharing.share(session.id)


async def list_published_text(engine: Engine, after: int = 0) -> str:
    events = engine.api.events(after=after)
    published_events = [await anext(events) for _ in range(engine.api.bus.cursor - after)]
    return "\n".join(encode(each.event).decode() for each in published_events)


async def test_a_shared_session_is_complete(shares: ShareServer) -> None:
    async with engine(shares, [Say(text="an answer")]) as here:
        session = await here.api.create_session(SessionInput(title="warp"))
        await here.api.prompt(session.id, text_prompt("a prompt"))
        session = await here.api.sharing.share(session.id)
        [hosted] = shares.shares.values()
        assert session.share == SessionShare(url=f"{shares.url}/share/shr1")
        assert hosted.session == session.id
        texts = [
            data["text"]
            for key, data in hosted.items.items()
            if key.startswith("part/") and data["type"] == "text"
        ]
        assert texts == ["a prompt", "an answer"]
        assert [model["id"] for model in hosted.items["model"]] == ["test"]
        assert (await here.api.sharing.share(session.id)).share == session.share
        assert shares.created == 1


async def test_later_changes_are_sent_once_and_the_last_second_is_not_lost(shares: ShareServer) -> None:
    async with engine(shares, [Say(text="one two three")], clock=HandClock(NOW)) as here:
        session = await share_session(here)
        await here.api.prompt(session.id, text_prompt("go"))
        [hosted] = shares.shares.values()
        assert len(hosted.batches) == 1
    assert len(hosted.batches) == 2
    assert "one two three" in json.dumps(hosted.items)
    assert "warp" in json.dumps(hosted.items[f"session/{session.id}"])


async def test_changes_of_a_running_session_are_sent_a_second_later(shares: ShareServer) -> None:
    clock = HandClock(NOW)
    async with engine(shares, [Say(text="first")], [Say(text="second")], clock=clock) as here:
        session = await share_session(here)
        [hosted] = shares.shares.values()
        await here.api.prompt(session.id, text_prompt("go"))
        await clock.somebody_sleeps(1.0)
        clock.turn(1000)
        await shares.wait_for_batches("shr1", 2)
        assert "first" in json.dumps(hosted.items)
        sent = len(hosted.batches[1])
        await here.api.prompt(session.id, text_prompt("on"))
    again = {
        f"{item['type']}/{item['data'].get('id')}" for item in hosted.batches[2] if item["type"] == "part"
    }
    before = {
        f"{item['type']}/{item['data'].get('id')}" for item in hosted.batches[1] if item["type"] == "part"
    }
    assert (sent > 0, again & before) == (True, set())


async def test_a_session_that_another_process_shared_is_sent_when_it_is_renamed_here(
    shares: ShareServer,
) -> None:
    store = MemoryStore()
    async with engine(shares, store=store) as here, engine(shares, store=store) as elsewhere:
        session = await here.api.create_session(SessionInput(title="warp"))
        await elsewhere.api.sharing.share(session.id)
        await here.api.rename_session(session.id, "weft")
        await here.api.sharing.catch_up()
        await elsewhere.api.sharing.catch_up()  # may have been sending the old title
        [hosted] = shares.shares.values()
        assert hosted.items[f"session/{session.id}"]["title"] == "weft"


async def test_an_update_that_arrives_late_is_followed_by_what_another_process_changed_meanwhile(
    shares: ShareServer,
) -> None:
    store = MemoryStore()
    async with engine(shares, store=store) as here, engine(shares, store=store) as elsewhere:
        session = await share_session(elsewhere)
        await elsewhere.api.sharing.catch_up()
        shares.holds.append(late := threading.Event())
        await elsewhere.api.rename_session(session.id, "shed")
        for _ in range(1000):
            if not shares.holds:
                break
            await asyncio.sleep(0.01)
        await here.api.rename_session(session.id, "weft")
        await here.api.sharing.catch_up()
        late.set()
        await elsewhere.api.sharing.catch_up()
        [hosted] = shares.shares.values()
        assert [batch[0]["data"]["title"] for batch in hosted.batches][-3:] == ["weft", "shed", "weft"]


async def test_secrets_are_redacted_before_anything_is_sent(shares: ShareServer) -> None:
    steps = [[UseTool(tool="echo", input={"words": f"TOKEN={KEY}"})], [Say(text=f"{KEY} as you see")]]
    async with engine(shares, *steps) as here:
        session = await share_session(here)
        await here.api.prompt(session.id, text_prompt(f"use {KEY}"))
    words = shares.all_text()
    assert "[redacted:anthropic-key:1]" in words
    assert KEY[:13] not in words


class HalfSecretProvider:
    """A model that stops in the middle of a secret."""

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        del request
        yield Started()
        yield TextStart(id="1")
        yield TextDelta(id="1", text=f"it is {KEY[:15]}")
        await self._clock.sleep(100)
        yield TextDelta(id="1", text=KEY[15:])
        yield TextEnd(id="1")
        yield Finished(reason="stop", usage=Usage())


async def test_a_secret_is_not_sent_before_it_is_complete(shares: ShareServer) -> None:
    clock = HandClock(NOW)
    async with engine(shares, clock=clock, provider=HalfSecretProvider(clock)) as here:
        session = await share_session(here)
        running = asyncio.ensure_future(here.api.prompt(session.id, text_prompt("go")))
        await clock.somebody_sleeps(100)
        clock.turn(1000)
        await shares.wait_for_batches("shr1", 2)
        assert "go" in json.dumps(shares.shares["shr1"].items)
        clock.turn(200_000)
        await running
    assert KEY[:13] not in shares.all_text()
    assert "it is [redacted:anthropic-key:1]" in shares.all_text()


async def test_redaction_can_be_disabled(shares: ShareServer) -> None:
    async with engine(shares, [Say(text="ok")]) as here:
        session = await here.api.create_session(SessionInput())
        await here.api.prompt(session.id, text_prompt(f"use {KEY}"))
        await here.api.sharing.share(session.id, ShareTerms(redact=False))
    assert KEY in shares.all_text()


async def test_a_preview_sends_nothing(shares: ShareServer) -> None:
    async with engine(shares, [Say(text="ok")]) as here:
        session = await here.api.create_session(SessionInput())
        await here.api.prompt(session.id, text_prompt(f"use {KEY}"))
        preview = await here.api.sharing.preview_share(session.id)
        assert preview.kinds == {"anthropic-key": 1}
        assert KEY not in encode(preview).decode()
    assert shares.requests == []


async def test_the_secret_is_in_no_session_event_or_export(shares: ShareServer) -> None:
    async with engine(shares, [Say(text="ok")]) as here:
        session = await share_session(here)
        await here.api.prompt(session.id, text_prompt("go"))
        await here.api.sharing.catch_up()
        published_events = await list_published_text(here)
        exported = to_document(await here.api.export_session(session.id)).decode()
        listed = encode(await here.api.sharing.list_shares()).decode()
        stored = encode(await here.store.get_session(session.id)).decode()
        kept = await here.store.find_value(("session_share", session.id))
    assert kept == {"id": "shr1", "url": f"{shares.url}/share/shr1", "secret": "the-secret-1"}
    assert f"{shares.url}/share/shr1" in published_events
    for text in (published_events, exported, listed, stored):
        assert "the-secret-1" not in text
    items = [json.loads(body).get("data") for body in shares.bodies]
    assert "the-secret-1" not in json.dumps(items)


async def test_opencode_finds_only_records_of_the_server_it_would_use_itself(shares: ShareServer) -> None:
    async with open_engine(sharing=ShareSettings(), skip_waits=True) as here:
        session = await here.api.create_session(SessionInput())
        await here.api.sharing.share(session.id, ShareTerms(to=shares.url))
        assert await here.store.find_value(("session_share", session.id)) is None
        assert [each.id for each in await here.api.sharing.list_shares()] == ["shr1"]
        await here.api.sharing.unshare(session.id)
        assert (shares.shares, await here.api.sharing.list_shares()) == ({}, [])


# --- nothing leaves unasked ---


async def test_sharing_without_a_configured_server_is_refused_with_a_hint() -> None:
    async with open_engine() as here:
        session = await here.api.create_session(SessionInput())
        with pytest.raises(InvalidInputError, match="no place to share to") as refused:
            await here.api.sharing.share(session.id)
        assert "weft serve --share" in refused.value.hint
        with pytest.raises(InvalidInputError, match="no server of ours"):
            await here.api.sharing.share(session.id, ShareTerms(to="server"))
        with pytest.raises(InvalidInputError, match="not the address"):
            await here.api.sharing.share(session.id, ShareTerms(to="ftp://e.test"))
        assert (await here.api.get_session(session.id)).share is None


async def test_an_invalid_share_server_is_reported_when_sharing() -> None:
    async with open_engine(sharing=ShareSettings(server="ftp://e.test")) as here:
        session = await here.api.create_session(SessionInput())
        with pytest.raises(InvalidInputError, match=r"enterprise\.url"):
            await here.api.sharing.share(session.id)


async def test_disabled_sharing_is_refused_and_leaves_no_trace(shares: ShareServer) -> None:
    settings = ShareSettings(mode="disabled", disabled_by="the test", server=shares.url)
    async with open_engine(sharing=settings) as here:
        session = await here.api.create_session(SessionInput())
        with pytest.raises(SharingDisabledError, match="Sharing is disabled in configuration"):
            await here.api.sharing.share(session.id)
        with pytest.raises(SharingDisabledError):
            await here.api.sharing.share(session.id, ShareTerms(to=shares.url))
        assert (await here.api.get_session(session.id)).share is None
    assert shares.requests == []


async def test_an_automatic_share_happens_once_and_never_for_a_child_a_fork_or_an_import(
    shares: ShareServer,
) -> None:
    async with engine(shares, [Say(text="ok")], mode="auto") as here:
        session = await here.api.create_session(SessionInput())
        again = await here.api.sharing.share(session.id)  # as `run --share` does
        await here.api.create_session(SessionInput(parent_id=session.id))
        await here.api.prompt(session.id, text_prompt("go"))
        fork = await here.api.fork_session(session.id)
        export = await here.api.export_session(session.id)
        await here.api.sharing.catch_up()
        assert again.share is not None
        assert (shares.created, fork.share) == (1, None)
    async with engine(shares, mode="auto") as there:
        received = await there.api.import_session(export)
        assert (await there.api.get_session(received.id)).share is None
    assert shares.created == 1


async def test_a_failed_automatic_share_is_reported_and_the_session_continues(shares: ShareServer) -> None:
    shares.next_statuses += [403]
    async with engine(shares, mode="auto") as here:
        events = here.api.events()
        session = await here.api.create_session(SessionInput())
        await here.api.sharing.catch_up()
        warned = [
            published.event
            async for published in _take_first(events, 3)
            if isinstance(published.event, SessionWarned)
        ]
        assert [each.session_id for each in warned] == [session.id]
        assert "403" in warned[0].message
        assert (await here.api.get_session(session.id)).share is None


async def _take_first(events: Any, count: int) -> Any:
    for _ in range(count):
        yield await anext(events)


# --- trouble on the way ---


async def test_a_transient_failure_is_retried(shares: ShareServer) -> None:
    shares.next_statuses += [503, 429, 500]
    async with engine(shares) as here:
        assert (await share_session(here)).share is not None
    # What is sent second is the session with its new address.
    assert [path for _, path in shares.requests] == ["/api/share"] * 4 + ["/api/share/shr1/sync"] * 2


async def test_a_lasting_failure_is_an_error_and_leaves_nothing_behind(shares: ShareServer) -> None:
    async with engine(shares) as here:
        session = await here.api.create_session(SessionInput())
        shares.next_statuses += [503] * 4
        with pytest.raises(SharingError, match="503"):
            await here.api.sharing.share(session.id)
        assert await here.api.sharing.list_shares() == []
        shares.next_statuses += [200]  # an answer that is not a share
        with pytest.raises(SharingError, match="something other than a share"):
            await here.api.sharing.share(session.id)
        assert (await here.api.get_session(session.id)).share is None
        assert await here.store.find_value(("session_share", session.id)) is None


async def test_a_share_that_cannot_be_filled_is_revoked(shares: ShareServer) -> None:
    async with engine(shares) as here:
        session = await here.api.create_session(SessionInput())
        shares.next_sync_statuses += [503] * 4
        with pytest.raises(SharingError):
            await here.api.sharing.share(session.id)
        assert (shares.shares, await here.api.sharing.list_shares()) == ({}, [])


class FailingStore(MemoryStore):
    """Reads no messages while it is away, and keeps no new share while it is full."""

    is_away = False
    is_full = False

    async def update_value(self, key: Key, *given: Any, **more: Any) -> Any:
        if self.is_full and key == RECORDS_KEY:
            raise StoreError("full")
        return await super().update_value(key, *given, **more)

    async def list_messages(self, *given: Any, **more: Any) -> Any:
        if self.is_away:
            raise StoreError("away")
        return await super().list_messages(*given, **more)


async def test_a_share_that_the_store_fails_is_revoked(shares: ShareServer) -> None:
    store = FailingStore()
    async with engine(shares, store=store) as here:
        session = await here.api.create_session(SessionInput())
        store.is_away = True
        with pytest.raises(StoreError):
            await here.api.sharing.share(session.id)
        store.is_away = False
        assert (shares.shares, await here.api.sharing.list_shares()) == ({}, [])
        store.is_full = True
        with pytest.raises(StoreError):
            await here.api.sharing.share(session.id)
        store.is_full = False
        assert (shares.shares, await here.api.sharing.list_shares()) == ({}, [])
        await here.api.sharing.share(session.id)
        assert len(shares.shares) == 1


async def test_items_that_could_not_be_sent_are_sent_with_the_next_change(shares: ShareServer) -> None:
    async with engine(shares, [Say(text="first")], [Say(text="second")]) as here:
        session = await share_session(here)
        shares.next_statuses += [503] * 4
        await here.api.prompt(session.id, text_prompt("go"))
        await here.api.sharing.catch_up()
        await here.api.prompt(session.id, text_prompt("on"))
        await here.api.sharing.catch_up()
        [hosted] = shares.shares.values()
        said = json.dumps(hosted.items)
        assert ("first" in said, "second" in said) == (True, True)


async def test_a_share_removed_on_the_server_is_removed_here_with_a_notice(shares: ShareServer) -> None:
    async with engine(shares, [Say(text="ok")]) as here:
        session = await share_session(here)
        before = here.api.bus.cursor
        shares.shares.clear()
        await here.api.prompt(session.id, text_prompt("go"))
        await here.api.sharing.catch_up()
        assert (await here.api.get_session(session.id)).share is None
        assert await here.api.sharing.list_shares() == []
        assert "it is no longer shared" in await list_published_text(here, before)


# --- taking it back ---


async def test_unsharing_removes_the_share_at_the_server_and_here(shares: ShareServer) -> None:
    async with engine(shares) as here:
        session = await share_session(here)
        assert (await here.api.sharing.unshare(session.id)).share is None
        assert (shares.shares, await here.api.sharing.list_shares()) == ({}, [])
        assert await here.store.find_value(("session_share", session.id)) is None
        with pytest.raises(NotFoundError):
            await here.api.sharing.unshare(session.id)
        assert "the-secret" not in json.dumps(await here.store.find_value(RECORDS_KEY))


async def test_a_share_that_cannot_be_revoked_stays_listed_and_can_be_forgotten(shares: ShareServer) -> None:
    async with engine(shares) as here:
        session = await share_session(here)
        shares.next_delete_statuses += [503] * 4
        with pytest.raises(SharingError, match="is still shown at") as refused:
            await here.api.sharing.unshare(session.id)
        assert "--forget" in refused.value.hint
        assert [each.session_id for each in await here.api.sharing.list_shares()] == [session.id]
        assert (await here.api.get_session(session.id)).share is not None
        await here.api.sharing.unshare(session.id, forget=True)
        assert await here.api.sharing.list_shares() == []
    assert list(shares.shares) == ["shr1"]


async def test_a_session_is_removed_only_after_its_share_is_revoked(shares: ShareServer) -> None:
    async with engine(shares) as here:
        session = await share_session(here)
        child = await here.api.create_session(SessionInput(parent_id=session.id))
        await here.api.sharing.share(child.id)
        shares.next_delete_statuses += [503] * 4
        with pytest.raises(SharingError, match="is still shown at"):
            await here.api.remove_session(session.id)
        assert len(await here.api.list_sessions()) == 2
        await here.api.remove_session(session.id)
        assert (shares.shares, await here.api.sharing.list_shares()) == ({}, [])
        back = await here.api.restore_session(session.id)
        assert [each.share for each in back] == [None, None]


async def test_a_share_of_opencode_is_listed_and_revoked(shares: ShareServer) -> None:
    async with engine(shares) as here:
        session = await share_session(here)
        await here.store.put_value(RECORDS_KEY, None)  # all that OpenCode would have left
        [listed] = await here.api.sharing.list_shares()
        assert (listed.id, listed.known) == ("shr1", False)
        await here.api.sharing.revoke_share("shr1")
        assert shares.shares == {}
        assert (await here.api.get_session(session.id)).share is None


async def test_expired_shares_are_revoked_by_the_next_command(shares: ShareServer) -> None:
    clock, store = InstantClock(NOW), MemoryStore()
    async with engine(shares, clock=clock, store=store) as here:
        session = await here.api.create_session(SessionInput())
        await here.api.sharing.share(session.id, ShareTerms(expires=NOW + 60_000))
        other = await here.api.create_session(SessionInput())
        with pytest.raises(InvalidInputError, match="time is over"):
            await here.api.sharing.share(other.id, ShareTerms(expires=NOW - 1))
        assert len(await here.api.sharing.list_shares()) == 1
    clock.turn(60_000)
    async with engine(shares, clock=clock, store=store) as here:
        await here.api.sharing.catch_up()
        assert shares.shares == {}
        assert (await here.api.get_session(session.id)).share is None


async def test_a_shared_session_is_not_shared_on_another_server(shares: ShareServer) -> None:
    async with engine(shares, host="http://pages.test") as here:
        session = await here.api.create_session(SessionInput())
        await here.api.sharing.share(session.id, ShareTerms(to="server"))
        with pytest.raises(ConflictError, match="is shared already"):
            await here.api.sharing.share(session.id, ShareTerms(to=shares.url))
    assert shares.requests == []


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        (ShareTerms(redact=False), ShareTerms(), "with secrets in clear text"),
        (ShareTerms(), ShareTerms(redact=False), "with secrets redacted"),
        (ShareTerms(), ShareTerms(expires=FAR), "until another time"),
        (ShareTerms(), ShareTerms(attachments=False), "with attached files"),
    ],
)
async def test_sharing_again_with_other_options_is_refused(
    first: ShareTerms, then: ShareTerms, said: str, shares: ShareServer
) -> None:
    async with engine(shares) as here:
        session = await here.api.create_session(SessionInput())
        shared = await here.api.sharing.share(session.id, first)
        with pytest.raises(ConflictError, match=f"is shared already, {said}: http"):
            await here.api.sharing.share(session.id, then)
        assert await here.api.sharing.share(session.id, first) == shared


async def test_the_password_is_sent_and_never_shown(shares: ShareServer) -> None:
    server = shares.url.replace("http://", "http://ada:pass%20word@")
    async with open_engine(sharing=ShareSettings(server=server), skip_waits=True) as here:
        session = await share_session(here)
        assert "pass" not in encode(await here.api.sharing.list_shares()).decode()
        shares.next_delete_statuses += [401]
        with pytest.raises(SharingError) as refused:
            await here.api.sharing.unshare(session.id)
        assert "pass%20word" not in str(refused.value)
    assert set(shares.authorizations) == {f"Basic {base64.b64encode(b'ada:pass word').decode()}"}


async def test_a_share_can_be_revoked_from_the_store_its_session_moved_to(
    shares: ShareServer,
) -> None:
    source, target = MemoryStore(), MemoryStore()
    async with engine(shares, store=source) as here:
        session = await share_session(here)
    await migrate(source, target)
    async with engine(shares, store=target) as here:
        assert [each.id for each in await here.api.sharing.list_shares()] == ["shr1"]
        await here.api.sharing.unshare(session.id)
    assert shares.shares == {}


async def test_unreadable_share_records_end_no_run_and_are_reported_on_listing(
    shares: ShareServer,
) -> None:
    store = MemoryStore()
    await store.put_value(RECORDS_KEY, {"shares": "torn"})
    async with engine(shares, [Say(text="ok")], store=store) as here:
        session = await here.api.create_session(SessionInput())
        await here.api.prompt(session.id, text_prompt("go"))
        with pytest.raises(DocumentError, match="sharing/book"):
            await here.api.sharing.list_shares()
        with pytest.raises(DocumentError):
            await here.api.remove_session(
                session.id
            )  # it may have been shared, and then could not be revoked
    assert await store.find_value(RECORDS_KEY) == {"shares": "torn"}
