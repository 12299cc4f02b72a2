"""The steps of a session: each answer of a model with its prompt, its calls and the changes that they made (pure)."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from weft.model.diff import Patch
from weft.model.ids import MessageID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage, is_synthetic
from weft.model.part import PatchPart, TextPart, ToolPart


class StepChange(Struct, frozen=True, kw_only=True):
    """Files that one call changed. `call_id` is empty if it is not known which call of the step it was."""

    call_id: str
    patch: Patch


class SessionStep(Struct, frozen=True, kw_only=True):
    """One answer of a model. `number` counts from 1; `prompt` is the message that the answer is to."""

    number: int
    message: MessageWithParts
    prompt: MessageWithParts | None = None

    @property
    def info(self) -> AssistantMessage:
        assert isinstance(self.message.info, AssistantMessage)
        return self.message.info

    @property
    def calls(self) -> tuple[ToolPart, ...]:
        return tuple(part for part in self.message.parts if isinstance(part, ToolPart))

    @property
    def text(self) -> str:
        """The text of the model, without its reasoning and what it said in attempts that failed."""
        return "\n".join(
            part.text for part in self.message.parts if isinstance(part, TextPart) and not part.ignored
        )

    @property
    def changes(self) -> tuple[StepChange, ...]:
        """The changes of files, oldest first. Changes that OpenCode made have no snapshots of ours and are missing."""
        return tuple(
            StepChange(call_id=part.weft.call_id, patch=part.weft.patch)
            for part in self.message.parts
            if isinstance(part, PatchPart) and part.weft is not None
        )

    @property
    def prompt_text(self) -> str:
        """The text of the prompt, without what weft added to it."""
        parts = self.prompt.parts if self.prompt is not None else ()
        return "\n".join(part.text for part in parts if isinstance(part, TextPart) and not part.synthetic)

    def find_call(self, call_id: str) -> ToolPart | None:
        return next((call for call in self.calls if call.call_id == call_id), None)


def list_steps(history: Sequence[MessageWithParts]) -> list[SessionStep]:
    """Return the steps of a history, oldest first. Pass what `cut_at_revert` kept to leave out what was undone."""
    return list(_iterate_steps(history))


def _iterate_steps(history: Sequence[MessageWithParts]) -> Iterator[SessionStep]:
    prompts: dict[MessageID, MessageWithParts] = {}
    human: MessageWithParts | None = None
    number = 0
    for message in history:
        match message.info:
            case UserMessage(id=id):
                # A prompt that weft wrote itself continues what the person asked for.
                human = human if human is not None and is_synthetic(message) else message
                prompts[id] = human
            case AssistantMessage(parent_id=parent):
                number += 1
                yield SessionStep(number=number, message=message, prompt=prompts.get(parent, human))
