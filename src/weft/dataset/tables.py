"""The tables that sessions are offered as: their columns, and how the rows are made (pure).

Names and types are stable: a later version may add a column or a table, and changes or removes none.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

from weft.model.ids import PER_MS, ProjectID, SessionID, unwrap
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage, is_synthetic
from weft.model.part import (
    AnyPart,
    CompactionPart,
    CompletedState,
    ErrorState,
    PatchPart,
    PendingState,
    ReasoningPart,
    RetryPart,
    RunningState,
    SubtaskPart,
    TextPart,
    ToolPart,
)
from weft.model.session import SessionInfo, get_weft_data, is_archived
from weft.model.wire import encode
from weft.permission.audit import AuditEntry
from weft.session.revert_point import cut_at_revert, list_unrecorded_files
from weft.store.rows import to_integer

# * time: milliseconds since 1970 in UTC
# * decimal: an exact number as text, compared by its value
# * json: a JSON value as text
# * boolean: 0 or 1
Kind = Literal["text", "integer", "time", "decimal", "json", "boolean"]
Row = tuple[Any, ...]

MAX_OUTPUT_CHARS: Final = 64_000
# SQLite stops at NUL, and lone surrogates cannot be encoded.
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


class Column(NamedTuple):
    name: str
    kind: Kind
    about: str


class Table(NamedTuple):
    name: str
    about: str
    columns: tuple[Column, ...]


def _columns(*rows: tuple[str, Kind, str]) -> tuple[Column, ...]:
    return tuple(Column(*row) for row in rows)


SESSIONS: Final = Table(
    "sessions",
    "one row for each session, also child sessions and archived ones",
    _columns(
        ("id", "text", "the id of the session"),
        ("project_id", "text", "the project that it belongs to"),
        ("directory", "text", "the directory in which it works"),
        ("parent_id", "text", "the session that started it, for a child session"),
        ("forked_from", "text", "the session that it was forked from"),
        ("title", "text", "its title"),
        ("created", "time", "when it was created"),
        ("updated", "time", "when it was last changed"),
        ("archived", "boolean", "whether it is archived"),
        ("pinned", "boolean", "whether it is pinned"),
        ("tags", "json", "its tags, a list"),
        ("additions", "integer", "lines that it added to files"),
        ("deletions", "integer", "lines that it removed from files"),
        ("files", "integer", "files that it changed"),
        ("undone_at", "text", "the message from which on it was undone, if it was"),
        ("version", "text", "the version that created it"),
    ),
)
PROMPTS: Final = Table(
    "prompts",
    "one row for each prompt",
    _columns(
        ("id", "text", "the id of the message"),
        ("session_id", "text", "its session"),
        ("number", "integer", "its place among the prompts of the session, from 1"),
        ("created", "time", "when it was given"),
        ("agent", "text", "the agent that answers it"),
        ("provider_id", "text", "the provider of the model that answers it"),
        ("model_id", "text", "the model that answers it"),
        ("text", "text", "its words, without what weft added"),
        ("synthetic", "boolean", "whether weft wrote it, for example to summarise"),
        ("copied", "boolean", "whether a fork copied it from another session"),
        ("undone", "boolean", "whether it is undone"),
    ),
)
STEPS: Final = Table(
    "steps",
    "one row for each response of a model",
    _columns(
        ("id", "text", "the id of the message"),
        ("session_id", "text", "its session"),
        ("prompt_id", "text", "the prompt that it answers"),
        ("number", "integer", "its place among the steps of the session, from 1"),
        ("created", "time", "when it began"),
        ("completed", "time", "when it ended; NULL while it runs"),
        ("agent", "text", "the agent"),
        ("provider_id", "text", "the provider of the model"),
        ("model_id", "text", "the model"),
        ("finish", "text", "why the response ended: stop, tool-calls, length …"),
        ("error", "text", "the name of the failure, if it failed"),
        ("error_message", "text", "what the failure says"),
        ("text", "text", "what the model said"),
        ("reasoning", "text", "its reasoning"),
        ("input_tokens", "integer", "tokens that were read, without cached ones"),
        ("output_tokens", "integer", "tokens that were written, without reasoning"),
        ("reasoning_tokens", "integer", "tokens of reasoning"),
        ("cache_read_tokens", "integer", "tokens that were read from the cache"),
        ("cache_write_tokens", "integer", "tokens that were written to the cache"),
        ("cost", "decimal", "its cost in dollars"),
        ("priced", "boolean", "whether that is all of the cost; 0 if a price is unknown"),
        ("summary", "boolean", "whether it is the summary of a compaction"),
        ("copied", "boolean", "whether a fork copied it from another session"),
        ("undone", "boolean", "whether it is undone"),
    ),
)
CALLS: Final = Table(
    "calls",
    "one row for each call of a tool",
    _columns(
        ("id", "text", "the id of the call, as the model's API named it"),
        ("part_id", "text", "the id of the part that stores it"),
        ("session_id", "text", "its session"),
        ("step_id", "text", "the step that made it"),
        ("number", "integer", "its place among the calls of the session, from 1"),
        ("tool", "text", "the tool"),
        ("status", "text", "pending, running, completed or error"),
        ("title", "text", "its title for people"),
        ("input", "json", "its arguments"),
        ("output", "text", f"its output, at most {MAX_OUTPUT_CHARS:,} characters"),
        ("output_length", "integer", "the length of the whole output in characters"),
        ("error", "text", "why it failed, if it failed"),
        ("started", "time", "when it began to run"),
        ("ended", "time", "when it ended"),
        ("child_id", "text", "the child session that it ran, if any"),
        ("copied", "boolean", "whether a fork copied it from another session"),
        ("undone", "boolean", "whether it is undone"),
    ),
)
FILES: Final = Table(
    "files",
    "one row for each file that a call changed",
    _columns(
        ("session_id", "text", "the session"),
        ("step_id", "text", "the step"),
        ("call_id", "text", "the call; empty if it is not known which one"),
        ("part_id", "text", "the id of the part that stores the change"),
        ("number", "integer", "its place among the changes of the session, from 1"),
        ("time", "time", "when the change was recorded"),
        ("path", "text", "the file, relative to `root`; the whole path if it lies outside"),
        ("root", "text", "the top of the checkout"),
        ("recorded", "boolean", "whether there are snapshots of it"),
        ("before_tree", "text", "the snapshot before the change"),
        ("after_tree", "text", "the snapshot after the change"),
        ("copied", "boolean", "whether it was copied: by a fork, or from a child session"),
        ("undone", "boolean", "whether it is undone"),
    ),
)
COSTS: Final = Table(
    "costs",
    "what each step cost; copies of a fork are left out, since they were paid for once",
    _columns(
        ("session_id", "text", "the session"),
        ("step_id", "text", "the step"),
        ("time", "time", "when the step began"),
        ("day", "text", "that day in UTC, such as 2026-01-31"),
        ("agent", "text", "the agent"),
        ("provider_id", "text", "the provider of the model"),
        ("model_id", "text", "the model"),
        ("cost", "decimal", "its cost in dollars"),
        ("priced", "boolean", "whether that is all of the cost"),
        ("input_tokens", "integer", "tokens that were read, without cached ones"),
        ("output_tokens", "integer", "tokens that were written, without reasoning"),
        ("reasoning_tokens", "integer", "tokens of reasoning"),
        ("cache_read_tokens", "integer", "tokens that were read from the cache"),
        ("cache_write_tokens", "integer", "tokens that were written to the cache"),
    ),
)
PERMISSIONS: Final = Table(
    "permissions",
    "one row for each decision about a permission, from the audit log",
    _columns(
        ("time", "time", "when it was decided"),
        ("decision", "text", "allowed, denied, asked, answered, unanswered, withdrawn, granted, revoked …"),
        ("project_id", "text", "the project"),
        ("session_id", "text", "the session"),
        ("agent", "text", "the agent"),
        ("permission", "text", "the permission, such as bash or edit"),
        ("patterns", "json", "what it was asked for, a list"),
        ("rule", "text", "the rule that decided, or what decided instead of one"),
        ("reply", "text", "what the person answered"),
        ("scope", "text", "how long the answer holds"),
        ("decided_by", "text", "who answered"),
        ("message", "text", "what the person said with the answer"),
        ("request_id", "text", "the id of the request"),
    ),
)
EVENTS: Final = Table(
    "events",
    "everything above and a few things more, in the order in which it happened",
    _columns(
        ("time", "time", "when it happened"),
        ("session_id", "text", "the session"),
        ("kind", "text", "session.created, prompt, step.started, step.ended, call.started, call.ended, file.changed, retry, compaction or permission"),
        ("id", "text", "what it happened to: a session, message, call or request"),
        ("detail", "text", "the tool, the file, the model, the decision or the failure"),
    ),
)  # fmt: skip

TABLES: Final = (SESSIONS, PROMPTS, STEPS, CALLS, FILES, COSTS, PERMISSIONS, EVENTS)
# These are stored; `costs` and `events` are made from them, and `marks` has what only `events` shows.
STORED_TABLES: Final = (SESSIONS, PROMPTS, STEPS, CALLS, FILES, PERMISSIONS)


class SessionRows(NamedTuple):
    """The rows of one session, by table. `marks` are events that have no table of their own."""

    session: Row
    prompts: list[Row]
    steps: list[Row]
    calls: list[Row]
    files: list[Row]
    marks: list[Row]


def to_session_rows(session: SessionInfo, history: Sequence[MessageWithParts]) -> SessionRows:
    """Return the rows of a session and its messages."""
    rows = SessionRows(_to_session_row(session), [], [], [], [], [])
    removed = cut_at_revert(session.revert, history).removed
    undone: set[str] = {message.info.id for message in removed}
    undone |= {part.id for message in removed for part in message.parts}
    for message in history:
        copied = message.info.time.created < session.time.created
        flags = (copied, message.info.id in undone)
        match message.info:
            case UserMessage() as prompt:
                rows.prompts.append(_to_prompt_row(prompt, message, len(rows.prompts) + 1, flags))
            case AssistantMessage() as answer:
                rows.steps.append(_to_step_row(answer, message, len(rows.steps) + 1, flags))
        for part in message.parts:
            _add_part(rows, message, part, (copied, flags[1] and part.id in undone))
        _add_unrecorded(rows, message, flags)
    return rows


def _to_session_row(session: SessionInfo) -> Row:
    data, summary = get_weft_data(session), session.summary
    return (
        session.id,
        session.project_id,
        clean(session.directory),
        session.parent_id,
        data.forked_from.session_id if data.forked_from else None,
        clean(session.title),
        session.time.created,
        session.time.updated,
        is_archived(session),
        data.pinned,
        to_json(data.tags),
        summary.additions if summary else 0,
        summary.deletions if summary else 0,
        summary.files if summary else 0,
        session.revert.message_id if session.revert else None,
        session.version,
    )


def _to_prompt_row(
    info: UserMessage, message: MessageWithParts, number: int, flags: tuple[bool, bool]
) -> Row:
    return (
        info.id,
        info.session_id,
        number,
        info.time.created,
        info.agent,
        info.model.provider_id if info.model else "",
        info.model.model_id if info.model else "",
        clean(get_prompt_text(message.parts)),
        is_synthetic(message),
        *flags,
    )


def get_prompt_text(parts: Iterable[AnyPart]) -> str:
    """Return the words of a prompt, without what weft added to them."""
    return "\n".join(
        part.text if isinstance(part, TextPart) else part.prompt
        for part in parts
        if isinstance(part, SubtaskPart) or (isinstance(part, TextPart) and not part.synthetic)
    )


def _to_step_row(
    info: AssistantMessage, message: MessageWithParts, number: int, flags: tuple[bool, bool]
) -> Row:
    tokens, failure = info.tokens, info.error
    # Texts that are ignored are those of attempts that failed.
    said = [part for part in message.parts if isinstance(part, TextPart) and not part.ignored]
    thought = [part for part in message.parts if isinstance(part, ReasoningPart) and not part.ignored]
    return (
        info.id,
        info.session_id,
        info.parent_id,
        number,
        info.time.created,
        info.time.completed,
        info.agent,
        info.provider_id,
        info.model_id,
        info.finish,
        None if failure is None else type(failure).__struct_config__.tag,
        None if failure is None else clean(str(getattr(failure.data, "message", ""))),
        clean("\n".join(part.text for part in said)),
        clean("\n".join(part.text for part in thought)),
        tokens.input,
        tokens.output,
        tokens.reasoning,
        tokens.cache.read,
        tokens.cache.write,
        format(info.cost, "f"),
        info.priced,
        info.summary,
        *flags,
    )


def _add_part(rows: SessionRows, message: MessageWithParts, part: AnyPart, flags: tuple[bool, bool]) -> None:
    match part:
        case ToolPart():
            rows.calls.append(_to_call_row(part, len(rows.calls) + 1, flags))
        case PatchPart(weft=data) if data is not None:
            calls = {each.call_id: each for each in message.parts if isinstance(each, ToolPart)}
            call = calls.get(data.call_id)
            # The changes of a child session are stored with its parent too. They are the child's.
            of_child = call is not None and _find_child(call) is not None
            # A part has no time of its own, but its id has. A fork gives its copies new ids.
            created = message.info.time.created
            time = created if flags[0] else max(created, unwrap(part.id, created) // PER_MS)
            start = (part.session_id, message.info.id, data.call_id, part.id)
            end = (flags[0] or of_child, flags[1])
            for file in data.patch.files:
                trees = (True, data.patch.before, data.patch.after)
                place = (len(rows.files) + 1, time, *split_path(message, file))
                rows.files.append((*start, *place, *trees, *end))
            for uncovered in data.patch.uncovered:
                place = (len(rows.files) + 1, time, *split_path(message, uncovered.file))
                rows.files.append((*start, *place, False, None, None, *end))
        case RetryPart():
            detail = clean(str(getattr(part.error.data, "message", "")))
            rows.marks.append((part.session_id, part.time.created, "retry", message.info.id, detail))
        case CompactionPart():
            detail = "auto" if part.auto else "asked for"
            created = message.info.time.created
            rows.marks.append((part.session_id, created, "compaction", message.info.id, detail))
        case _:
            pass


def _add_unrecorded(rows: SessionRows, message: MessageWithParts, flags: tuple[bool, bool]) -> None:
    """Add the files that tools changed while no snapshots were taken, also those that OpenCode changed."""
    files = [(fate.file, "") for fate in list_unrecorded_files([message])]
    for part in message.parts:
        if isinstance(part, PatchPart) and part.weft is None:
            files += [(file, part.id) for file in part.files]
    info = message.info
    for file, id in files:
        row = ("", id, len(rows.files) + 1, info.time.created, *split_path(message, file))
        rows.files.append((info.session_id, info.id, *row, False, None, None, *flags))


def split_path(message: MessageWithParts, file: str) -> tuple[str, str]:
    """Return a file relative to the top of the message's checkout, and that top. A file outside keeps its whole path."""
    path = message.info.path if isinstance(message.info, AssistantMessage) else None
    root = "" if path is None else path.cwd if path.root == "/" else path.root
    prefix = root.rstrip("/") + "/"
    return clean(file.removeprefix(prefix) if root else file), clean(root)


def _to_call_row(part: ToolPart, number: int, flags: tuple[bool, bool]) -> Row:
    state = part.state
    status, title, output, error = "pending", "", "", None
    started: int | None = None
    ended: int | None = None
    match state:
        case PendingState():
            pass
        case RunningState():
            status, title, started = "running", state.title or "", state.time.start
        case CompletedState():
            status, title, output = "completed", state.title, state.output
            started, ended = state.time.start, state.time.end
        case ErrorState():
            status, error, started, ended = "error", state.error, state.time.start, state.time.end
    return (
        part.call_id,
        part.id,
        part.session_id,
        part.message_id,
        number,
        part.tool,
        status,
        clean(title),
        to_json(state.input),
        clean(output[:MAX_OUTPUT_CHARS]),
        len(output),
        None if error is None else clean(error),
        started,
        ended,
        _find_child(part),
        *flags,
    )


def _find_child(part: ToolPart) -> SessionID | None:
    metadata = getattr(part.state, "metadata", None) or {}
    id = metadata.get("sessionId")
    return SessionID(id) if part.tool == "task" and isinstance(id, str) else None


def to_permission_row(project: ProjectID, entry: AuditEntry) -> Row:
    return (
        entry.time,
        entry.what,
        project,
        entry.session_id,
        entry.agent,
        entry.permission,
        to_json(entry.patterns),
        clean(entry.rule),
        entry.reply,
        entry.scope,
        clean(entry.by),
        clean(entry.message),
        entry.request_id,
    )


def to_json(value: Any) -> str:
    return clean(encode(value).decode(errors="replace"))


def clean(text: str) -> str:
    """Return a text that SQLite can store."""
    return _UNSTORABLE.sub("\ufffd", text)


def to_storable(row: Row) -> Row:
    """Return a row that SQLite can store. Names, ids and numbers of a model or of another program may be anything."""
    return tuple(
        clean(value) if isinstance(value, str) else to_integer(value) if isinstance(value, int) else value
        for value in row
    )


def list_columns() -> Iterator[tuple[str, str]]:
    """Yield table and column of every column there is."""
    for table in TABLES:
        for column in table.columns:
            yield table.name, column.name
