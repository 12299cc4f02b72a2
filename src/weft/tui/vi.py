"""Vi keys for the prompt of the full screen (pure): what a key of normal mode does to a text and its cursor.

They are some of the keys that prompt_toolkit has in inline mode: there is no visual mode, no macro and no `.`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

Effect = Literal["", "undo", "previous", "next"]
# Commands that stand for an operator with a motion.
_SHORT: Final[Mapping[str, str]] = {
    "x": "dl",
    "X": "dh",
    "D": "d$",
    "C": "c$",
    "s": "cl",
    "S": "cc",
    "Y": "yy",
}
# Keys that are followed by another one.
_OPENING: Final = frozenset("gfFtTr")
_OBJECTS: Final = frozenset("ia")
_TYPED: Final = re.compile(r"([1-9]\d*)?([dcy])?([1-9]\d*)?(.*)", re.DOTALL)
_WORD: Final = re.compile(r"\w+|[^\w\s]+")
_BIG_WORD: Final = re.compile(r"\S+")
_OPPOSITE: Final[Mapping[str, str]] = {"f": "F", "F": "f", "t": "T", "T": "t"}
_BRACKETS: Final[Mapping[str, str]] = {
    **dict.fromkeys("()b", "()"),
    **dict.fromkeys("{}B", "{}"),
    **dict.fromkeys("[]", "[]"),
    **dict.fromkeys("<>", "<>"),
}
MAX_COUNT: Final = 1000


class ViResult(NamedTuple):
    """A text, the place of the cursor in it, and what else the caller has to do."""

    text: str
    cursor: int
    effect: Effect = ""


class ViMotion(NamedTuple):
    """The target of a motion. An operator takes the text up to it: with its last character if `inclusive`, in whole lines if `linewise`."""

    target: int
    inclusive: bool = False
    linewise: bool = False


class TextSpan(NamedTuple):
    """The text that an operator changes."""

    start: int
    end: int
    linewise: bool = False


class ViKeys:
    """Normal and insert mode, the keys of a command that is not complete yet, and what was deleted or copied last."""

    def __init__(self) -> None:
        self.is_inserting = True
        self._typed = ""
        self._register = ""
        self._is_register_linewise = False
        self._sought = ""  # the last f, F, t or T with its character

    def reset(self) -> None:
        """Go to insert mode, as after a prompt was sent."""
        self.is_inserting, self._typed = True, ""

    def leave_insert(self, text: str, cursor: int) -> ViResult:
        """Go to normal mode, or forget a command that is not complete."""
        if not self.is_inserting:
            self._typed = ""
            return ViResult(text, cursor)
        self.is_inserting = False
        return ViResult(text, max(cursor - 1, _find_line_start(text, cursor)))

    def feed(self, char: str, text: str, cursor: int) -> ViResult:
        """Return what a character does in normal mode. One that means nothing there does nothing."""
        self._typed += char
        match = _TYPED.fullmatch(self._typed)
        first, operator, second, rest = match.groups() if match is not None else (None, None, None, "")
        if not rest or (len(rest) == 1 and (rest in _OPENING or (operator and rest in _OBJECTS))):
            return ViResult(text, cursor)
        self._typed = ""
        count = min(int(first or 1) * int(second or 1), MAX_COUNT)
        if operator is None and rest in _SHORT:
            operator, rest = _SHORT[rest][0], _SHORT[rest][1:]
        done = (
            self._operate(operator, rest, count, ViResult(text, cursor))
            if operator
            else self._command(rest, count if first else 0, ViResult(text, cursor))
        )
        return done if self.is_inserting else done._replace(cursor=_clamp(done.text, done.cursor))

    # --- commands without an operator ---

    def _command(self, rest: str, given: int, at: ViResult) -> ViResult:
        """Carry out a command or a motion. `given` is its count, 0 if there is none."""
        text, cursor = at.text, at.cursor
        count = given or 1
        inserting = self._find_insert(rest, text, cursor)
        if inserting is not None:
            self.is_inserting = True
            return inserting
        match rest:
            case "u":
                return ViResult(text, cursor, "undo")
            case "p" | "P":
                return self._put(at, count, after=rest == "p")
            case "~":
                end = min(cursor + count, _find_line_end(text, cursor))
                return ViResult(text[:cursor] + text[cursor:end].swapcase() + text[end:], end)
            case "J":
                return _join_lines(at, count)
            case _ if rest[0] == "r":
                end = cursor + count
                if end > _find_line_end(text, cursor):
                    return at
                return ViResult(text[:cursor] + rest[1] * count + text[end:], end - 1)
            case "j" | "k":
                return _move_lines(at, count if rest == "j" else -count)
            case _:
                motion = self._find_motion(rest, given, at)
                return at if motion is None else ViResult(text, motion.target)

    def _find_insert(self, rest: str, text: str, cursor: int) -> ViResult | None:
        """Return where a command that begins insert mode leads, or None if it is none."""
        start, end = _find_line_start(text, cursor), _find_line_end(text, cursor)
        match rest:
            case "i":
                return ViResult(text, cursor)
            case "a":
                return ViResult(text, min(cursor + 1, end))
            case "I":
                return ViResult(text, _find_first_letter(text, cursor))
            case "A":
                return ViResult(text, end)
            case "o":
                return ViResult(f"{text[:end]}\n{text[end:]}", end + 1)
            case "O":
                return ViResult(f"{text[:start]}\n{text[start:]}", start)
            case _:
                return None

    def _put(self, at: ViResult, count: int, *, after: bool) -> ViResult:
        text, cursor, put = at.text, at.cursor, self._register
        if not put:
            return at
        if self._is_register_linewise:
            lines = "\n".join([put] * count)
            end = _find_line_end(text, cursor)
            if after:
                return ViResult(f"{text[:end]}\n{lines}{text[end:]}", end + 1)
            start = _find_line_start(text, cursor)
            return ViResult(f"{text[:start]}{lines}\n{text[start:]}", start)
        place = min(cursor + 1, _find_line_end(text, cursor)) if after else cursor
        return ViResult(f"{text[:place]}{put * count}{text[place:]}", place + len(put) * count - 1)

    # --- operators ---

    def _operate(self, operator: str, rest: str, count: int, at: ViResult) -> ViResult:
        span = self._find_span(operator, rest, count, at)
        if span is None:
            return at
        text, (start, end, linewise) = at.text, span
        self._register, self._is_register_linewise = text[start:end], linewise
        if operator == "y":
            return ViResult(text, at.cursor if linewise else start)
        if operator == "c":
            self.is_inserting = True
            return ViResult(text[:start] + text[end:], start)
        if linewise:  # the line end goes, too
            if end < len(text):
                end += 1
            elif start > 0:
                start -= 1
            left = text[:start] + text[end:]
            return ViResult(left, _find_first_letter(left, min(start, len(left))))
        return ViResult(text[:start] + text[end:], start)

    def _find_span(self, operator: str, rest: str, count: int, at: ViResult) -> TextSpan | None:
        text, cursor = at.text, at.cursor
        if rest == operator:
            last = _move_lines(at, count - 1).cursor
            return TextSpan(_find_line_start(text, cursor), _find_line_end(text, last), linewise=True)
        if rest in ("j", "k"):
            moved = _move_lines(at, count if rest == "j" else -count)
            if moved.effect:
                return None
            low, high = sorted((cursor, moved.cursor))
            return TextSpan(_find_line_start(text, low), _find_line_end(text, high), linewise=True)
        if rest[0] in _OBJECTS and len(rest) > 1:
            return _find_object(rest[1], text, cursor, whole=rest[0] == "a")
        on_word = cursor < len(text) and not text[cursor].isspace()
        if operator == "c" and rest in ("w", "W") and on_word:
            # As in vi, changing a word leaves the space after it. A word of one character ends where it begins.
            words = _WORD if rest == "w" else _BIG_WORD
            ends = [each.end() for each in words.finditer(text) if each.end() > cursor]
            return TextSpan(cursor, ends[min(count, len(ends)) - 1])
        motion = self._find_motion(rest, count, at)
        if motion is None:
            return None
        target, inclusive, linewise = motion
        low, high = sorted((cursor, target))
        if linewise:
            return TextSpan(_find_line_start(text, low), _find_line_end(text, high), linewise=True)
        if rest in ("w", "W") and count == 1:
            high = min(high, max(_find_line_end(text, cursor), low))
        if rest == "l":
            high = min(cursor + count, _find_line_end(text, cursor))
        high += inclusive and target >= cursor
        return TextSpan(low, min(high, len(text))) if high > low else None

    # --- motions ---

    def _find_motion(self, rest: str, given: int, at: ViResult) -> ViMotion | None:
        text, cursor = at.text, at.cursor
        count = given or 1
        start, end = _find_line_start(text, cursor), _find_line_end(text, cursor)
        match rest:
            case "h":
                return ViMotion(max(cursor - count, start))
            case "l" | " ":
                return ViMotion(min(cursor + count, max(end - 1, start)))
            case "0":
                return ViMotion(start)
            case "^" | "_":
                return ViMotion(_find_first_letter(text, cursor))
            case "$":
                return ViMotion(max(end - 1, start), inclusive=True)
            case "gg" | "G":
                last = text.count("\n")
                line = min(given - 1, last) if given else (last if rest == "G" else 0)
                return ViMotion(_find_first_letter(text, _find_nth_line(text, line)), linewise=True)
            case ";" | ",":
                if not self._sought:
                    return None
                way = self._sought[0] if rest == ";" else _OPPOSITE[self._sought[0]]
                return _seek(way, self._sought[1], count, at)
            case _ if rest[0] in _OPPOSITE and len(rest) > 1:
                self._sought = rest
                return _seek(rest[0], rest[1], count, at)
            case _:
                step = _STEPS.get(rest)
                return None if step is None else _repeat(step, count, at)


def _repeat(step: Callable[[str, int], ViMotion], count: int, at: ViResult) -> ViMotion:
    motion = ViMotion(at.cursor)
    for _ in range(count):
        motion = step(at.text, motion.target)
    return motion


def _to_next(words: re.Pattern[str]) -> Callable[[str, int], ViMotion]:
    def find(text: str, cursor: int) -> ViMotion:
        starts = (each.start() for each in words.finditer(text) if each.start() > cursor)
        return ViMotion(next(starts, len(text)))

    return find


def _to_previous(words: re.Pattern[str]) -> Callable[[str, int], ViMotion]:
    def find(text: str, cursor: int) -> ViMotion:
        starts = [each.start() for each in words.finditer(text[:cursor])]
        return ViMotion(starts[-1] if starts else 0)

    return find


def _to_end(words: re.Pattern[str]) -> Callable[[str, int], ViMotion]:
    def find(text: str, cursor: int) -> ViMotion:
        ends = (each.end() - 1 for each in words.finditer(text) if each.end() - 1 > cursor)
        return ViMotion(next(ends, max(len(text) - 1, 0)), inclusive=True)

    return find


_STEPS: Final[Mapping[str, Callable[[str, int], ViMotion]]] = {
    "w": _to_next(_WORD),
    "W": _to_next(_BIG_WORD),
    "b": _to_previous(_WORD),
    "B": _to_previous(_BIG_WORD),
    "e": _to_end(_WORD),
    "E": _to_end(_BIG_WORD),
}


def _seek(way: str, char: str, count: int, at: ViResult) -> ViMotion | None:
    """Return the place of a character in the line, or the one beside it; None if there is none."""
    text, cursor = at.text, at.cursor
    place = cursor
    for _ in range(count):
        if way in "ft":
            place = text.find(char, place + 1, _find_line_end(text, cursor))
        else:
            place = text.rfind(char, _find_line_start(text, cursor), place)
        if place < 0:
            return None
    beside = {"t": -1, "T": 1}.get(way, 0)
    return ViMotion(place + beside, inclusive=way in "ft")


def _find_object(name: str, text: str, cursor: int, *, whole: bool) -> TextSpan | None:
    """Return a word, or what is between quotes or brackets. With `whole`, the space or the marks belong to it."""
    if name in "wW":
        words = re.compile(rf"{(_WORD if name == 'w' else _BIG_WORD).pattern}|[^\S\n]+")
        found = next((each for each in words.finditer(text) if each.start() <= cursor < each.end()), None)
        if found is None:
            return None
        end = found.end()
        if whole:
            end += len(text[end:]) - len(text[end:].lstrip(" \t"))
        return TextSpan(found.start(), end)
    if name in "\"'`":
        start, end = _find_line_start(text, cursor), _find_line_end(text, cursor)
        places = [at for at in range(start, end) if text[at] == name]
        for low, high in zip(places[::2], places[1::2], strict=False):
            if high >= cursor:
                return TextSpan(low, high + 1) if whole else TextSpan(low + 1, high)
        return None
    if name not in _BRACKETS:
        return None
    opening, closing = _BRACKETS[name][0], _BRACKETS[name][1]
    before = _find_bracket(text, cursor, opening, closing, step=-1)
    after = _find_bracket(text, cursor, closing, opening, step=1)
    if before is None or after is None:
        return None
    return TextSpan(before, after + 1) if whole else TextSpan(before + 1, after)


def _find_bracket(text: str, cursor: int, wanted: str, other: str, *, step: int) -> int | None:
    """Return the nearest bracket that is open around the cursor, in one direction."""
    depth, place = 0, cursor
    while 0 <= place < len(text):
        if text[place] == wanted:
            if depth == 0:
                return place
            depth -= 1
        elif text[place] == other and place != cursor:
            depth += 1
        place += step
    return None


# --- lines ---


def _find_line_start(text: str, cursor: int) -> int:
    return text.rfind("\n", 0, cursor) + 1


def _find_line_end(text: str, cursor: int) -> int:
    end = text.find("\n", cursor)
    return len(text) if end < 0 else end


def _find_first_letter(text: str, cursor: int) -> int:
    start, end = _find_line_start(text, cursor), _find_line_end(text, cursor)
    return start + len(text[start:end]) - len(text[start:end].lstrip())


def _find_nth_line(text: str, number: int) -> int:
    place = 0
    for _ in range(number):
        place = _find_line_end(text, place) + 1
    return place


def _move_lines(at: ViResult, count: int) -> ViResult:
    """Return the same column of another line. Beyond the first and the last line are earlier and later prompts."""
    text, cursor = at.text, at.cursor
    start = _find_line_start(text, cursor)
    column, line, last = cursor - start, text.count("\n", 0, cursor), text.count("\n")
    wanted = max(0, min(line + count, last))
    if wanted == line and count:
        return ViResult(text, cursor, "next" if count > 0 else "previous")
    place = _find_nth_line(text, wanted)
    return ViResult(text, min(place + column, _find_line_end(text, place)))


def _join_lines(at: ViResult, count: int) -> ViResult:
    text, place = at.text, at.cursor
    for _ in range(max(count - 1, 1)):
        end = _find_line_end(text, at.cursor)
        if end == len(text):
            break
        place = end
        following = text[end + 1 :].lstrip(" \t")
        text = f"{text[:end]} {following}"
    return ViResult(text, place)


def _clamp(text: str, cursor: int) -> int:
    """Return a place for the cursor of normal mode, which is on a character if the line has any."""
    cursor = max(0, min(cursor, len(text)))
    start, end = _find_line_start(text, cursor), _find_line_end(text, cursor)
    return min(cursor, max(end - 1, start))
