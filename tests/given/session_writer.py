"""Write sessions into a tree as OpenCode does: in place, without a lock, one file after the other."""

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.message import AssistantMessage, AssistantTime, UserMessage
from weft.model.part import (
    CacheTokens,
    CallTime,
    CompletedState,
    ErrorState,
    Moment,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.model.session import SessionInfo, SessionTime
from weft.model.wire import encode_pretty
from weft.store.files.reader import FileReader
from weft.store.files.search import SessionIndex
from weft.store.files.tree import Tree

PROJECT = ProjectID("p1")
START = 1_790_000_000_000
LONG_AGO = 1_700_000_000


class SessionWriter:
    """Writes a tree in which every file is old enough for its stamp to be trusted."""

    def __init__(self, root: Path) -> None:
        self.storage = root / "storage"
        self.cache = str(root / "cache")
        self.tree = FileReader(str(self.storage))
        self._count = 0

    def index(self, **more: Any) -> SessionIndex:
        return SessionIndex(Tree(str(self.storage)), self.cache, **more)

    def session(self, name: str, title: str = "", **more: Any) -> SessionInfo:
        at = START + self._next_number()
        fields = {
            "project_id": PROJECT,
            "directory": "/d",
            "time": SessionTime(created=at, updated=at),
        } | more
        session = SessionInfo(id=SessionID(f"ses_{name}"), title=title or f"About {name}", **fields)
        self.write(f"session/{session.project_id}/{session.id}", session)
        return session

    def prompt(self, session: SessionInfo, words: str) -> MessageID:
        number = self._next_number()
        id = MessageID(f"msg_{number:06}")
        info = UserMessage(id=id, session_id=session.id, time=Moment(created=START + number), agent="build")
        self.write(f"message/{session.id}/{id}", info)
        self.write(f"part/{id}/prt_{number:06}", _text(session, id, number, words))
        return id

    def answer(
        self, session: SessionInfo, words: str, *, cost: str = "0", model: str = "m", **more: Any
    ) -> MessageID:
        number = self._next_number()
        id = MessageID(f"msg_{number:06}")
        tokens = Tokens(input=100, output=10, reasoning=1, cache=CacheTokens(read=50, write=5))
        fields = {"time": AssistantTime(created=START + number, completed=START + number)} | more
        info = AssistantMessage(
            id=id, session_id=session.id, provider_id="p", model_id=model, cost=Decimal(cost), tokens=tokens, **fields
        )  # fmt: skip
        self.write(f"message/{session.id}/{id}", info)
        self.write(f"part/{id}/prt_{number:06}", _text(session, id, number, words))
        return id

    def call(
        self, session: SessionInfo, message: MessageID, tool: str, output: str, *, failed: bool = False
    ) -> None:
        number, time = self._next_number(), CallTime(start=1, end=2)
        state = (
            ErrorState(input={"path": "a.py"}, error=output, time=time)
            if failed
            else CompletedState(input={"path": "a.py"}, output=output, title="t", metadata={}, time=time)
        )
        id = PartID(f"prt_{number:06}")
        part = ToolPart(
            id=id, session_id=session.id, message_id=message, call_id=f"c{number}", tool=tool, state=state
        )
        self.write(f"part/{message}/{id}", part)

    def write(self, key: str, document: object) -> None:
        path = self.storage / f"{key}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_pretty(document))
        (self.storage / "migration").write_text("2")
        at = LONG_AGO + self._next_number()
        os.utime(path, (at, at))

    def _next_number(self) -> int:
        self._count += 1
        return self._count


def _text(session: SessionInfo, message: MessageID, number: int, words: str) -> TextPart:
    return TextPart(id=PartID(f"prt_{number:06}"), session_id=session.id, message_id=message, text=words)
