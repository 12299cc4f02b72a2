"""Requests and chunks as a tape holds them: comparable wherever and whenever they are made, and without secrets (pure).

What is different in every run is replaced before two requests are compared: directories by the name of the place they
are (`<directory>`), ids that weft mints by their kind (`<ses>`), the date and the platform of the environment block.
Headers are left out, and options whose name says that they are secret are blotted out.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

from msgspec import Struct

from weft.model.catalog import Model
from weft.model.ids import HEX_LENGTH, PREFIXES, RANDOM_LENGTH
from weft.model.wire import encode, from_plain, parse, to_plain
from weft.provider.chunk import AnyChunk, ToolCall, ToolInputDelta
from weft.provider.contract import ModelRequest

Places = Mapping[str, str]  # from what a place is to its absolute path
Plain = dict[str, Any]
SHOWN = 60
BEFORE = 15
TAG = "chunk"
BLOT = "<secret>"
CHUNKS: dict[str, Any] = {kind.__name__: kind for kind in get_args(AnyChunk)}

_ID = re.compile(
    rf"\b({'|'.join(PREFIXES.values())})_[0-9a-f]{{{HEX_LENGTH}}}[0-9A-Za-z]{{{RANDOM_LENGTH}}}\b"
)
_OF_THE_DAY = re.compile(r"^(  Platform|  Today's date): .*$", re.MULTILINE)
_SECRET = re.compile(
    r"api[_-]?key|secret|password|authorization|credential|bearer|(access|auth|session)[_-]?token|^token$|^headers$",
    re.IGNORECASE,
)


class Difference(Struct, frozen=True, kw_only=True):
    """Where two requests part, and what stands there in each, cut to a line."""

    path: str
    recorded: str
    asked: str


def comparable(request: ModelRequest) -> Plain:
    """A request as plain JSON: all that decides about the answer, nothing that is secret. Still with its own names."""
    parameters = to_plain(request.parameters)
    del parameters["headers"]
    plain = {
        "model": f"{request.model.provider_id}/{request.model.id}",
        "system": request.system,
        "messages": request.messages,
        "tools": request.tools,
        "tool_choice": request.tool_choice,
        **({"forced": request.forced} if request.forced else {}),
        **({"format": request.format} if request.format is not None else {}),
        "parameters": blotted(parameters),
    }
    # Through JSON, so that what is compared is what is read back.
    form: Plain = parse(encode(to_plain(plain)))
    return form


def without_secrets(model: Model) -> Plain:
    plain: Plain = blotted(to_plain(model)) | {"headers": {}}
    # An address may hold a password, and nobody is called at it in a replay.
    return plain | {"api": plain["api"] | {"url": ""}}


def blotted(value: Any) -> Any:
    """The same without what is named like a secret."""
    if isinstance(value, dict):
        return {
            key: BLOT if _SECRET.search(key) and not isinstance(item, int | float) else blotted(item)
            for key, item in value.items()
        }
    return [blotted(item) for item in value] if isinstance(value, list) else value


def anonymous(form: Plain, *places: Places) -> Plain:
    """A request without the names that are of one run alone."""
    tokens: dict[str, str] = {}
    for name, path in (item for each in places for item in each.items()):
        tokens.setdefault(path, f"<{name}>")

    def rewrite(text: str) -> str:
        named = _OF_THE_DAY.sub(r"\1: <any>", swap(text, tokens))
        return _ID.sub(r"<\1>", named)

    changed: Plain = rewritten(form, rewrite)
    return changed


def swap(text: str, names: Mapping[str, str]) -> str:
    """Put other names for these wherever they stand whole, the longest first; the root directory is no name."""
    given = sorted((name for name in names if len(name) > 1), key=len, reverse=True)
    if not given:
        return text
    whole = rf"(?<![\w.~-])(?:{'|'.join(map(re.escape, given))})(?![\w-])"
    return re.sub(whole, lambda found: names[found[0]], text)


def rewritten(value: Any, rewrite: Callable[[str], str]) -> Any:
    """The same value with every text in it rewritten; keys stay."""
    if isinstance(value, str):
        return rewrite(value)
    if isinstance(value, dict):
        return {key: rewritten(item, rewrite) for key, item in value.items()}
    return [rewritten(item, rewrite) for item in value] if isinstance(value, list) else value


def ids_in(form: Plain) -> list[str]:
    """The minted ids of a request in the order they stand there: where two requests are alike, so are these."""
    found = (match[0] for text in _texts(form) for match in _ID.finditer(text))
    return list(dict.fromkeys(found))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def fingerprint(form: Plain) -> str:
    return hashlib.sha256(json.dumps(form, sort_keys=True, default=str).encode()).hexdigest()


def from_chunk(chunk: AnyChunk) -> Plain:
    return {TAG: type(chunk).__name__, **to_plain(chunk)}


def to_chunk(plain: Plain, *, where: str, names: Mapping[str, str]) -> AnyChunk:
    """A chunk as it was, with `names` of this run for those of the recorded one."""
    fields = {key: item for key, item in plain.items() if key != TAG}
    kind = CHUNKS[plain[TAG]]
    if kind in (ToolCall, ToolInputDelta):
        # The text of a call is JSON: in it a name stands as JSON spells it.
        names = {_spelled(old): _spelled(new) for old, new in names.items()}
    chunk: AnyChunk = from_plain(rewritten(fields, lambda text: swap(text, names)), kind, where=where)
    return chunk


def _spelled(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)[1:-1]


def first_difference(recorded: Any, asked: Any, path: str = "") -> Difference | None:
    """Where two requests part first, as `messages[1].content[0].text`; None if they are alike."""
    if recorded == asked:
        return None
    for key, old, new in _pairs(recorded, asked):
        if old != new:
            return first_difference(old, new, f"{path}{key}".lstrip("."))
    old, new = _cut(recorded, asked)
    return Difference(path=path, recorded=old, asked=new)


def _pairs(recorded: Any, asked: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(recorded, dict) and isinstance(asked, dict):
        for key in dict.fromkeys((*recorded, *asked)):
            yield f".{key}", recorded.get(key), asked.get(key)
    if isinstance(recorded, list) and isinstance(asked, list):
        for place in range(max(len(recorded), len(asked))):
            yield f"[{place}]", _at(recorded, place), _at(asked, place)


def _at(items: Sequence[Any], place: int) -> Any:
    return items[place] if place < len(items) else None


def _cut(recorded: Any, asked: Any) -> tuple[str, str]:
    """Both as text, from shortly before they part."""
    old, new = (_told(value) for value in (recorded, asked))
    same = next((n for n, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), 0)
    start = max(0, same - BEFORE)
    first, second = (
        ("…" if start else "") + text[start : start + SHOWN] + ("…" if len(text) > start + SHOWN else "")
        for text in (old, new)
    )
    return first, second


def _told(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False, default=str)
