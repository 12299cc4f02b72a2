"""Paths turned into those of another place, and words left as they were."""

import pytest

from given.parcels import parcel
from weft.errors import InvalidInputError
from weft.model.message import AssistantMessage
from weft.model.part import CompletedState, ToolPart
from weft.transfer.rebind import Rebind, parse_rebind, rebinds_between, rebound

OLD, NEW = "/there/project", "/home/ada/work"


def test_paths_are_turned_and_words_are_not() -> None:
    turned = rebound(parcel(), [Rebind(OLD, NEW)])
    answer = turned.messages[1]
    call = answer.parts[0]
    assert turned.info.directory == NEW
    assert isinstance(answer.info, AssistantMessage)
    assert answer.info.path is not None
    assert (answer.info.path.cwd, answer.info.path.root) == (NEW, NEW)
    assert isinstance(call, ToolPart)
    assert isinstance(call.state, CompletedState)
    assert call.state.input == {"filePath": f"{NEW}/a.py"}
    assert call.state.output == f"read {OLD}/a.py"


def test_there_and_back_is_as_before() -> None:
    there = rebound(parcel(), [Rebind(OLD, NEW)])
    assert rebound(there, rebinds_between(there, parcel())) == parcel()


def test_a_neighbour_with_the_same_beginning_stays() -> None:
    beside = parcel(directory="/there/project-two")
    assert rebound(beside, [Rebind(OLD, NEW)]) == beside


@pytest.mark.parametrize("text", ["", "/a", "a=b", "/a=b", "a=/b", "=/b"])
def test_what_is_no_rebind_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="--rebind"):
        parse_rebind(text)


def test_a_rebind_is_two_paths_with_or_without_a_slash() -> None:
    assert parse_rebind("/a/=/b") == Rebind("/a", "/b")
