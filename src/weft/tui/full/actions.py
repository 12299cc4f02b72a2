"""What the keys of the full screen do: scroll, fold, search and copy, choose, preview an undo, show diffs and children."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from weft.errors import InvalidInputError, WeftError
from weft.model.display import format_count
from weft.model.ids import MessageID
from weft.model.session import RevertResult, SessionInfo
from weft.model.session_query import SessionQuery
from weft.tui.clipboard import copy_text
from weft.tui.commands import COMMANDS, cycle_model, find_last_prompt, get_session, list_variants, run_command
from weft.tui.diff import render_diffs
from weft.tui.full.app import ALTERNATE_SCROLL, FullApp
from weft.tui.full.pickers import PageScreen, Picker, PickerRow, SessionActions, SessionFilter, SessionPicker
from weft.tui.full.widgets import LineView
from weft.tui.keys import ACTIONS, EDITING, KeyMap
from weft.tui.overview import format_turn, to_turns
from weft.tui.render import format_amount, squash
from weft.tui.text import Line, cut, wrap
from weft.tui.transcript import to_copy
from weft.tui.view import AnswerItem, Item

MAX_PREVIEW_PROMPT: Final = 400
BROWSE_KEYS: Final = (
    ("j k ↓ ↑", "select the next or the previous item"),
    ("Enter, z", "fold or unfold the item"),
    ("Z", "fold or unfold all calls"),
    ("/ n N", "search, next, previous"),
    ("{ }", "the prompt before, the prompt after"),
    ("g G", "the first and the last item"),
    ("y Y", "copy the item; copy the whole turn"),
    ("u", "preview the undo of this prompt"),
    ("i, Esc", "back to the prompt"),
)
SESSION_LIMIT: Final = 500
# Below these widths, keys are above what they do, and the panel is a page.
MIN_COLUMNS_WIDTH: Final = 60
KEY_WIDTH: Final = 30
MIN_SPLIT_WIDTH: Final = 70


class ScreenActions:
    """Carries out actions by name. An action that asks the `Api` runs while the person continues."""

    def __init__(self, app: FullApp) -> None:
        self._app = app
        self._table: dict[str, Callable[[], object]] = {
            **self._list_prompt_actions(),
            **self._list_scroll_actions(),
            **self._list_session_actions(),
        }

    def run(self, action: str) -> None:
        function = self._table.get(action)
        if function is not None:
            function()

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        return lambda: self._app.chat.start(work())

    def _command(self, line: str) -> Callable[[], None]:
        return lambda: self._app.chat.start(run_command(self._app.chat, line))

    def _list_prompt_actions(self) -> dict[str, Callable[[], object]]:
        app = self._app
        return {
            "input_submit": lambda: app.submit(queued=False),
            "prompt_queue": lambda: app.submit(queued=True),
            "input_newline": lambda: app.prompt.put("\n"),
            "input_clear": lambda: app.prompt.set_text(""),
            "history_previous": lambda: app.recall(-1),
            "history_next": lambda: app.recall(1),
            "prompt_search": self._start(self.search_history),
            "editor_open": self._start(self.edit_in_editor),
            "agent_cycle": self._cycle_agent_or_complete,
            "agent_cycle_reverse": self._start(lambda: self.cycle_agent(-1)),
            "variant_cycle": self._start(self.cycle_variant),
            "session_interrupt": self.interrupt_or_browse,
            "screen_switch": app.chat.change_screen,
            "terminal_suspend": app.action_suspend_process,
            "app_exit": app.chat.leave,
            "help": self._start(self.show_help),
            **{name: partial(app.edit, name) for name in EDITING},
        }

    def _list_scroll_actions(self) -> dict[str, Callable[[], object]]:
        app = self._app

        def scroll(share: float) -> Callable[[], None]:
            def move() -> None:
                details = app.query_one("#details", LineView)
                shown = details if details.display and details.end else app.transcript
                lines = max(round(shown.size.height * abs(share)), 1)
                shown.go_to(max(shown.top + (lines if share > 0 else -lines), 0))

            return move

        return {
            "messages_page_up": scroll(-0.9),
            "messages_page_down": scroll(0.9),
            "messages_half_page_up": scroll(-0.5),
            "messages_half_page_down": scroll(0.5),
            "messages_line_up": lambda: app.transcript.move(-1),
            "messages_line_down": lambda: app.transcript.move(1),
            "messages_first": lambda: app.transcript.go_to(-1),
            "messages_last": lambda: app.transcript.go_to(app.transcript.end),
            "prompt_previous": lambda: self.jump(forward=False),
            "prompt_next": lambda: self.jump(forward=True),
            "messages_previous": lambda: self.jump(forward=False),
            "messages_next": lambda: self.jump(forward=True),
            "messages_last_user": self.jump_to_last,
            "transcript_focus": self.toggle_focus,
            "tool_details": lambda: app.transcript.fold_all("tools"),
            "reasoning_details": lambda: app.transcript.fold_all("reasoning"),
            "messages_copy": self._start(self.copy_answer),
            "sidebar_toggle": self.toggle_sidebar,
        }

    def _list_session_actions(self) -> dict[str, Callable[[], object]]:
        return {
            "session_new": self._command("/new"),
            "session_fork": self._command("/fork"),
            "session_compact": self._command("/compact"),
            "session_share": self._command("/share"),
            "session_unshare": self._command("/unshare"),
            "session_export": self._command("/export"),
            "status_view": self._command("/mcp"),
            "session_list": self._start(self.choose_session),
            "session_timeline": self._start(self.show_timeline),
            "session_child_cycle": self._start(lambda: self.cycle_child(1)),
            "session_child_cycle_reverse": self._start(lambda: self.cycle_child(-1)),
            "session_parent": self._start(lambda: self._app.chat.watch(None)),
            "messages_undo": self._start(self.preview_undo),
            "messages_redo": self._start(self.redo),
            "diff_view": self._start(self.show_diff),
            "model_list": self._start(self.choose_model),
            "model_cycle_recent": self._start(lambda: cycle_model(self._app.chat)),
            "agent_list": self._start(self.choose_agent),
            "theme_list": self._start(self.choose_theme),
            "command_list": self._start(self.choose_command),
        }

    # --- the transcript ---

    def browse(self, key: str) -> bool:
        """Handle a key while the transcript has the focus. Return False if it means nothing there."""
        transcript = self._app.transcript
        here = transcript.cursor if transcript.cursor is not None else len(transcript.lines.items) - 1
        actions: dict[str, Callable[[], object]] = {
            "j": lambda: transcript.select(here + 1),
            "down": lambda: transcript.select(here + 1),
            "k": lambda: transcript.select(here - 1),
            "up": lambda: transcript.select(here - 1),
            "g": lambda: transcript.select(0),
            "G": lambda: transcript.select(len(transcript.lines.items) - 1),
            "enter": transcript.fold,
            "z": transcript.fold,
            "Z": lambda: transcript.fold_all("tools"),
            "left_curly_bracket": lambda: self.jump(forward=False),
            "right_curly_bracket": lambda: self.jump(forward=True),
            "slash": self._app.begin_search,
            "n": lambda: self._find(forward=True),
            "N": lambda: self._find(forward=False),
            "y": self._start(self.copy_item),
            "Y": self._start(self.copy_turn),
            "u": self._start(self.preview_undo_here),
            "i": self.toggle_focus,
            "space": lambda: transcript.move(transcript.size.height - 2),
            "b": lambda: transcript.move(2 - transcript.size.height),
        }
        if key not in actions:
            return False
        actions[key]()
        return True

    def _find(self, *, forward: bool) -> None:
        transcript = self._app.transcript
        if not transcript.words:
            self._app.begin_search()
        elif not transcript.find(forward=forward):
            self._app.tell(f"{transcript.words!r} was not found")

    def jump(self, *, forward: bool) -> None:
        """Go to the prompt before or after the selected item, or the item at the top of the screen if none is selected."""
        transcript = self._app.transcript
        here = transcript.cursor
        if here is None:
            here = transcript.lines.find_entry(transcript.top)
        found = transcript.lines.find_prompt(here, forward=forward)
        if found is not None:
            transcript.cursor = found
            start, _ = transcript.lines.get_extent(found)
            transcript.go_to(start)

    def jump_to_last(self) -> None:
        self._app.transcript.cursor = len(self._app.transcript.lines.items)
        self.jump(forward=False)

    def toggle_focus(self) -> None:
        """Give the keys to the transcript, or back to the prompt."""
        if self._app.is_browsing:
            self._app.transcript.cursor = None
            self._app.give_focus(self._app.prompt)
        else:
            self._app.transcript.select_last()
            self._app.give_focus(self._app.transcript)

    def toggle_sidebar(self) -> None:
        if self._app.size.width < MIN_SPLIT_WIDTH:
            self._app.chat.start(self.show_overview())
            return
        self._app.sidebar_wanted = not self._app.query_one("#sidebar").display
        self._app.chat.start(self.read_tree())

    async def show_overview(self) -> None:
        """Show the contents of the panel on a page, for screens without room for the panel."""
        get_session(self._app.chat)
        await self.read_tree()
        await self._app.ask(PageScreen("Session", self._app.render_overview, self._app.palette))

    async def read_tree(self) -> None:
        """Read the child sessions for the panel. A server of OpenCode has them too."""
        if self._app.chat.session is not None:
            self._app.family = await self._app.chat.api.get_tree(self._app.chat.session.id)

    # --- copying ---

    async def copy_item(self) -> None:
        transcript = self._app.transcript
        if transcript.cursor is not None:
            await self._copy(to_copy(transcript.lines.items[transcript.cursor]))

    async def copy_turn(self) -> None:
        transcript = self._app.transcript
        if transcript.cursor is not None:
            items = transcript.lines.list_turn(transcript.cursor)
            await self._copy(join_markdown(items))

    async def copy_answer(self) -> None:
        await self._copy(join_markdown(self._app.chat.list_last_answer()))

    async def _copy(self, text: str) -> None:
        if not text:
            self._app.tell("there is nothing to copy")
            return
        settings = self._app.settings
        ways = await copy_text(text, settings.env, self._app.write, settings.run_program)
        lines = format_count(text.count("\n") + 1, "line")
        self._app.tell(f"copied {lines}: {ways}")

    # --- interrupting ---

    def interrupt_or_browse(self) -> None:
        if not self._app.chat.interrupt():
            self.toggle_focus()

    # --- choosing ---

    async def choose_session(self) -> None:
        app, api = self._app, self._app.chat.api

        async def read(state: SessionFilter) -> list[SessionInfo]:
            query = SessionQuery(
                archived=state == "archived",
                pinned=True if state == "pinned" else None,
                everywhere=state == "everywhere",
                limit=SESSION_LIMIT,
                order="updated",
            )
            return await api.list_sessions(query)

        async def search(words: str) -> list[PickerRow[SessionInfo]]:
            hits = await api.search(words)
            return [
                PickerRow(await api.get_session(hit.session_id), hit.title, squash(hit.snippet))
                for hit in hits
            ]

        async def rename(session: SessionInfo, title: str) -> None:
            await api.rename_session(session.id, title)

        async def remove(session: SessionInfo) -> None:
            await api.remove_session(session.id)
            if app.chat.session is not None and app.chat.session.id == session.id:
                app.chat.forget_session()

        def start(work: Awaitable[None]) -> None:
            async def run() -> None:
                await work

            app.chat.start(run())

        actions = SessionActions(read, search, rename, remove, app.chat.setup.now, start)
        chosen = await app.ask(SessionPicker(await read("open"), actions, app.palette))
        if chosen is not None:
            await app.chat.open(await api.get_session(chosen.id))
            await self.read_tree()

    async def choose_model(self) -> None:
        providers = await self._app.chat.api.configuration.list_providers()
        rows = [
            PickerRow(
                f"{provider.id}/{model.id}", f"{provider.id}/{model.id}", format_amount(model.limit.context)
            )
            for provider in providers.all
            if provider.id in providers.connected
            for model in provider.models.values()
        ]
        await self._choose("Model", rows, "/model")

    async def choose_agent(self) -> None:
        agents = await self._app.chat.api.workspace.list_agents()
        rows = [
            PickerRow(each.name, each.name, (each.description or "")[:60])
            for each in agents
            if not each.hidden and each.mode != "subagent"
        ]
        await self._choose("Agent", rows, "/agent")

    async def _choose(self, title: str, rows: list[PickerRow[str]], command: str) -> None:
        chosen = await self._app.ask(Picker(title, rows, self._app.palette))
        if chosen is not None:
            await run_command(self._app.chat, f"{command} {chosen}")

    async def cycle_agent(self, step: int) -> None:
        agents = await self._app.chat.api.workspace.list_agents()
        names = [each.name for each in agents if not each.hidden and each.mode != "subagent"]
        status = self._app.chat.view.status if self._app.chat.view is not None else None
        now = self._app.chat.agent or (status.agent if status is not None else "") or names[0]
        at = names.index(now) if now in names else 0
        self._app.chat.agent = names[(at + step) % len(names)]
        self._app.tell(f"agent {self._app.chat.agent}")

    def _cycle_agent_or_complete(self) -> None:
        """With text, Tab completes as in inline mode; OpenCode's Tab only changes the agent."""
        if self._app.prompt.text:
            self._app.suggest_now()
        else:
            self._app.chat.start(self.cycle_agent(1))

    async def cycle_variant(self) -> None:
        chat = self._app.chat
        choices: list[str | None] = [None, *await list_variants(chat)]
        chat.variant = (
            choices[(choices.index(chat.variant) + 1) % len(choices)] if chat.variant in choices else None
        )
        self._app.tell(f"variant {chat.variant}" if chat.variant else "no variant")

    async def choose_theme(self) -> None:
        app, before = self._app, self._app.palette
        rows = [
            PickerRow(name, name, "dark" if each.dark else "light") for name, each in app.palettes.items()
        ]
        chosen = await app.ask(
            Picker("Theme", rows, app.palette, hint='Enter uses it now · "theme" in opencode.json keeps it')
        )
        app.set_palette(app.palettes[chosen] if chosen is not None else before)

    async def choose_command(self) -> None:
        rows = [
            PickerRow(f"/{name}", f"/{name} {each.takes}".strip(), each.about)
            for name, each in COMMANDS.items()
        ]
        own = await self._app.chat.api.list_commands()
        rows += [PickerRow(f"/{each.name}", f"/{each.name}", each.description or "") for each in own]
        rows += [
            PickerRow(action, about, self._app.keys.describe(action))
            for action, about in ACTIONS.items()
            if action in self._table
        ]
        chosen = await self._app.ask(Picker("Commands and keys", rows, self._app.palette))
        if chosen is None:
            return
        if chosen.startswith("/"):
            self._app.prompt.set_text(f"{chosen} ")
        else:
            self.run(chosen)

    async def edit_in_editor(self) -> None:
        """Let the person's editor change the prompt. Runs go on meanwhile, and nothing is drawn."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "prompt.md")
            await asyncio.to_thread(path.write_text, self._app.prompt.text, encoding="utf-8")
            with self._app.suspend(), self._app.batch_update():
                await self._app.settings.run_editor(str(path))
            edited = await asyncio.to_thread(path.read_text, encoding="utf-8", errors="replace")
            self._app.prompt.set_text(edited.rstrip("\n"))
        if not self._app.settings.mouse:
            self._app.write(ALTERNATE_SCROLL)

    async def search_history(self) -> None:
        unique = list(dict.fromkeys(reversed(self._app.history)))
        rows = [PickerRow(text, squash(text)) for text in unique]
        chosen = await self._app.ask(Picker("Earlier prompts", rows, self._app.palette))
        if chosen is not None:
            self._app.prompt.set_text(chosen)

    # --- what a session did ---

    async def show_timeline(self) -> None:
        """Choose a prompt of the session, with its time and cost, and go to it."""
        session = get_session(self._app.chat)
        turns = to_turns(await self._app.chat.api.list_messages(session.id))
        rows = [PickerRow(turn.message, squash(turn.text), format_turn(turn)) for turn in turns]
        chosen = await self._app.ask(
            Picker("Timeline", rows, self._app.palette, hint="Enter goes to the prompt · Esc closes")
        )
        if chosen is not None:
            await self._go_to_message(chosen)

    async def _go_to_message(self, message: MessageID) -> None:
        """Go to a prompt. Load older messages until it is there."""
        transcript = self._app.transcript
        while True:
            places = [
                at
                for at, item in enumerate(transcript.lines.items)
                if getattr(item, "message", None) == message
            ]
            if places:
                transcript.cursor = places[0]
                start, _ = transcript.lines.get_extent(places[0])
                transcript.go_to(start)
                return
            items = await self._app.chat.load_older()
            if not items:
                return
            transcript.load_older(items)

    async def show_diff(self) -> None:
        session = get_session(self._app.chat)
        diffs = await self._app.chat.api.list_diff(session.id)
        title = f"{format_count(len(diffs), 'file')} changed"
        await self._app.ask(PageScreen(title, lambda width: render_diffs(diffs, width), self._app.palette))

    async def preview_undo_here(self) -> None:
        """Preview the undo of the prompt that the selected item belongs to, and of all that followed."""
        transcript = self._app.transcript
        turn = transcript.lines.list_turn(transcript.cursor) if transcript.cursor is not None else []
        message = getattr(turn[0], "message", None) if turn else None
        await self._preview_undo(message)

    async def preview_undo(self) -> None:
        await self._preview_undo(None)

    async def _preview_undo(self, message: MessageID | None) -> None:
        """Show what an undo would do to each file, and do it if the person confirms."""
        chat = self._app.chat
        session = await chat.api.get_session(get_session(chat).id)
        history = await chat.api.list_messages(session.id)
        target = message or find_last_prompt(history, session)
        if target is None:
            raise InvalidInputError("session", "there is nothing to undo")
        text = next((turn.text for turn in to_turns(history) if turn.message == target), "")
        preview: RevertResult | None = None
        problem = ""
        try:
            preview = await chat.api.revert(session.id, target, dry_run=True)
        except WeftError as error:
            problem = f"what would happen to files is not known: {error}"
        diffs = await chat.api.list_diff(session.id, message=target) if preview is not None else []

        def render(width: int) -> list[Line]:
            shown = cut([("bold", squash(text))], MAX_PREVIEW_PROMPT)
            head = wrap(shown, width, first=[("ansigreen", "> ")], rest=[("", "  ")])
            lines = (
                to_preview(preview, session.directory, width) if preview else wrap([("dim", problem)], width)
            )
            return [*head, [], *lines, [], *(render_diffs(diffs, width) if diffs else [])]

        if await self._app.ask(
            PageScreen("Undo this prompt?", render, self._app.palette, confirm="undoes it")
        ):
            result = await chat.api.revert(session.id, target)
            await chat.open(result.session)
            chat.set_draft(text)
            self._app.tell(f"undone; {self._app.keys.describe('messages_redo')} brings it back")

    async def redo(self) -> None:
        chat = self._app.chat
        await run_command(chat, "/redo")
        await asyncio.sleep(0)
        await chat.open(await chat.api.get_session(get_session(chat).id))

    async def cycle_child(self, step: int) -> None:
        """Show the next child session in its own pane."""
        chat = self._app.chat
        session = get_session(chat)
        await self.read_tree()
        children = (
            [child.session.id for child in self._app.family.children] if self._app.family is not None else []
        )
        if not children:
            raise InvalidInputError("session", f"{squash(session.title)!r} has no child sessions")
        now = chat.watched.view.session if chat.watched is not None else None
        at = children.index(now) + step if now in children else (len(children) - 1 if step > 0 else 0)
        await chat.watch(children[at % len(children)])

    async def show_help(self) -> None:
        keys = self._app.keys
        await self._app.ask(PageScreen("Keys", lambda width: render_keys(keys, width), self._app.palette))


def join_markdown(items: Iterable[Item]) -> str:
    """Return what the model wrote as Markdown: code with its fence, list items close together."""
    text = ""
    for item in items:
        if isinstance(item, AnswerItem):
            block = item.block
            code = block.kind == "code"
            opening = f"```{block.language}\n" if code and block.opens else ""
            closing = "\n```" if code and block.closes else ""
            gap = "\n\n" if block.spaced else "\n"
            text = f"{text}{gap if text else ''}{opening}{block.text}{closing}"
    return text


def to_preview(result: RevertResult, directory: str, width: int) -> list[Line]:
    """Return what an undo does to each file. Paths below the directory are relative to it."""
    styles = {"restored": "ansigreen", "removed": "ansired", "kept": "ansiyellow"}
    lines: list[Line] = []
    for file in result.files:
        path = squash(file.file.removeprefix(directory.rstrip("/") + "/"))
        lines += wrap(
            [("", path), ("dim", f"  {squash(file.reason)}")],
            width,
            first=[(styles.get(file.fate, "dim"), f"{file.fate:>10}  ")],
            rest=[("", " " * 12)],
        )
    if result.caution:
        lines += wrap([("ansiyellow", squash(result.caution))], width)
    return lines or [[("dim", "no file changes")]]


def render_keys(keys: KeyMap, width: int) -> list[Line]:
    """Return the help page: what each key does."""
    rows = [(keys.describe(action), about) for action, about in ACTIONS.items() if keys.describe(action)]
    lines: list[Line] = [[("bold", "everywhere")]]
    for name, about in rows:
        lines += _render_key(name, about, width)
    lines += [[], [("bold", "in the transcript")]]
    for name, about in BROWSE_KEYS:
        lines += _render_key(name, about, width)
    return lines


def _render_key(name: str, about: str, width: int) -> list[Line]:
    """Return a key and what it does, side by side if there is room."""
    if width < MIN_COLUMNS_WIDTH or len(name) > KEY_WIDTH:
        indent: Line = [("", "    ")]
        keys = wrap([("ansiaccent", name)], width, first=[("", "  ")], rest=[("", "  ")])
        return [*keys, *wrap([("", about)], width, first=indent, rest=indent)]
    return wrap(
        [("", about)],
        width,
        first=[("ansiaccent", f"  {name:<{KEY_WIDTH}} ")],
        rest=[("", " " * (KEY_WIDTH + 3))],
    )
