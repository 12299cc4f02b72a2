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
from weft.config.layer import read_text
from weft.config.sources import ConfigDirectory, ConfigScope, list_sources, walk_up
from weft.config.trust import is_inside
from weft.errors import ConfigError
from weft.model.agent import Skill
from weft.model.trust import HeldItem

SKILL_FILE = "SKILL.md"
SKILL_FOLDERS = ("skill", "skills")
MAX_DESCRIPTION_LENGTH = 1024
MAX_DIRECTORIES = 2000
MAX_SKILLS = 200
# These hold no skills, and many files.
_SKIPPED_DIRECTORIES = frozenset({".git", "node_modules", ".venv", "__pycache__"})
_TEXT_ENDINGS = (".md", ".txt")

_FileStamp = tuple[int, ...]


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
        self._cache: dict[str, tuple[_FileStamp, Skill | ConfigError]] = {}

    def find(self) -> FoundSkills:
        """Return the skills as they are now."""
        with self._lock:
            previous, self._cache = self._cache, {}
            return _collect_skills(self._scope, lambda path: self._read_cached(path, previous.get(path)))

    def _read_cached(
        self, path: str, cached: tuple[_FileStamp, Skill | ConfigError] | None
    ) -> Skill | ConfigError:
        stamp = _find_stamp(path)
        if cached is None or stamp is None or cached[0] != stamp:
            cached = stamp or (), _read_skill(path)
        self._cache[path] = cached
        return cached[1]


def find_skills(scope: ConfigScope) -> FoundSkills:
    """Return every skill. If a name occurs several times, the nearest wins; in an untrusted project, the user's own."""
    return _collect_skills(scope, _read_skill)


def _collect_skills(scope: ConfigScope, read: Callable[[str], Skill | ConfigError]) -> FoundSkills:
    flags = read_flags(scope.env)
    own = [path for directory in _list_own_directories(scope, flags) for path in _list_files(directory, "")]
    project = [path for path in _list_project_files(scope, flags) if scope.trusted or not _has_scripts(path)]
    skills: dict[str, Skill] = {}
    problems: list[ConfigError] = []
    for path in [*own, *project] if scope.trusted else [*project, *own]:
        skill = read(path)
        if isinstance(skill, ConfigError):
            problems.append(skill)
            continue
        if skill.name in skills:
            problems.append(ConfigError(path, f"replaces {skills[skill.name].location}"))
        skills[skill.name] = skill
    return FoundSkills(skills=tuple(skills.values())[:MAX_SKILLS], problems=tuple(problems))


def list_scripted_skills(scope: ConfigScope) -> list[HeldItem]:
    """Return the project's skills that contain other files than text. They are ignored unless the project is trusted."""
    paths = [path for path in _list_project_files(scope, read_flags(scope.env)) if _has_scripts(path)]
    return [
        HeldItem(kind="skill", name=os.path.basename(os.path.dirname(path)), path=path, does="brings scripts")
        for path in paths
    ]


def _list_project_files(scope: ConfigScope, flags: Flags) -> list[str]:
    boundary = "" if scope.trusted else scope.worktree
    return [
        path
        for directory in _list_project_directories(scope, flags)
        for path in _list_files(directory, boundary)
    ]


def _has_scripts(path: str) -> bool:
    directories = os.walk(os.path.dirname(path))
    return any(not name.lower().endswith(_TEXT_ENDINGS) for _, _, files in directories for name in files)


def read_skill(skill: Skill) -> str:
    """Return the text of a skill from its file. Raise `ConfigError` if it is gone or cannot be read."""
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
        for level in reversed([directory for directory in walk_up(scope) if directory != home]):
            yield os.path.join(level, ".claude", "skills")
    yield from _list_configured_directories(scope, flags, own=False)


def _list_configured_directories(scope: ConfigScope, flags: Flags, *, own: bool) -> Iterator[str]:
    for source in list_sources(scope, flags):
        if isinstance(source, ConfigDirectory) and source.origin.own == own:
            yield from (os.path.join(source.origin.path, folder) for folder in SKILL_FOLDERS)


def _list_files(top: str, boundary: str) -> list[str]:
    """Return every `SKILL.md` below a directory, following links. With `boundary`, omit files outside that directory."""
    paths: list[str] = []
    seen: set[str] = set()
    for directory, directories, files in os.walk(top, followlinks=True):
        real = os.path.realpath(directory)
        if real in seen or len(seen) >= MAX_DIRECTORIES:
            directories.clear()
            continue
        seen.add(real)
        directories[:] = sorted(name for name in directories if name not in _SKIPPED_DIRECTORIES)
        path = os.path.join(directory, SKILL_FILE)
        if SKILL_FILE in files and (not boundary or is_inside(path, boundary)):
            paths.append(path)
    return paths


def _find_stamp(path: str) -> _FileStamp | None:
    """Return values that change with a file, or None if it cannot be inspected."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read_skill(path: str) -> Skill | ConfigError:
    """Return the skill in a file, or an error that says what is wrong with it."""
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
