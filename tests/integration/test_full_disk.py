"""A disk that fills up in the middle of an answer: the error is reported, what fits is stored, and the rest is stored later."""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from given.engine import NOW, PLACE, Engine, open_engine, text_prompt
from given.small_disk import SmallDisk
from weft.cli.prompt import require_unfinished
from weft.cli.run import trash_unanswered
from weft.errors import InvalidInputError, StoreError
from weft.journal import GROWTH_SECONDS
from weft.model.event import MessageUpdated, PartGrew, PartUpdated
from weft.model.failure import StorageFailure
from weft.model.ids import SessionID
from weft.model.input import SessionInput, ShellInput
from weft.model.message import AssistantMessage, AssistantTime, MessageWithParts
from weft.model.part import TextPart
from weft.provider.scripted import AnyMove, Say
from weft.store.files.store import FileStore
from weft.testing.clock import HandClock

WORDS = "".join(f"{number:07} " for number in range(20_000)).rstrip()
ROOM, LARGE = 48_000, 1 << 30
SPEAKS: Sequence[AnyMove] = [Say(text=WORDS)]
ANSWERS: Sequence[AnyMove] = [Say(text="Here again.")]


def text_of(message: MessageWithParts) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))


async def read_answer(root: Path, session: SessionID) -> MessageWithParts:
    """Return the stored answer, as another process reads it after a kill."""
    return (await FileStore(str(root)).list_messages(session))[1]


async def hear(engine: Engine, deltas: list[str]) -> None:
    async for each in engine.api.events():
        match each.event:
            case PartUpdated(part=TextPart(), delta=str(delta)) | PartGrew(delta=delta):
                deltas.append(delta)
            case _:
                pass


async def ask(engine: Engine, session: SessionID) -> object:
    return await outcome(engine.api.prompt(session, text_prompt("Speak.")))


async def outcome(asked: Awaitable[MessageWithParts]) -> object:
    """Return the failure of an answer, or the error that was raised instead."""
    try:
        answer = await asked
    except StoreError as error:
        return error
    assert isinstance(answer.info, AssistantMessage)
    return answer.info.error


@contextmanager
def limit_capacity(disk: SmallDisk, capacity: int) -> Iterator[None]:
    disk.capacity = disk.used + capacity
    try:
        yield
    finally:
        disk.capacity = LARGE


async def test_an_answer_that_does_not_fit_fails_keeps_what_fits_and_is_completed_later(
    tmp_path: Path,
) -> None:
    disk, deltas, root = SmallDisk(LARGE), list[str](), tmp_path / "storage"
    async with open_engine(SPEAKS, ANSWERS, store=FileStore(str(root), disk=disk)) as engine:
        session = (await engine.api.create_session(SessionInput(title="Long"))).id
        hearing = asyncio.ensure_future(hear(engine, deltas))
        with limit_capacity(disk, ROOM):
            failed = await ask(engine, session)
            kept = text_of(await read_answer(root, session))
            assert "No space left on device" in str(failed)
            assert WORDS.startswith(kept)
            assert len(kept) > ROOM // 2
            with pytest.raises(StoreError, match="No space left on device"):
                await engine.api.prompt(session, text_prompt("Again."))
        again = await engine.api.prompt(session, text_prompt("Again."))
        hearing.cancel()

    assert text_of(again) == "Here again."
    assert "".join(deltas).startswith(WORDS)
    answer = await read_answer(root, session)
    assert text_of(answer) == WORDS
    assert isinstance(answer.info, AssistantMessage)
    assert isinstance(answer.info.error, StorageFailure)


@pytest.mark.parametrize("capacity", [0, 500, 1500, 2500, 3500, 5000, 8000, 20_000])
async def test_a_truncated_answer_never_passes_for_a_complete_one(tmp_path: Path, capacity: int) -> None:
    disk, deltas, root = SmallDisk(LARGE), list[str](), tmp_path / "storage"
    async with open_engine(SPEAKS, SPEAKS, store=FileStore(str(root), disk=disk)) as engine:
        session = (await engine.api.create_session(SessionInput(title="Long"))).id
        hearing = asyncio.ensure_future(hear(engine, deltas))
        with limit_capacity(disk, capacity):
            failed = await ask(engine, session)
            assert isinstance(failed, StoreError | StorageFailure)
            messages = await FileStore(str(root)).list_messages(session)
            assert all(WORDS.startswith(text_of(message)) for message in messages[1:])
        hearing.cancel()
    # Closing stores everything that was published.
    messages = await FileStore(str(root)).list_messages(session)
    assert "".join(text_of(message) for message in messages[1:]) == "".join(deltas)


async def test_published_text_is_stored_as_soon_as_there_is_space(
    tmp_path: Path,
) -> None:
    disk, clock, root = SmallDisk(LARGE), HandClock(NOW), tmp_path / "storage"
    async with open_engine(SPEAKS, store=FileStore(str(root), disk=disk), clock=clock) as engine:
        session = (await engine.api.create_session(SessionInput(title="Long"))).id
        with limit_capacity(disk, ROOM):
            await ask(engine, session)
        await clock.somebody_sleeps(GROWTH_SECONDS)
        clock.turn(round(GROWTH_SECONDS * 1000))
        while text_of(await read_answer(root, session)) != WORDS:
            pass  # reading it lets the journal continue


async def test_an_answer_whose_end_could_not_be_stored_can_be_continued(tmp_path: Path) -> None:
    root = tmp_path / "storage"
    async with open_engine(SPEAKS, store=FileStore(str(root))) as engine:
        session = await engine.api.create_session(SessionInput(title="Long"))
        answer = (await engine.api.prompt(session.id, text_prompt("Speak."))).info
        with pytest.raises(InvalidInputError):
            await require_unfinished(engine.api, session)
        assert isinstance(answer, AssistantMessage)
        # What a full disk leaves if nothing but the text fits.
        open_answer = replace(answer, finish=None, time=AssistantTime(created=answer.time.created))
        await engine.store.apply(MessageUpdated(info=open_answer))
        await require_unfinished(engine.api, session)


async def test_a_manual_command_whose_output_does_not_fit_has_failed(tmp_path: Path) -> None:
    disk, root = SmallDisk(LARGE), tmp_path / "storage"
    place = replace(PLACE, directory=str(tmp_path), worktree=str(tmp_path))
    async with open_engine(store=FileStore(str(root), disk=disk), place=place) as engine:
        session = (await engine.api.create_session(SessionInput(title="Long"))).id
        with limit_capacity(disk, 4000):
            failed = await outcome(engine.api.shell(session, ShellInput(agent="build", command="seq 5000")))
        assert isinstance(failed, StoreError | StorageFailure)
        assert (await engine.api.list_sessions())[0].id == session


async def test_a_prompt_whose_answer_could_not_be_stored_stays_to_be_continued(tmp_path: Path) -> None:
    async with open_engine(store=FileStore(str(tmp_path / "storage"))) as engine:
        session = (await engine.api.create_session(SessionInput(title="Long"))).id
        # What a full disk leaves if the prompt still fits: a prompt without the message of its answer.
        await engine.api.prompt(session, text_prompt("Speak.", no_reply=True))
        await trash_unanswered(engine.api, session)
        assert [each.id for each in await engine.api.list_sessions()] == [session]
