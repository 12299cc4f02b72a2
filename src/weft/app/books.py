"""The books of permissions: open questions, grants and the log of decisions, as they lie in the data directory.

Open questions and grants lie in files of this machine and not in the store: they are the word of whoever sits here, and
nothing that was imported, or that another machine wrote into a shared store, may speak for them.
"""

import os
from collections.abc import Mapping

from weft.host.paths import Paths, user_name
from weft.model.ids import ProjectID, file_name
from weft.model.permission import Grant
from weft.permission.asked import Asked
from weft.permission.kept import Kept
from weft.permission.log import LogFiles


def permission_directory(paths: Paths) -> str:
    return os.path.join(paths.data, "permission")


def person_of(env: Mapping[str, str]) -> str:
    """Whose answers those are that are given here."""
    return user_name(env) or f"user {os.getuid()}"


def kept_asked(directory: str) -> Kept[Asked]:
    return Kept(os.path.join(directory, "asked.json"), Asked)


def kept_grants(directory: str) -> Kept[Grant]:
    return Kept(os.path.join(directory, "grants.json"), Grant)


def log_of(directory: str, project: ProjectID) -> LogFiles:
    return LogFiles(os.path.join(directory, "log"), file_name("project", project), clean=covered)


def covered(text: str) -> str:
    """The text without what looks like a key or a password."""
    from weft.session.transfer.redact import find_secrets  # noqa: PLC0415  wanted when the log is written, not before

    pieces: list[str] = []
    end = 0
    for span in find_secrets("", text):
        pieces += [text[end : span.start], f"[redacted:{span.kind}]"]
        end = span.end
    return "".join((*pieces, text[end:]))
