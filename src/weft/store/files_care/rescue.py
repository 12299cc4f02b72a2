"""Rescue: a session whose own document is lost, made anew from what its messages tell."""

from collections.abc import Iterable, Sequence

from weft.model.ids import GLOBAL_PROJECT, ProjectID, SessionID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import TextPart
from weft.model.project import Project
from weft.model.session import Session, SessionTime
from weft.version import VERSION

TITLE_LENGTH = 60


def rebuilt(
    id: SessionID,
    messages: Sequence[MessageWithParts],
    projects: Iterable[Project],
    *,
    project: ProjectID | None = None,
) -> Session | None:
    """The session, as far as it can be told; None if there is no message to tell it from.

    `project` is where its document lay, if that is known. Else it is the project its agent worked in.
    """
    if not messages:
        return None
    times = [message.info.time.created for message in messages]
    ends = [
        message.info.time.completed or 0 for message in messages if isinstance(message.info, AssistantMessage)
    ]
    directory, root = _place(messages)
    found = [each.id for each in projects if root and root in (each.worktree, *each.sandboxes)]
    return Session(
        id=id,
        slug=f"recovered-{id[-6:].lower()}",
        version=VERSION,
        project_id=project or next(iter(found), GLOBAL_PROJECT),
        directory=directory,
        title=_title(messages),
        time=SessionTime(created=min(times), updated=max(*times, *ends, 0)),
    )


def _place(messages: Sequence[MessageWithParts]) -> tuple[str, str]:
    """Where the agent stood, and the top of that checkout."""
    for message in messages:
        if isinstance(message.info, AssistantMessage) and message.info.path is not None:
            return message.info.path.cwd, message.info.path.root
    return "", ""


def _title(messages: Sequence[MessageWithParts]) -> str:
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, TextPart) and not part.synthetic and part.text.strip():
            return f"Recovered: {' '.join(part.text.split())[:TITLE_LENGTH]}"
    return "Recovered session"
