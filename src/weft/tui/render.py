"""Lines for the items of a view, and for the live region below them (pure)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.model.display import format_cost, format_count, sanitize, shorten
from weft.model.session import Todo
from weft.model.spending import Spent
from weft.tui.markdown import render_block, render_table
from weft.tui.text import Line, cut, measure, to_plain_text, wrap
from weft.tui.view import (
    AnswerItem,
    CallItem,
    EndItem,
    Item,
    LinesItem,
    NoticeItem,
    PromptItem,
    ReasoningItem,
    RunningCall,
    SessionView,
    TableItem,
    ViewStatus,
    find_context_share,
)

NAME_WIDTH: Final = 7
MAX_WIDTH: Final = 10_000  # of lines that are broken afterwards
MIN_MODEL_WIDTH: Final = 6  # in the status; less of a name says nothing
MAX_PROMPT_LINES: Final = 40
MAX_DIFF_LINES: Final = 60
MAX_OPEN_CALLS: Final = 6
MAX_REASONING_LENGTH: Final = 600
SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINNER_MS: Final = 100
NOTICE_STYLES: Final = {
    "note": "dim",
    "retry": "ansiyellow",
    "warning": "ansiyellow",
    "error": "bold ansired",
}
NOTICE_NAMES: Final = {"note": "", "retry": "retry: ", "warning": "warning: ", "error": "error: "}
_THOUSAND, _MILLION, _SECOND_MS, _MINUTE_MS = 1000, 1_000_000, 1000, 60_000
_FULL_CONTEXT: Final = 0.8


class RenderOptions(Struct, frozen=True, kw_only=True):
    """How items are shown: the width in cells, whether reasoning is shown in full, and the command that undoes a run."""

    width: int
    reasoning: bool = False
    undo: str = ""


def render_item(item: Item, options: RenderOptions) -> list[Line]:
    """Return the lines of one settled item."""
    match item:
        case PromptItem():
            return _render_prompt(item, options.width)
        case AnswerItem():
            lines = render_block(item.block, options.width)
            if item.first and (not lines or lines[0]):
                lines = [[], *lines]
            return [[("dim", text) for _, text in line] for line in lines] if item.dimmed else lines
        case ReasoningItem():
            return _render_reasoning(item, options)
        case CallItem():
            return list(_render_call(item, options.width))
        case NoticeItem(kind=kind, text=text):
            head = NOTICE_NAMES[kind]
            return wrap([(NOTICE_STYLES[kind], f"{head}{sanitize(text)}")], options.width)
        case LinesItem(lines=lines):
            return break_lines(lines, options.width)
        case TableItem(rows=rows):
            cells: list[list[Line]] = [[[("", squash(cell))] for cell in row] for row in rows]
            return [[], *render_table(cells, options.width)]
        case EndItem():
            return _render_end(item, options)


def render_plain(item: Item, options: RenderOptions) -> list[Line]:
    """Return the lines of one settled item for a terminal that draws nothing: nothing is cut off, and words stay whole."""
    if isinstance(item, AnswerItem | TableItem):
        return render_item(item, options)  # only code may be wider, so that it can be copied
    return break_lines(render_item(item, replace(options, width=MAX_WIDTH)), options.width)


def break_lines(lines: Iterable[Line], width: int) -> list[Line]:
    """Break lines that are wider than the terminal, between words."""
    return [row for line in lines for row in _fit(line, width)]


def _fit(line: Line, width: int) -> list[Line]:
    """Return a line as it is if it fits into a width, else wrapped, with its indent."""
    if sum(measure(text) for _, text in line) <= width:
        return [line]
    text = "".join(part for _, part in line)
    return wrap(line, width, rest=[("", " " * min(len(text) - len(text.lstrip(" ")), width // 2))])


def squash(text: str) -> str:
    """Return untrusted text as one line."""
    return " ".join(sanitize(text).split())


def _render_prompt(item: PromptItem, width: int) -> list[Line]:
    rows = sanitize(item.text).split("\n")
    hidden = len(rows) - MAX_PROMPT_LINES
    lines: list[Line] = [[]]
    for number, row in enumerate(rows[:MAX_PROMPT_LINES]):
        mark: Line = [("bold ansigreen", "> " if not number else "  ")]
        lines += wrap([("bold", row)], width, first=mark, rest=[("", "  ")])
    if hidden > 0:
        lines.append([("dim", f"  … {format_count(hidden, 'more line')}")])
    return lines


def _render_reasoning(item: ReasoningItem, options: RenderOptions) -> list[Line]:
    head = f"thought for {format_ms(item.ms)}"
    text = sanitize(item.text.strip())
    if options.reasoning:
        return [[], [("dim italic", head)], *wrap([("dim italic", text)], options.width)]
    return [[], cut([("dim italic", f"{head}: {' '.join(text.split())}")], options.width)]


def _render_call(item: CallItem, width: int) -> Iterator[Line]:
    failed = item.error is not None or item.exit
    mark = ("ansired", "✗ ") if failed else ("ansigreen", "✓ ")
    name = squash(item.tool).capitalize().ljust(NAME_WIDTH)
    indent = "  · " if item.child else ""
    head: Line = [("dim", indent), mark, ("bold" if not item.child else "dim", name), ("", " ")]
    title = squash(item.title)
    end = (f" · exit {item.exit}" if item.exit else "") + (
        f" · {format_ms(item.ms)}" if item.ms >= _SECOND_MS else ""
    )
    room = width - sum(measure(text) for _, text in head) - len(end)
    yield [*head, *cut([("" if not item.child else "dim", title)], max(room, 1)), ("dim", end)]
    if item.error is not None:
        for row in shorten(sanitize(item.error)).split("\n"):
            yield from wrap([("ansired", row)], width, first=[("", "  ")], rest=[("", "  ")])
    if item.diff:
        yield from render_diff(item.diff)
    elif item.tool == "bash" and item.output.strip():
        for row in shorten(sanitize(item.output)).split("\n"):
            yield cut([("dim", f"  {row}".replace("\t", "    "))], width)


def render_diff(diff: str, *, limit: int = MAX_DIFF_LINES) -> Iterator[Line]:
    """Yield the lines of a unified diff: added ones green, removed ones red, the rest dim."""
    rows = sanitize(diff).rstrip("\n").split("\n")
    styles = {"+": "ansigreen", "-": "ansired", "@": "ansicyan"}
    for row in rows[:limit]:
        yield [(styles.get(row[:1], "dim"), f"  {row}".replace("\t", "    "))]
    if len(rows) > limit:
        yield [("dim", f"  … {format_count(len(rows) - limit, 'more line')}")]


def _render_end(item: EndItem, options: RenderOptions) -> list[Line]:
    parts = [format_count(item.spent.steps, "step")]
    if item.files:
        parts.append(format_count(len(item.files), "file"))
    text = " · ".join([*parts, format_usage(item.spent), format_cost(item.spent)])
    undo = f"undo: {options.undo}" if item.files and options.undo else ""
    if undo and len(text) + len(undo) + 3 <= options.width:
        text, undo = f"{text} · {undo}", ""
    # The command stays on one line, so that it can be copied.
    return [[], *wrap([("dim", text)], options.width), *([[("dim", undo)]] if undo else [])]


# --- numbers ---


def format_usage(spent: Spent) -> str:
    """Format the tokens of a run, with the share of the input that came from a cache."""
    read = spent.input + spent.cache_read + spent.cache_write
    text = f"{format_amount(read)} tokens in, {format_amount(spent.output + spent.reasoning)} out"
    if not spent.counted:
        return f"{text} and more" if read else "tokens unknown"
    return f"{text} · {spent.cache_read / read:.0%} cached" if spent.cache_read and read else text


def format_amount(number: int) -> str:
    """Format a number in thousands or millions: 950, 1.2k, 48k, 1.5M."""
    if number < _THOUSAND:
        return str(number)
    unit, size = ("k", _THOUSAND) if number < _MILLION else ("M", _MILLION)
    value = number / size
    return f"{value:.1f}{unit}" if value < 10 else f"{value:.0f}{unit}"  # noqa: PLR2004  one decimal below ten


def format_ms(ms: int) -> str:
    """Format a duration: 80ms, 1.5s, 42s, 3m05s."""
    if ms < _SECOND_MS:
        return f"{ms}ms"
    if ms < _MINUTE_MS:
        return f"{ms / _SECOND_MS:.1f}s" if ms < 10 * _SECOND_MS else f"{ms // _SECOND_MS}s"
    return f"{ms // _MINUTE_MS}m{ms % _MINUTE_MS // _SECOND_MS:02}s"


# --- the live region ---


class LiveContext(Struct, frozen=True, kw_only=True):
    """What the live region shows besides the view: its size in cells, the time, sizes of contexts by model, budgets, queue.

    `agent`, `model` and `variant` are those of the next prompt, if the person chose them. `interrupt_key` ends a run.
    """

    width: int
    height: int
    now: int
    sizes: Mapping[str, int] = {}
    budget: str = ""
    queue: Sequence[str] = ()
    agent: str = ""
    model: str = ""
    variant: str = ""
    interrupt_key: str = "Esc"


def render_live(view: SessionView | None, context: LiveContext) -> list[Line]:
    """Return the lines above the prompt: the open text, running calls and what is queued; at most `height` of them."""
    lines: list[Line] = []
    if view is not None:
        below = [*_render_calls(view.calls, context), *_render_todo(view.todos, view, context)]
        below += [_render_delayed(item, context.width) for item in view.waiting]
        lines = [*render_tail(view, context, max(context.height - len(below), 0)), *below]
    for prompt in context.queue:
        lines.append(_render_waiting("queued", prompt, context.width))
    return lines[-context.height :] if context.height > 0 else []


def _render_delayed(item: PromptItem | NoticeItem, width: int) -> Line:
    match item:
        case PromptItem(text=prompt):
            return _render_waiting("sent", prompt, width)
        case NoticeItem(kind=kind, text=text):
            return cut([(NOTICE_STYLES[kind], f"{NOTICE_NAMES[kind]}{squash(text)}")], width)


def _render_waiting(state: str, prompt: str, width: int) -> Line:
    return cut([("dim", f"{state}: {squash(prompt)}")], width)


def render_tail(view: SessionView, context: LiveContext, height: int) -> list[Line]:
    """Return the last lines of the text or reasoning that is being streamed."""
    tail, lines = view.tail, list[Line]()
    if tail is not None:
        lines = [cut(line, context.width) for line in render_block(tail, context.width)]
        if view.is_tail_first and lines and lines[0]:
            lines = [[], *lines]
    elif view.reasoning.strip():
        text = sanitize(" ".join(view.reasoning[-MAX_REASONING_LENGTH:].split()))
        lines = wrap([("dim italic", text)], context.width)[-3:]
    return lines[-height:] if height else []


def _render_calls(calls: Sequence[RunningCall], context: LiveContext) -> Iterator[Line]:
    spin = SPINNER[context.now // SPINNER_MS % len(SPINNER)]
    for call in calls[-MAX_OPEN_CALLS:]:
        time = f" · {format_ms(max(0, context.now - call.start))}" if call.start else " · writing"
        head = f"{'  ' if call.child else ''}{spin} {squash(call.tool).capitalize().ljust(NAME_WIDTH)} "
        room = max(context.width - len(head) - len(time), 1)
        title = squash(call.title)
        yield [("ansiblue", head), *cut([("", title)], room), ("dim", time)]
    if len(calls) > MAX_OPEN_CALLS:
        yield [("dim", f"  and {format_count(len(calls) - MAX_OPEN_CALLS, 'more call')}")]


def _render_todo(todos: Sequence[Todo], view: SessionView, context: LiveContext) -> Iterator[Line]:
    current = next((todo for todo in todos if todo.status == "in_progress"), None)
    if current is not None and view.is_busy:
        done = sum(todo.status == "completed" for todo in todos)
        text = f"☐ {done}/{len(todos)} {squash(current.content)}"
        yield cut([("ansicyan", text)], context.width)


def render_todos(todos: Sequence[Todo]) -> list[Line]:
    """Return a todo list, one line each."""
    marks = {"completed": "☑", "in_progress": "▸", "cancelled": "☒"}
    return [
        [("dim" if todo.status in ("completed", "cancelled") else "", f"{marks.get(todo.status, '☐')} "),
         ("", squash(todo.content))]
        for todo in todos
    ]  # fmt: skip


def render_status(view: SessionView | None, context: LiveContext) -> Line:
    """Return the status line: what happens now, agent, model, context, cost, budget.

    Context and cost matter most. For them, a narrow terminal shows less of the rest.
    """
    status = view.status if view is not None else ViewStatus()
    state, hint = _format_state(view, status, context)
    agent, model = context.agent or status.agent, context.model or status.model
    variant = f" ({context.variant})" if context.variant else ""
    short, amounts = model.rpartition("/")[2], _format_amounts(status, context)
    room = context.width - measure(_join_status(state, hint, *amounts)) - len(" · ")
    piece = to_plain_text([cut([("", squash(short))], room)]) if room >= MIN_MODEL_WIDTH else ""
    texts = (
        _join_status(state, hint, agent, f"{model}{variant}", *amounts),
        _join_status(state, hint, agent, f"{short}{variant}", *amounts),
        _join_status(state, hint, piece, *amounts),
        _join_status(state, *amounts),
        _join_status(*amounts),
    )
    fitting = next((text for text in texts if measure(text) <= context.width), texts[-1])
    return cut([("reverse", fitting)], context.width)


def _join_status(*parts: str) -> str:
    return f" {' · '.join(squash(part) for part in parts if part)} "


def _format_amounts(status: ViewStatus, context: LiveContext) -> list[str]:
    """Return how full the context is, and the cost."""
    amounts = []
    share = find_context_share(status, context.sizes)
    if share is not None:
        amounts.append(f"context {share:.0%}{' /compact' if share >= _FULL_CONTEXT else ''}")
    elif status.context:
        amounts.append(f"context {format_amount(status.context)}")
    if status.spent.steps or status.spent.cost:
        cost = f"${status.spent.cost:.2f}{'' if status.spent.priced else '+'}"
        amounts.append(f"{cost} of {context.budget}" if context.budget else cost)
    return amounts


def _format_state(view: SessionView | None, status: ViewStatus, context: LiveContext) -> tuple[str, str]:
    """Return what happens now, and which key ends it."""
    if view is None or not view.is_busy:
        return "ready", ""
    if view.requests:
        return "waiting for you", ""
    hint = f"{context.interrupt_key} interrupts"
    if status.state == "retry":
        return f"retrying in {format_ms(max(0, status.retry_at - context.now))}", hint
    spin = SPINNER[context.now // SPINNER_MS % len(SPINNER)]
    return f"{spin} working {format_ms(max(0, context.now - status.since))}", hint
