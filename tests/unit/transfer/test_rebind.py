"""Rebinding changes paths and leaves texts alone."""

import pytest

from given.session_exports import export
from weft.errors import InvalidInputError
from weft.model.message import AssistantMessage
from weft.model.part import CompletedState, ToolPart
from weft.transfer.rebind import Rebind, find_rebinds, parse_rebind, rebind_export

OLD, NEW = "/there/project", "/home/ada/work"


def test_paths_change_and_texts_do_not() -> None:
    turned = rebind_export(export(), [Rebind(OLD, NEW)])
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


def test_rebinding_there_and_back_changes_nothing() -> None:
    there = rebind_export(export(), [Rebind(OLD, NEW)])
    assert rebind_export(there, find_rebinds(there, export())) == export()


def test_a_sibling_path_with_the_same_prefix_stays() -> None:
    beside = export(directory="/there/project-two")
    assert rebind_export(beside, [Rebind(OLD, NEW)]) == beside


@pytest.mark.parametrize("text", ["", "/a", "a=b", "/a=b", "a=/b", "=/b"])
def test_an_invalid_rebind_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="--rebind"):
        parse_rebind(text)


def test_a_rebind_is_two_paths_with_or_without_a_slash() -> None:
    assert parse_rebind("/a/=/b") == Rebind("/a", "/b")
