"""The address and credentials of a model API, and the HTTP request that is sent to it."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from weft.provider.contract import Parameters


class StreamDeadlines(Struct, frozen=True, kw_only=True):
    """Timeouts in seconds: to connect, until the first byte of the answer, and between two pieces of it.

    A model that thinks for minutes does not exceed them: its thoughts are streamed, or its server sends
    keep-alives.
    """

    connect: float = 30
    first_byte: float = 60
    between: float = 120


# A model on this machine may read a long prompt for minutes before it answers.
LOCAL_DEADLINES: Final = StreamDeadlines(first_byte=300)


class AwsKeys(Struct, frozen=True, kw_only=True):
    """Keys that sign requests to AWS. `token` is set only for temporary keys. `repr` shows none of them."""

    id: str
    secret: str
    token: str = ""

    def __repr__(self) -> str:
        return "AwsKeys()"


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request ready to be sent. Header names are in lower case. `key_hint` says where the API key came from, for the
    error if the key is refused.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes
    deadlines: StreamDeadlines
    key_hint: str = ""
    provider_id: str = ""

    def __repr__(self) -> str:
        return f"HttpRequest({self.url!r})"


class ModelEndpoint(Struct, frozen=True, kw_only=True):
    """The address of an API and the credentials for it. The key is optional: a local server may need none.

    `options` are the provider's settings, for APIs that need more. `query` is appended to every path. `aws` returns
    the current AWS keys. `key_hint` says where the key came from, for the error if the key is refused.
    """

    base_url: str
    api_key: str = ""
    key_hint: str = ""
    headers: Mapping[str, str] = {}
    provider_id: str = ""
    deadlines: StreamDeadlines = StreamDeadlines()
    options: Mapping[str, Any] = {}
    query: str = ""
    aws: Callable[[], AwsKeys] | None = None

    def __repr__(self) -> str:
        return f"ModelEndpoint({self.base_url!r})"  # without key and headers: this may be logged

    def build_request(
        self, path: str, body: bytes, parameters: Parameters, api_headers: Mapping[str, str] | None = None
    ) -> HttpRequest:
        """Build the request for a path of the API. Configured headers override `api_headers`; those in `parameters`
        override both.
        """
        headers = {**(api_headers or {}), **lower_names(self.headers), **lower_names(parameters.headers)}
        url = self.base_url.rstrip("/") + path + (f"?{self.query}" if self.query else "")
        return HttpRequest(
            url=url,
            headers=headers,
            body=body,
            deadlines=self.deadlines,
            key_hint=self.key_hint,
            provider_id=self.provider_id,
        )

    @property
    def bearer(self) -> dict[str, str]:
        """Return the key as a bearer token header, as most APIs want it. Return no header without a key."""
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}


def lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
