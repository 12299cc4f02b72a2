"""What a model's API says when it fails, as one `ProviderError` of a kind: status and typed code first, text last."""

import email.utils
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from weft.errors import FaultKind, ProviderError
from weft.host.now import now
from weft.provider.fault_table import CODES, STATUSES, TEXTS

MAX_BODY: Final = 16 * 1024
MAX_MESSAGE: Final = 2000
RETRYABLE: Final[frozenset[FaultKind]] = frozenset({"rate-limit", "overload", "server", "network", "timeout"})

_BY_STATUS: Final[dict[int, FaultKind]] = {
    401: "auth",
    402: "quota",
    403: "auth",
    404: "not-found",
    407: "auth",
    408: "timeout",
    409: "server",
    413: "overflow",
    424: "server",
    425: "server",
    429: "rate-limit",
    503: "overload",
    504: "timeout",
    524: "timeout",
    529: "overload",
}
# A text may not overrule these: a rate limit is not an overflow because it speaks of tokens.
FIRM: Final = frozenset({401, 402, 429, 529})
EXACT: Final[frozenset[FaultKind]] = frozenset(
    {"overflow", "output-length", "media", "signature", "content-filter", "quota"}
)
CLIENT: Final = 4  # the hundreds of statuses that say the request was wrong
SERVER: Final = 5


def fault(
    kind: FaultKind,
    message: str,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    body: str = "",
) -> ProviderError:
    """A failure of this kind; whether it is worth another try follows from the kind."""
    error = ProviderError(message, status=status, retryable=kind in RETRYABLE, headers=headers, body=body)
    error.kind = kind
    error.wait_ms = wait_of(error.headers, now)
    return error


def broken(message: str) -> ProviderError:
    """The answer is not whole: asking again may help."""
    error = fault("protocol", message)
    error.retryable = True
    return error


def nameless() -> ProviderError:
    return fault("protocol", "the model called a tool without a name")


def to_error(status: int | None, headers: Mapping[str, str], body: bytes | str) -> ProviderError:
    """The failure that an answer tells of. Told inside an answer that began well (no status, or one of success),
    the status is the one its code stands for."""
    said = body.decode(errors="replace") if isinstance(body, bytes) else body
    document = _document(said)
    named = {name.lower(): value for name, value in headers.items()}
    codes, message = [*_codes(document), *_codes_in(named)], _message(document)
    if status is None or not _failed(status):
        status = _told_status(document, codes)
    kind = classify(status, codes, message if document is not None else said[:MAX_MESSAGE])
    error = fault(
        kind,
        _sentence(status, message, said, html=document is None),
        status=status,
        headers=named,
        body=said[:MAX_BODY],
    )
    if error.wait_ms is None:
        error.wait_ms = _told_wait(document)
    if error.headers.get("x-should-retry") == "false":
        error.retryable = False
    return error


def classify(status: int | None, codes: list[str], message: str) -> FaultKind:
    """What kind of failure this is: by a code that says exactly, by such a text, by any code, by the status."""
    coded = [CODES[code] for code in codes if code in CODES]
    told = next((kind for kind, pattern in TEXTS if pattern.search(message)), None)
    exact = next((kind for kind in coded if kind in EXACT), None)
    if exact is not None:
        return exact
    if told in EXACT and (status not in FIRM or told == "quota"):
        return told
    if status is not None:
        # The status says as much as a code for some fault of the server; and a request that is refused as wrong
        # stays wrong, whatever the code.
        vague = {"server", "timeout"} if _is_ours(status) else {"server"}
        coded = [kind for kind in coded if kind not in vague]
    if coded:
        return coded[0]
    return told if told is not None and status not in FIRM else _kind_of_status(status)


def _is_ours(status: int) -> bool:
    return status // 100 == CLIENT and _BY_STATUS.get(status) not in RETRYABLE


def _failed(status: int) -> bool:
    return status // 100 in (CLIENT, SERVER)


def _kind_of_status(status: int | None) -> FaultKind:
    if status is None:
        return "server"  # told inside an answer that had begun: the question was not the fault
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status // 100 == SERVER:
        return "server"
    return "bad-request" if status // 100 == CLIENT else "protocol"


def wait_of(headers: Mapping[str, str], now: Callable[[], int]) -> int | None:
    """How long the headers (lower case) ask us to wait, in ms.

    A date counts from the answer's own `date`, whatever our clock says; where there is none, from our clock.
    """
    for name, scale in (("retry-after-ms", 1), ("retry-after", 1000)):
        try:
            asked = float(headers.get(name, ""))
        except ValueError:
            continue
        if 0 <= asked < 10**9:
            return -int(-asked * scale // 1)
    try:
        until = _moment(headers.get("retry-after", ""))
        since = _moment(headers["date"]) if "date" in headers else now()
        return max(0, until - since)
    except (ValueError, TypeError, OverflowError):
        return None


def _moment(date: str) -> int:
    return round(email.utils.parsedate_to_datetime(date).timestamp() * 1000)


# --- what the body says ---


def _document(said: str) -> Any:
    """The JSON of the body, or None; of a list its first, as Google sends."""
    text = said.strip()
    for line in (text, text.removeprefix("data:").strip()):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        return found[0] if isinstance(found, list) and found else found
    return None


def _layers(document: Any) -> Iterator[dict[str, Any]]:
    """The objects that may tell of the failure, the one that says most first."""
    if not isinstance(document, dict):
        return
    inner = document.get("error")
    if isinstance(inner, dict):
        metadata = inner.get("metadata")
        # A router quotes the failure of the server behind it, as text.
        if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
            yield from _layers(_document(metadata["raw"]))
        if isinstance(inner.get("innererror"), dict):
            yield inner["innererror"]
        yield inner
    response = document.get("response")
    if isinstance(response, dict):
        yield from _layers(response)
    yield document


def _codes(document: Any) -> list[str]:
    names = ("code", "type", "status", "__type")
    found = [layer.get(name) for layer in _layers(document) for name in names]
    return [code.lower().rsplit("#")[-1] for code in found if isinstance(code, str)]


def _codes_in(headers: Mapping[str, str]) -> list[str]:
    """Amazon names the failure beside the body: `ThrottlingException:http://…`."""
    named = headers.get("x-amzn-errortype", "").partition(":")[0]
    return [named.lower().rsplit("#")[-1]] if named else []


def _message(document: Any) -> str:
    if isinstance(document, str):
        return document
    for layer in _layers(document):
        for name in ("message", "error", "detail", "msg", "Message", "error_description", "title"):
            said = layer.get(name)
            if isinstance(said, list) and said and isinstance(said[0], dict):
                said = said[0].get("msg") or said[0].get("message")
            if isinstance(said, str) and said.strip():
                return said.strip()
    return ""


def _told_status(document: Any, codes: list[str]) -> int | None:
    for layer in _layers(document):
        for name in ("code", "status", "status_code"):
            told = layer.get(name)
            if isinstance(told, str) and told.isdecimal():
                told = int(told)
            if isinstance(told, int) and _failed(told):
                return told
    return next((STATUSES[code] for code in codes if code in STATUSES), None)


def _told_wait(document: Any) -> int | None:
    """Google says in the body how long to wait: `{"@type": "…RetryInfo", "retryDelay": "12.5s"}`."""
    for layer in _layers(document):
        details = layer.get("details")
        for detail in details if isinstance(details, list) else ():
            delay = detail.get("retryDelay") if isinstance(detail, dict) else None
            if isinstance(delay, str) and re.fullmatch(r"\d{1,7}(\.\d+)?s", delay):
                return round(float(delay[:-1]) * 1000)
    return None


def _sentence(status: int | None, message: str, said: str, *, html: bool) -> str:
    if message:
        return message[:MAX_MESSAGE]
    text = said.strip()
    prefix = f"the server answered {status}" if status else "the server told of a failure"
    if not text:
        return prefix
    if html and text.startswith("<"):
        return f"{prefix} with a web page"
    return f"{prefix}: {text[:MAX_MESSAGE]}"
