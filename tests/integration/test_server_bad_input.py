"""Invalid input: the server refuses it with the right status and a typed body, and continues to work."""

import json
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import httpx2
import pytest

from given.http_server import JSON, ProjectServer, prompt, serve_project
from weft.provider.scripted import Wait

MISSING = "ses_000000000000000000000000zz"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProjectServer]:
    with serve_project(tmp_path) as server:
        yield server
        assert server.get("/global/health")["healthy"] is True
        assert server.notes == []


@pytest.fixture
def session(server: ProjectServer) -> str:
    id: str = server.post("/session", {})["id"]
    return id


def test_invalid_bodies_are_refused(server: ProjectServer, session: str) -> None:
    at = f"/session/{session}/message"
    for raw in (
        b"{",
        b"nonsense",
        b'{"parts": 3}',
        b'{"parts": [{"type": "text"}]}',
        b'{"parts": [{"type": "unknown"}]}',
        b"[]",
        b"null",
        b'"x"',
        b'{"parts": [], "model": "a/b"}',
        b"\xff\xfe",
        b'{"parts": [], "agent": 1e400}',
        b"[" * 100_000,
        b'{"parts":' + b'[{"a":' * 200 + b"1" + b"}]" * 200 + b"}",
        b"",
    ):
        status, name = server.get_refusal(server.client.post(at, content=raw, headers=JSON))
        assert (raw[:40], status) == (raw[:40], 400), name
    form = server.client.post(at, data={"parts": "x"})
    assert server.get_refusal(form)[0] == 400
    bare = server.client.post(at, content=b"{}")
    assert server.get_refusal(bare)[0] == 400
    assert server.get(at) == []


def test_large_requests_are_refused(server: ProjectServer, session: str) -> None:
    at = f"/session/{session}/message"
    parts = [{"type": "text", "text": "x"}] * 10_000
    assert server.get_refusal(server.client.post(at, json={"parts": parts})) == (400, "InvalidInputError")
    declared = server.client.post(at, content=b"x" * (33 << 20), headers=JSON)
    assert server.get_refusal(declared) == (413, "TooLargeError")
    submitted = server.client.post(f"/weft/session/{session}/submit", json={"parts": parts})
    assert server.get_refusal(submitted) == (400, "InvalidInputError")
    files = {"messageID": MISSING.replace("ses", "msg"), "files": ["/x"] * 10_001}
    assert server.get_refusal(server.client.post(f"/weft/session/{session}/revert", json=files))[0] == 400
    assert server.get(at) == []


def test_a_body_of_unknown_length_is_read_up_to_the_limit(server: ProjectServer, session: str) -> None:
    """The client starts to send a hundred megabytes; the connection is closed long before they are sent."""
    begun = b"POST /session/%s/message HTTP/1.1\r\nhost: 127.0.0.1\r\n" % session.encode()
    begun += b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    piece = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
    port = int(server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(begun)
        for _ in range(100):
            try:
                connection.sendall(piece)
            except OSError:
                break  # the server has read enough
            if select.select([connection], [], [], 0)[0]:
                break
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert server.get(f"/session/{session}/message") == []


@pytest.mark.parametrize(
    "id",
    [
        "nonsense",
        "msg_000000000000000000000000zz",
        "ses_..%2F..%2F..%2Fetc%2Fpasswd",
        "ses_%00%00%00%00%00%00%00%00%00%00%00%00%00%00%00%00%00%00%00%00",
        "ses_" + "x" * 500,
        "%ED%A0%80",
        "..",
        "%2e%2e",
    ],
)
def test_invalid_ids_are_refused(server: ProjectServer, id: str) -> None:
    for method, path, body in (
        ("GET", f"/session/{id}", None),
        ("DELETE", f"/session/{id}", None),
        ("GET", f"/session/{id}/message", None),
        ("POST", f"/session/{id}/message", prompt("hi")),
        ("POST", f"/session/{id}/prompt_async", prompt("hi")),
        ("POST", f"/session/{id}/abort", None),
        ("POST", f"/session/{id}/fork", None),
        ("GET", f"/session/{id}/todo", None),
        ("GET", f"/pty/{id}", None),
        ("POST", f"/permission/{id}/reply", {"reply": "once"}),
        ("POST", f"/question/{id}/reject", None),
        ("GET", f"/weft/session/{id}/tree", None),
        ("GET", f"/weft/session/{id}/export", None),
        ("GET", f"/weft/session/{id}/spending", None),
        ("GET", f"/weft/session/{id}/status", None),
        ("POST", f"/weft/session/{id}/submit", prompt("hi")),
        ("POST", f"/weft/session/{id}/compact", {}),
        ("POST", f"/weft/session/{id}/uncompact", None),
        ("POST", f"/weft/session/{id}/restore", None),
        ("POST", f"/weft/session/{id}/touch", None),
        ("POST", f"/weft/session/{id}/revert", {"messageID": "msg_000000000000000000000000zz"}),
        ("POST", f"/weft/session/{id}/unrevert", {"files": []}),
        ("DELETE", f"/weft/session/{id}", None),
        ("PATCH", f"/weft/session/{id}", {"change": {"title": "x"}}),
        ("POST", f"/weft/permission/{id}/reply", {"reply": "once"}),
        ("DELETE", f"/weft/grant/{id}", None),
        ("POST", "/weft/session", {"id": unquote(id, errors="replace")}),
    ):
        if method == "GET" and path.endswith("/.."):
            continue  # what is sent is a request for `/`, which is the page
        answer = (
            server.client.request(method, path, json=body) if body else server.client.request(method, path)
        )
        assert server.get_refusal(answer)[0] in (400, 404, 405), (method, path)


def test_an_unknown_model_is_refused_as_by_opencode(server: ProjectServer) -> None:
    session = server.post("/session", {})["id"]
    unknown = prompt("hi", model={"providerID": "no", "modelID": "x"})
    for path in (f"/session/{session}/message", f"/session/{session}/prompt_async", "/weft/prompt/check"):
        answer = server.client.post(path, json=unknown)
        assert (path, server.get_refusal(answer)) == (path, (400, "ProviderModelNotFoundError"))
        said = answer.json()["data"]
        assert (said["providerID"], said["modelID"], said["suggestions"]) == ("no", "x", [])
    assert server.get(f"/session/{session}/message") == []


def test_unknown_resources_are_not_found(server: ProjectServer, session: str) -> None:
    for method, path, body in (
        ("GET", f"/session/{MISSING}", None),
        ("GET", f"/session/{MISSING}/message", None),
        ("POST", f"/session/{MISSING}/message", prompt("hi")),
        ("POST", f"/session/{MISSING}/prompt_async", prompt("hi")),
        ("POST", f"/session/{MISSING}/fork", {}),
        ("POST", f"/session/{MISSING}/share", None),
        ("GET", f"/session/{session}/message/msg_000000000000000000000000zz", None),
        ("POST", f"/session/{session}/fork", {"messageID": "msg_000000000000000000000000zz"}),
        ("POST", f"/session/{session}/message", prompt("hi", agent="nobody")),
        ("POST", f"/session/{session}/prompt_async", prompt("hi", agent="nobody")),
        ("POST", "/question/que_000000000000000000000000zz/reject", None),
        ("GET", f"/weft/session/{MISSING}/tree", None),
        ("GET", f"/weft/session/{MISSING}/export", None),
        ("GET", f"/weft/session/{MISSING}/spending", None),
        ("POST", f"/weft/session/{MISSING}/submit", prompt("hi")),
        ("POST", f"/weft/session/{MISSING}/compact", {}),
        ("POST", f"/weft/session/{MISSING}/restore", None),
        ("PATCH", f"/weft/session/{MISSING}", {"change": {"title": "x"}}),
        ("POST", f"/weft/session/{session}/submit", prompt("hi", agent="nobody")),
        ("POST", "/weft/permission/per_000000000000000000000000zz/reply", {"reply": "once"}),
        ("DELETE", "/weft/grant/gra_000000000000000000000000zz", None),
        ("POST", "/mcp/none/connect", None),
        ("GET", "/nothing/here", None),
        ("GET", "/session/", None),
    ):
        answer = (
            server.client.request(method, path, json=body)
            if body is not None
            else server.client.request(method, path)
        )
        assert (path, server.get_refusal(answer)[0]) == (path, 404)
    assert server.get(f"/session/{session}/message") == []


def test_wrong_methods_and_unknown_pages_are_answered_in_json(server: ProjectServer) -> None:
    assert server.get_refusal(server.client.put("/session")) == (405, "MethodError")
    page = server.client.get("/index.html", headers={"accept": "text/html"})
    assert (page.status_code, page.headers["content-type"]) == (404, "application/json")
    assert server.client.head("/path").status_code == 200


def test_unusual_characters_are_accepted_as_text(server: ProjectServer, session: str) -> None:
    raw = b'{"parts":[{"type":"text","text":"a\\u0000b \\ud83d c \\ud83d\\ude00 \xc3\xbc"}]}'
    answer = server.client.post(f"/session/{session}/message", content=raw, headers=JSON)
    assert answer.status_code == 200
    stored = server.client.get(f"/session/{session}/message")
    assert stored.status_code == 200
    assert json.loads(stored.text)[0]["parts"][0]["text"] == "a\0b \ud83d c \U0001f600 ü"
    odd = server.client.patch(f"/session/{session}", content=b'{"title":"\\u0000 \\udc00"}', headers=JSON)
    assert odd.status_code == 200
    assert server.client.get("/session").status_code == 200
    assert server.client.get("/session", params={"search": "a\0b"}).json() == []


@pytest.mark.parametrize(
    "query",
    ["limit=x", "limit=-1", "limit=1e99", "start=nan", "start=inf", "start=x"],
)
def test_invalid_queries_are_refused(server: ProjectServer, query: str) -> None:
    assert server.get_refusal(server.client.get(f"/session?{query}"))[0] == 400


@pytest.mark.parametrize(
    "directory",
    ["/nowhere/at/all", "/etc/passwd", "a\0b", "x" * 5000, "relative/none", "%00", "/proc/self/mem"],
)
def test_invalid_directories_are_refused(server: ProjectServer, directory: str) -> None:
    answer = server.client.get("/path", params={"directory": directory})
    assert server.get_refusal(answer)[0] in (400, 403, 404)


def test_a_query_and_a_path_that_cannot_be_encoded_are_refused(server: ProjectServer) -> None:
    statement = server.client.post("/weft/sql", content=b'{"sql": "select \'\\ud800\'"}', headers=JSON)
    assert server.get_refusal(statement) == (400, "InvalidInputError")
    for path in ("blame", "file-log"):
        response = server.client.get(f"/weft/{path}?path=a%00b")
        assert server.get_refusal(response) == (403, "OutsideError"), path


def test_removing_a_session_during_a_stream_affects_nothing_else(tmp_path: Path) -> None:
    with serve_project(tmp_path, [[Wait(seconds=60)]]) as server:
        gone, other = server.post("/session", {})["id"], server.post("/session", {})["id"]
        with server.client.stream("GET", "/event") as events:
            lines = events.iter_lines()
            assert "server.connected" in next(line for line in lines if line.startswith("data: "))
            server.client.post(f"/session/{gone}/prompt_async", json=prompt("hi"))
            assert server.send("DELETE", f"/session/{gone}") is True
            last = next(line for line in lines if '"session.deleted"' in line)
            assert json.loads(last.removeprefix("data: "))["properties"]["info"]["id"] == gone
        assert server.get_refusal(server.client.get(f"/session/{gone}")) == (404, "NotFoundError")
        assert [each["id"] for each in server.get("/session")] == [other]
        assert server.get("/session/status") == {}


def test_removing_a_session_ends_requests_that_wait_for_its_answer(tmp_path: Path) -> None:
    with serve_project(tmp_path, [[Wait(seconds=60)]]) as server:
        gone, answers = server.post("/session", {"title": "t"})["id"], []

        def wait() -> None:
            answers.append(httpx2.post(f"{server.url}/session/{gone}/message", json=prompt("hi"), timeout=60))

        waiting = threading.Thread(target=wait)
        with server.client.stream("GET", "/event") as events:
            lines = events.iter_lines()
            next(lines)
            waiting.start()
            next(line for line in lines if '"session.status"' in line)
        assert server.send("DELETE", f"/session/{gone}") is True
        waiting.join(60)
        # As with an abort: as far as it got.
        assert answers[0].json()["info"]["sessionID"] == gone
        assert server.get_refusal(server.client.get(f"/session/{gone}/message")) == (404, "NotFoundError")


def test_an_invalid_idempotency_key_is_refused(server: ProjectServer, session: str) -> None:
    for key in ("", "x" * 300, "a\tb"):
        answer = server.client.post(
            f"/session/{session}/message", json=prompt("hi"), headers={"idempotency-key": key}
        )
        assert server.get_refusal(answer) == (400, "InvalidInputError")
