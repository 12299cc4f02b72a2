"""Turn what a model's API says when it fails into one `ProviderError` of a known kind."""

import email.utils
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from weft.errors import FaultKind, ProviderError
from weft.host.now import now

# Typed codes, in lower case, wherever the API puts them (`code`, `type`, `status`, `__type`). First match wins, so
# the code that says more stands before the one that says less.
CODES: Final[dict[str, FaultKind]] = {
    "context_length_exceeded": "overflow",
    "context_window_exceeded": "overflow",
    "contextwindowexceedederror": "overflow",
    "model_context_window_exceeded": "overflow",
    "string_above_max_length": "overflow",
    "exceed_context_size_error": "overflow",
    "request_too_large": "overflow",
    "tokens_limit_reached": "overflow",
    "insufficient_quota": "quota",
    "billing_hard_limit_reached": "quota",
    "billing_not_active": "quota",
    "billing_error": "quota",
    "insufficient_balance": "quota",
    "exceeded_current_quota_error": "quota",
    "usage_limit_reached": "quota",
    "usage_not_included": "quota",
    "credits_exhausted": "quota",
    "content_filter": "content-filter",
    "content_policy_violation": "content-filter",
    "responsibleaipolicyviolation": "content-filter",
    "moderation_blocked": "content-filter",
    "data_inspection_failed": "content-filter",
    "sensitive_words_detected": "content-filter",
    "invalid_image": "media",
    "invalid_image_format": "media",
    "invalid_image_url": "media",
    "invalid_base64_image": "media",
    "image_too_large": "media",
    "image_parse_error": "media",
    "image_content_policy_violation": "media",
    "unsupported_image_media_type": "media",
    "empty_image_file": "media",
    "image_file_too_large": "media",
    "too_many_images": "media",
    "invalid_encrypted_content": "signature",
    "thinking_signature_invalid": "signature",
    "overloaded_error": "overload",
    "overloaded": "overload",
    "server_is_overloaded": "overload",
    "engine_overloaded": "overload",
    "engine_overloaded_error": "overload",
    "capacity_exceeded": "overload",
    "service_unavailable": "overload",
    "service_unavailable_error": "overload",
    "slow_down": "overload",
    "unavailable": "overload",
    "modelnotreadyexception": "overload",
    "serviceunavailableexception": "overload",
    "rate_limit_exceeded": "rate-limit",
    "rate_limit_error": "rate-limit",
    "rate_limit_reached_error": "rate-limit",
    "too_many_requests": "rate-limit",
    "throttlingexception": "rate-limit",
    "toomanyrequestsexception": "rate-limit",
    "resource_exhausted": "rate-limit",
    "requests": "rate-limit",
    "tokens": "rate-limit",
    "invalid_api_key": "auth",
    "invalid_authentication_error": "auth",
    "authentication_error": "auth",
    "authenticationerror": "auth",
    "permission_error": "auth",
    "permission_denied": "auth",
    "permissiondenied": "auth",
    "unauthenticated": "auth",
    "account_deactivated": "auth",
    "unsupported_country_region_territory": "auth",
    "accessdeniedexception": "auth",
    "unrecognizedclientexception": "auth",
    "expiredtokenexception": "auth",
    "invalidsignatureexception": "auth",
    "missingauthenticationtokenexception": "auth",
    "incompletesignatureexception": "auth",
    "servicequotaexceededexception": "quota",
    "model_not_found": "not-found",
    "not_found_error": "not-found",
    "notfounderror": "not-found",
    "not_found": "not-found",
    "resourcenotfoundexception": "not-found",
    "timeout_error": "timeout",
    "deadline_exceeded": "timeout",
    "modeltimeoutexception": "timeout",
    "server_error": "server",
    "api_error": "server",
    "internal_server_error": "server",
    "internalservererror": "server",
    "internal": "server",
    "internalserverexception": "server",
    "modelstreamerrorexception": "server",
    "modelerrorexception": "server",
}

# The status a typed code stands for, where the API tells of a failure inside an answer that began well.
STATUSES: Final[dict[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "too_many_requests": 429,
    "insufficient_quota": 429,
    "context_length_exceeded": 400,
    "api_error": 500,
    "server_error": 500,
    "internal_server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
    "validationexception": 400,
    "accessdeniedexception": 403,
    "resourcenotfoundexception": 404,
    "modeltimeoutexception": 408,
    "modelstreamerrorexception": 424,
    "throttlingexception": 429,
    "internalserverexception": 500,
    "serviceunavailableexception": 503,
}

_START: Final = (
    r"(?:^|[:.\n\"'] *)"  # of the message or of a sentence in it: a word in the middle proves nothing
)


def _texts(kind: FaultKind, *patterns: str) -> tuple[FaultKind, re.Pattern[str]]:
    return kind, re.compile(_START + "(?:" + "|".join(patterns) + ")", re.IGNORECASE)


TEXTS: Final = (
    _texts(
        "output-length",
        r"`?max_tokens`?(?: is too large)?: \d+ ?>? ?.*maximum allowed number of output tokens",
        r"`?max_(?:completion_|output_)?tokens`?(?: is)? too large",
        r"`?max_(?:completion_|output_)?tokens`? must be less than or equal to",
        r"Unable to submit request because it has a maxOutputTokens value",
    ),
    _texts(
        "overflow",
        r"prompt is too long",
        r"input is too long for requested model",
        r"input length and `max_tokens` exceed context limit",
        r"this model's maximum context length is",
        r"this endpoint's maximum context length is",
        r"this model's maximum prompt length is",
        r"prompt contains \d+ tokens .{0,60}too large for model",
        r"your input exceeds the context window",
        r"the input token count \(?\d+\)? exceeds the maximum",
        r"the input token count exceeds the maximum",
        r"the prompt contains \d+ tokens and exceeds",
        r"the (?:estimated number of )?(?:input and maximum output )?tokens? .*exceeds? (?:the )?(?:model )?context",
        r"too many tokens: ",
        r"(?:the )?(?:total |input )?(?:prompt|request|input) (?:\(\d+ tokens\) )?(?:length )?exceeds the"
        r" (?:available |model'?s? )?(?:maximum )?(?:context|input)",
        r"the request exceeds the available context size",
        r"(?:the number of )?(?:prompt |input )?tokens .{0,60}(?:exceed|larger than|greater than).{0,40}context",
        r"trying to keep the first \d+ tokens when context (?:the )?overflows",
        r"please reduce the length of the (?:messages|prompt|input)",
        r"prompt token count of \d+ exceeds the limit",
        r"invalid request: your request exceeded model token limit",
        r"range of input length should be",
        r"(?:the )?context (?:length|window|size) (?:is |has been )?exceeded",
        r"you passed \d+ input tokens and requested \d+ output tokens",
        r"prompt has [\d,]+ tokens, but the configured context size is",
        r"request (?:entity )?too large",
        r"request exceeds the maximum size",
    ),
    _texts(
        "signature",
        r"invalid `?signature`? in `?thinking`? block",
        r"`?thinking`? or `?redacted_thinking`? blocks in the latest assistant message cannot be modified",
        r"expected `?thinking`? or `?redacted_thinking`?, but found",
        r"the encrypted content .{0,80}could not be (?:verified|decrypted)",
        r"(?:function call|unable to submit request because function call) .{0,80}missing a `?thought_signature",
        r"corrupted thought signature",
    ),
    _texts(
        "media",
        r"(?:at least one of the )?image dimensions exceed",
        r"image exceeds \d+(?:\.\d+)? ?MB maximum",
        r"could not process image",
        r"(?:invalid|unsupported) (?:image|media type|pdf|document)",
        r"(?:the )?image data .{0,60}(?:not |un)(?:valid|supported|represent)",
        r"unable to process input image",
        r"you uploaded an unsupported image",
        r"the pdf specified (?:was not valid|is password protected)",
        r"too many images",
        r"at most \d+ (?:image|audio|video)\(s\) may be provided",
        r"no endpoints found that support image input",
        r".{0,60}does not support (?:image|audio|video|file|pdf)",
        r"image_url is only supported by certain models",
        r"a maximum of \d+ PDF pages",
    ),
    _texts(
        "quota",
        r"your credit balance is too low",
        r"insufficient (?:balance|credits|funds|quota)",
        r"this request requires more credits",
        r"payment required",
        r"you have (?:reached|exceeded) your (?:monthly|weekly|daily|specified).{0,30}(?:limit|usage|included|credits)",
    ),
    _texts(
        "content-filter",
        r"output blocked by content filtering policy",
        r"the response was filtered due to the prompt triggering",
        r"your (?:request|prompt) was (?:rejected|flagged|blocked)",
        r"invalid prompt: your prompt was flagged",
    ),
    _texts(
        "rate-limit",
        r"rate limit (?:reached|exceeded)",
        r"too many requests",
        r"number of request tokens has exceeded",
        r"this request would exceed (?:your|the) (?:account|organization|rate)",
    ),
    _texts(
        "overload",
        r"overloaded(?:$|[. ])",
        r"the model is overloaded",
        r"this model is currently overloaded",
        r"the engine is currently overloaded",
        r"(?:the )?server is (?:overloaded|busy)",
        r"model .{0,60}is currently (?:loading|over capacity)",
    ),
    _texts(
        "auth",
        r"(?:incorrect|invalid) api key",
        r"invalid x-api-key",
        r"api key not valid",
        r"no auth credentials found",
        r"unauthorized(?:$|[. ])",
    ),
    _texts(
        "not-found",
        r"model .{0,120}(?:not found|does not exist)",
        r"the model .{0,120}(?:does not exist|not found)",
    ),
)


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
