"""Record what models answer, and play it back without a key and without a network.

A tape is a file of JSON lines, one object for each exchange with a model: the request in comparable form and its
fingerprint, then the chunks of the answer, then the failure if it failed. Lines are written when an answer ends, so a
crash loses only what was under way. The file holds what was said: it is for its owner alone (0600).

A replay answers a request with the first exchange not yet played that has the same request; for several at a time (a
title is asked for beside the work) their order does not matter. The directory, weft's own ids, the date and the
platform may be others than when it was recorded: `tape_form` says how they are compared. Tools are carried out for
real; if one says something else than it did then, the next request is a miss, and the miss shows where.
"""

import operator
import os
import stat
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Protocol

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
from weft.model.part import ModelRef
from weft.model.wire import decode, encode, from_plain
from weft.provider import tape_form as form
from weft.provider.chunk import AnyChunk, Finished
from weft.provider.contract import ModelRequest, Provider
from weft.provider.registry import Registry, Served

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
    model: form.Plain
    request: form.Plain
    places: dict[str, str] = {}
    ids: list[str] = []
    chunks: list[form.Plain] = []
    failure: Failure | None = None
    cut: bool = False


class Tape(Protocol):
    """What stands between weft and the models: a recording or a replay. `at` says where it is used."""

    def at(self, places: form.Places) -> None: ...
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

    def at(self, places: form.Places) -> None:
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
        plain = form.comparable(request)
        named = form.anonymous(plain, _with_session(self._places, request))
        exchange = Exchange(
            tape=VERSION,
            fingerprint=form.fingerprint(named),
            model=form.without_secrets(request.model),
            request=named,
            places=self._places,
            ids=form.ids_in(plain),
            chunks=[form.from_chunk(chunk) for chunk in chunks],
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

    def at(self, places: form.Places) -> None:
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
            yield form.to_chunk(chunk, where=self._name, names=names)
        if exchange.failure is not None:
            raise to_error(exchange.failure)
        if exchange.cut:
            raise _miss(f"{self._name} was recorded only so far: nobody listened to the end of this answer")

    def _take(self, request: ModelRequest) -> Exchange:
        plain = form.comparable(request)
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

    def _both(
        self, plain: form.Plain, request: ModelRequest, exchange: Exchange
    ) -> tuple[form.Plain, form.Plain]:
        """A recorded request and this one, both without the names of either run."""
        places = _with_session(self._places, request)
        recorded = form.anonymous(exchange.request, exchange.places, places)
        return recorded, form.anonymous(plain, exchange.places, places)

    def _mismatch(self, asked: list[tuple[form.Plain, form.Plain]]) -> ProviderError:
        """Told against the exchange that is most like it, the earliest of several."""
        place, (recorded, wanted) = min(enumerate(asked), key=lambda item: _unlike(*item[1]))
        number = 1 + next(n for n, each in enumerate(self._exchanges) if each is self.left[place])
        found = form.first_difference(recorded, wanted)
        assert found is not None
        return _miss(
            f"the replay has no answer to this request; it differs from exchange {number} of {self._name}"
            f" at {found.path}: recorded {found.recorded}, asked {found.asked}"
        )

    def _names(self, exchange: Exchange, request: ModelRequest) -> Mapping[str, str]:
        # The first of several names for one place is the one that counts, as it does when requests are compared.
        known = [(name, path) for name, path in exchange.places.items() if name in self._places]
        places = {path: self._places[name] for name, path in reversed(known)}
        ids = zip(exchange.ids, form.ids_in(form.comparable(request)), strict=False)
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
            if chunk.get(form.TAG) not in form.CHUNKS:
                raise DocumentError(where, f"there is no chunk {chunk.get(form.TAG)!r}")
            form.to_chunk(chunk, where=where, names={})
    except DocumentError as error:
        raise InvalidInputError("replay", f"not a tape: {error}") from error
    if exchange.tape != VERSION:
        raise InvalidInputError("replay", f"{where}: tape format {exchange.tape}, this weft knows {VERSION}")
    if exchange.fingerprint != form.fingerprint(exchange.request):
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


def _with_session(places: form.Places, request: ModelRequest) -> form.Places:
    return {**places, "ses": request.session}


def _unlike(recorded: form.Plain, asked: form.Plain) -> int:
    return sum(recorded.get(key) != asked.get(key) for key in recorded | asked)
