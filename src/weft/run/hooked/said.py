"""A text that a model has finished, as plugins would have it."""

from weft.model.event import Event, PartUpdated
from weft.model.part import TextPart
from weft.plugin.hooks import TEXT_COMPLETE, FinishedText, Hooks, TextTold
from weft.run.processor import Processor


async def reworded(hooks: Hooks, processor: Processor, ended: list[Event]) -> list[Event]:
    """The end of a text, changed or not. It replaces as a whole what grew before, for whoever listens too."""
    if not hooks.any(TEXT_COMPLETE):
        return ended
    return [await _reworded(hooks, processor, event) for event in ended]


async def _reworded(hooks: Hooks, processor: Processor, event: Event) -> Event:
    if not isinstance(event, PartUpdated) or not isinstance(event.part, TextPart):
        return event
    part = event.part
    told = TextTold(session_id=part.session_id, message_id=part.message_id, part_id=part.id)
    given = await hooks.ask(TEXT_COMPLETE, told, FinishedText(text=part.text))
    return event if given.text == part.text else processor.reword(part, given.text)
