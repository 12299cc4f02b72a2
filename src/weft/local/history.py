"""The sessions of a project, for the `history` tool."""

from typing import Final

from weft.context.compaction import search_messages
from weft.errors import NotFoundError
from weft.model.ids import MessageID, ProjectID, SessionID, check_id
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import CompletedState, ErrorState, TextPart, ToolPart
from weft.model.search import HistoryMatch, Hit
from weft.store.contract import Store

MAX_MESSAGE_CHARS: Final = 12_000


class ProjectHistory:
    """Searches the sessions of one project, except the one that asks, and reads messages of all of them."""

    def __init__(self, store: Store, project: ProjectID, session: SessionID) -> None:
        self._store = store
        self._project = project
        self._session = session

    async def search(self, words: str, *, limit: int) -> list[HistoryMatch]:
        # One more, because the session that asks is left out. A session has one hit.
        hits = await self._store.search(words, limit=limit + 1, project=self._project)
        others = [hit for hit in hits if hit.session_id != self._session]
        return [await self._to_match(hit, words) for hit in others[:limit]]

    async def read(self, session: str, message: str) -> HistoryMatch:
        id = SessionID(check_id("session", session))
        found = await self._store.get_session(id)
        if found.project_id != self._project:
            raise NotFoundError("session", id)
        stored = await self._store.find_message(id, MessageID(check_id("message", message)))
        if stored is None:
            raise NotFoundError("message", message)
        text = _join_texts(stored)
        cut = text if len(text) <= MAX_MESSAGE_CHARS else text[:MAX_MESSAGE_CHARS] + "…"
        return HistoryMatch(
            session_id=id,
            title=found.title,
            message_id=stored.info.id,
            by="user" if isinstance(stored.info, UserMessage) else "assistant",
            at=stored.info.time.created,
            excerpt=cut,
        )

    async def _to_match(self, hit: Hit, words: str) -> HistoryMatch:
        """Return a match with the text around it. A match in the title has only the title."""
        by, excerpt = "title", hit.title
        if hit.message_id is not None:
            by, excerpt = "message", hit.snippet
            message = await self._store.find_message(hit.session_id, hit.message_id)
            places = search_messages([message], words.replace('"', " "), limit=1) if message else []
            for place in places:
                by, excerpt = place.by, place.excerpt
        return HistoryMatch(
            session_id=hit.session_id,
            title=hit.title,
            message_id=hit.message_id,
            by=by,
            at=hit.at,
            excerpt=excerpt,
        )


def _join_texts(message: MessageWithParts) -> str:
    texts: list[str] = []
    for part in message.parts:
        match part:
            case TextPart(text=text, ignored=False):
                texts.append(text)
            case ToolPart(tool=tool, state=CompletedState(title=title, output=output)):
                texts.append(f"[{tool} {title}]\n{output}")
            case ToolPart(tool=tool, state=ErrorState(error=error)):
                texts.append(f"[{tool} failed]\n{error}")
            case _:
                pass
    return "\n\n".join(texts)
