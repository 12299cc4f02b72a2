"""Turn transcripts of other programs into our messages and parts."""

import json
import os
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import DocumentError
from weft.host.files import read_file
from weft.model.ids import GLOBAL_PROJECT, HEX_LENGTH, PER_MS, WRAP, MessageID, PartID, SessionID
from weft.model.message import (
    AnyMessage,
    AssistantMessage,
    AssistantTime,
    MessagePath,
    MessageWithParts,
    UserMessage,
)
from weft.model.parcel import Counts, Parcel
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
from weft.model.session import Session, SessionTime, make_slug
from weft.model.wire import parse
from weft.transfer.rebind import letters


class Trouble(Struct, frozen=True, kw_only=True):
    """Something that could not be read, and was left where it is."""

    where: str
    reason: str


class Read(Struct, frozen=True, kw_only=True):
    """A session as it was read. `counted` is what its source holds, counted by other means than reading it."""

    parcel: Parcel
    counted: Counts
    troubles: tuple[Trouble, ...] = ()


class Found(Struct, frozen=True, kw_only=True):
    """A session elsewhere. Reading raises `DocumentError` or `InvalidInputError` if nothing can be made of it."""

    name: str
    read: Callable[[], Read]


class Origin(Protocol):
    """Somewhere sessions come from. Looking changes nothing there."""

    def projects(self) -> list[Project]:
        """The projects that its sessions name."""
        ...

    def found(self) -> list[Found]:
        """Its sessions, parents before children."""
        ...

    def troubles(self) -> Iterator[Trouble]:
        """What could not even be found: known once `found` has been asked."""
        ...


LIMIT = 1 << 30
Line = dict[str, Any]


def read_lines(path: str, troubles: list[Trouble]) -> list[Line]:
    """Every line that is an object. The last one may be cut short: whoever writes it may not be done."""
    try:
        raw = read_file(path, limit=LIMIT)[0]
    except OSError as error:
        raise DocumentError(path, error.strerror or str(error)) from error
    lines: list[Line] = []
    for number, text in enumerate(raw.split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            value = parse(text, where=f"{path}:{number}")
            if not isinstance(value, dict):
                raise DocumentError(f"{path}:{number}", "not an object")
            lines.append(value)
        except DocumentError as error:
            troubles.append(Trouble(where=error.where, reason=error.reason))
    if not lines:
        raise DocumentError(path, "no line of it can be read")
    return lines


def list_files(path: str, *, ending: str = ".jsonl") -> list[str]:
    """The transcript at a path, or all below it, by name."""
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path):
        raise DocumentError(path, "there is nothing here")
    return sorted(
        os.path.join(place, name)
        for place, _, names in os.walk(path)
        for name in names
        if name.endswith(ending)
    )


def milliseconds(stamp: Any) -> int | None:
    """A time as these programs write it: ISO 8601 with a zone."""
    if not isinstance(stamp, str):
        return None
    try:
        at = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return None if at.tzinfo is None else int(at.timestamp() * 1000)


class Names:
    """Ids for what has others: always the same for the same transcript, later ones later, however often it is read.

    Reading a transcript that has grown gives the old ids again and new ones after them.
    """

    def __init__(self, source: str, session: str, at: int) -> None:
        self._words = (source, session)
        self._last = at * PER_MS
        number = (~self._last) % WRAP
        self.session = SessionID(f"ses_{number:0{HEX_LENGTH}x}{letters(*self._words)}")

    def message(self, key: str, at: int) -> MessageID:
        return MessageID(self._next("msg", key, at))

    def part(self, key: str, at: int) -> PartID:
        return PartID(self._next("prt", key, at))

    def _next(self, prefix: str, key: str, at: int) -> str:
        self._last = number = max(at * PER_MS + 1, self._last + 1)
        return f"{prefix}_{number % WRAP:0{HEX_LENGTH}x}{letters(*self._words, prefix, key, str(number))}"


def texts(blocks: Any) -> Iterator[str]:
    """The words in what may be a text, or a list of blocks that have one."""
    if isinstance(blocks, str):
        yield blocks
    elif isinstance(blocks, list):
        for block in blocks:
            if isinstance(block, str):
                yield block
            elif isinstance(block, dict) and isinstance(block.get("text"), str):
                yield block["text"]


AGENT = "build"
TITLE_LENGTH = 60
NO_RESULT = "Tool execution aborted"


class Writer:
    """Messages are begun and then filled; a call waits for its result, which may come much later."""

    def __init__(self, names: Names, at: int, *, directory: str, provider: str) -> None:
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

    def pass_time(self, at: int | None) -> int:
        """Time only goes on: a transcript's lines stand in the order things happened."""
        self.at = max(self.at, at or 0)
        return self.at

    def ask(self, key: str) -> MessageID:
        """Begin a prompt."""
        id = self._prompt = self._names.message(key, self.at)
        self._infos[id] = UserMessage(
            id=id,
            session_id=self._names.session,
            time=Moment(created=self.at),
            agent=AGENT,
            model=self._ref(),
        )
        self._begin(id)
        return id

    def answer(self, key: str, *, summary: bool = False) -> MessageID:
        """Begin an answer to the last prompt."""
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
            # What it cost is not written down there.
            priced=False,
            counted=False,
        )
        self._begin(id)
        return id

    def amend(self, id: MessageID, *, tokens: Tokens | None = None, finish: str | None = None) -> None:
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

    def summarise(self, key: str, summary: str, *, auto: bool) -> None:
        """From here on the summary stands for all that was said before."""
        id = self.ask(key)
        self._add(CompactionPart(**self._ids(id, f"{key} compaction"), auto=auto))
        self.text(self.answer(f"{key} summary", summary=True), key, summary)

    def _begin(self, id: MessageID) -> None:
        self._parts[id] = []

    def _ref(self) -> ModelRef | None:
        return ModelRef(provider_id=self._provider, model_id=self.model) if self.model else None

    # --- parts ---

    def text(self, id: MessageID, key: str, text: str, *, synthetic: bool = False) -> None:
        time = Span(start=self.at, end=self.at)
        self._add(TextPart(**self._ids(id, f"{key} text"), text=text, synthetic=synthetic, time=time))

    def thought(self, id: MessageID, key: str, text: str, metadata: dict[str, Any] | None) -> None:
        time = Span(start=self.at, end=self.at)
        self._add(ReasoningPart(**self._ids(id, f"{key} thought"), text=text, metadata=metadata, time=time))

    def file(self, id: MessageID, key: str, mime: str, url: str) -> None:
        self._add(FilePart(**self._ids(id, f"{key} file"), mime=mime, url=url))

    def call(self, id: MessageID, call: str, tool: str, input: dict[str, Any]) -> None:
        state = ErrorState(input=input, error=NO_RESULT, time=CallTime(start=self.at, end=self.at))
        self._calls[call] = id, len(self._parts[id])
        self._add(ToolPart(**self._ids(id, f"{call} call"), call_id=call, tool=tool, state=state))

    def result(
        self, call: str, output: str, *, failed: bool = False, files: tuple[tuple[str, str], ...] = ()
    ) -> bool:
        """What came of a call; False if nobody made it."""
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
                title=_title_of(input),
                metadata={},
                time=time,
                attachments=self._attachments(id, call, files) or None,
            )
        self._parts[id][index] = replace(part, state=state)
        return True

    def _attachments(
        self, id: MessageID, call: str, files: tuple[tuple[str, str], ...]
    ) -> tuple[FilePart, ...]:
        return tuple(
            FilePart(**self._ids(id, f"{call} file {number}"), mime=mime, url=url)
            for number, (mime, url) in enumerate(files)
        )

    def _ids(self, message: MessageID, key: str) -> dict[str, Any]:
        part: PartID = self._names.part(key, self.at)
        return {"id": part, "session_id": self._names.session, "message_id": message}

    def _add(self, part: AnyPart) -> None:
        self._parts[part.message_id].append(part)

    # --- the whole ---

    def parcel(self, *, version: str, parent: SessionID | None = None) -> Parcel:
        self._leave_open()
        infos = [info for info in self._infos.values() if isinstance(info, UserMessage)]
        first = next((info.model for info in infos if info.model), self._ref())
        for info in infos:
            if info.model is None:
                self._infos[info.id] = replace(info, model=first)
        messages = (
            MessageWithParts(info=info, parts=tuple(self._parts[id])) for id, info in self._infos.items()
        )
        return Parcel(info=self._session(version, parent), messages=tuple(messages))

    def _leave_open(self) -> None:
        """A last call without a result may get one yet: whoever wrote the transcript may still be at it."""
        last = next(reversed(self._infos.values()), None)
        waiting = [index for _, index in self._waiting(last)] if last else []
        if isinstance(last, AssistantMessage) and waiting:
            for index in waiting:
                part = self._parts[last.id][index]
                if isinstance(part, ToolPart) and isinstance(part.state, ErrorState):
                    state = RunningState(input=part.state.input, time=Span(start=part.state.time.start))
                    self._parts[last.id][index] = replace(part, state=state)
            self._infos[last.id] = replace(last, time=replace(last.time, completed=None))

    def _waiting(self, last: AnyMessage) -> list[tuple[MessageID, int]]:
        return [at for call, at in self._calls.items() if at[0] == last.id and call not in self._done]

    def _session(self, version: str, parent: SessionID | None) -> Session:
        return Session(
            id=self._names.session,
            slug=make_slug(lambda count: letters("slug", self._names.session, length=count).encode()),
            version=version,
            project_id=GLOBAL_PROJECT,
            directory=self.directory,
            parent_id=parent,
            title=self.title or self._first_words() or "Imported session",
            time=SessionTime(created=self._began, updated=self.at),
        )

    def _first_words(self) -> str:
        for id, info in self._infos.items():
            for part in self._parts[id]:
                if isinstance(info, UserMessage) and isinstance(part, TextPart) and not part.synthetic:
                    line = part.text.strip().partition("\n")[0]
                    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"
        return ""


def _title_of(input: dict[str, Any]) -> str:
    """What a call was about, in a few words."""
    for key in ("description", "filePath", "path", "pattern", "command", "url", "query"):
        if isinstance(input.get(key), str) and input[key]:
            return str(input[key]).partition("\n")[0][:TITLE_LENGTH]
    return json.dumps(input, ensure_ascii=False, default=str)[:TITLE_LENGTH] if input else ""
