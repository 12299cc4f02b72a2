"""What is pasted into the prompt: a long text and an image are shown by a short name, and sent in full."""

import base64
import mimetypes
import os
import re
import shlex
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from weft.errors import InvalidInputError
from weft.model.display import format_count
from weft.model.input import FileInput

MAX_PASTE_LINES: Final = 8
MAX_PASTE_LENGTH: Final = 1000
MAX_IMAGE_BYTES: Final = 20 << 20
MAX_PATH_LENGTH: Final = 16_384  # of a path that the terminal has quoted
IMAGE_TYPES: Final = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))


class Pastes:
    """Everything that was pasted in a conversation, by the names that its prompts have for it."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._images: dict[str, str] = {}

    def fold(self, pasted: str) -> str:
        """Return what to insert: a name for a long text or the path of an image, or the text itself."""
        text = pasted.replace("\r\n", "\n").replace("\r", "\n")
        image = find_image(text)
        if image:
            name = f"[image {len(self._images) + 1}: {os.path.basename(image)}]"
            self._images[name] = image
            return name
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines <= MAX_PASTE_LINES and len(text) <= MAX_PASTE_LENGTH:
            return text
        name = f"[paste {len(self._texts) + 1}: {format_count(lines, 'line')}]"
        self._texts[name] = text
        return name

    def unfold(self, text: str) -> str:
        """Return a prompt with pasted texts in full."""
        return _replace_names(text, self._texts)

    def to_history(self, text: str) -> str:
        """Return a prompt as another conversation can use it: with pasted texts in full, and images by their paths."""
        return _replace_names(text, self._texts | {name: f"@{path}" for name, path in self._images.items()})

    def list_images(self, text: str) -> list[str]:
        """Return the paths of the images that a prompt names."""
        return [path for name, path in self._images.items() if name in text]


def _replace_names(text: str, values: Mapping[str, str]) -> str:
    """Replace each name by its value. A value may contain a name, which stays: it was pasted."""
    if not values:
        return text
    return re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], text)


def find_image(text: str) -> str:
    """Return the path of the image file that a pasted text names; empty if it names none.

    Terminals paste a file that is dropped on them as a path, with quotes or backslashes if it has spaces, or as a URL.
    """
    if len(text) > MAX_PATH_LENGTH:  # to split it takes the square of its length
        return ""
    try:
        words = shlex.split(text)
        word = words[0] if len(words) == 1 else text.strip()
        if word.startswith("file://"):
            word = unquote(urlsplit(word).path)
        path = os.path.expanduser(word)
    except ValueError:  # an open quote, an invalid host, or a name that no person can have
        return ""
    if "\n" in path or "\0" in path or not os.path.isabs(path):
        return ""
    return path if mimetypes.guess_type(path)[0] in IMAGE_TYPES and os.path.isfile(path) else ""


def read_image(path: str) -> FileInput:
    """Return an image file as a part of a prompt. Raise `InvalidInputError` if it cannot be read or is too large."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise InvalidInputError("image", f"{path!r} cannot be read: {error.strerror}") from error
    if len(content) > MAX_IMAGE_BYTES:
        raise InvalidInputError("image", f"{path!r} has more than {MAX_IMAGE_BYTES >> 20} MB")
    mime = mimetypes.guess_type(path)[0] or "application/octet-stream"
    url = f"data:{mime};base64,{base64.b64encode(content).decode()}"
    return FileInput(mime=mime, filename=os.path.basename(path), url=url)
