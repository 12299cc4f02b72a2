"""Which files of a conversation a model can be shown; the others are replaced by a text that says so (spec 9.5.1)."""

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from weft.model.catalog import Modalities, Model
from weft.provider.contract import AssistantTurn, FileContent, ModelMessage, TextContent, ToolTurn, UserTurn
from weft.provider.media.data import is_whole, modality, to_data
from weft.provider.media.fit import MediaLimits, files_of, with_files, within

EMPTY_IMAGE: Final = "ERROR: Image file is empty or corrupted. Please provide a valid image."
TEXTUAL: Final = ("text/", "application/json", "application/xml", "application/yaml", "application/toml")

Shows = Callable[[FileContent], bool]


def show_files(
    messages: Sequence[ModelMessage], model: Model, shows: Shows, limits: MediaLimits
) -> list[ModelMessage]:
    """The conversation with only what the model and its API (`shows`) can take."""
    if not has_files(messages):
        return list(messages)
    return within([_told_turn(turn, model, shows) for turn in messages], limits)


def has_files(messages: Iterable[ModelMessage]) -> bool:
    return any(files_of(turn) for turn in messages if not isinstance(turn, AssistantTurn))


def takes(model: Model, kind: str) -> bool:
    can: Modalities = model.capabilities.input
    return {"image": can.image, "audio": can.audio, "video": can.video, "pdf": can.pdf}[kind]


def _told_turn(turn: ModelMessage, model: Model, shows: Shows) -> ModelMessage:
    if isinstance(turn, UserTurn):
        if not any(isinstance(item, FileContent) for item in turn.content):
            return turn
        content = tuple(
            _told(item, model, shows) if isinstance(item, FileContent) else item for item in turn.content
        )
        return UserTurn(content=content)
    if isinstance(turn, ToolTurn) and any(result.files for result in turn.content):
        return ToolTurn(
            content=tuple(
                with_files(result, [_told(file, model, shows) for file in result.files])
                for result in turn.content
            )
        )
    return turn


def _told(file: FileContent, model: Model, shows: Shows) -> FileContent | TextContent:
    data = to_data(file.url)
    mime = data.mime if data is not None else file.mime
    kind, broken = modality(mime), data is not None and not is_whole(data.base64)
    if broken and "image" in {kind, modality(file.mime)}:
        return TextContent(text=EMPTY_IMAGE)
    if data is not None and mime.startswith(TEXTUAL):
        words = "" if broken else base64.b64decode(data.base64).decode(errors="replace")
        return TextContent(text=f"{file.filename or 'file'}:\n{words}")
    if kind is not None and not takes(model, kind):
        return TextContent(text=_cannot_read(file, kind))
    if broken or not shows(file):
        return TextContent(text=_cannot_read(file, kind or mime or "file"))
    return file


def _cannot_read(file: FileContent, kind: str) -> str:
    name = f'"{file.filename}"' if file.filename else kind
    return f"ERROR: Cannot read {name} (this model does not support {kind} input). Inform the user."
