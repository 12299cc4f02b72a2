"""Code and changes of files as HTML: highlighted once by the server, so that a browser only has to show it (pure)."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from weft.page.html import EMPTY, Html, clean, escape, join, tag

if TYPE_CHECKING:  # for types alone: imported when something is highlighted
    from pygments.lexer import Lexer

DiffStyle = Literal["unified", "split"]

# Highlighting more would take a second.
MAX_HIGHLIGHTED: Final = 100_000
CONTEXT_LINES: Final = 3
MAX_DIFF_ROWS: Final = 2000
_LANGUAGE: Final = re.compile(r"[\w+#.-]{1,30}")
# Python refuses to convert thousands of digits.
_HUNK: Final = re.compile(r"@@ -(\d{1,18})(?:,\d+)? \+(\d{1,18})(?:,\d+)? @@")


def render_code(code: str, language: str) -> Html:
    """Render a block of code, with the name of its language."""
    name = language if _LANGUAGE.fullmatch(language) else ""
    text = clean(code).removesuffix("\n")
    caption = tag("figcaption", escape(name or "text"))
    return tag(
        "figure", caption, tag("pre", tag("code", *highlight(text, name)), tabindex="0"), class_="code"
    )


def highlight(code: str, language: str) -> Iterator[Html]:
    """Yield code as HTML, with a class for each kind of word if the language is known."""
    lexer = _find_lexer(language) if language and len(code) <= MAX_HIGHLIGHTED else None
    if lexer is None:
        yield escape(code)
        return
    for kind, text in _merge(lexer.get_tokens(code)):
        yield tag("span", escape(text), class_=kind) if kind else escape(text)


def _merge(tokens: "Iterator[tuple[object, str]]") -> Iterator[tuple[str, str]]:
    """Yield tokens by their class, neighbours of one class as one. The newline that lexers add is left out."""
    held, pieces = "", list[str]()
    for kind, text in tokens:
        name = _find_class(kind)
        if name != held and pieces:
            yield held, "".join(pieces)
            pieces = []
        held = name
        pieces.append(text)
    last = "".join(pieces).removesuffix("\n")
    if last:
        yield held, last


@cache
def _find_class(kind: object) -> str:
    """Return the CSS class for a kind of token, "" if it has none. `kind` is a token type of Pygments."""
    name = str(kind).removeprefix("Token").removeprefix(".")
    return next((short for start, short in _CLASSES if name.startswith(start)), "")


_CLASSES: Final = (
    ("Comment", "c"),
    ("Keyword", "k"),
    ("Literal.String", "s"),
    ("Literal.Number", "n"),
    ("Name.Function", "f"),
    ("Name.Class", "t"),
    ("Name.Decorator", "d"),
    ("Name.Builtin", "b"),
    ("Name.Tag", "t"),
    ("Name.Attribute", "b"),
    ("Name.Variable", "v"),
    ("Operator.Word", "k"),
    ("Generic.Deleted", "gd"),
    ("Generic.Inserted", "gi"),
    ("Generic.Heading", "f"),
    ("Generic.Subheading", "f"),
)


@cache
def _find_lexer(language: str) -> "Lexer | None":
    from pygments.lexers import get_lexer_by_name  # noqa: PLC0415  loaded when the first code is shown
    from pygments.util import ClassNotFound  # noqa: PLC0415  loaded when the first code is shown

    try:
        return get_lexer_by_name(language.lower(), stripnl=False, ensurenl=True)
    except ClassNotFound:
        return None


# --- changes of files ---


class DiffRow(NamedTuple):
    """A line of a diff, with its numbers in the old and the new text.

    A row of the kind `skip` stands for unchanged lines. Its text is how many they are, or "" if that is unknown.
    """

    kind: Literal["same", "del", "add", "skip"]
    old: int | None
    new: int | None
    text: str


def compare_texts(before: str, after: str) -> list[DiffRow]:
    """Return the rows of a diff: changed lines, and a few lines around them."""
    old, new = clean(before).splitlines(), clean(after).splitlines()
    rows: list[DiffRow] = []
    at = 0
    # In long texts, a line that occurs often is not used to find what is equal. That is much faster.
    matcher = SequenceMatcher(None, old, new, autojunk=len(old) + len(new) > MAX_DIFF_ROWS * 2)
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        start = group[0][1]
        if start > at:
            rows.append(DiffRow("skip", None, None, str(start - at)))
        for kind, old_start, old_end, new_start, new_end in group:
            if kind == "equal":
                pairs = zip(range(old_start, old_end), range(new_start, new_end), strict=True)
                rows += [DiffRow("same", i + 1, j + 1, old[i]) for i, j in pairs]
            else:
                rows += [DiffRow("del", i + 1, None, old[i]) for i in range(old_start, old_end)]
                rows += [DiffRow("add", None, j + 1, new[j]) for j in range(new_start, new_end)]
        at = group[-1][2]
    if rows and at < len(old):
        rows.append(DiffRow("skip", None, None, str(len(old) - at)))
    return rows


def parse_diff(diff: str) -> list[DiffRow]:
    """Return the rows of a unified diff of one file, as tools show it."""
    rows: list[DiffRow] = []
    old = new = 0
    for line in clean(diff).splitlines():
        hunk = _HUNK.match(line)
        if hunk is not None:
            if rows:
                rows.append(DiffRow("skip", None, None, ""))
            old, new = int(hunk[1]), int(hunk[2])
        elif not old and not new:
            continue  # the names of the files
        elif line.startswith("-"):
            rows.append(DiffRow("del", old, None, line[1:]))
            old += 1
        elif line.startswith("+"):
            rows.append(DiffRow("add", None, new, line[1:]))
            new += 1
        elif not line.startswith("\\"):
            rows.append(DiffRow("same", old, new, line[1:]))
            old, new = old + 1, new + 1
    return rows


def render_diff(rows: Sequence[DiffRow], style: DiffStyle = "unified") -> Html:
    """Render the rows of a diff as a table, in one column or side by side."""
    if not rows:
        return tag("p", escape("No text changed."), class_="about")
    shown = rows[:MAX_DIFF_ROWS]
    body = _render_split(shown) if style == "split" else (_render_row(row) for row in shown)
    more = (
        tag("p", escape(f"{len(rows) - len(shown):,} more lines"), class_="about")
        if len(rows) > len(shown)
        else EMPTY
    )
    table = tag("table", tag("tbody", *body), class_=f"diff {style}")
    return join((tag("div", table, class_="diff-box", tabindex="0", role="group", aria_label="Diff"), more))


_SIGNS: Final = {"same": " ", "del": "−", "add": "+"}


def _render_row(row: DiffRow) -> Html:
    if row.kind == "skip":
        return _render_skip(row, columns="4")
    return tag(
        "tr",
        _render_number(row.old),
        _render_number(row.new),
        tag("td", escape(_SIGNS[row.kind]), class_="sign"),
        tag("td", escape(row.text), class_="line"),
        class_=row.kind,
    )


def _render_split(rows: Sequence[DiffRow]) -> Iterator[Html]:
    """Yield rows with the old line on the left and the new one on the right."""
    index = 0
    while index < len(rows):
        row = rows[index]
        if row.kind == "skip":
            yield _render_skip(row, columns="4")
            index += 1
        elif row.kind == "same":
            yield tag("tr", *_render_half(row, row.old, ""), *_render_half(row, row.new, ""))
            index += 1
        else:
            end = index
            while end < len(rows) and rows[end].kind in ("del", "add"):
                end += 1
            removed = [each for each in rows[index:end] if each.kind == "del"]
            added = [each for each in rows[index:end] if each.kind == "add"]
            for at in range(max(len(removed), len(added))):
                left = removed[at] if at < len(removed) else None
                right = added[at] if at < len(added) else None
                yield tag(
                    "tr",
                    *_render_half(left, left.old if left else None, "del"),
                    *_render_half(right, right.new if right else None, "add"),
                )
            index = end


def _render_half(row: DiffRow | None, number: int | None, kind: str) -> tuple[Html, Html]:
    if row is None:
        return tag("td", class_="num none"), tag("td", class_="line none")
    return _render_number(number, kind), tag("td", escape(row.text), class_=f"line {kind}".strip())


def _render_number(number: int | None, kind: str = "") -> Html:
    return tag("td", escape("" if number is None else str(number)), class_=f"num {kind}".strip())


def _render_skip(row: DiffRow, *, columns: str) -> Html:
    words = f"{int(row.text):,} unchanged lines" if row.text else "…"
    return tag("tr", tag("td", escape(words), colspan=columns), class_="skip")
