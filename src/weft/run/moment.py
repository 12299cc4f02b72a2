"""When a message is made (pure)."""

from weft.model.transcript import Transcript


def after(transcript: Transcript, now: int) -> int:
    """A time for a new message: now, but later than every message before it, whatever the clock did meanwhile."""
    newest = transcript.newest()
    return now if newest is None else max(now, newest.time.created + 1)
