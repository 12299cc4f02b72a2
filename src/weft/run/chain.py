"""Who may answer, and in which order: the model a prompt names, and those to fall back on."""

from weft.errors import ModelNotFoundError, NoModelError
from weft.model.catalog import Model
from weft.model.message import UserMessage
from weft.model.part import ModelRef
from weft.run.kit import Kit

SUMMARISER = "compaction"


def chain_for(kit: Kit, prompt: UserMessage, *, summary: bool = False) -> tuple[ModelRef, ...]:
    """The models to ask for the next answer, those that failed lately last; none if nobody said which.

    What the prompt's agent prefers was weighed when the prompt was admitted. Who sums up may have models of its own.
    """
    summariser = kit.agents.get(SUMMARISER) if summary else None
    asked = prompt if summariser is None or summariser.model is None else summariser
    chain = () if asked.model is None else (asked.model, *asked.fallback)
    return kit.models.health.order(chain, kit.clock.now())


def next_model(kit: Kit, prompt: UserMessage, *, summary: bool = False) -> Model | None:
    """The model that will answer next, as things are; None if it is not there. Who asks it will say so."""
    named = next(iter(chain_for(kit, prompt, summary=summary)), None)
    try:
        return kit.models.get(named or kit.models.default()).model
    except (ModelNotFoundError, NoModelError):
        return None
