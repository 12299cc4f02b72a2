"""Turn error responses of model APIs into `ProviderError` with a known kind."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from weft.errors import FaultKind, ProviderError
from weft.host.now import now

# Error codes in lower case, from any of the fields `code`, `type`, `status` and `__type`. If several match, `classify` chooses.
KIND_BY_CODE: Final[dict[str, FaultKind]] = {
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

# The HTTP status that a code stands for, for APIs that report a failure inside an answer with status 200.
STATUS_BY_CODE: Final[dict[str, int]] = {
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

# The patterns match only at the start of a sentence: in the middle of one, the same words prove nothing.
_SENTENCE_START: Final = r"(?:^|[:.\n\"'] *)"


def _join_patterns(kind: FaultKind, *patterns: str) -> tuple[FaultKind, str]:
    """Return one pattern for a kind. `re` compiles it at the first failure: most runs have none."""
    return kind, _SENTENCE_START + "(?:" + "|".join(patterns) + ")"


KIND_BY_TEXT: Final = (
    _join_patterns(
        "output-length",
        r"`?max_tokens`?(?: is too large)?: \d+ ?>? ?.*maximum allowed number of output tokens",
        r"`?max_(?:completion_|output_)?tokens`?(?: is)? too large",
        r"`?max_(?:completion_|output_)?tokens`? must be less than or equal to",
        r"Unable to submit request because it has a maxOutputTokens value",
    ),
    _join_patterns(
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
    _join_patterns(
        "signature",
        r"invalid `?signature`? in `?thinking`? block",
        r"`?thinking`? or `?redacted_thinking`? blocks in the latest assistant message cannot be modified",
        r"expected `?thinking`? or `?redacted_thinking`?, but found",
        r"the encrypted content .{0,80}could not be (?:verified|decrypted)",
        r"(?:function call|unable to submit request because function call) .{0,80}missing a `?thought_signature",
        r"corrupted thought signature",
    ),
    _join_patterns(
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
    _join_patterns(
        "quota",
        r"your credit balance is too low",
        r"insufficient (?:balance|credits|funds|quota)",
        r"this request requires more credits",
        r"payment required",
        r"you have (?:reached|exceeded) your (?:monthly|weekly|daily|specified).{0,30}(?:limit|usage|included|credits)",
    ),
    _join_patterns(
        "content-filter",
        r"output blocked by content filtering policy",
        r"the response was filtered due to the prompt triggering",
        r"your (?:request|prompt) was (?:rejected|flagged|blocked)",
        r"invalid prompt: your prompt was flagged",
    ),
    _join_patterns(
        "rate-limit",
        r"rate limit (?:reached|exceeded)",
        r"too many requests",
        r"number of request tokens has exceeded",
        r"this request would exceed (?:your|the) (?:account|organization|rate)",
    ),
    _join_patterns(
        "overload",
        r"overloaded(?:$|[. ])",
        r"the model is overloaded",
        r"this model is currently overloaded",
        r"the engine is currently overloaded",
        r"(?:the )?server is (?:overloaded|busy)",
        r"model .{0,60}is currently (?:loading|over capacity)",
    ),
    _join_patterns(
        "auth",
        r"(?:incorrect|invalid) api key",
        r"invalid x-api-key",
        r"api key not valid",
        r"no auth credentials found",
        r"unauthorized(?:$|[. ])",
    ),
    _join_patterns(
        "not-found",
        r"model .{0,120}(?:not found|does not exist)",
        r"the model .{0,120}(?:does not exist|not found)",
    ),
)


MAX_BODY_LENGTH: Final = 16 * 1024
MAX_MESSAGE_LENGTH: Final = 2000
MAX_RETRY_AFTER: Final = 10**9  # a larger number is a mistake of the server
RETRYABLE_KINDS: Final[frozenset[FaultKind]] = frozenset(
    {"rate-limit", "overload", "server", "network", "timeout"}
)

_KIND_BY_STATUS: Final[dict[int, FaultKind]] = {
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
# The text does not override these statuses: a rate limit that mentions tokens is not an overflow.
FINAL_STATUSES: Final = frozenset({401, 402, 429, 529})
SPECIFIC_KINDS: Final[frozenset[FaultKind]] = frozenset(
    {"overflow", "output-length", "media", "signature", "content-filter", "quota"}
)
STATUS_DIGITS: Final = 3
# Hundreds digits of HTTP statuses.
CLIENT_ERROR_CLASS: Final = 4
SERVER_ERROR_CLASS: Final = 5


def make_error(
    kind: FaultKind,
    message: str,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    body: str = "",
) -> ProviderError:
    """Make a `ProviderError` of this kind. The kind decides whether it is worth a retry."""
    error = ProviderError(
        message, status=status, retryable=kind in RETRYABLE_KINDS, headers=headers, body=body
    )
    error.kind = kind
    error.wait_ms = parse_wait(error.headers, now)
    return error


def make_incomplete_error(message: str) -> ProviderError:
    """Make an error for an incomplete answer. It is worth a retry."""
    error = make_error("protocol", message)
    error.retryable = True
    error.may_be_charged = True
    return error


def make_broken_connection_error(message: str) -> ProviderError:
    """Make an error for a connection that broke off after the request was sent, or while it was."""
    error = make_error("network", message)
    error.may_be_charged = True
    return error


def make_silence_error(message: str) -> ProviderError:
    """Make an error for an answer that did not come, or did not go on. The hint names the settings that allow it more time."""
    error = make_error("timeout", message)
    error.hint = "experimental.weft.deadlines, or options.timeout of the provider, says how long to wait"
    error.may_be_charged = True
    return error


def make_unreadable_error(message: str, *, body: str = "") -> ProviderError:
    """Make an error for an answer that cannot be understood. The model gave it, so it may be charged."""
    error = make_error("protocol", message, body=body)
    error.may_be_charged = True
    return error


def make_nameless_call_error() -> ProviderError:
    return make_unreadable_error("the model called a tool without a name")


def parse_error(status: int | None, headers: Mapping[str, str], body: bytes | str) -> ProviderError:
    """Turn an error response into a `ProviderError`.

    If the error came inside an answer (`status` is None or means success), the status is taken from the body or from
    the error code.
    """
    text = body.decode(errors="replace") if isinstance(body, bytes) else body
    document = _parse_body(text)
    headers = {name.lower(): value for name, value in headers.items()}
    codes, message = [*_find_codes(document), *_find_header_codes(headers)], _find_message(document)
    if status is None or not _is_failure(status):
        status = _find_status(document, codes)
    # The patterns take quadratic time on a text that is made for it.
    classified = message[:MAX_BODY_LENGTH] if document is not None else text[:MAX_MESSAGE_LENGTH]
    kind = classify(status, codes, classified)
    error = make_error(
        kind,
        _format_message(status, message, text),
        status=status,
        headers=headers,
        body=text[:MAX_BODY_LENGTH],
    )
    if error.wait_ms is None:
        error.wait_ms = _find_wait(document)
    if error.headers.get("x-should-retry") == "false":
        error.retryable = False
    return error


def classify(status: int | None, codes: list[str], message: str) -> FaultKind:
    """Return the kind of a failure. A specific code decides, then a specific text, then any code, then any text, then the status.

    With a status in `FINAL_STATUSES` no text counts except one about the quota.
    """
    kinds = [KIND_BY_CODE[code] for code in codes if code in KIND_BY_CODE]
    by_text = next(
        (kind for kind, pattern in KIND_BY_TEXT if re.search(pattern, message, re.IGNORECASE)), None
    )
    specific = next((kind for kind in kinds if kind in SPECIFIC_KINDS), None)
    if specific is not None:
        return specific
    if by_text in SPECIFIC_KINDS and (status not in FINAL_STATUSES or by_text == "quota"):
        return by_text
    if status is not None:
        # A code for "server error" says no more than the status. If the status blames the request, a retry cannot
        # help, so a code for "timeout" does not count either.
        vague = {"server", "timeout"} if _is_client_fault(status) else {"server"}
        kinds = [kind for kind in kinds if kind not in vague]
    if kinds:
        return kinds[0]
    return by_text if by_text is not None and status not in FINAL_STATUSES else _classify_status(status)


def _is_client_fault(status: int) -> bool:
    return status // 100 == CLIENT_ERROR_CLASS and _KIND_BY_STATUS.get(status) not in RETRYABLE_KINDS


def _is_failure(status: int) -> bool:
    return status // 100 in (CLIENT_ERROR_CLASS, SERVER_ERROR_CLASS)


def _classify_status(status: int | None) -> FaultKind:
    if status is None:
        return "server"  # reported inside an answer that had begun, so the request was accepted
    if status in _KIND_BY_STATUS:
        return _KIND_BY_STATUS[status]
    if status // 100 == SERVER_ERROR_CLASS:
        return "server"
    return "bad-request" if status // 100 == CLIENT_ERROR_CLASS else "protocol"


def parse_wait(headers: Mapping[str, str], now: Callable[[], int]) -> int | None:
    """Return how many ms the response headers (in lower case) ask us to wait, or None if they do not say.

    A date in `retry-after` counts from the response's own `date` header, so that a wrong local clock does not
    matter. Without that header it counts from our clock.
    """
    for name, scale in (("retry-after-ms", 1), ("retry-after", 1000)):
        try:
            value = float(headers.get(name, ""))
        except ValueError:
            continue
        if 0 <= value < MAX_RETRY_AFTER:
            return math.ceil(value * scale)
    try:
        until = _parse_date(headers.get("retry-after", ""))
        since = _parse_date(headers["date"]) if "date" in headers else now()
        return max(0, until - since)
    except (ValueError, TypeError, OverflowError):
        return None


def _parse_date(date: str) -> int:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415  slow to import, and few servers name a date

    return round(parsedate_to_datetime(date).timestamp() * 1000)


# --- parsing the body ---


def _parse_body(text: str) -> Any:
    """Return the JSON of the body, or None. Google sends a list: return its first entry."""
    stripped = text.strip()
    for line in (stripped, stripped.removeprefix("data:").strip()):
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            continue
        return document[0] if isinstance(document, list) and document else document
    return None


def _iterate_layers(document: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects that may describe the failure, the most specific first."""
    if not isinstance(document, dict):
        return
    inner = document.get("error")
    if isinstance(inner, dict):
        metadata = inner.get("metadata")
        # A router quotes the error of the upstream server as text.
        if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
            yield from _iterate_layers(_parse_body(metadata["raw"]))
        if isinstance(inner.get("innererror"), dict):
            yield inner["innererror"]
        yield inner
    response = document.get("response")
    if isinstance(response, dict):
        yield from _iterate_layers(response)
    yield document


def _find_codes(document: Any) -> list[str]:
    names = ("code", "type", "status", "__type")
    values = [layer.get(name) for layer in _iterate_layers(document) for name in names]
    return [code.lower().rsplit("#")[-1] for code in values if isinstance(code, str)]


def _find_header_codes(headers: Mapping[str, str]) -> list[str]:
    """Return the error code in Amazon's header, such as `ThrottlingException:http://…`."""
    code = headers.get("x-amzn-errortype", "").partition(":")[0]
    return [code.lower().rsplit("#")[-1]] if code else []


def _find_message(document: Any) -> str:
    if isinstance(document, str):
        return document
    for layer in _iterate_layers(document):
        for name in ("message", "error", "detail", "msg", "Message", "error_description", "title"):
            text = layer.get(name)
            if isinstance(text, list) and text and isinstance(text[0], dict):
                text = text[0].get("msg") or text[0].get("message")
            if isinstance(text, str) and text.strip():
                return text.strip()
    return ""


def _find_status(document: Any, codes: list[str]) -> int | None:
    for layer in _iterate_layers(document):
        for name in ("code", "status", "status_code"):
            status = layer.get(name)
            if isinstance(status, str) and len(status) == STATUS_DIGITS and status.isdecimal():
                status = int(status)
            if isinstance(status, int) and _is_failure(status):
                return status
    return next((STATUS_BY_CODE[code] for code in codes if code in STATUS_BY_CODE), None)


def _find_wait(document: Any) -> int | None:
    """Return the wait in ms that Google puts into the body: `{"@type": "…RetryInfo", "retryDelay": "12.5s"}`."""
    for layer in _iterate_layers(document):
        details = layer.get("details")
        for detail in details if isinstance(details, list) else ():
            delay = detail.get("retryDelay") if isinstance(detail, dict) else None
            if isinstance(delay, str) and re.fullmatch(r"\d{1,7}(\.\d+)?s", delay):
                return round(float(delay[:-1]) * 1000)
    return None


def _format_message(status: int | None, message: str, text: str) -> str:
    if message:
        return message[:MAX_MESSAGE_LENGTH]
    text = text.strip()
    prefix = f"the server answered {status}" if status else "the server reported a failure"
    if not text:
        return prefix
    if text.startswith("<"):
        return f"{prefix} with a web page"
    return f"{prefix}: {text[:MAX_MESSAGE_LENGTH]}"
