"""Record the answers of models, and replay them without a key or a network."""

import hashlib
import json
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
from weft.model.catalog import Model, to_ref
from weft.model.ids import HEX_LENGTH, PREFIXES, RANDOM_LENGTH
from weft.model.part import ModelRef
from weft.model.wire import decode, encode, from_plain, parse, to_plain
from weft.provider.chunk import AnyChunk, Finished, ToolCall, ToolInputDelta
from weft.provider.contract import ModelRequest, Provider
from weft.provider.registry import Registry, ServedModel

PathsByName = Mapping[str, str]  # absolute paths by a name such as "home"
Plain = dict[str, Any]
EXCERPT_LENGTH = 60
EXCERPT_LENGTH_BEFORE = 15
CHUNK_TAG = "chunk"
REDACTED = "<secret>"
CHUNK_TYPES: dict[str, Any] = {kind.__name__: kind for kind in get_args(AnyChunk)}

_ID = re.compile(
    rf"\b({'|'.join(PREFIXES.values())})_[0-9a-f]{{{HEX_LENGTH}}}[0-9A-Za-z]{{{RANDOM_LENGTH}}}\b"
)
_CHANGING_LINES = re.compile(r"^(  Platform|  Today's date): .*$", re.MULTILINE)
_SECRET_NAME = re.compile(
    r"api[_-]?key|secret|password|authorization|credential|bearer|(access|auth|session)[_-]?token|^token$|^headers$",
    re.IGNORECASE,
)


class Difference(Struct, frozen=True, kw_only=True):
    """The first difference between two requests: its path, and an excerpt of each."""

    path: str
    recorded: str
    current: str


def to_comparable(request: ModelRequest) -> Plain:
    """Return a request as plain JSON: everything that affects the answer, and no secrets."""
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
        "parameters": redact_secrets(parameters),
    }
    # Encode and parse, because the recorded request is read from JSON, too.
    comparable: Plain = parse(encode(to_plain(plain)))
    return comparable


def redact_model(model: Model) -> Plain:
    """Return a model as plain JSON without secrets."""
    plain: Plain = redact_secrets(to_plain(model)) | {"headers": {}}
    # The address may hold a password, and a replay does not need it.
    return plain | {"api": plain["api"] | {"url": ""}}


def redact_secrets(value: Any) -> Any:
    """Return a copy with the values of secret-looking names replaced."""
    if isinstance(value, dict):
        return {
            key: REDACTED
            if _SECRET_NAME.search(key) and not isinstance(item, int | float)
            else redact_secrets(item)
            for key, item in value.items()
        }
    return [redact_secrets(item) for item in value] if isinstance(value, list) else value


def anonymise(plain: Plain, *places: PathsByName) -> Plain:
    """Return a request with the paths, ids and dates of one run replaced by placeholders."""
    placeholders: dict[str, str] = {}
    for name, path in (item for paths in places for item in paths.items()):
        placeholders.setdefault(path, f"<{name}>")

    def rewrite(text: str) -> str:
        replaced = _CHANGING_LINES.sub(r"\1: <any>", replace_names(text, placeholders))
        return _ID.sub(r"<\1>", replaced)

    anonymous: Plain = rewrite_texts(plain, rewrite)
    return anonymous


def replace_names(text: str, names: Mapping[str, str]) -> str:
    """Replace names in a text where they stand alone, the longest first. Names of one character, such as `/`, stay."""
    names_by_length = sorted((name for name in names if len(name) > 1), key=len, reverse=True)
    if not names_by_length:
        return text
    whole = rf"(?<![\w.~-])(?:{'|'.join(map(re.escape, names_by_length))})(?![\w-])"
    return re.sub(whole, lambda found: names[found[0]], text)


def rewrite_texts(value: Any, rewrite: Callable[[str], str]) -> Any:
    """Return the value with every text in it rewritten, except the keys of objects."""
    if isinstance(value, str):
        return rewrite(value)
    if isinstance(value, dict):
        return {key: rewrite_texts(item, rewrite) for key, item in value.items()}
    return [rewrite_texts(item, rewrite) for item in value] if isinstance(value, list) else value


def list_ids(plain: Plain) -> list[str]:
    """Return the generated ids in a request, in order of appearance. Equal requests have them in the same order."""
    found = (match[0] for text in _iterate_texts(plain) for match in _ID.finditer(text))
    return list(dict.fromkeys(found))


def _iterate_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _iterate_texts(item)


def compute_fingerprint(plain: Plain) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()


def from_chunk(chunk: AnyChunk) -> Plain:
    return {CHUNK_TAG: type(chunk).__name__, **to_plain(chunk)}


def to_chunk(plain: Plain, *, where: str, names: Mapping[str, str]) -> AnyChunk:
    """Return a recorded chunk, with the names of this run in place of the recorded ones."""
    fields = {key: item for key, item in plain.items() if key != CHUNK_TAG}
    kind = CHUNK_TYPES[plain[CHUNK_TAG]]
    if kind in (ToolCall, ToolInputDelta):
        # The input of a call is JSON text, so names in it are escaped.
        names = {_escape_json(old): _escape_json(new) for old, new in names.items()}
    chunk: AnyChunk = from_plain(
        rewrite_texts(fields, lambda text: replace_names(text, names)), kind, where=where
    )
    return chunk


def _escape_json(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)[1:-1]


def find_difference(recorded: Any, current: Any, path: str = "") -> Difference | None:
    """Return the first difference of two requests, with a path such as `messages[1].content[0].text`; None if they are
    equal.
    """
    if recorded == current:
        return None
    for key, old, new in _pair_items(recorded, current):
        if old != new:
            return find_difference(old, new, f"{path}{key}".lstrip("."))
    old, new = _excerpt(recorded, current)
    return Difference(path=path, recorded=old, current=new)


def _pair_items(recorded: Any, current: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(recorded, dict) and isinstance(current, dict):
        for key in dict.fromkeys((*recorded, *current)):
            yield f".{key}", recorded.get(key), current.get(key)
    if isinstance(recorded, list) and isinstance(current, list):
        for index in range(max(len(recorded), len(current))):
            yield f"[{index}]", _get_item(recorded, index), _get_item(current, index)


def _get_item(items: Sequence[Any], index: int) -> Any:
    return items[index] if index < len(items) else None


def _excerpt(recorded: Any, current: Any) -> tuple[str, str]:
    """Return both values as text, from shortly before their first difference."""
    old, new = (_format_value(value) for value in (recorded, current))
    first_difference = next(
        (index for index, (before, after) in enumerate(zip(old, new, strict=False)) if before != after), 0
    )
    start = max(0, first_difference - EXCERPT_LENGTH_BEFORE)
    first, second = (
        ("…" if start else "")
        + text[start : start + EXCERPT_LENGTH]
        + ("…" if len(text) > start + EXCERPT_LENGTH else "")
        for text in (old, new)
    )
    return first, second


def _format_value(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False, default=str)


TAPE_VERSION = 1
MAX_TAPE_BYTES = 1 << 30
TAPE_HINT = "name a file that weft run --record wrote"


class RecordedFailure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The error that ended an exchange, without the response headers: they may hold secrets."""

    message: str
    kind: FaultKind = "unknown"
    status: int | None = None
    retryable: bool = False
    wait_ms: int | None = None
    body: str = ""
    provider_id: str | None = None


class Exchange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A recorded request and its answer. `cut` is True if the caller stopped reading before the end.

    `places` and `ids` are the names of the recorded run, which a replay replaces by its own.
    """

    tape: int
    fingerprint: str
    model: Plain
    request: Plain
    places: dict[str, str] = {}
    ids: list[str] = []
    chunks: list[Plain] = []
    failure: RecordedFailure | None = None
    cut: bool = False


class Tape(Protocol):
    """A recording or a replay between weft and the models.

    `set_places` sets the directories of this run. `find_model` and `find_default` return recorded models. `wrap`
    returns the provider to use instead of the given one.
    """

    def set_places(self, places: PathsByName) -> None: ...
    def find_model(self, name: ModelRef) -> Model | None: ...
    def find_default(self) -> ModelRef | None: ...
    def wrap(self, provider: Provider | None) -> Provider: ...


class Recording:
    """Records a tape into a new or empty file."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._places: dict[str, str] = {}
        try:
            self._append(b"")
            size = os.stat(self._path).st_size
        except OSError as error:
            raise InvalidInputError(
                "recording",
                f"cannot write {path}: {error.strerror}",
                hint="name a new file in a directory that exists and that you may write to",
            ) from error
        if size:
            raise InvalidInputError(
                "recording", f"{path} is not empty", hint="remove it, or name another file"
            )

    def set_places(self, places: PathsByName) -> None:
        self._places = dict(places)

    def find_model(self, name: ModelRef) -> Model | None:  # noqa: ARG002  a recording has no models
        return None

    def find_default(self) -> ModelRef | None:
        return None

    def wrap(self, provider: Provider | None) -> Provider:
        assert provider is not None, "only a replay works without a provider"
        return _RecordingProvider(self, provider)

    def write(
        self, request: ModelRequest, chunks: list[AnyChunk], failure: RecordedFailure | None, *, cut: bool
    ) -> None:
        """Append an exchange to the file."""
        plain = to_comparable(request)
        replaced = anonymise(plain, _add_session(self._places, request))
        exchange = Exchange(
            tape=TAPE_VERSION,
            fingerprint=compute_fingerprint(replaced),
            model=redact_model(request.model),
            request=replaced,
            places=self._places,
            ids=list_ids(plain),
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


class _RecordingProvider:
    """Passes on the chunks of a provider and records them."""

    def __init__(self, tape: Recording, provider: Provider) -> None:
        self._tape = tape
        self._provider = provider

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        chunks_so_far: list[AnyChunk] = []
        try:
            async with aclosing(self._provider.stream(request)) as chunks:
                async for chunk in chunks:
                    chunks_so_far.append(chunk)
                    yield chunk
        except ProviderError as error:
            self._tape.write(request, chunks_so_far, to_failure(error), cut=False)
            raise
        except BaseException:
            # The caller cancelled or closed the stream. A failure to record must not hide that.
            with suppress(StoreError):
                self._tape.write(request, chunks_so_far, None, cut=not _is_complete(chunks_so_far))
            raise
        self._tape.write(request, chunks_so_far, None, cut=False)


class Replay:
    """Replays a tape. `left` are the exchanges that were not replayed yet, `missed` the errors for requests that are not
    on the tape.
    """

    def __init__(self, path: str) -> None:
        self._name = os.path.basename(path)
        self._places: dict[str, str] = {}
        self._exchanges = read_tape(path)
        self._models = [_read_model(exchange) for exchange in self._exchanges]
        self.left = list(self._exchanges)
        self.missed: list[str] = []

    def set_places(self, places: PathsByName) -> None:
        self._places = dict(places)

    def find_model(self, name: ModelRef) -> Model | None:
        """Return a model as it was recorded, so that prices do not change with the catalogue."""
        return next((model for model in self._models if to_ref(model) == name), None)

    def find_default(self) -> ModelRef | None:
        """Return the main model: the first that was given tools, or the first of all."""
        with_tools = [exchange for exchange in self._exchanges if exchange.request.get("tools")]
        first = (with_tools or self._exchanges)[:1]
        return to_ref(_read_model(first[0])) if first else None

    def wrap(self, provider: Provider | None) -> Provider:  # noqa: ARG002  the tape answers
        return self

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        try:
            exchange = self._take_exchange(request)
        except ProviderError as miss:
            self.missed.append(str(miss))
            raise
        names = self._map_names(exchange, request)
        for chunk in exchange.chunks:
            yield to_chunk(chunk, where=self._name, names=names)
        if exchange.failure is not None:
            raise to_error(exchange.failure)
        if exchange.cut:
            raise _make_miss_error(
                f"{self._name} holds only the beginning of this answer: the recorded run stopped reading it"
            )

    def _take_exchange(self, request: ModelRequest) -> Exchange:
        plain = to_comparable(request)
        if not self.left:
            raise _make_miss_error(
                f"the replay is over: {self._name} holds {len(self._exchanges)} exchanges, and this is one more"
            )
        pairs = []
        for index, exchange in enumerate(self.left):
            recorded, current = self._anonymise_both(plain, request, exchange)
            if recorded == current:
                return self.left.pop(index)
            pairs.append((recorded, current))
        raise self._make_mismatch_error(pairs)

    def _anonymise_both(self, plain: Plain, request: ModelRequest, exchange: Exchange) -> tuple[Plain, Plain]:
        """Return a recorded request and this one, both without the names of either run."""
        places = _add_session(self._places, request)
        recorded = anonymise(exchange.request, exchange.places, places)
        return recorded, anonymise(plain, exchange.places, places)

    def _make_mismatch_error(self, pairs: list[tuple[Plain, Plain]]) -> ProviderError:
        """Make an error that compares the request with the most similar exchange. Each pair is a recorded request and
        this one.
        """
        index, (recorded, current) = min(enumerate(pairs), key=lambda item: _count_differences(*item[1]))
        number = 1 + next(n for n, each in enumerate(self._exchanges) if each is self.left[index])
        difference = find_difference(recorded, current)
        assert difference is not None
        return _make_miss_error(
            f"the replay has no answer to this request; it differs from exchange {number} of {self._name}"
            f" at {difference.path}: recorded {difference.recorded}, asked {difference.current}"
        )

    def _map_names(self, exchange: Exchange, request: ModelRequest) -> Mapping[str, str]:
        # If a path has several names, the first one counts, as it does when requests are compared.
        common = [(name, path) for name, path in exchange.places.items() if name in self._places]
        places = {path: self._places[name] for name, path in reversed(common)}
        ids = zip(exchange.ids, list_ids(to_comparable(request)), strict=False)
        return places | dict(ids)


class TapedRegistry(Registry):
    """A registry with a tape between the models and the caller."""

    def __init__(self, models: Registry, tape: Tape) -> None:
        super().__init__()
        self._models = models
        self._tape = tape

    def add(self, served: ServedModel) -> None:
        self._models.add(served)

    def get(self, ref: ModelRef) -> ServedModel:
        recorded = self._tape.find_model(ref)
        if recorded is not None:
            return ServedModel(recorded, self._tape.wrap(None))
        served = self._models.get(ref)
        return replace(served, provider=self._tape.wrap(served.provider))

    def get_default(self) -> ModelRef:
        return self._tape.find_default() or self._models.get_default()

    def find_small(self, main: ModelRef) -> ModelRef | None:
        return self._models.find_small(main)

    def list_models(self) -> list[Model]:
        return self._models.list_models()

    async def aclose(self) -> None:
        await self._models.aclose()


def read_tape(path: str) -> list[Exchange]:
    """Read all exchanges of a tape. Raise `InvalidInputError` with the line if it is not a tape."""
    try:
        raw, _ = read_file(path, limit=MAX_TAPE_BYTES)
    except OSError as error:
        raise InvalidInputError("replay", f"cannot read {path}: {error.strerror}", hint=TAPE_HINT) from error
    lines = raw.split(b"\n")
    return [_read_line(line, f"{path}, line {n}") for n, line in enumerate(lines, start=1) if line.strip()]


def _read_line(line: bytes, where: str) -> Exchange:
    try:
        exchange = decode(line, Exchange, where=where)
        _read_model(exchange)
        for chunk in exchange.chunks:
            tag = chunk.get(CHUNK_TAG)
            if not isinstance(tag, str) or tag not in CHUNK_TYPES:
                raise DocumentError(where, f"unknown chunk {tag!r}")
            to_chunk(chunk, where=where, names={})
        fingerprint = compute_fingerprint(exchange.request)
    except DocumentError as error:
        raise InvalidInputError("replay", f"not a tape: {error}", hint=TAPE_HINT) from error
    except RecursionError:
        raise InvalidInputError("replay", f"{where}: nested too deeply") from None
    if exchange.tape != TAPE_VERSION:
        raise InvalidInputError(
            "replay", f"{where}: tape format {exchange.tape}, but this weft reads format {TAPE_VERSION}"
        )
    if exchange.fingerprint != fingerprint:
        raise InvalidInputError(
            "replay", f"{where}: the request was changed after it was recorded", hint="record it again"
        )
    return exchange


def to_failure(error: ProviderError) -> RecordedFailure:
    return RecordedFailure(
        message=str(error),
        kind=error.kind,
        status=error.status,
        retryable=error.retryable,
        wait_ms=error.wait_ms,
        body=error.body,
        provider_id=error.provider_id if isinstance(error, ProviderAuthError) else None,
    )


def to_error(failure: RecordedFailure) -> ProviderError:
    if failure.provider_id is not None:
        return ProviderAuthError(failure.provider_id, failure.message)
    error = ProviderError(
        failure.message, status=failure.status, retryable=failure.retryable, body=failure.body
    )
    error.kind, error.wait_ms = failure.kind, failure.wait_ms
    return error


def _make_miss_error(message: str) -> ProviderError:
    error = ProviderError(message)
    error.kind, error.hint = "protocol", "record the tape again if the change is intended"
    return error


def _read_model(exchange: Exchange) -> Model:
    return from_plain(exchange.model, Model, where="model")


def _is_complete(chunks: list[AnyChunk]) -> bool:
    return bool(chunks) and isinstance(chunks[-1], Finished)


def _add_session(places: PathsByName, request: ModelRequest) -> PathsByName:
    return {**places, "ses": request.session}


def _count_differences(recorded: Plain, current: Plain) -> int:
    return sum(recorded.get(key) != current.get(key) for key in recorded | current)
