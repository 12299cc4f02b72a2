"""Skills: instructions for kinds of tasks, found as `SKILL.md` in a project and in the user's own directories.

An untrusted project's skills must lie inside the project, do not replace a user's skill of the same name, and are
ignored if they contain scripts.
"""

import os
import threading
from collections.abc import Callable, Iterator

from msgspec import Struct

from weft.config.definitions import read_markdown
from weft.config.flags import Flags, read_flags
from weft.config.instructions import walk_up
from weft.config.layer import read_text
from weft.config.sources import ConfigDirectory, ConfigScope, list_sources
from weft.config.trust import HeldItem
from weft.errors import ConfigError
from weft.model.agent import Skill

SKILL_FILE = "SKILL.md"
SKILL_FOLDERS = ("skill", "skills")
MAX_DESCRIPTION_LENGTH = 1024
MAX_DIRECTORIES = 2000
MAX_SKILLS = 200
# These hold no skills, and many files.
_SKIPPED_DIRECTORIES = frozenset({".git", "node_modules", ".venv", "__pycache__"})
_TEXT_ENDINGS = (".md", ".txt")

_Stamp = tuple[int, ...]


class FoundSkills(Struct, frozen=True, kw_only=True):
    """The skills, by name, and problems with some of them."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[ConfigError, ...] = ()


class SkillFinder:
    """Finds the skills of one directory repeatedly. A file is parsed again only if it has changed. Threads may share a
    finder.
    """

    def __init__(self, scope: ConfigScope) -> None:
        self._scope = scope
        self._lock = threading.Lock()
        self._read: dict[str, tuple[_Stamp, Skill | ConfigError]] = {}

    def find(self) -> FoundSkills:
        """Return the skills as they are now."""
        with self._lock:
            before, self._read = self._read, {}
            return _find(self._scope, lambda path: self._look(path, before.get(path)))

    def _look(self, path: str, known: tuple[_Stamp, Skill | ConfigError] | None) -> Skill | ConfigError:
        stamp = _get_stamp(path)
        if known is None or stamp is None or known[0] != stamp:
            known = stamp or (), _read(path)
        self._read[path] = known
        return known[1]


def find_skills(scope: ConfigScope) -> FoundSkills:
    """Return every skill. If a name occurs several times, the nearest wins; in an untrusted project, the user's own."""
    return _find(scope, _read)


def _find(scope: ConfigScope, read: Callable[[str], Skill | ConfigError]) -> FoundSkills:
    flags = read_flags(scope.env)
    own = [path for place in _list_own_directories(scope, flags) for path in _list_files(place, "")]
    project = [path for path in _list_project_files(scope, flags) if scope.trusted or not _is_scripted(path)]
    found: dict[str, Skill] = {}
    problems: list[ConfigError] = []
    for path in [*own, *project] if scope.trusted else [*project, *own]:
        skill = read(path)
        if isinstance(skill, ConfigError):
            problems.append(skill)
            continue
        if skill.name in found:
            problems.append(ConfigError(path, f"replaces {found[skill.name].location}"))
        found[skill.name] = skill
    return FoundSkills(skills=tuple(found.values())[:MAX_SKILLS], problems=tuple(problems))


def list_scripted_skills(scope: ConfigScope) -> list[HeldItem]:
    """Return the project's skills that contain other files than text. They are ignored unless the project is trusted."""
    found = [path for path in _list_project_files(scope, read_flags(scope.env)) if _is_scripted(path)]
    return [
        HeldItem(kind="skill", name=os.path.basename(os.path.dirname(path)), path=path, does="brings scripts")
        for path in found
    ]


def _list_project_files(scope: ConfigScope, flags: Flags) -> list[str]:
    within = "" if scope.trusted else scope.worktree
    return [path for place in _list_project_directories(scope, flags) for path in _list_files(place, within)]


def _is_scripted(path: str) -> bool:
    directories = os.walk(os.path.dirname(path))
    return any(not name.lower().endswith(_TEXT_ENDINGS) for _, _, files in directories for name in files)


def read_skill(skill: Skill) -> str:
    """Return the text of a skill from its file. Raise `ConfigError`."""
    text = read_text(skill.location)
    if text is None:
        raise ConfigError(skill.location, "no longer exists")
    return read_markdown(skill.location, text).body


def _list_own_directories(scope: ConfigScope, flags: Flags) -> Iterator[str]:
    if not flags.disable_claude_code_skills:
        yield os.path.join(scope.paths.home, ".claude", "skills")
    yield from _list_configured_directories(scope, flags, own=True)


def _list_project_directories(scope: ConfigScope, flags: Flags) -> Iterator[str]:
    if flags.disable_project_config:
        return
    if not flags.disable_claude_code_skills:
        home = os.path.normpath(scope.paths.home)
        # From the top down, so that the nearest wins.
        for level in reversed([each for each in walk_up(scope) if each != home]):
            yield os.path.join(level, ".claude", "skills")
    yield from _list_configured_directories(scope, flags, own=False)


def _list_configured_directories(scope: ConfigScope, flags: Flags, *, own: bool) -> Iterator[str]:
    for source in list_sources(scope, flags):
        if isinstance(source, ConfigDirectory) and source.origin.own == own:
            yield from (os.path.join(source.origin.path, folder) for folder in SKILL_FOLDERS)


def _list_files(top: str, within: str) -> list[str]:
    """Return every `SKILL.md` below a directory, following links. With `within`, omit files outside that directory."""
    found: list[str] = []
    seen: set[str] = set()
    for directory, directories, files in os.walk(top, followlinks=True):
        real = os.path.realpath(directory)
        if real in seen or len(seen) >= MAX_DIRECTORIES:
            directories.clear()
            continue
        seen.add(real)
        directories[:] = sorted(name for name in directories if name not in _SKIPPED_DIRECTORIES)
        path = os.path.join(directory, SKILL_FILE)
        if SKILL_FILE in files and (
            not within or _is_inside(os.path.realpath(path), os.path.realpath(within))
        ):
            found.append(path)
    return found


def _is_inside(path: str, home: str) -> bool:
    return path.startswith(home.rstrip(os.sep) + os.sep)


def _get_stamp(path: str) -> _Stamp | None:
    """Return values that change with a file, or None if it cannot be inspected."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: str) -> Skill | ConfigError:
    """Return the skill in a file, or what is wrong with the file."""
    try:
        front = read_markdown(path, read_text(path) or "").front
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
    # Every request lists every skill, so descriptions must be short.
    short = " ".join(description.split())[:MAX_DESCRIPTION_LENGTH]
    return Skill(name=name.strip(), description=short, location=path)
