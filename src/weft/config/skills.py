"""Skills: instructions for kinds of tasks, found as `SKILL.md` in a project and in a person's own directories.

What a project that nobody has vouched for brings along is read within its own bounds only, and does not take the place
of a person's own skill of the same name; a skill of its with scripts is not told of at all.
"""

import os
import threading
from collections.abc import Callable, Iterator

from msgspec import Struct

from weft.config.definitions import Markdown
from weft.config.flags import Flags, read_flags
from weft.config.instructions import levels
from weft.config.layer import read_text
from weft.config.sources import Directory, Situation, list_sources
from weft.config.trust import Held
from weft.errors import ConfigError
from weft.model.agent import Skill

FILE = "SKILL.md"
FOLDERS = ("skill", "skills")
LONGEST_DESCRIPTION = 1024
MOST_DIRECTORIES = 2000
MOST_SKILLS = 200
# Nobody keeps skills there, and there is much of it.
_PASSED_OVER = frozenset({".git", "node_modules", ".venv", "__pycache__"})
_WORDS = (".md", ".txt")

_Stamp = tuple[int, ...]


class Found(Struct, frozen=True, kw_only=True):
    """The skills there are, by name, and what is odd about some."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[ConfigError, ...] = ()


class SkillFinder:
    """Finds the skills of one directory, again and again. A file is read and parsed again only once it has changed: there
    may be hundreds. Threads may share a finder."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._lock = threading.Lock()
        self._read: dict[str, tuple[_Stamp, Skill | ConfigError]] = {}

    def find(self) -> Found:
        with self._lock:
            before, self._read = self._read, {}
            return _find(self._situation, lambda path: self._look(path, before.get(path)))

    def _look(self, path: str, known: tuple[_Stamp, Skill | ConfigError] | None) -> Skill | ConfigError:
        stamp = _stamp_of(path)
        if known is None or stamp is None or known[0] != stamp:
            known = stamp or (), _read(path)
        self._read[path] = known
        return known[1]


def find_skills(situation: Situation) -> Found:
    """Return every skill there is. Of several with one name the nearest counts; in a project that is not trusted, one's
    own."""
    return _find(situation, _read)


def _find(situation: Situation, read: Callable[[str], Skill | ConfigError]) -> Found:
    flags = read_flags(situation.env)
    mine = [path for place in _own_places(situation, flags) for path in _list_files(place, "")]
    foreign = [
        path for path in _list_foreign(situation, flags) if situation.trusted or not _is_scripted(path)
    ]
    found: dict[str, Skill] = {}
    problems: list[ConfigError] = []
    for path in [*mine, *foreign] if situation.trusted else [*foreign, *mine]:
        skill = read(path)
        if isinstance(skill, ConfigError):
            problems.append(skill)
            continue
        if skill.name in found:
            problems.append(ConfigError(path, f"takes the place of {found[skill.name].location}"))
        found[skill.name] = skill
    return Found(skills=tuple(found.values())[:MOST_SKILLS], problems=tuple(problems))


def list_scripted(situation: Situation) -> list[Held]:
    """The skills of a project with more than words to them, which are not told of unless it is trusted."""
    found = [path for path in _list_foreign(situation, read_flags(situation.env)) if _is_scripted(path)]
    return [
        Held(kind="skill", name=os.path.basename(os.path.dirname(path)), path=path, does="brings scripts")
        for path in found
    ]


def _list_foreign(situation: Situation, flags: Flags) -> list[str]:
    within = "" if situation.trusted else situation.worktree
    return [path for place in _project_places(situation, flags) for path in _list_files(place, within)]


def _is_scripted(path: str) -> bool:
    below = os.walk(os.path.dirname(path))
    return any(not name.lower().endswith(_WORDS) for _, _, files in below for name in files)


def read_skill(skill: Skill) -> str:
    """What a skill says, as its file now stands. Raises `ConfigError`."""
    text = read_text(skill.location)
    if text is None:
        raise ConfigError(skill.location, "is gone")
    return Markdown(skill.location, text).body


def _own_places(situation: Situation, flags: Flags) -> Iterator[str]:
    if not flags.disable_claude_code_skills:
        yield os.path.join(situation.paths.home, ".claude", "skills")
    yield from _configured(situation, flags, own=True)


def _project_places(situation: Situation, flags: Flags) -> Iterator[str]:
    if flags.disable_project_config:
        return
    if not flags.disable_claude_code_skills:
        home = os.path.normpath(situation.paths.home)
        # From the top down: the nearest has the last word.
        for level in reversed([each for each in levels(situation) if each != home]):
            yield os.path.join(level, ".claude", "skills")
    yield from _configured(situation, flags, own=False)


def _configured(situation: Situation, flags: Flags, *, own: bool) -> Iterator[str]:
    for source in list_sources(situation, flags):
        if isinstance(source, Directory) and source.origin.own == own:
            yield from (os.path.join(source.origin.path, folder) for folder in FOLDERS)


def _list_files(top: str, within: str) -> list[str]:
    """Every `SKILL.md` below a directory, links followed; with `within`, none that leads out of there."""
    found: list[str] = []
    seen: set[str] = set()
    for directory, below, files in os.walk(top, followlinks=True):
        real = os.path.realpath(directory)
        if real in seen or len(seen) >= MOST_DIRECTORIES:
            below.clear()
            continue
        seen.add(real)
        below[:] = sorted(name for name in below if name not in _PASSED_OVER)
        path = os.path.join(directory, FILE)
        if FILE in files and (not within or _is_inside(os.path.realpath(path), os.path.realpath(within))):
            found.append(path)
    return found


def _is_inside(path: str, home: str) -> bool:
    return path.startswith(home.rstrip(os.sep) + os.sep)


def _stamp_of(path: str) -> _Stamp | None:
    """Return what changes with a file; None if it cannot be asked."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: str) -> Skill | ConfigError:
    """Return the skill that a file describes, or what is wrong with the file."""
    try:
        front = Markdown(path, read_text(path) or "").front
    except ConfigError as error:
        return error
    name, description = front.get("name"), front.get("description")
    if (
        not isinstance(name, str)
        or not name.strip()
        or not isinstance(description, str)
        or not description.strip()
    ):
        return ConfigError(path, "a skill needs a name and a description in its front matter")
    # Every request tells of every skill: what does not fit in a few lines belongs below.
    short = " ".join(description.split())[:LONGEST_DESCRIPTION]
    return Skill(name=name.strip(), description=short, location=path)
