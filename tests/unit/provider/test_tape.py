"""Record the answers of a model, and replay them."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from decimal import Decimal
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from given.damage import IN_ONE_DIRECTORY, allow_refusal, damaged_bytes, damaged_values, to_json
from given.engine import ECHO, MODEL, NOW, PLACE, open_engine, text_prompt
from weft.errors import InvalidInputError, ModelNotFoundError, ProviderAuthError, ProviderError
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import ModelRef, TextPart, ToolPart
from weft.provider.chunk import (
    AnyChunk,
    Finished,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Started,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolInputDelta,
    ToolInputStart,
    Usage,
)
from weft.provider.contract import ModelRequest, Parameters, Provider, TextContent, UserModelMessage
from weft.provider.registry import Registry, ServedModel
from weft.provider.scripted import AnyMove, Fail, Say, ScriptedProvider, UseTool
from weft.provider.tape import Recording, Replay, TapedRegistry, compute_fingerprint
from weft.testing.clock import HandClock

EVERY = (
    Started(),
    ReasoningStart(id="r", metadata={"x": {"n": 1}}),
    ReasoningDelta(id="r", text="hm"),
    ReasoningEnd(id="r", metadata={"signature": "abc=="}),
    TextStart(id="t"),
    TextDelta(id="t", text="half a pair: \ud83d"),
    TextEnd(id="t"),
    ToolInputStart(call_id="c", tool="echo"),
    ToolInputDelta(call_id="c", text='{"words": '),
    ToolCall(call_id="c", tool="echo", raw='{"words": broken'),
    Finished(
        reason="tool-calls", raw_reason="tool_use", usage=Usage(input=3, cost=Decimal("0.1"), raw={"in": 3})
    ),
)


class ChunkProvider:
    """A provider that sends these chunks, then raises if told to."""

    def __init__(self, *chunks: AnyChunk, error: ProviderError | None = None) -> None:
        self._chunks = chunks
        self._error = error

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:  # noqa: ARG002
        for chunk in self._chunks:
            yield chunk
        if self._error is not None:
            raise self._error


def ask(words: str = "hello", **more: object) -> ModelRequest:
    asked = ModelRequest(
        model=MODEL, system=(), messages=(UserModelMessage(content=(TextContent(text=words),)),)
    )
    return replace(asked, **more)


async def hear(provider: Provider, request: ModelRequest) -> list[AnyChunk]:
    return [chunk async for chunk in provider.stream(request)]


async def fault(provider: Provider, request: ModelRequest) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        await hear(provider, request)
    return raised.value


async def record(path: Path, provider: Provider, *requests: ModelRequest) -> str:
    tape = Recording(str(path)).wrap(provider)
    for request in requests:
        await hear(tape, request)
    return str(path)


def scripted_provider(*answers: str) -> ScriptedProvider:
    return ScriptedProvider([[Say(text=answer)] for answer in answers], HandClock(NOW))


def text_of(chunks: list[AnyChunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


async def test_every_kind_of_chunk_survives_recording(tmp_path: Path) -> None:
    path = await record(tmp_path / "tape", ChunkProvider(*EVERY), ask())

    assert await hear(Replay(path), ask()) == list(EVERY)
    assert {type(chunk) for chunk in EVERY} == set(get_args(AnyChunk))
    assert (tmp_path / "tape").stat().st_mode & 0o777 == 0o600


async def test_a_failure_is_replayed_after_the_text_before_it(tmp_path: Path) -> None:
    error = ProviderError(
        "slow down", status=429, retryable=True, headers={"set-cookie": "id=1"}, body="later"
    )
    error.kind, error.wait_ms = "rate-limit", 1500
    recording = Recording(str(tmp_path / "tape"))
    await fault(recording.wrap(ChunkProvider(Started(), error=error)), ask())
    await fault(recording.wrap(ChunkProvider(error=ProviderAuthError("acme", "set ACME_API_KEY"))), ask())
    replay = Replay(str(tmp_path / "tape"))

    again = await fault(replay, ask())
    assert vars(again) == {**vars(error), "headers": {}}
    assert str(again) == "slow down"
    refused = await fault(replay, ask())
    assert isinstance(refused, ProviderAuthError)
    assert (refused.provider_id, str(refused)) == ("acme", "set ACME_API_KEY")
    assert "set-cookie" not in (tmp_path / "tape").read_text()


async def test_a_miss_shows_the_first_difference(tmp_path: Path) -> None:
    path = await record(
        tmp_path / "tape", scripted_provider("a", "b"), ask("x" * 90 + "one" + "y" * 90), ask("two")
    )
    missed = await fault(Replay(path), ask("x" * 90 + "ONE" + "y" * 90))

    assert (missed.kind, missed.retryable) == ("protocol", False)
    start, end = "…" + "x" * 15, "y" * 42 + "…"
    assert str(missed) == (
        "the replay has no answer to this request; it differs from exchange 1 of tape"
        f" at messages[0].content[0].text: recorded {start}one{end}, asked {start}ONE{end}"
    )


async def test_a_miss_is_compared_with_the_most_similar_exchange(tmp_path: Path) -> None:
    other = ask("title", system=("name it",), tool_choice="none")
    path = await record(tmp_path / "tape", scripted_provider("a", "b"), other, ask("one"))

    missed = str(await fault(Replay(path), ask("one", parameters=Parameters(temperature=1.0))))
    assert missed.endswith("exchange 2 of tape at parameters.temperature: recorded nothing, asked 1.0")


async def test_a_request_beyond_the_end_of_the_tape_is_an_error(tmp_path: Path) -> None:
    replay = Replay(await record(tmp_path / "tape", scripted_provider("a"), ask()))
    await hear(replay, ask())

    missed = await fault(replay, ask())
    assert (missed.kind, str(missed)) == (
        "protocol",
        "the replay is over: tape holds 1 exchanges, and this is one more",
    )


async def test_equal_requests_are_answered_in_order_and_different_ones_in_any_order(tmp_path: Path) -> None:
    path = await record(tmp_path / "tape", scripted_provider("1", "2", "3"), ask("a"), ask("a"), ask("b"))
    replay = Replay(path)

    assert [text_of(await hear(replay, ask(words))) for words in ("b", "a", "a")] == ["3", "1", "2"]
    assert replay.left == []


async def test_directories_and_ids_are_not_compared(tmp_path: Path) -> None:
    then, now = "ses_0123456789abABCDEFGHIJKLMN", "ses_ba9876543210NMLKJIHGFEDCBA"
    call = ToolCall(call_id="c", tool="read", raw=f'{{"path": "/old/place/a", "of": "{then}"}}')
    recording = Recording(str(tmp_path / "tape"))
    recording.set_places({"directory": "/old/place"})
    day = "  Platform: linux\n  Today's date: Mon Jan 05 2026"
    await hear(
        recording.wrap(ChunkProvider(call)),
        ask(f"{then} in /old/place/a", session=then, system=(f"{day}\n.",)),
    )
    replay = Replay(str(tmp_path / "tape"))
    replay.set_places({"directory": '/new/"place"'})
    day = "  Platform: darwin\n  Today's date: Tue Feb 10 2026"

    heard = await hear(replay, ask(f'{now} in /new/"place"/a', session=now, system=(f"{day}\n.",)))
    assert heard == [replace(call, raw=f'{{"path": "/new/\\"place\\"/a", "of": "{now}"}}')]


async def test_a_directory_that_was_streamed_in_pieces_is_not_compared(tmp_path: Path) -> None:
    halves = (TextDelta(id="t", text="see /old/pl"), TextDelta(id="t", text="ace"))
    recording = Recording(str(tmp_path / "tape"))
    recording.set_places({"directory": "/old/place"})
    await hear(recording.wrap(ChunkProvider(*halves)), ask("/old/place"))
    await hear(recording.wrap(scripted_provider("a")), ask("see /old/place"))
    replay = Replay(str(tmp_path / "tape"))
    replay.set_places({"directory": "/new"})

    said = text_of(await hear(replay, ask("/new")))
    assert text_of(await hear(replay, ask(said))) == "a"


async def test_a_path_that_only_begins_like_the_directory_is_compared(tmp_path: Path) -> None:
    recording = Recording(str(tmp_path / "tape"))
    recording.set_places({"directory": "/old", "worktree": "/"})
    await hear(recording.wrap(scripted_provider("a")), ask("/older and my/old and /old"))
    (line,) = (tmp_path / "tape").read_text().splitlines()

    assert json.loads(line)["request"]["messages"][0]["content"][0]["text"] == (
        "/older and my/old and <directory>"
    )


async def test_a_tape_contains_no_headers_and_no_keys(tmp_path: Path) -> None:
    model = replace(
        MODEL,
        headers={"x-mine": "hush-1"},
        options={"apiKey": "hush-2"},
        api=replace(MODEL.api, url="https://me:hush-3@host"),
    )
    options = {"nested": {"auth_token": "hush-4"}, "headers": {"x": "hush-5"}, "maxTokens": 5}
    asked = ask(model=model, parameters=Parameters(options=options, headers={"authorization": "hush-6"}))
    path = await record(tmp_path / "tape", scripted_provider("a"), asked)
    written = (tmp_path / "tape").read_text()

    assert "hush" not in written
    assert '"maxTokens":5' in written
    assert text_of(await hear(Replay(path), asked)) == "a"


async def test_an_answer_that_was_not_read_to_its_end_is_replayed_as_far_as_recorded(tmp_path: Path) -> None:
    async with aclosing(
        Recording(str(tmp_path / "tape")).wrap(ChunkProvider(*EVERY)).stream(ask())
    ) as chunks:
        assert await anext(chunks) == Started()

    async with aclosing(Replay(str(tmp_path / "tape")).stream(ask())) as chunks:
        assert await anext(chunks) == Started()
        with pytest.raises(ProviderError, match="tape holds only the beginning of this answer"):
            await anext(chunks)


async def test_an_exchange_in_progress_is_kept_when_it_is_cancelled(tmp_path: Path) -> None:
    began = asyncio.Event()

    class HangingProvider:
        async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:  # noqa: ARG002
            yield Started()
            began.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(hear(Recording(str(tmp_path / "tape")).wrap(HangingProvider()), ask()))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [exchange.cut for exchange in Replay(str(tmp_path / "tape")).left] == [True]


async def test_a_replay_has_the_models_of_the_recording(tmp_path: Path) -> None:
    path = await record(tmp_path / "tape", scripted_provider("a"), ask())
    replay = Replay(path)
    models = TapedRegistry(Registry(), replay)
    name = ModelRef(provider_id="scripted", model_id="test")

    assert models.get_default() == name
    assert models.get(name) == ServedModel(MODEL, replay)
    with pytest.raises(ModelNotFoundError):
        models.get(ModelRef(provider_id="scripted", model_id="other"))


async def test_an_invalid_tape_is_refused_with_its_line(tmp_path: Path) -> None:
    await record(tmp_path / "good", scripted_provider("a"), ask())
    good = (tmp_path / "good").read_text()
    bad = {
        "nonsense": "not JSON",
        '{"role": "user"}': "missing required field",
        good[: len(good) // 2]: "not JSON",
        good.replace('"tape":1', '"tape":9'): "tape format 9, but this weft reads format 1",
        good.replace("TextDelta", "Telegram"): "unknown chunk 'Telegram'",
        good.replace('"hello"', '"hallo"'): "the request was changed after it was recorded",
    }
    for line, reason in bad.items():
        (tmp_path / "bad").write_text(good + line)
        with pytest.raises(InvalidInputError) as raised:
            Replay(str(tmp_path / "bad"))
        assert "bad, line 2" in str(raised.value)
        assert reason in str(raised.value)
    with pytest.raises(InvalidInputError, match="No such file"):
        Replay(str(tmp_path / "none"))


@given(data=st.data())
@IN_ONE_DIRECTORY
def test_whatever_a_tape_contains_is_replayed_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    good, path = tmp_path / "good.jsonl", tmp_path / "odd.jsonl"
    if not good.exists():
        asyncio.run(record(good, ChunkProvider(*EVERY), ask(), ask("again")))
    odd = data.draw(damaged_values(json.loads(good.read_bytes().splitlines()[0])))
    if isinstance(odd, dict) and data.draw(st.booleans()):
        odd["fingerprint"] = compute_fingerprint(odd.get("request"))
    raw = to_json(odd) + b"\n"
    path.write_bytes(data.draw(damaged_bytes(raw)) if data.draw(st.booleans()) else raw)

    async def replay() -> None:
        player = Replay(str(path))
        player.set_places({"home": "/home/ada"})
        player.find_default()
        for request in (ask(), ask("else")):
            await hear(player, request)

    with allow_refusal(InvalidInputError, ProviderError):
        asyncio.run(replay())


@pytest.mark.parametrize("tag", [[], {}, None, 1])
async def test_a_chunk_whose_kind_is_not_a_text_is_refused(tmp_path: Path, tag: object) -> None:
    path = tmp_path / "t.jsonl"
    await record(path, ChunkProvider(*EVERY), ask())
    line = json.loads(path.read_bytes())
    line["chunks"][0]["chunk"] = tag
    path.write_text(json.dumps(line))
    with pytest.raises(InvalidInputError, match="unknown chunk"):
        Replay(str(path))


async def test_a_chunk_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    await record(path, ChunkProvider(*EVERY), ask())
    path.write_bytes(path.read_bytes().replace(b'{"x":{"n":1}}', b'{"x":' + b"[" * 600 + b"]" * 600 + b"}"))
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        Replay(str(path))


def test_a_recording_needs_a_new_or_empty_file(tmp_path: Path) -> None:
    Recording(str(tmp_path / "new"))
    Recording(str(tmp_path / "new"))
    (tmp_path / "full").write_text("mine")

    for path, reason in (
        (tmp_path / "full", "is not empty"),
        (tmp_path, "cannot"),
        (tmp_path / "no/way", "No such"),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            Recording(str(path))
    assert (tmp_path / "full").read_text() == "mine"


async def run(provider: Provider, seed: int, directory: str) -> list[MessageWithParts]:
    place = replace(PLACE, directory=directory, worktree=directory)
    async with open_engine(
        provider=provider, seed=seed, place=place, skip_waits=True, tools=(ECHO,)
    ) as engine:
        session = await engine.api.create_session(SessionInput(title="Mine"))
        await engine.api.prompt(session.id, text_prompt("go"))
        return list(await engine.api.list_messages(session.id))


def summarise_answers(history: list[MessageWithParts]) -> list[object]:
    results: list[object] = []
    for message in history:
        if isinstance(message.info, AssistantMessage):
            results.append((message.info.cost, message.info.tokens, message.info.finish))
        results += [part.text for part in message.parts if isinstance(part, TextPart)]
        results += [(part.tool, part.state.input) for part in message.parts if isinstance(part, ToolPart)]
    return results


async def test_a_replayed_run_equals_the_recorded_one(tmp_path: Path) -> None:
    script: list[list[AnyMove]] = [
        [Fail(message="busy", retryable=True)],
        [Say(text="I will."), UseTool(tool="echo", input={"words": "hi"})],
        [Say(text="Done.")],
    ]
    recording = Recording(str(tmp_path / "tape"))
    recording.set_places({"directory": "/one"})
    first = await run(recording.wrap(ScriptedProvider(script, HandClock(NOW))), 1, "/one")
    again, elsewhere = Replay(str(tmp_path / "tape")), Replay(str(tmp_path / "tape"))
    again.set_places({"directory": "/one"})
    elsewhere.set_places({"directory": "/two"})

    assert await run(again, 1, "/one") == first
    assert summarise_answers(await run(elsewhere, 2, "/two")) == summarise_answers(first)
    assert ("echo", {"words": "hi"}) in summarise_answers(first)
    assert again.left == elsewhere.left == []
