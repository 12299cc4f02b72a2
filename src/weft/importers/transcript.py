"""Build messages and parts from the transcripts of other programs."""

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import DocumentError
from weft.host.files import read_file
from weft.model.display import TITLE_LENGTH, make_call_title
from weft.model.ids import GLOBAL_PROJECT, HEX_LENGTH, PER_MS, WRAP, MessageID, PartID, SessionID
from weft.model.message import (
    AnyMessage,
    AssistantMessage,
    AssistantTime,
    MessagePath,
    MessageWithParts,
    UserMessage,
)
from weft.model.part import (
    AnyPart,
    CallTime,
    CompactionPart,
    CompletedState,
    ErrorState,
    FilePart,
    ModelRef,
    Moment,
    ReasoningPart,
    RunningState,
    Span,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.model.project import Project
from weft.model.session import SessionInfo, SessionTime, make_slug
from weft.model.transfer import ExportCounts, SessionExport
from weft.model.wire import parse
from weft.transfer.rebind import make_letters


class ImportTrouble(Struct, frozen=True, kw_only=True):
    """Something that could not be read and was not imported."""

    where: str
    reason: str


class ImportedSession(Struct, frozen=True, kw_only=True):
    """A session as it was read. `counted` are the numbers of its documents, counted independently."""

    export: SessionExport
    counted: ExportCounts
    troubles: tuple[ImportTrouble, ...] = ()


class FoundSession(Struct, frozen=True, kw_only=True):
    """A session in a source. `read` raises `DocumentError` or `InvalidInputError` if it cannot be converted."""

    name: str
    read: Callable[[], ImportedSession]


class SessionSource(Protocol):
    """Where sessions are imported from. Reading changes nothing there."""

    def list_projects(self, troubles: list[ImportTrouble]) -> list[Project]:
        """Return the projects that its sessions name. Add those that cannot be read to `troubles`."""
        ...

    def list_sessions(self) -> list[FoundSession]:
        """Return its sessions, parents before children."""
        ...

    def list_troubles(self) -> Iterator[ImportTrouble]:
        """Yield the sessions that could not be listed. Complete only after `list_sessions`."""
        ...


class FoundSessions(Struct, frozen=True):
    """The `SessionSource` of sessions in files. They name no projects, and a damaged one is found only when it is read."""

    sessions: list[FoundSession]

    def list_projects(self, troubles: list[ImportTrouble]) -> list[Project]:
        del troubles
        return []

    def list_sessions(self) -> list[FoundSession]:
        return self.sessions

    def list_troubles(self) -> Iterator[ImportTrouble]:
        yield from ()


LIMIT = 1 << 30
JsonLine = dict[str, Any]


def read_lines(path: str, troubles: list[ImportTrouble]) -> list[JsonLine]:
    """Return every line that is an object, and report others. The last line may be incomplete if it is being written."""
    try:
        raw = read_file(path, limit=LIMIT)[0]
    except OSError as error:
        raise DocumentError(path, error.strerror or str(error)) from error
    lines: list[JsonLine] = []
    for number, text in enumerate(raw.split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            value = parse(text, where=f"{path}:{number}")
            if not isinstance(value, dict):
                raise DocumentError(f"{path}:{number}", "not an object")
            lines.append(value)
        except DocumentError as error:
            troubles.append(ImportTrouble(where=error.where, reason=error.reason))
    if not lines:
        raise DocumentError(path, "it has no readable line")
    return lines


def list_files(path: str, *, ending: str = ".jsonl") -> list[str]:
    """Return the transcript at a path, or all below a directory, sorted by name."""
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path):
        raise DocumentError(path, "it does not exist")
    return sorted(
        os.path.join(place, name)
        for place, _, names in os.walk(path)
        for name in names
        if name.endswith(ending)
    )


def parse_time(stamp: Any) -> int | None:
    """Parse an ISO 8601 time with a zone. Return None if it is malformed."""
    if not isinstance(stamp, str):
        return None
    try:
        at = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return None if at.tzinfo is None else int(at.timestamp() * 1000)


class TranscriptIds:
    """Derives ids from those of a transcript. They are the same each time it is read, and in order.

    If a transcript has grown, the old messages keep their ids and the new ones follow.
    """

    def __init__(self, source: str, session: str, at: int) -> None:
        self._words = (source, session)
        self._last = at * PER_MS
        number = (~self._last) % WRAP
        self.session = SessionID(f"ses_{number:0{HEX_LENGTH}x}{make_letters(*self._words)}")

    def message(self, key: str, at: int) -> MessageID:
        return MessageID(self._next("msg", key, at))

    def part(self, key: str, at: int) -> PartID:
        return PartID(self._next("prt", key, at))

    def _next(self, prefix: str, key: str, at: int) -> str:
        self._last = number = max(at * PER_MS + 1, self._last + 1)
        return (
            f"{prefix}_{number % WRAP:0{HEX_LENGTH}x}{make_letters(*self._words, prefix, key, str(number))}"
        )


def read_counts(usage: Any) -> dict[str, int]:
    """Return the token counts in an object. Fields that are not numbers are left out."""
    found = usage.items() if isinstance(usage, dict) else ()
    return {key: value for key, value in found if type(value) is int and value >= 0}


def list_texts(blocks: Any) -> Iterator[str]:
    """Yield the texts of a string or of a list of blocks."""
    if isinstance(blocks, str):
        yield blocks
    elif isinstance(blocks, list):
        for block in blocks:
            if isinstance(block, str):
                yield block
            elif isinstance(block, dict) and isinstance(block.get("text"), str):
                yield block["text"]


def list_blocks(content: Any) -> list[dict[str, Any]]:
    """Return the blocks of a message. A string, alone or among them, is a block of text."""
    found = [content] if isinstance(content, str) else content if isinstance(content, list) else []
    blocks = ({"type": "text", "text": each} if isinstance(each, str) else each for each in found)
    return [block for block in blocks if isinstance(block, dict)]


AGENT = "build"
NO_RESULT = "Tool execution aborted"


class TranscriptWriter:
    """Builds messages and parts. A call is open until its result arrives, which may be much later."""

    def __init__(self, names: TranscriptIds, at: int, *, directory: str, provider: str) -> None:
        self._names = names
        self._began = self.at = at
        self.directory = directory
        self._provider = provider
        self.model = ""
        self.title = ""
        self._infos: dict[MessageID, UserMessage | AssistantMessage] = {}
        self._parts: dict[MessageID, list[AnyPart]] = {}
        self._calls: dict[str, tuple[MessageID, int]] = {}
        self._done: set[str] = set()
        self._prompt = MessageID("")

    # --- messages ---

    def advance_time(self, at: int | None) -> int:
        """Advance the time. It never goes back, because lines are in the order things happened."""
        self.at = max(self.at, at or 0)
        return self.at

    def start_prompt(self, key: str) -> MessageID:
        """Start a prompt."""
        id = self._prompt = self._names.message(key, self.at)
        self._infos[id] = UserMessage(
            id=id,
            session_id=self._names.session,
            time=Moment(created=self.at),
            agent=AGENT,
            model=self._model_ref(),
        )
        self._begin(id)
        return id

    def start_answer(self, key: str, *, summary: bool = False) -> MessageID:
        """Start an answer to the last prompt."""
        id = self._names.message(key, self.at)
        self._infos[id] = AssistantMessage(
            id=id,
            session_id=self._names.session,
            time=AssistantTime(created=self.at, completed=self.at),
            parent_id=self._prompt,
            model_id=self.model,
            provider_id=self._provider,
            mode="compaction" if summary else AGENT,
            agent="compaction" if summary else AGENT,
            path=MessagePath(cwd=self.directory, root=self.directory),
            summary=summary,
            cost=Decimal(0),
            tokens=Tokens(),
            finish="stop" if summary else None,
            # Transcripts do not contain the cost.
            priced=False,
            counted=False,
        )
        self._begin(id)
        return id

    def update_answer(
        self, id: MessageID, *, tokens: Tokens | None = None, finish: str | None = None
    ) -> None:
        info = self._infos[id]
        if isinstance(info, AssistantMessage):
            self._infos[id] = replace(
                info,
                model_id=info.model_id or self.model,
                tokens=tokens or info.tokens,
                counted=info.counted or tokens is not None,
                finish=finish or info.finish,
                time=replace(info.time, completed=self.at),
            )

    def add_compaction(self, key: str, summary: str, *, auto: bool) -> None:
        """Add a compaction: from here on the summary replaces everything before it."""
        id = self.start_prompt(key)
        self._add(CompactionPart(**self._make_ids(id, f"{key} compaction"), auto=auto))
        self.add_text(self.start_answer(f"{key} summary", summary=True), key, summary)

    def _begin(self, id: MessageID) -> None:
        self._parts[id] = []

    def _model_ref(self) -> ModelRef | None:
        return ModelRef(provider_id=self._provider, model_id=self.model) if self.model else None

    # --- parts ---

    def add_text(self, id: MessageID, key: str, text: str, *, synthetic: bool = False) -> None:
        time = Span(start=self.at, end=self.at)
        self._add(TextPart(**self._make_ids(id, f"{key} text"), text=text, synthetic=synthetic, time=time))

    def add_reasoning(self, id: MessageID, key: str, text: str, metadata: dict[str, Any] | None) -> None:
        time = Span(start=self.at, end=self.at)
        self._add(
            ReasoningPart(**self._make_ids(id, f"{key} thought"), text=text, metadata=metadata, time=time)
        )

    def add_file(self, id: MessageID, key: str, mime: str, url: str) -> None:
        self._add(FilePart(**self._make_ids(id, f"{key} file"), mime=mime, url=url))

    def add_call(self, id: MessageID, call: str, tool: str, input: dict[str, Any]) -> None:
        state = ErrorState(input=input, error=NO_RESULT, time=CallTime(start=self.at, end=self.at))
        self._calls[call] = id, len(self._parts[id])
        self._add(ToolPart(**self._make_ids(id, f"{call} call"), call_id=call, tool=tool, state=state))

    def add_result(
        self, call: str, output: str, *, failed: bool = False, files: tuple[tuple[str, str], ...] = ()
    ) -> bool:
        """Add the result of a call. Return False if there is no such call."""
        if call not in self._calls:
            return False
        id, index = self._calls[call]
        part = self._parts[id][index]
        if not isinstance(part, ToolPart):
            return False
        self._done.add(call)
        began = part.state.time.start if isinstance(part.state, ErrorState) else self.at
        time, input = CallTime(start=began, end=self.at), part.state.input
        if failed:
            state: Any = ErrorState(input=input, error=output, time=time)
        else:
            state = CompletedState(
                input=input,
                output=output,
                title=make_call_title(input),
                metadata={},
                time=time,
                attachments=self._make_attachments(id, call, files) or None,
            )
        self._parts[id][index] = replace(part, state=state)
        return True

    def _make_attachments(
        self, id: MessageID, call: str, files: tuple[tuple[str, str], ...]
    ) -> tuple[FilePart, ...]:
        return tuple(
            FilePart(**self._make_ids(id, f"{call} file {number}"), mime=mime, url=url)
            for number, (mime, url) in enumerate(files)
        )

    def _make_ids(self, message: MessageID, key: str) -> dict[str, Any]:
        part: PartID = self._names.part(key, self.at)
        return {"id": part, "session_id": self._names.session, "message_id": message}

    def _add(self, part: AnyPart) -> None:
        self._parts[part.message_id].append(part)

    # --- result ---

    def to_export(self, *, version: str, parent: SessionID | None = None) -> SessionExport:
        self._reopen_last_calls()
        infos = [info for info in self._infos.values() if isinstance(info, UserMessage)]
        first = next((info.model for info in infos if info.model), self._model_ref())
        for info in infos:
            if info.model is None:
                self._infos[info.id] = replace(info, model=first)
        messages = (
            MessageWithParts(info=info, parts=tuple(self._parts[id])) for id, info in self._infos.items()
        )
        return SessionExport(info=self._make_session(version, parent), messages=tuple(messages))

    def _reopen_last_calls(self) -> None:
        """Leave calls of the last message without a result open: the program may still be writing the transcript."""
        last = next(reversed(self._infos.values()), None)
        waiting = [index for _, index in self._list_waiting(last)] if last else []
        if isinstance(last, AssistantMessage) and waiting:
            for index in waiting:
                part = self._parts[last.id][index]
                if isinstance(part, ToolPart) and isinstance(part.state, ErrorState):
                    state = RunningState(input=part.state.input, time=Span(start=part.state.time.start))
                    self._parts[last.id][index] = replace(part, state=state)
            self._infos[last.id] = replace(last, time=replace(last.time, completed=None))

    def _list_waiting(self, last: AnyMessage) -> list[tuple[MessageID, int]]:
        return [at for call, at in self._calls.items() if at[0] == last.id and call not in self._done]

    def _make_session(self, version: str, parent: SessionID | None) -> SessionInfo:
        return SessionInfo(
            id=self._names.session,
            slug=make_slug(lambda count: make_letters("slug", self._names.session, length=count).encode()),
            version=version,
            project_id=GLOBAL_PROJECT,
            directory=self.directory,
            parent_id=parent,
            title=self.title or self._find_first_line() or "Imported session",
            time=SessionTime(created=self._began, updated=self.at),
        )

    def _find_first_line(self) -> str:
        for id, info in self._infos.items():
            for part in self._parts[id]:
                if isinstance(info, UserMessage) and isinstance(part, TextPart) and not part.synthetic:
                    line = part.text.strip().partition("\n")[0]
                    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"
        return ""
