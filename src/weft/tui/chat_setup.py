"""What a conversation in a terminal is made with: the contract of its screen, and everything that it needs besides the `Api`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from weft.model.ids import SessionID
from weft.model.input import AnyPartInput

if TYPE_CHECKING:  # for types alone: a chat needs both
    from weft.tui.chat import Chat
    from weft.tui.view import Item


class ChatScreen(Protocol):
    """Shows a conversation and reads what is typed.

    * `run` reads input and hands it to the chat until the person leaves. It begins with `Chat.early` and `Chat.draft`.
    * `show` prints settled items, each once. `refresh` draws the live region again.
    * `set_draft` puts text into an empty prompt. `leave` makes `run` return.
    * A screen that `is_full` shows `Chat.items` itself, so that `show` only says that there are new ones. A screen that is not
      prints each item once.
    """

    @property
    def is_full(self) -> bool: ...

    async def run(self, chat: Chat) -> None: ...

    async def show(self, items: list[Item], chat: Chat) -> None: ...

    def refresh(self) -> None: ...

    def set_draft(self, text: str) -> None: ...

    def leave(self) -> None: ...


class ChatSetup(Struct, frozen=True, kw_only=True):
    """What a conversation needs besides the `Api`.

    `run_command` carries out a slash command, and returns False if the text is none. `to_parts` turns text into the parts of a prompt, with the files and agents that it mentions. `to_resume` returns the
    command that continues a session. `trust` and `describe_context` are there if the project is on this machine.
    `is_remote` says that a server runs the sessions: they continue when the person leaves. `scopes` says that grants can be
    limited to a turn or the project. `make_screen` returns the other screen, full or inline.
    """

    now: Callable[[], int]
    run_command: Callable[[Chat, str], Awaitable[bool]]
    to_parts: Callable[[str, str | None], Awaitable[tuple[AnyPartInput, ...]]]
    to_resume: Callable[[SessionID], str]
    is_remote: bool = False
    scopes: bool = True
    trust: Callable[[bool], list[str]] | None = None
    describe_context: Callable[[SessionID], list[str]] | None = None
    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    make_screen: Callable[[bool], Awaitable[ChatScreen]] | None = None
