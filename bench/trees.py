"""Trees of sessions to measure on, written as OpenCode lays them out."""

import os
from pathlib import Path
from random import Random

from weft.model.ids import Mint, ProjectID
from weft.model.message import AssistantMessage, AssistantTime, MessagePath, UserMessage
from weft.model.part import ModelRef, Moment, Span, TextPart
from weft.model.project import Project, ProjectTime
from weft.model.session import SessionInfo, SessionTime, make_slug
from weft.model.wire import encode_pretty

START = 1_780_000_000_000
MODEL = ModelRef(provider_id="scripted", model_id="demo")


class Forest:
    """Writes sessions one after the other, a minute apart, with ids and times as if they had been lived."""

    def __init__(self, storage: Path, project: ProjectID, directory: str, *, seed: int = 1) -> None:
        self._storage = storage
        self._project = project
        self._directory = directory
        self._now = START
        random = Random(seed).randbytes
        self._random = random
        self._mint = Mint(lambda: self._now, random)

    def plant(self, sessions: int, *, messages: int = 0) -> None:
        time = ProjectTime(created=START, updated=START)
        project = Project(id=self._project, worktree=self._directory, vcs="git", time=time)
        self._write(f"project/{project.id}", project)
        for number in range(sessions):
            self._now += 60_000
            session = self._session(number)
            for pair in range(messages // 2):
                self._exchange(session, pair)
        (self._storage / "migration").write_text("2")

    def _session(self, number: int) -> SessionInfo:
        session = SessionInfo(
            id=self._mint.session(),
            slug=make_slug(self._random),
            version="1.1.34",
            project_id=self._project,
            directory=self._directory,
            title=f"Session number {number}: mend the loom",
            time=SessionTime(created=self._now, updated=self._now),
        )
        self._write(f"session/{self._project}/{session.id}", session)
        return session

    def _exchange(self, session: SessionInfo, pair: int) -> None:
        self._now += 10
        asked = UserMessage(
            id=self._mint.message(),
            session_id=session.id,
            time=Moment(created=self._now),
            agent="build",
            model=MODEL,
        )
        self._message(session, asked, f"Prompt {pair}: what does the shuttle do?")
        self._now += 10
        answer = AssistantMessage(
            id=self._mint.message(),
            session_id=session.id,
            time=AssistantTime(created=self._now, completed=self._now + 5),
            parent_id=asked.id,
            model_id=MODEL.model_id,
            provider_id=MODEL.provider_id,
            mode="build",
            agent="build",
            path=MessagePath(cwd=self._directory, root=self._directory),
            finish="stop",
        )
        self._message(session, answer, "It carries the weft through the shed. " * 8)

    def _message(self, session: SessionInfo, message: UserMessage | AssistantMessage, text: str) -> None:
        self._write(f"message/{session.id}/{message.id}", message)
        span = Span(start=self._now, end=self._now)
        part = TextPart(
            id=self._mint.part(), session_id=session.id, message_id=message.id, text=text, time=span
        )
        self._write(f"part/{message.id}/{part.id}", part)

    def _write(self, key: str, document: object) -> None:
        path = self._storage / f"{key}.json"
        os.makedirs(path.parent, exist_ok=True)
        path.write_bytes(encode_pretty(document))
