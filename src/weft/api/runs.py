"""Runs: prompts, tools of clients, commands, compaction, and undo."""

from collections.abc import Sequence
from typing import Protocol

from weft.model.agent import Command
from weft.model.client_tool import (
    ClientTool,
    ClientToolAsk,
    ClientToolReport,
    ClientToolRequest,
    ClientToolResult,
)
from weft.model.ids import MessageID, PartID, SessionID, ToolRequestID
from weft.model.input import CommandInput, PromptInput, ShellInput
from weft.model.message import MessageWithParts
from weft.model.part import ModelRef
from weft.model.session import AnyStatus, RevertResult


class Runs(Protocol):
    """Run sessions.

    * A prompt is on disk before anything runs. It is answered, or the reason for the failure is stored and published.
    * `prompt` returns the last message of the run. A prompt that is sent during a run joins that run.
    * Sending the same `message_id` twice is one prompt.
    * `check_prompt` raises the errors that `prompt` would raise about the agent and the model, and does nothing else.
    * `submit` does not wait for the answer: it returns the prompt once that is on disk.
    * `compact` summarises the conversation now, with `model` if one is given. It changes no stored message.
    * `uncompact` undoes the last compaction, so that the model sees the full history again. It returns False if there
      was none.
    * `initialize` has an agent write an `AGENTS.md` and records the time in the project.
    * `abort` ends the run of a session and of its child sessions, and returns False if there was no run. No part stays
      open, and no session is idle before its children are. It raises `SessionBusyError` with the owner if another
      process runs the session.
    * A session is idle unless this process runs it. `list_status` returns the sessions that are not idle. A run that
      waits for a person is busy, and its status names the open requests.
    """

    async def check_prompt(self, input: PromptInput) -> None: ...

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts: ...

    async def submit(self, session: SessionID, input: PromptInput) -> MessageWithParts: ...

    async def compact(self, session: SessionID, *, model: ModelRef | None = None) -> MessageWithParts: ...

    async def uncompact(self, session: SessionID) -> bool: ...

    async def initialize(
        self, session: SessionID, *, model: ModelRef | None = None, message_id: MessageID | None = None
    ) -> MessageWithParts: ...

    async def abort(self, session: SessionID) -> bool: ...

    async def get_status(self, session: SessionID) -> AnyStatus: ...

    async def list_status(self) -> dict[SessionID, AnyStatus]: ...


class ClientTools(Protocol):
    """Tools that run in the process of a client.

    * `offer_tools` offers tools to the model of a session, from its next step on, instead of those that the `client` offered
      there before. An empty sequence withdraws them. `client` is a name that the caller chooses; offers under different
      names exist side by side. If two clients offer a tool of the same name, the later offer counts.
    * A name that a tool cannot have, or that weft needs itself, raises `InvalidInputError`, and nothing changes. So do two
      tools of one name, a schema that is not that of an object, and more or longer text than a model could use.
    * Offers are not stored: they end with the session, and with the process that runs it.
    * When the model calls such a tool and the rules allow it, `tool.requested` is published. The request names its client, and
      `list_tool_requests` returns it until it is finished, oldest first.
    * `accept_tool` says that the client runs the tool. The call fails if the client does not do so within ten seconds, and again
      in every minute after that. Accepting twice is allowed.
    * `ask_for_tool` asks for a permission on behalf of the call, as a tool of the server would: it returns when the rules or a
      person allow it, and raises `NotPermittedError` if they do not. A request that is open when the call ends is withdrawn.
    * `report_tool` replaces the title and the metadata that clients see while the tool runs.
    * `finish_tool` ends the call with a result, or with an error that the model reads. If a person refused a permission,
      `refused` ends the run.
    * What cannot be stored, because it is too long or no Unicode, raises `InvalidInputError`, and the call stays open.
    * If the call was finished, failed or aborted, these four raise `NotFoundError`.
    """

    async def offer_tools(self, session: SessionID, client: str, tools: Sequence[ClientTool]) -> None: ...

    async def list_tool_requests(self) -> list[ClientToolRequest]: ...

    async def accept_tool(self, id: ToolRequestID) -> None: ...

    async def ask_for_tool(self, id: ToolRequestID, ask: ClientToolAsk) -> None: ...

    async def report_tool(self, id: ToolRequestID, report: ClientToolReport) -> None: ...

    async def finish_tool(self, id: ToolRequestID, result: ClientToolResult) -> None: ...


class Undo(Protocol):
    """Undo the end of a session and what it did to files.

    * `revert` takes a session back to the state before a message. An answer goes together with its prompt. With `part`,
      the earlier parts of the message stay. Nothing is removed until the session goes on: before that, `unrevert`
      brings everything back.
    * A file that is as the agent left it is restored. A file that the person changed since then is kept, and the result
      says so. If the old contents of a file cannot be read, `SnapshotMissingError` is raised and nothing changes.
    * With `files` (absolute paths), only these files are touched; an empty tuple touches none. `dry_run` changes nothing
      and returns what would happen to each file.
    * A running session raises `SessionBusyError`. Reverting again moves the session further back or forward.
    """

    async def revert(
        self,
        session: SessionID,
        message: MessageID,
        part: PartID | None = None,
        *,
        files: tuple[str, ...] | None = None,
        dry_run: bool = False,
    ) -> RevertResult: ...

    async def unrevert(
        self, session: SessionID, *, files: tuple[str, ...] | None = None, dry_run: bool = False
    ) -> RevertResult: ...


class Commands(Protocol):
    """Named prompts, and shell commands of the person.

    * `list_commands` lists the built-in commands first. An unknown name raises `NotFoundError` with the nearest names.
    * `command` fills in a template, sends it as a prompt, returns the last message and publishes `command.executed`. It
      checks agent and model and asks for permission for shell commands of the template before it stores anything.
    * The arguments of a command are inserted as they are: no part of them is executed.
    * `shell` runs a command as the person, without asking for permission and without a model. It returns the complete
      message that records it. A running session raises `SessionBusyError`. A prompt that arrives meanwhile is answered
      afterwards.
    """

    async def list_commands(self) -> list[Command]: ...

    async def get_command(self, name: str) -> Command: ...

    async def command(self, session: SessionID, input: CommandInput) -> MessageWithParts: ...

    async def shell(self, session: SessionID, input: ShellInput) -> MessageWithParts: ...
