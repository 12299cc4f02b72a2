"""A scripted provider with one script for each conversation, chosen by its first prompt."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

from weft.host.clock import Clock
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest, TextContent, UserModelMessage
from weft.provider.scripted import AnyMove, ScriptedProvider

# A move may depend on the request, for example on the id of a session, which a script cannot know.
Moves = Sequence[AnyMove] | Callable[[ModelRequest], Sequence[AnyMove]]
Script = Sequence[Moves]


class PromptKeyedProvider:
    """Gives each conversation the answers of its own script, whatever the order of requests."""

    def __init__(self, scripts: Mapping[str, Script], clock: Clock) -> None:
        self._scripts = scripts
        self._played: dict[str, list[Sequence[AnyMove]]] = {words: [] for words in scripts}
        self._parts = {words: ScriptedProvider(played, clock) for words, played in self._played.items()}
        self.requests: list[ModelRequest] = []

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self.requests.append(request)
        words = self._find_beginning(request)
        script, played = self._scripts[words], self._played[words]
        if len(played) < len(script):
            moves = script[len(played)]
            played.append(moves(request) if callable(moves) else moves)
        return self._parts[words].stream(request)

    def requests_for(self, words: str) -> list[ModelRequest]:
        """Return the requests of one conversation."""
        return self._parts[words].requests

    def _find_beginning(self, request: ModelRequest) -> str:
        said = [
            part.text
            for turn in request.messages
            if isinstance(turn, UserModelMessage)
            for part in turn.content
            if isinstance(part, TextContent)
        ]
        return next(words for words in said if words in self._parts)
