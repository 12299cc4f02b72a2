"""Decide what a repair makes of documents, for every kind of store: rebuild a lost session, shrink a large message."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from weft.model.diff import cap_diffs, is_capped
from weft.model.ids import GLOBAL_PROJECT, ProjectID, SessionID
from weft.model.message import AnyMessage, AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import TextPart
from weft.model.project import Project
from weft.model.session import SessionInfo, SessionTime
from weft.version import VERSION

TITLE_LENGTH = 60


def rebuild_session(
    id: SessionID,
    messages: Sequence[MessageWithParts],
    projects: Iterable[Project],
    *,
    project: ProjectID | None = None,
) -> SessionInfo | None:
    """Rebuild a lost session document from its messages. Return None if there are none.

    `project` is the project that held the document, if it is known. The default is the project in which the agent worked.
    """
    if not messages:
        return None
    times = [message.info.time.created for message in messages]
    ends = [
        message.info.time.completed or 0 for message in messages if isinstance(message.info, AssistantMessage)
    ]
    directory, root = _find_place(messages)
    found = [each.id for each in projects if root and root in (each.worktree, *each.sandboxes)]
    return SessionInfo(
        id=id,
        slug=f"recovered-{id[-6:].lower()}",
        version=VERSION,
        project_id=project or next(iter(found), GLOBAL_PROJECT),
        directory=directory,
        title=_choose_title(messages),
        time=SessionTime(created=min(times), updated=max(*times, *ends, 0)),
    )


def _find_place(messages: Sequence[MessageWithParts]) -> tuple[str, str]:
    """Return the working directory of the agent, and the root of that checkout."""
    for message in messages:
        if isinstance(message.info, AssistantMessage) and message.info.path is not None:
            return message.info.path.cwd, message.info.path.root
    return "", ""


def _choose_title(messages: Sequence[MessageWithParts]) -> str:
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, TextPart) and not part.synthetic and part.text.strip():
            return f"Recovered: {' '.join(part.text.split())[:TITLE_LENGTH]}"
    return "Recovered session"


def shrink_message(info: AnyMessage) -> UserMessage | None:
    """Return the message with whole files cut out of the diffs in its summary, None if there are none."""
    if not isinstance(info, UserMessage) or info.summary is None or is_capped(info.summary.diffs):
        return None
    return replace(info, summary=replace(info.summary, diffs=cap_diffs(info.summary.diffs)))
