"""Which model to use when nobody says: the best one of a provider, and a small one for small work (pure)."""

from collections.abc import Iterable, Sequence
from typing import Final

from weft.model.catalog import Model

# The later in the list, the better.
BEST: Final = ("gpt-5", "claude-sonnet-4", "big-pickle", "gemini-3-pro")
# The first that there is.
SMALL: Final = (
    "claude-haiku-4-5",
    "claude-haiku-4.5",
    "3-5-haiku",
    "3.5-haiku",
    "gemini-3-flash",
    "gemini-2.5-flash",
    "gpt-5-nano",
)
COPILOT_SMALL: Final = ("gpt-5-mini", "claude-haiku-4.5", *SMALL)
OPENCODE_SMALL: Final = ("gpt-5-nano",)
# Dollars per million tokens: what costs more is chosen by people, not for them.
DEAR: Final = 30


def best(models: Iterable[Model]) -> Model | None:
    """The one to work with. It must be able to read, write and call tools: OpenCode may pick one that draws."""
    able = [model for model in models if _can_work(model)]
    return max(able, key=_rank) if able else None


def _can_work(model: Model) -> bool:
    can = model.capabilities
    return can.toolcall and can.input.text and can.output.text


def _rank(model: Model) -> tuple[int, bool, bool, str]:
    """OpenCode ranks alike, but may land on a model made for chatting, or on the dearest one there is."""
    place = max((place for place, name in enumerate(BEST) if name in model.id), default=-1)
    dear = model.cost is not None and model.cost.output > DEAR
    return place, not dear and "chat" not in model.id, "latest" in model.id, model.id


def small(provider_id: str, ids: Sequence[str]) -> str | None:
    """The id of a provider's small model."""
    wanted: tuple[str, ...] = SMALL
    if provider_id.startswith("opencode"):
        wanted = OPENCODE_SMALL
    if provider_id.startswith("github-copilot"):
        wanted = COPILOT_SMALL
    return next((id for name in wanted for id in ids if name in id), None)
