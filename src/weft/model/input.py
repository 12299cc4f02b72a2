"""Input from front ends. Ids and other values in it are not checked yet."""

from typing import Any

from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AnyFormat, JsonFormat
from weft.model.part import AnySource, ModelRef, SourceText, Span
from weft.model.permission import Ruleset
from weft.model.spending import Budget
from weft.model.wire import Wire


class PartInput(Wire, frozen=True, kw_only=True, tag_field="type"):
    id: PartID | None = None


class TextInput(PartInput, frozen=True, kw_only=True, tag="text"):
    text: str
    synthetic: bool = False
    ignored: bool = False
    time: Span | None = None
    metadata: dict[str, Any] | None = None


class FileInput(PartInput, frozen=True, kw_only=True, tag="file"):
    mime: str
    filename: str | None = None
    url: str
    source: AnySource | None = None


class AgentInput(PartInput, frozen=True, kw_only=True, tag="agent"):
    name: str
    source: SourceText | None = None


class SubtaskInput(PartInput, frozen=True, kw_only=True, tag="subtask"):
    prompt: str
    description: str
    agent: str
    model: ModelRef | None = None
    command: str | None = None


AnyPartInput = TextInput | FileInput | AgentInput | SubtaskInput


class PromptInput(Wire, frozen=True, kw_only=True):
    """A prompt. Sending the same `message_id` twice is one prompt.

    `budget` limits the run with its child sessions, in addition to the configured budgets. `format` requests a value
    instead of text.
    """

    message_id: MessageID | None = None
    model: ModelRef | None = None
    agent: str | None = None
    no_reply: bool = False
    system: str | None = None
    tools: dict[str, bool] | None = None
    variant: str | None = None
    budget: Budget | None = None
    format: AnyFormat | None = None
    parts: tuple[AnyPartInput, ...]


def prompt(text: str, *, schema: dict[str, Any] | None = None) -> PromptInput:
    """Make a prompt of text. With a JSON schema, the answer is a value that matches it (`structured`)."""
    format = None if schema is None else JsonFormat(schema=schema)
    return PromptInput(parts=(TextInput(text=text),), format=format)


class CommandInput(Wire, frozen=True, kw_only=True):
    """A command by its name, with its arguments. `model` has the form `provider/model` here."""

    message_id: MessageID | None = None
    agent: str | None = None
    model: str | None = None
    arguments: str = ""
    command: str
    variant: str | None = None
    budget: Budget | None = None
    format: AnyFormat | None = None
    parts: tuple[FileInput, ...] = ()


class ShellInput(Wire, frozen=True, kw_only=True):
    """A shell command that the person runs, recorded in the session."""

    agent: str | None = None
    model: ModelRef | None = None
    command: str


class SessionInput(Wire, frozen=True, kw_only=True):
    """A session to create. With a `workspace`, it gets a checkout of its own in the git workspace of that name."""

    parent_id: SessionID | None = None
    title: str | None = None
    permission: Ruleset | None = None
    workspace: str | None = None
