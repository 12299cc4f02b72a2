"""The queue between a stream and its consumer: pieces of one text that arrived together are one."""

from weft.provider.chunk import ReasoningDelta, TextDelta, TextEnd
from weft.run.answer import AnswerQueue, StreamEnded
from weft.run.processor import AnswerInput


def take_all(*items: AnswerInput) -> list[AnswerInput | StreamEnded]:
    queue, taken = AnswerQueue(), list[AnswerInput | StreamEnded]()
    for item in items:
        queue.put(item)
    while not queue.empty():
        taken.append(queue.take())
    return taken


def test_pieces_after_the_first_are_joined() -> None:
    pieces = [TextDelta(id="a", text=text) for text in ("one ", "two ", "three ", "four")]
    assert take_all(*pieces) == [pieces[0], TextDelta(id="a", text="two three four")]


def test_pieces_of_different_texts_and_kinds_are_kept_apart() -> None:
    items = [
        ReasoningDelta(id="a", text="1"),
        ReasoningDelta(id="a", text="2"),
        TextDelta(id="a", text="3"),
        TextDelta(id="b", text="4"),
        TextDelta(id="b", text="5"),
    ]
    assert take_all(*items) == items


def test_a_piece_does_not_pass_the_end_of_its_text() -> None:
    items = [
        TextDelta(id="a", text="1"),
        TextDelta(id="a", text="2"),
        TextEnd(id="a"),
        TextDelta(id="a", text="3"),
        TextDelta(id="a", text="4"),
    ]
    assert take_all(*items) == items


async def test_an_item_wakes_the_consumer_that_waits() -> None:
    queue = AnswerQueue()
    waiting = queue.wait()
    queue.put(StreamEnded())
    await waiting
    assert queue.take() == StreamEnded()
