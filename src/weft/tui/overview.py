"""The cost and the changes of a session: the panel beside the transcript, the timeline of its prompts, and the welcome text (pure)."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from weft.model.display import bound_time, format_cost, format_count, sanitize
from weft.model.ids import MessageID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import PatchPart, StepFinishPart, TextPart, list_patch_files
from weft.model.session import SessionInfo, SessionTree
from weft.model.spending import Spent, add_spent, to_step_spent
from weft.tui.render import format_amount, format_ms, render_todos, squash
from weft.tui.text import Line, cut, wrap
from weft.tui.view import Item, SessionView, find_context_share

MAX_FILES: Final = 12
MAX_TODOS: Final = 12
FULL_CONTEXT: Final = 0.8
BAR: Final = "━"


class TurnSummary(Struct, frozen=True, kw_only=True):
    """A prompt with what followed: when it was sent and how long it took (ms), what it spent, and the files that it changed."""

    message: MessageID
    text: str
    time: int
    ms: int
    spent: Spent
    files: tuple[str, ...]


def to_turns(history: Sequence[MessageWithParts]) -> list[TurnSummary]:
    """Return the prompts of a history, oldest first, each with what its answers did."""
    turns: list[TurnSummary] = []
    for at, message in enumerate(history):
        text = _get_prompt(message)
        if not text:
            continue
        steps, files, end = list[Spent](), dict[str, None](), message.info.time.created
        for answer in history[at + 1 :]:
            if _get_prompt(answer):
                break
            if isinstance(answer.info, AssistantMessage):
                end = max(end, answer.info.time.completed or end)
            for part in answer.parts:
                if isinstance(part, StepFinishPart):
                    steps.append(to_step_spent(part))
                elif isinstance(part, PatchPart):
                    files |= dict.fromkeys(list_patch_files(part))
        turns.append(
            TurnSummary(
                message=message.info.id,
                text=text,
                time=message.info.time.created,
                ms=end - message.info.time.created,
                spent=add_spent(steps),
                files=tuple(files),
            )
        )
    return turns


def _get_prompt(message: MessageWithParts) -> str:
    if not isinstance(message.info, UserMessage):
        return ""
    return "".join(part.text for part in message.parts if isinstance(part, TextPart) and not part.synthetic)


def format_turn(turn: TurnSummary) -> str:
    """Return when a prompt was sent, how long it took, and what it cost."""
    sent = datetime.fromtimestamp(bound_time(turn.time) / 1000).astimezone()
    parts = [f"{sent:%d %b %H:%M}", format_ms(turn.ms), format_cost(turn.spent)]
    if turn.files:
        parts.insert(2, format_count(len(turn.files), "file"))
    return " · ".join(parts)


class OverviewContext(Struct, frozen=True, kw_only=True):
    """What the panel shows besides the view: its width, the session with its children, the sizes of contexts, the budget."""

    width: int
    session: SessionInfo
    tree: SessionTree | None = None
    sizes: Mapping[str, int] = {}
    budget: str = ""
    shown_child: str = ""


def render_overview(view: SessionView, context: OverviewContext) -> list[Line]:
    """Return the panel: title, context, cost, files, todos and child sessions."""
    width, status = context.width, view.status
    lines: list[Line] = wrap([("bold", squash(status.title or context.session.title))], width)
    lines.append(cut([("dim", str(context.session.id))], width))
    lines += _head("context")
    share = find_context_share(status, context.sizes)
    lines.append(
        [
            ("", f"{format_amount(status.context)} tokens"),
            ("dim", f"  {share:.0%}" if share is not None else ""),
        ]
    )
    if share is not None:
        lines.append(_render_bar(share, width))
    spent = status.spent
    lines += _head("cost")
    budget: Line = [("dim", f" of {context.budget}")] if context.budget else []
    lines.append([("bold", format_cost(spent)), *budget])
    lines += [[("dim", text)] for text in _format_spent(spent)]
    lines += _render_files(view, context)
    if view.todos:
        lines += [*_head("todos"), *(cut(line, width) for line in render_todos(view.todos)[:MAX_TODOS])]
    if context.tree is not None and context.tree.children:
        lines += _head("child sessions")
        for child in context.tree.children:
            chosen = str(child.session.id) == context.shown_child
            lines.append(
                cut(
                    [
                        (
                            "ansiaccent" if chosen else "",
                            f"{'▸' if chosen else '·'} {squash(child.session.title)}",
                        )
                    ],
                    width,
                )
            )
    return lines


def _head(name: str) -> list[Line]:
    return [[], [("dim", name.upper())]]


def _render_bar(share: float, width: int) -> Line:
    size = min(width, 30)
    filled = max(0, min(round(share * size), size))
    style = "ansired" if share >= FULL_CONTEXT else "ansigreen"
    return [(style, BAR * filled), ("dim", BAR * (size - filled))]


def _format_spent(spent: Spent) -> list[str]:
    read = spent.input + spent.cache_read + spent.cache_write
    lines = [
        f"{format_count(spent.steps, 'step')}",
        f"{format_amount(read)} in, {format_amount(spent.output + spent.reasoning)} out",
    ]
    return (
        [*lines, f"{spent.cache_read / read:.0%} of the input cached"] if read and spent.cache_read else lines
    )


def _render_files(view: SessionView, context: OverviewContext) -> list[Line]:
    if not view.files:
        return []
    names = [_shorten(name, context.session.directory) for name in view.files]
    lines: list[Line] = [*_head(f"files changed ({len(names)})")]
    lines += [cut([("", name)], context.width) for name in names[:MAX_FILES]]
    hidden = len(names) - MAX_FILES
    return [*lines, [("dim", f"and {hidden} more")]] if hidden > 0 else lines


def _shorten(name: str, directory: str) -> str:
    prefix = f"{directory.rstrip('/')}/"
    return sanitize(name.removeprefix(prefix))


def render_welcome(describe: Callable[[str], str], width: int) -> list[Line]:
    """Return what can be done without a session. `describe` names the keys of an action."""
    rows = (
        (describe("input_submit"), "sends the prompt; @ mentions a file, / is a command, ! is for the shell"),
        (describe("session_list"), "continues an earlier session"),
        (describe("model_list"), "chooses a model"),
        (describe("help"), "shows all keys"),
    )
    lines: list[Line] = [[], [("bold ansiaccent", "weft")], []]
    for key, about in rows:
        lines += wrap([("dim", about)], width, first=[("ansigreen", f"{key:<12}")], rest=[("", " " * 12)])
    return lines


class WatchedChild:
    """A child session that is shown beside its parent: its view, and the items that have settled."""

    def __init__(self, session: SessionInfo) -> None:
        self.view = SessionView(session.id)
        self.view.set_session(session)
        self.items: list[Item] = []

    def settle(self) -> None:
        self.items += self.view.take_settled()
