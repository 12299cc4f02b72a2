"""Where a request is marked, so that the provider keeps what comes before the mark (pure; spec 9.5.6)."""

from typing import Any, Final

from weft.model.catalog import Model

MARK: Final[dict[str, Any]] = {"type": "ephemeral"}
SYSTEM: Final = 2
MESSAGES: Final = 2


def wants_marks(model: Model) -> bool:
    """Claude keeps what it is told to keep, by whichever road it is reached; others see to it themselves."""
    names = (model.api.id.lower(), model.id.lower())
    return (
        model.provider_id == "anthropic"
        or "anthropic" in model.api.npm
        or any(word in name for name in names for word in ("anthropic", "claude"))
    )


def system_marks(count: int) -> range:
    """Which of so many system entries: the first two."""
    return range(min(count, SYSTEM))


def message_marks(count: int) -> range:
    """Which of so many messages: the last two. The one before the last is where the request before this one ended."""
    return range(max(0, count - MESSAGES), count)
