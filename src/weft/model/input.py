"""Inputs: what a front end sends. Ids and everything else in them came from outside."""

from typing import Any

from weft.model.ids import MessageID, PartID, SessionID
from weft.model.part import AnySource, ModelRef, SourceText, Span
from weft.model.permission import Ruleset
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
    """A prompt. The same `message_id` sent twice is one prompt."""

    message_id: MessageID | None = None
    model: ModelRef | None = None
    agent: str | None = None
    no_reply: bool = False
    system: str | None = None
    tools: dict[str, bool] | None = None
    variant: str | None = None
    parts: tuple[AnyPartInput, ...]


def prompt(text: str) -> PromptInput:
    """A prompt that is nothing but text."""
    return PromptInput(parts=(TextInput(text=text),))


class SessionInput(Wire, frozen=True, kw_only=True):
    """A session to be made."""

    parent_id: SessionID | None = None
    title: str | None = None
    permission: Ruleset | None = None
