"""Record what models answer, and replay it without a key or a network."""

import hashlib
import json
import operator
import os
import re
import stat
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Protocol, get_args

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import (
    DocumentError,
    FaultKind,
    InvalidInputError,
    ProviderAuthError,
    ProviderError,
    StoreError,
)
from weft.host.files import read_file
from weft.model.catalog import Model, ref
from weft.model.ids import HEX_LENGTH, PREFIXES, RANDOM_LENGTH
from weft.model.part import ModelRef
from weft.model.wire import decode, encode, from_plain, parse, to_plain
from weft.provider.chunk import AnyChunk, Finished, ToolCall, ToolInputDelta
from weft.provider.contract import ModelRequest, Provider
from weft.provider.registry import Registry, Served

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


VERSION = 1
LARGEST = 1 << 30


class Failure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an exchange failed. The headers of the answer are not kept: nobody knows what is in them."""

    message: str
    kind: FaultKind = "unknown"
    status: int | None = None
    retryable: bool = False
    wait_ms: int | None = None
    body: str = ""
    provider_id: str | None = None


class Exchange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request and what came of it. `cut` when nobody listened to the end.

    `places` and `ids` are the names of the recorded run, so that a replay can put its own in their stead.
    """

    tape: int
    fingerprint: str
    model: Plain
    request: Plain
    places: dict[str, str] = {}
    ids: list[str] = []
    chunks: list[Plain] = []
    failure: Failure | None = None
    cut: bool = False


class Tape(Protocol):
    """What stands between weft and the models: a recording or a replay. `at` says where it is used."""

    def at(self, places: Places) -> None: ...
    def find_model(self, name: ModelRef) -> Model | None: ...
    def find_default(self) -> ModelRef | None: ...
    def over(self, provider: Provider | None) -> Provider: ...


class Recording:
    """A tape that is being recorded, into a file that is new or empty."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._places: dict[str, str] = {}
        try:
            self._append(b"")
            size = os.stat(self._path).st_size
        except OSError as error:
            raise InvalidInputError("recording", f"cannot write {path}: {error.strerror}") from error
        if size:
            raise InvalidInputError(
                "recording", f"there is something in {path} already", hint="remove it, or name another file"
            )

    def at(self, places: Places) -> None:
        self._places = dict(places)

    def find_model(self, name: ModelRef) -> Model | None:  # noqa: ARG002  a recording brings no models
        return None

    def find_default(self) -> ModelRef | None:
        return None

    def over(self, provider: Provider | None) -> Provider:
        assert provider is not None, "only a replay answers by itself"
        return _Recorded(self, provider)

    def write(
        self, request: ModelRequest, chunks: list[AnyChunk], failure: Failure | None, *, cut: bool
    ) -> None:
        """Lay an exchange down; it is in the file when this returns."""
        plain = comparable(request)
        named = anonymous(plain, _with_session(self._places, request))
        exchange = Exchange(
            tape=VERSION,
            fingerprint=fingerprint(named),
            model=without_secrets(request.model),
            request=named,
            places=self._places,
            ids=ids_in(plain),
            chunks=[from_chunk(chunk) for chunk in chunks],
            failure=failure,
            cut=cut,
        )
        try:
            self._append(encode(exchange) + b"\n")
        except OSError as error:
            raise StoreError(f"cannot record into {self._path}: {error.strerror}") from error

    def _append(self, raw: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(0, "not a regular file")
            os.fchmod(fd, 0o600)
            view = memoryview(raw)
            while view:
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)


class _Recorded:
    """A provider whose answers are written down as they go by."""

    def __init__(self, tape: Recording, provider: Provider) -> None:
        self._tape = tape
        self._provider = provider

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        heard: list[AnyChunk] = []
        try:
            async with aclosing(self._provider.stream(request)) as chunks:
                async for chunk in chunks:
                    heard.append(chunk)
                    yield chunk
        except ProviderError as error:
            self._tape.write(request, heard, to_failure(error), cut=False)
            raise
        except BaseException:
            # Cancelled, or closed: what is going on is more to the point than a disk that is full.
            with suppress(StoreError):
                self._tape.write(request, heard, None, cut=not _is_whole(heard))
            raise
        self._tape.write(request, heard, None, cut=False)


class Replay:
    """A tape that is played. `left` are the exchanges nobody has asked for yet, `missed` tells of requests that are not on it."""

    def __init__(self, path: str) -> None:
        self._name = os.path.basename(path)
        self._places: dict[str, str] = {}
        self._exchanges = read_tape(path)
        self._models = [_model(exchange) for exchange in self._exchanges]
        self.left = list(self._exchanges)
        self.missed: list[str] = []

    def at(self, places: Places) -> None:
        self._places = dict(places)

    def find_model(self, name: ModelRef) -> Model | None:
        """A model as it was then: the price of an answer is what it was, whatever has become of the catalogue."""
        return next((model for model in self._models if ref(model) == name), None)

    def find_default(self) -> ModelRef | None:
        """The model that did the work: the first that was given tools, else the first."""
        worked = [exchange for exchange in self._exchanges if exchange.request.get("tools")]
        first = (worked or self._exchanges)[:1]
        return ref(_model(first[0])) if first else None

    def over(self, provider: Provider | None) -> Provider:  # noqa: ARG002  nobody is asked
        return self

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        try:
            exchange = self._take(request)
        except ProviderError as miss:
            self.missed.append(str(miss))
            raise
        names = self._names(exchange, request)
        for chunk in exchange.chunks:
            yield to_chunk(chunk, where=self._name, names=names)
        if exchange.failure is not None:
            raise to_error(exchange.failure)
        if exchange.cut:
            raise _miss(f"{self._name} was recorded only so far: nobody listened to the end of this answer")

    def _take(self, request: ModelRequest) -> Exchange:
        plain = comparable(request)
        if not self.left:
            raise _miss(
                f"the replay is over: {self._name} holds {len(self._exchanges)} exchanges, and this is one more"
            )
        asked = []
        for place, exchange in enumerate(self.left):
            asked.append(self._both(plain, request, exchange))
            if operator.eq(*asked[-1]):
                return self.left.pop(place)
        raise self._mismatch(asked)

    def _both(self, plain: Plain, request: ModelRequest, exchange: Exchange) -> tuple[Plain, Plain]:
        """A recorded request and this one, both without the names of either run."""
        places = _with_session(self._places, request)
        recorded = anonymous(exchange.request, exchange.places, places)
        return recorded, anonymous(plain, exchange.places, places)

    def _mismatch(self, asked: list[tuple[Plain, Plain]]) -> ProviderError:
        """Told against the exchange that is most like it, the earliest of several."""
        place, (recorded, wanted) = min(enumerate(asked), key=lambda item: _unlike(*item[1]))
        number = 1 + next(n for n, each in enumerate(self._exchanges) if each is self.left[place])
        found = first_difference(recorded, wanted)
        assert found is not None
        return _miss(
            f"the replay has no answer to this request; it differs from exchange {number} of {self._name}"
            f" at {found.path}: recorded {found.recorded}, asked {found.asked}"
        )

    def _names(self, exchange: Exchange, request: ModelRequest) -> Mapping[str, str]:
        # The first of several names for one place is the one that counts, as it does when requests are compared.
        known = [(name, path) for name, path in exchange.places.items() if name in self._places]
        places = {path: self._places[name] for name, path in reversed(known)}
        ids = zip(exchange.ids, ids_in(comparable(request)), strict=False)
        return places | dict(ids)


class TapedModels(Registry):
    """The models there are, with a tape between them and who asks."""

    def __init__(self, models: Registry, tape: Tape) -> None:
        super().__init__()
        self._models = models
        self._tape = tape

    def get(self, ref: ModelRef) -> Served:
        known = self._tape.find_model(ref)
        if known is not None:
            return Served(known, self._tape.over(None))
        found = self._models.get(ref)
        return replace(found, provider=self._tape.over(found.provider))

    def default(self) -> ModelRef:
        return self._tape.find_default() or self._models.default()

    def small(self, beside: ModelRef) -> ModelRef | None:
        return self._models.small(beside)

    def list_models(self) -> list[Model]:
        return self._models.list_models()

    async def aclose(self) -> None:
        await self._models.aclose()


def read_tape(path: str) -> list[Exchange]:
    """Every exchange of a tape. What is no tape is refused, naming the line."""
    try:
        raw, _ = read_file(path, limit=LARGEST)
    except OSError as error:
        raise InvalidInputError("replay", f"cannot read {path}: {error.strerror}") from error
    lines = raw.split(b"\n")
    return [_read_line(line, f"{path}, line {n}") for n, line in enumerate(lines, start=1) if line.strip()]


def _read_line(line: bytes, where: str) -> Exchange:
    try:
        exchange = decode(line, Exchange, where=where)
        _model(exchange)
        for chunk in exchange.chunks:
            if chunk.get(TAG) not in CHUNKS:
                raise DocumentError(where, f"there is no chunk {chunk.get(TAG)!r}")
            to_chunk(chunk, where=where, names={})
    except DocumentError as error:
        raise InvalidInputError("replay", f"not a tape: {error}") from error
    if exchange.tape != VERSION:
        raise InvalidInputError("replay", f"{where}: tape format {exchange.tape}, this weft knows {VERSION}")
    if exchange.fingerprint != fingerprint(exchange.request):
        raise InvalidInputError("replay", f"{where}: the request is not the one that was recorded")
    return exchange


def to_failure(error: ProviderError) -> Failure:
    return Failure(
        message=str(error),
        kind=error.kind,
        status=error.status,
        retryable=error.retryable,
        wait_ms=error.wait_ms,
        body=error.body,
        provider_id=error.provider_id if isinstance(error, ProviderAuthError) else None,
    )


def to_error(failure: Failure) -> ProviderError:
    if failure.provider_id is not None:
        return ProviderAuthError(failure.provider_id, failure.message)
    error = ProviderError(
        failure.message, status=failure.status, retryable=failure.retryable, body=failure.body
    )
    error.kind, error.wait_ms = failure.kind, failure.wait_ms
    return error


def _miss(message: str) -> ProviderError:
    error = ProviderError(message)
    error.kind, error.hint = "protocol", "record it anew if the change is meant"
    return error


def _model(exchange: Exchange) -> Model:
    return from_plain(exchange.model, Model, where="model")


def _is_whole(chunks: list[AnyChunk]) -> bool:
    return bool(chunks) and isinstance(chunks[-1], Finished)


def _with_session(places: Places, request: ModelRequest) -> Places:
    return {**places, "ses": request.session}


def _unlike(recorded: Plain, asked: Plain) -> int:
    return sum(recorded.get(key) != asked.get(key) for key in recorded | asked)
