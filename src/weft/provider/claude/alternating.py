"""A conversation as Claude takes it, over whichever API: roles in turn, calls last, no thought at the end (pure)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from weft.provider.contract import AssistantTurn, ModelMessage
from weft.provider.normalise import ends_with_question

Json = dict[str, Any]
Blocks = Callable[[ModelMessage], list[Json]]


class Kinds(NamedTuple):
    """Which blocks of an API are thoughts, calls and the results of calls."""

    is_thought: Callable[[Json], bool]
    is_call: Callable[[Json], bool]
    is_result: Callable[[Json], bool]


def to_messages(turns: Iterable[ModelMessage], blocks_of: Blocks, kinds: Kinds) -> list[Json]:
    """Turns of one role after another are one message: the results of calls and what the person said next.

    The messages are new, with lists of their own; the blocks in them may be somebody else's too.
    """
    messages: list[Json] = []
    for turn in ends_with_question(_worth_sending(turns, blocks_of, kinds)):
        role = "assistant" if isinstance(turn, AssistantTurn) else "user"
        blocks = blocks_of(turn)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(blocks)
        else:
            messages.append({"role": role, "content": list(blocks)})
    for message in messages:
        if message["role"] == "assistant":
            message["content"] = _calls_last(message["content"], kinds)
    return messages


def _worth_sending(turns: Iterable[ModelMessage], blocks_of: Blocks, kinds: Kinds) -> list[ModelMessage]:
    """Without what says nothing: the APIs refuse a message without content, and one of thoughts alone."""
    return [turn for turn in turns if not all(map(kinds.is_thought, blocks_of(turn)))]


def _calls_last(blocks: list[Json], kinds: Kinds) -> list[Json]:
    """What was said after a call stands before it: the results have to follow the calls at once."""
    said = [block for block in blocks if not kinds.is_call(block)]
    calls = [block for block in blocks if kinds.is_call(block)]
    while not calls and kinds.is_thought(said[-1]):  # a message may not end in a thought
        said.pop()
    return [*said, *calls]


def goes_on_without_thought(messages: Sequence[Json], kinds: Kinds) -> bool:
    """Whether this is the midst of a turn that began without thinking (another model's, or one whose thoughts are
    gone). With a budget to think it has to go on without: Claude refuses it otherwise. All answers up to the next
    word of the person are one turn; only the first of them has to begin with a thought."""
    if len(messages) < 2 or not kinds.is_result(messages[-1]["content"][0]):  # noqa: PLR2004 - a call and its result
        return False
    first = len(messages) - 2
    while first > 1 and all(map(kinds.is_result, messages[first - 1]["content"])):
        first -= 2
    return not kinds.is_thought(messages[first]["content"][0])
