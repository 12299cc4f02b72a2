"""Every event of OpenCode 1.1.34 has a class here, and is encoded and decoded unchanged."""

import json
from pathlib import Path
from types import UnionType
from typing import Any, get_args

import pytest
from msgspec import Struct
from msgspec.inspect import StructType, type_info

from weft.errors import DocumentError
from weft.model.event import Durable, Event, PartGrew, SessionEvent, SessionFailed, session_of
from weft.model.event_wire import KINDS, UnknownEvent, event_from_json, event_from_plain, event_to_plain
from weft.model.session import SessionInfo
from weft.model.wire import encode

GOLDEN = Path(__file__).parent / "documents"


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_bytes())


SESSION = golden("session/fresh")["id"]
MESSAGE = golden("message/user")["id"]
PART = golden("part/text")["id"]

# The catalogue, one realistic payload each. `permission.updated` is in OpenCode's list and never published.
PROPERTIES: dict[str, dict[str, Any]] = {
    "session.created": {"info": golden("session/fresh")},
    "session.updated": {"info": golden("session/with-everything")},
    "session.deleted": {"info": golden("session/fresh")},
    "session.diff": {"sessionID": SESSION, "diff": [golden("diff/changed"), golden("diff/binary")]},
    "session.error": {"sessionID": SESSION, "error": golden("message/assistant-failed-api")["error"]},
    "session.status": {"sessionID": SESSION, "status": golden("status/retry")},
    "session.idle": {"sessionID": SESSION},
    "session.compacted": {"sessionID": SESSION},
    "message.updated": {"info": golden("message/assistant")},
    "message.removed": {"sessionID": SESSION, "messageID": MESSAGE},
    "message.part.updated": {"part": golden("part/text"), "delta": "line.\n"},
    "message.part.removed": {"sessionID": SESSION, "messageID": MESSAGE, "partID": PART},
    "permission.asked": golden("permission/request"),
    "permission.replied": {"sessionID": SESSION, "requestID": "per_1", "reply": "always"},
    "question.asked": golden("question/request"),
    "question.replied": {"sessionID": SESSION, "requestID": "que_1", "answers": [["old", "new"], []]},
    "question.rejected": {"sessionID": SESSION, "requestID": "que_1"},
    "todo.updated": {"sessionID": SESSION, "todos": [golden("todo/one")]},
    "command.executed": {"name": "init", "sessionID": SESSION, "arguments": "a b", "messageID": MESSAGE},
    "file.edited": {"file": "/home/ada/loom/src/parse.py"},
    "file.watcher.updated": {"file": "/home/ada/loom/NEWS.md", "event": "unlink"},
    "vcs.branch.updated": {"branch": "main"},
    "lsp.updated": {},
    "lsp.client.diagnostics": {"serverID": "pyright", "path": "/home/ada/loom/src/parse.py"},
    "mcp.tools.changed": {"server": "docs"},
    "mcp.browser.open.failed": {"mcpName": "docs", "url": "https://example.test/login"},
    "project.updated": golden("project/git"),
    "server.connected": {},
    "server.heartbeat": {},
    "server.instance.disposed": {"directory": "/home/ada/loom"},
    "global.disposed": {},
    "installation.updated": {"version": "1.1.35"},
    "installation.update-available": {"version": "1.1.35"},
    "ide.installed": {"ide": "vscode"},
    "pty.created": {"info": {"id": "pty_1", "title": "sh", "pid": 7}},
    "pty.updated": {"info": {"id": "pty_1", "title": "sh", "pid": 7}},
    "pty.exited": {"id": "pty_1", "exitCode": 1},
    "pty.deleted": {"id": "pty_1"},
    "tui.prompt.append": {"text": "hello"},
    "tui.command.execute": {"command": "session.list"},
    "tui.toast.show": {"title": "Done", "message": "All green", "variant": "success", "duration": 3000},
    "tui.session.select": {"sessionID": SESSION},
}
OURS = {
    "message.part.delta": {
        "sessionID": SESSION,
        "messageID": MESSAGE,
        "partID": PART,
        "field": "text",
        "delta": "more",
        "offset": 52,
    },
    "session.warning": {"sessionID": SESSION, "message": "the next call brings today to about $9 of $10"},
    "tool.requested": {
        "id": "tool_1e10b972b001AbCdEfGhIjKlMn",
        "sessionID": SESSION,
        "messageID": MESSAGE,
        "callID": "call_1",
        "agent": "build",
        "directory": "/work",
        "worktree": "/work",
        "client": "scales",
        "tool": "weigh",
        "input": {"item": "tea"},
    },
}
PLAIN = [{"type": name, "properties": properties} for name, properties in {**PROPERTIES, **OURS}.items()]


def test_every_event_has_a_class_and_a_unique_name() -> None:
    examples = {plain["type"] for plain in PLAIN}
    assert set(KINDS) == examples, "add an example of each new event to OURS"
    kinds = {*Event.__subclasses__(), *SessionEvent.__subclasses__()} - {SessionEvent, UnknownEvent}
    assert set(KINDS.values()) == kinds


def test_every_event_that_contains_a_session_is_a_session_event() -> None:
    """The bus then hides the secret of its share, and a store of a principal adds its owner."""
    containing = {kind for kind in KINDS.values() if contains_session(type_info(kind))}
    assert containing == set(SessionEvent.__subclasses__())


def contains_session(type: object) -> bool:
    """Return True if a value of a type, as msgspec describes it, may contain a session."""
    seen: set[int] = set()
    waiting = [type]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, StructType) and each.cls is SessionInfo:
            return True
        if isinstance(each, tuple | list):
            waiting += each
        elif isinstance(each, Struct):
            waiting += [getattr(each, name) for name in each.__struct_fields__ if name != "cls"]
    return False


@pytest.mark.parametrize("plain", PLAIN, ids=lambda plain: plain["type"])
def test_an_event_survives_encoding(plain: dict[str, Any]) -> None:
    event = event_from_plain(plain)
    assert type(event) is KINDS[plain["type"]]
    assert json.loads(encode(event_to_plain(event))) == plain
    assert event_from_json(json.dumps(plain).encode()) == event
    assert event_from_plain(event_to_plain(event)) == event


@pytest.mark.parametrize("plain", PLAIN, ids=lambda plain: plain["type"])
def test_an_unknown_field_of_an_event_survives(plain: dict[str, Any]) -> None:
    newer = {"type": plain["type"], "properties": {**plain["properties"], "new": {"a": [1]}}}
    assert json.loads(encode(event_to_plain(event_from_plain(newer)))) == newer


def test_an_unknown_event_is_kept() -> None:
    properties = {"sessionID": SESSION, "deep": {"$extra": 1}}
    plain = {"type": "loom.threaded", "properties": properties}
    event = event_from_plain(plain)
    assert event == UnknownEvent(named="loom.threaded", properties=properties)
    assert event_to_plain(event) == plain


def test_an_event_may_come_without_properties() -> None:
    assert event_to_plain(event_from_plain({"type": "lsp.updated"})) == {
        "type": "lsp.updated",
        "properties": {},
    }
    assert event_from_plain({"type": "session.error"}) == SessionFailed()


@pytest.mark.parametrize("plain", [None, [], {}, {"type": 5}, {"properties": {}}, "session.idle"])
def test_a_value_without_a_type_is_not_an_event(plain: Any) -> None:
    with pytest.raises(DocumentError, match="the event has no type"):
        event_from_plain(plain)


def test_properties_of_the_wrong_type_are_refused_with_their_path() -> None:
    with pytest.raises(DocumentError, match=r"stream: .*\$\.info\.time\.created"):
        event_from_plain(
            {"type": "session.created", "properties": {"info": {"id": "ses_1", "time": {"created": "x"}}}},
            where="stream",
        )


def test_events_that_change_stored_data_are_durable() -> None:
    assert isinstance(Durable, UnionType)
    assert {kind.type for kind in get_args(Durable)} == {
        "project.updated",
        "session.created",
        "session.updated",
        "session.deleted",
        "session.diff",
        "todo.updated",
        "message.updated",
        "message.removed",
        "message.part.updated",
        "message.part.delta",
        "message.part.removed",
    }
    assert issubclass(PartGrew, Durable)


@pytest.mark.parametrize("plain", PLAIN, ids=lambda plain: plain["type"])
def test_an_event_names_its_session(plain: dict[str, Any]) -> None:
    properties = plain["properties"]
    inside = properties.get("info", properties.get("part", properties))
    about = (
        inside["id"]
        if plain["type"] in SESSION_EVENTS
        else inside.get("sessionID", properties.get("sessionID"))
    )
    assert session_of(event_from_plain(plain)) == about


SESSION_EVENTS = {"session.created", "session.updated", "session.deleted"}


def test_an_event_without_a_session_returns_none() -> None:
    assert session_of(SessionFailed()) is None
    assert session_of(UnknownEvent(named="x", properties={})) is None
