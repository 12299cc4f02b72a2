"""The `history` tool in real runs: a later session finds what an earlier one said, if the configuration allows it."""

import json
import os
from pathlib import Path

import pytest

import weft
from weft.errors import InvalidInputError
from weft.model.data import QueryInput
from weft.model.message import MessageWithParts
from weft.model.part import CompletedState, ToolPart
from weft.testing.script import Script

ON = {"experimental": {"weft": {"history": True}}}


def configure(settings: object) -> None:
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
    own.mkdir(parents=True)
    (own / "opencode.json").write_text(json.dumps(settings))


def list_calls(messages: list[MessageWithParts]) -> list[ToolPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolPart)]


def test_a_later_session_finds_the_text_of_an_earlier_one(tmp_path: Path) -> None:
    configure(ON)
    script = (
        Script("Which colour?")
        .says("We agreed on ultramarine for the loom.")
        .asked("As we did last week, please.")
        .calls("history", query="ultramarine loom")
        .says("Ultramarine it is.")
    )
    with weft.open(tmp_path, model=script) as agent:
        earlier = agent.converse()
        earlier.ask("Which colour?")
        later = agent.converse()
        assert later.ask("As we did last week, please.").text == "Ultramarine it is."
        (call,) = list_calls(later.messages())
        answer = earlier.messages()[1].info.id
    assert isinstance(call.state, CompletedState)
    assert "We agreed on ultramarine for the loom." in call.state.output
    assert f'session="{earlier.session}" message="{answer}"' in call.state.output
    assert call.state.metadata["matches"] == [{"sessionID": earlier.session, "messageID": answer}]


def test_the_history_tool_is_off_by_default(tmp_path: Path) -> None:
    script = Script("Hello.").says("Hi.")
    with weft.open(tmp_path, model=script) as agent:
        agent.ask("Hello.")
    assert "history" not in [tool.name for tool in script.requests[-1].tools]


def test_a_rule_can_deny_the_history_tool(tmp_path: Path) -> None:
    configure({**ON, "permission": {"history": "deny"}})
    script = Script("Hello.").says("Hi.")
    with weft.open(tmp_path, model=script) as agent:
        agent.ask("Hello.")
    assert "history" not in [tool.name for tool in script.requests[-1].tools]


def test_a_memory_store_can_be_searched_too(tmp_path: Path) -> None:
    file = tmp_path / "note.txt"
    script = Script("Remember tea.").calls("write", filePath=str(file), content="tea\n").says("Done.")
    with weft.open(tmp_path, model=script, store="memory:", permissions={"*": "allow"}) as agent:
        session = agent.converse()
        session.ask("Remember tea.")
        data = agent.api.data
        found = agent.wait(data.query(QueryInput(sql="select tool, status from calls")))
        assert (found.columns, found.rows) == (("tool", "status"), (("write", "completed"),))
        blame = agent.wait(data.blame("note.txt"))
        assert [(line.text, blame.authors[line.author].session_id) for line in blame.lines] == [
            ("tea", session.session)
        ]
        assert agent.wait(data.get_file_log("note.txt")).steps[0].additions == 1
        assert agent.wait(data.get_trajectory(session.session))["session_id"] == session.session
        with pytest.raises(InvalidInputError, match="only reading"):
            agent.wait(data.query(QueryInput(sql="delete from calls")))
