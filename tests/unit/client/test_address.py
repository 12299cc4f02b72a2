"""Server addresses and their passwords; and errors of either kind of server."""

from pathlib import Path

import pytest

from weft.client.address import Address, resolve_address
from weft.client.http import ConnectionOptions, ServerConnection, to_error
from weft.errors import (
    ConfigError,
    InvalidInputError,
    NotFoundError,
    NotPermittedError,
    ServerError,
    SessionBusyError,
)
from weft.server.response import make_error_response


def make_home(home: Path, *, mode: int = 0o600) -> dict[str, str]:
    file = home / ".local" / "state" / "opencode" / "weft" / "server-password"
    file.parent.mkdir(parents=True)
    file.write_text("kept\n")
    file.chmod(mode)
    return {"HOME": str(home)}


def test_an_address_is_shown_without_its_password() -> None:
    found = resolve_address("http://ada:se%40cret@example.test:80/base/", {})
    assert found == Address(url="http://example.test:80/base", username="ada", password="se@cret")
    with pytest.raises(InvalidInputError) as refused:
        resolve_address("ftp://ada:secret@example.test", {})
    assert "secret" not in str(refused.value)


async def test_certificates_are_read_for_https_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    plain = ServerConnection(Address(url="http://example.test:4096"), ConnectionOptions())
    await plain.close()
    with pytest.raises(FileNotFoundError):
        ServerConnection(Address(url="https://example.test"), ConnectionOptions())


def test_the_local_password_is_not_sent_to_another_machine(tmp_path: Path) -> None:
    env = make_home(tmp_path)
    assert resolve_address("127.0.0.1:4096", env).password == "kept"
    assert resolve_address("http://[::1]:4096", env).url == "http://[::1]:4096"
    assert resolve_address("http://example.test:4096", env).password is None
    assert resolve_address("http://localhost", env | {"OPENCODE_SERVER_PASSWORD": "said"}).password == "said"


def test_a_password_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        resolve_address("127.0.0.1", make_home(tmp_path, mode=0o644))


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError("agent", "nobody", near=("build",), hint="or name none"),
        InvalidInputError("limit", "it is negative"),
        SessionBusyError("ses_1", "somebody"),
    ],
)
def test_an_error_survives_its_encoding(error: Exception) -> None:
    refusal = make_error_response(error)
    made = to_error(refusal.status, refusal.body(), "/session")
    assert (type(made), str(made), vars(made)) == (type(error), str(error), vars(error))


def test_errors_of_opencode_are_understood() -> None:
    def error_of(status: int, body: bytes) -> object:
        return to_error(status, body, "/session/ses_1/message/msg_2")

    missing = error_of(404, b'{"name":"NotFoundError","data":{"message":"Resource not found: /x"}}')
    assert isinstance(missing, NotFoundError)
    assert (missing.kind, missing.id) == ("message", "msg_2")
    busy = b'{"name":"UnknownError","data":{"message":"Error: Session ses_1 is busy\\n    at x.ts"}}'
    assert isinstance(error_of(500, busy), SessionBusyError)
    wrong = error_of(400, b'{"data":{},"error":[{"path":["parts"],"message":"Required"}],"success":false}')
    assert str(wrong) == "request: parts: Required"
    for path in (b"null", b"7", b'"parts"'):
        assert isinstance(error_of(400, b'{"error":[{"path":%b}]}' % path), InvalidInputError)
    assert isinstance(error_of(401, b"Unauthorized"), NotPermittedError)
    assert isinstance(error_of(500, b"<html>"), ServerError)
