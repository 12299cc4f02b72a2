"""Find text and files in a project, with the programs that are there for it: ripgrep, git."""

import asyncio
import heapq
import json
import os
import shutil
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from weft.errors import InvalidInputError, UnsupportedError
from weft.host.git import HARMLESS
from weft.host.process import Command, capture, run
from weft.model.around.files import Kind, Submatch, TextMatch, Words

SECONDS: Final = 20.0
LISTED_BYTES: Final = 64 << 20
FRESH_SECONDS: Final = 3.0
LONGEST_LINE: Final = 1 << 20
SHOWN_LINE: Final = 4000
LONGEST_PATTERN: Final = 10_000
BAD_PATTERN: Final = 2


class _EnoughError(Exception):
    """More was found than is wanted."""


class Seeker:
    """Looks below one directory. A list of files is good for a few seconds: people type, and each letter asks."""

    def __init__(self, directory: str, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._environment = environment
        self._listed: tuple[float, list[str]] | None = None
        self._listing = asyncio.Lock()

    # --- text ---

    async def find_text(self, pattern: str, limit: int) -> list[TextMatch]:
        ripgrep = shutil.which("rg", path=self._environment.get("PATH"))
        if ripgrep is None:
            raise UnsupportedError("finding text without ripgrep", hint="install ripgrep (rg)")
        if not pattern or len(pattern) > LONGEST_PATTERN:
            raise InvalidInputError("pattern", "it is empty, or too long")
        options = ("--json", "--hidden", "--no-messages", "--glob=!.git", f"--max-count={limit}")
        hearing, complaint = _Hearing(limit), bytearray()

        async def hear_complaint(piece: bytes) -> None:
            complaint.extend(piece[:LONGEST_PATTERN])

        command = self._command((ripgrep, *options, "--regexp", pattern, "--", "."))
        try:
            ended = await run(command, hearing.hear, hear_complaint)
        except _EnoughError:
            return hearing.found
        except OSError as error:
            raise InvalidInputError("pattern", "it cannot be looked for") from error
        if ended.code == BAD_PATTERN and not hearing.found and complaint.strip():
            raise InvalidInputError("pattern", complaint.decode(errors="replace").strip()[:500])
        return hearing.found

    # --- files ---

    async def find_files(self, query: str, kind: Kind | None, limit: int) -> list[str]:
        async with self._listing:
            names = await self._names()
        return await asyncio.to_thread(best_matches, names, query, kind, limit)

    async def _names(self) -> list[str]:
        now = asyncio.get_running_loop().time()
        if self._listed is None or now - self._listed[0] > FRESH_SECONDS:
            self._listed = now, await self._list()
        return self._listed[1]

    async def _list(self) -> list[str]:
        """By whichever means there is: ripgrep, git, or walking the tree."""
        ripgrep = shutil.which("rg", path=self._environment.get("PATH"))
        for argv in (
            (ripgrep or "rg", "--files", "--hidden", "--no-messages", "--null", "--glob=!.git"),
            ("git", *HARMLESS, "ls-files", "-coz", "--exclude-standard", "--deduplicate"),
        ):
            try:
                said = await capture(self._command(argv), limit=LISTED_BYTES)
            except OSError:
                continue
            if said.output or said.code in (0, 1):
                return [name for name in _split(said.output) if is_text(name)]
        return await asyncio.to_thread(lambda: list(_walk(self._directory)))

    def _command(self, argv: tuple[str, ...]) -> Command:
        return Command(argv=argv, directory=self._directory, environment=self._environment, timeout=SECONDS)


class _Hearing:
    """Takes in what ripgrep says, line by line, until there is enough of it."""

    def __init__(self, limit: int) -> None:
        self.found: list[TextMatch] = []
        self._limit = limit
        self._rest = b""

    async def hear(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b'{"type":"match"'):
                self.found.append(to_match(json.loads(line)["data"]))
            if len(self.found) >= self._limit:
                raise _EnoughError
        if len(self._rest) > LONGEST_LINE:
            self._rest = self._rest[:1]  # a line nobody could read: its match is left out


def to_match(data: dict[str, Any]) -> TextMatch:
    return TextMatch(
        path=Words(text=_words(data["path"]).removeprefix("./")),
        lines=Words(text=_words(data["lines"])[:SHOWN_LINE]),
        line_number=data["line_number"] or 0,
        absolute_offset=data["absolute_offset"],
        submatches=tuple(
            Submatch(
                match=Words(text=_words(each["match"])[:SHOWN_LINE]), start=each["start"], end=each["end"]
            )
            for each in data["submatches"]
        ),
    )


def _words(said: dict[str, str]) -> str:
    """What is not UTF-8 comes in base64."""
    return said["text"] if "text" in said else b64decode(said["bytes"]).decode(errors="replace")


def best_matches(names: Iterable[str], query: str, kind: Kind | None, limit: int) -> list[str]:
    """The likeliest first: who types a few letters means a file's name rather than its directory."""
    files = list(names)
    wanted = [] if kind == "directory" else files
    if kind != "file":
        wanted = [*wanted, *_directories(files)]
    letters = query.strip().lower()
    if not letters:
        # Nothing typed yet: what lies at the top.
        top = [name for name in wanted if "/" not in name.rstrip("/")]
        return sorted(top, key=lambda name: (not name.endswith("/"), name))[:limit]
    likely = (name for name in wanted if _holds(name.lower(), letters))
    return heapq.nsmallest(limit, likely, key=lambda name: _unlikeness(name, letters))


def _holds(path: str, letters: str) -> bool:
    """Whether the letters are in it, in their order. Read once through: a pattern could take for ever."""
    left = iter(path)
    return all(letter in left for letter in letters)


def _unlikeness(name: str, letters: str) -> tuple[int, int, str]:
    path = name.lower()
    last = path.rstrip("/").rpartition("/")[2]
    ways = (
        last == letters,
        last.startswith(letters),
        letters in last,
        path.startswith(letters),
        letters in path,
    )
    return next((place for place, fits in enumerate(ways) if fits), len(ways)), len(path), path


def _directories(names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        above = name.rpartition("/")[0]
        while above and above not in seen:
            seen.add(above)
            yield f"{above}/"
            above = above.rpartition("/")[0]


def _split(raw: bytes) -> list[str]:
    return [os.fsdecode(name).removeprefix("./") for name in raw.split(b"\0") if name]


def is_text(name: str) -> bool:
    """Whether a name can be said in JSON: half a character, as a disk may hold it, cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _walk(directory: str) -> Iterator[str]:
    for parent, directories, names in os.walk(directory):
        directories[:] = [each for each in directories if not each.startswith(".")]
        below = os.path.relpath(parent, directory)
        yield from (name if below == "." else f"{below}/{name}" for name in names if is_text(name))
