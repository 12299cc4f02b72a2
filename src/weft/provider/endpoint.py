"""Where a model's API is and how to get in, and the question that is sent there."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from weft.provider.contract import Parameters


class Deadlines(Struct, frozen=True, kw_only=True):
    """How long to wait, in seconds: for a connection, for the answer to begin, for it to go on.

    A model that thinks for minutes is streamed all the while, or its server sends signs of life.
    """

    connect: float = 30
    first_byte: float = 60
    between: float = 120


class AwsKeys(Struct, frozen=True, kw_only=True):
    """What requests to Amazon are signed with; `token` only where the keys are lent. Showing them shows nothing."""

    id: str
    secret: str
    token: str = ""

    def __repr__(self) -> str:
        return "AwsKeys()"


class Question(Struct, frozen=True, kw_only=True):
    """A request ready to be sent. The names of its headers are in lower case. `key_from` says where its key comes from, for
    whoever is told that it was refused."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    deadlines: Deadlines
    key_from: str = ""
    provider_id: str = ""

    def __repr__(self) -> str:
        return f"Question({self.url!r})"


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where an API is, and how to get in. Without a key none is sent: a server of one's own may not want one.

    `options` are the provider's own, for APIs that need to be told more; `query` goes behind every path of an API that
    wants one; `aws` finds the keys that hold now; `key_from` says in words where the key comes from.
    """

    base_url: str
    api_key: str = ""
    key_from: str = ""
    headers: Mapping[str, str] = {}
    provider_id: str = ""
    deadlines: Deadlines = Deadlines()
    options: Mapping[str, Any] = {}
    query: str = ""
    aws: Callable[[], AwsKeys] | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r})"  # neither key nor headers, wherever this may be printed

    def ask(
        self, path: str, body: bytes, asked: Parameters, own: Mapping[str, str] | None = None
    ) -> Question:
        """The question for a path of the API. A person's headers come over our `own`, the request's over both."""
        given = {**(own or {}), **lower(self.headers), **lower(asked.headers)}
        url = self.base_url.rstrip("/") + path + (f"?{self.query}" if self.query else "")
        return Question(
            url=url,
            headers=given,
            body=body,
            deadlines=self.deadlines,
            key_from=self.key_from,
            provider_id=self.provider_id,
        )

    @property
    def bearer(self) -> dict[str, str]:
        """The key as most APIs want it."""
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}


def lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
