"""The books of permissions: open questions, grants and the log of decisions, as they lie in the data directory.

Open questions and grants lie in files of this machine and not in the store: they are the word of whoever sits here, and
nothing that was imported, or that another machine wrote into a shared store, may speak for them.
"""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from weft.host.paths import Paths, user_name
from weft.model.ids import GLOBAL_PROJECT, ProjectID, file_name
from weft.model.permission import Grant
from weft.model.project import Place, root_of
from weft.permission.asked import Asked
from weft.permission.kept import Kept
from weft.permission.log import LogFiles

NAME_LENGTH: Final = 16


def permission_directory(paths: Paths) -> str:
    return os.path.join(paths.data, "permission")


def person_of(env: Mapping[str, str]) -> str:
    """Whose answers those are that are given here."""
    return user_name(env) or f"user {os.getuid()}"


def name_of(place: Place) -> ProjectID:
    """Under which name a place is in the books: its project's.

    Whatever is no repository with a commit is one project for all: what is allowed in one such directory must not hold in
    the next, so each has a name of its own.
    """
    if place.project.id != GLOBAL_PROJECT:
        return place.project.id
    real = os.path.realpath(root_of(place))
    return ProjectID(f"{GLOBAL_PROJECT}-{hashlib.sha256(os.fsencode(real)).hexdigest()[:NAME_LENGTH]}")


def kept_asked(directory: str) -> Kept[Asked]:
    return Kept(os.path.join(directory, "asked.json"), Asked)


def kept_grants(directory: str) -> Kept[Grant]:
    return Kept(os.path.join(directory, "grants.json"), Grant)


def log_of(directory: str, project: ProjectID) -> LogFiles:
    return LogFiles(_logs_in(directory), file_name("project", project), clean=covered)


def list_logs(directory: str) -> list[LogFiles]:
    """Those of all projects, by name."""
    with suppress(FileNotFoundError):
        names = {name.split(".")[0] for name in os.listdir(_logs_in(directory))}
        return [LogFiles(_logs_in(directory), name) for name in sorted(names)]
    return []


def _logs_in(directory: str) -> str:
    return os.path.join(directory, "log")


def covered(text: str) -> str:
    """The text without what looks like a key or a password."""
    from weft.session.transfer.redact import find_secrets  # noqa: PLC0415  wanted when the log is written, not before

    pieces: list[str] = []
    end = 0
    for span in find_secrets("", text):
        pieces += [text[end : span.start], f"[redacted:{span.kind}]"]
        end = span.end
    return "".join((*pieces, text[end:]))
