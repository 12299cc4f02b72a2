"""Shared sessions as pages over real HTTP: who may see them, what they show, and that revoking removes them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from given.engine import open_engine, text_prompt
from given.http_server import ProjectServer, connect, prompt, serve_project
from weft.errors import SharingError
from weft.model.input import SessionInput
from weft.page.document import LIVE_POLICY, STATIC_POLICY
from weft.provider.scripted import Say
from weft.server.access import AccessPolicy
from weft.share.contract import ShareSettings

KEY = "sk-ant-api03-aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY"
PAGES = "http://localhost"
LOGIN = ("opencode", "pw")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProjectServer]:
    with serve_project(
        tmp_path, access=AccessPolicy(password="pw", open_to_all="/s/"), pages=PAGES
    ) as server:
        server.client.auth = LOGIN
        yield server


@pytest.fixture
def anonymous(server: ProjectServer) -> Iterator[httpx2.Client]:
    with connect(server.url, timeout=60) as client:
        yield client


def share(server: ProjectServer, **terms: Any) -> tuple[str, str]:
    """Share a session, and return it with the path of its page."""
    session = server.post("/session", {"title": "<b>warp</b>"})["id"]
    server.post(f"/session/{session}/message", prompt(f"use {KEY}"))
    address = f"/weft/session/{session}/share" if terms else f"/session/{session}/share"
    url: str = server.post(address, terms or None)["share"]["url"]
    assert url.startswith(f"{PAGES}/s/")
    return session, url.removeprefix(PAGES)


def statuses(client: httpx2.Client, path: str) -> set[tuple[int, str]]:
    answers = [client.get(path + end) for end in ("", "/data", "/live")]
    return {(answer.status_code, answer.text) for answer in answers}


def test_the_address_of_a_page_grants_reading_only(server: ProjectServer, anonymous: httpx2.Client) -> None:
    session, path = share(server)
    page = anonymous.get(path)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<h1>&lt;b&gt;warp&lt;/b&gt;</h1>" in page.text
    assert "Here is a short answer." in page.text
    assert (KEY in page.text, "use [redacted:anthropic-key:1]" in page.text) == (False, True)
    for method, where in (
        ("GET", f"/session/{session}"),
        ("POST", path),
        ("DELETE", path),
        ("GET", "/weft/share"),
    ):
        assert anonymous.request(method, where).status_code == 401
    assert anonymous.get(path, headers={"host": "evil.test"}).status_code == 403
    assert anonymous.get(path, headers={"origin": "https://evil.test"}).status_code == 403


def test_pages_run_nothing_and_are_not_cached(server: ProjectServer, anonymous: httpx2.Client) -> None:
    _, path = share(server)
    for end in ("", "/data", "/none"):
        headers = anonymous.get(path + end).headers
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert (headers["cache-control"], headers["x-robots-tag"]) == ("no-store", "noindex, nofollow")
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert anonymous.get(path).headers["content-security-policy"] == LIVE_POLICY
    assert "unsafe" not in LIVE_POLICY


def test_the_data_of_a_page_is_the_redacted_export(server: ProjectServer, anonymous: httpx2.Client) -> None:
    session, path = share(server)
    data = anonymous.get(f"{path}/data")
    assert data.headers["content-type"] == "application/json; charset=utf-8"
    assert (data.json()["info"]["id"], len(data.json()["messages"])) == (session, 2)
    assert (KEY in data.text, str(server.project) in data.text, "secret" in data.json()["info"]["share"]) == (
        False,
        False,
        False,
    )


def test_nothing_is_listed_and_guessing_reveals_nothing(
    server: ProjectServer, anonymous: httpx2.Client
) -> None:
    _, path = share(server)
    wrong = path[:-1] + ("0" if path[-1] != "0" else "1")
    refused = {anonymous.get(each).text for each in (wrong, "/s/x", f"/s/{'0' * 40}", "/s/..%2f..%2fetc")}
    assert len({text for text in refused if "there is no such page" in text}) == 1
    assert [anonymous.get(each).status_code for each in ("/s/", "/s", wrong, f"{path}/more")] == [
        404,
        401,
        404,
        404,
    ]
    assert len(path.rpartition("/")[2]) == 40


def test_a_revoked_share_is_gone_from_every_route(server: ProjectServer, anonymous: httpx2.Client) -> None:
    session, path = share(server)
    assert list_page_statuses(anonymous, path) == {200}
    assert server.send("DELETE", f"/session/{session}/share").get("share") is None
    found = statuses(anonymous, path)
    assert {status for status, _ in found} == {404}
    assert found == statuses(anonymous, f"/s/{'0' * 40}")
    assert server.get_refusal(server.client.delete(f"/session/{session}/share")) == (404, "NotFoundError")
    _, again = share(server)
    assert again != path


def test_a_browser_gets_the_same_page_for_every_missing_share(
    server: ProjectServer, anonymous: httpx2.Client
) -> None:
    session, path = share(server)
    server.send("DELETE", f"/session/{session}/share")
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    gone = [anonymous.get(path + end, headers=browser) for end in ("", "/data", "/live", "/more")]
    gone.append(anonymous.get(f"/s/{'0' * 40}", headers=browser))
    assert {(each.status_code, each.headers["content-type"]) for each in gone} == {
        (404, "text/html; charset=utf-8")
    }
    assert len({each.text for each in gone}) == 1
    assert "<h1>there is no such page</h1>" in gone[0].text
    assert "<script" not in gone[0].text
    assert {each.headers["content-security-policy"] for each in gone} == {STATIC_POLICY}
    assert {each.headers["cache-control"] for each in gone} == {"no-store"}


def list_page_statuses(client: httpx2.Client, path: str) -> set[int]:
    """Return the statuses of the page and its data, without the stream, which would not end."""
    return {client.get(path + end).status_code for end in ("", "/data")}


def test_removing_a_session_revokes_its_share(server: ProjectServer, anonymous: httpx2.Client) -> None:
    session, path = share(server)
    server.send("DELETE", f"/session/{session}")
    assert {status for status, _ in statuses(anonymous, path)} == {404}
    assert server.get("/weft/share") == []


def test_expired_shares_are_gone_from_every_route(
    server: ProjectServer, anonymous: httpx2.Client, tmp_path: Path
) -> None:
    _, path = share(server, expires=4_000_000_000_000)
    [listed] = server.get("/weft/share")
    assert listed["expires"] == 4_000_000_000_000
    assert "It is shown until 2096-10-02" in anonymous.get(path).text
    records_file = tmp_path / "storage" / ".weft" / "kept" / "sharing" / "book.json"
    assert records_file.stat().st_mode & 0o077 == 0
    records_file.write_text(records_file.read_text().replace("4000000000000", "4000"))
    assert {status for status, _ in statuses(anonymous, path)} == {404}
    assert server.get("/weft/share") == []
    early = server.client.post(f"/weft/session/{listed['sessionID']}/share", json={"expires": 4000})
    assert server.get_refusal(early) == (400, "InvalidInputError")


def test_a_page_follows_its_session_and_its_stream_ends_with_the_share(
    server: ProjectServer, anonymous: httpx2.Client
) -> None:
    session, path = share(server)
    with anonymous.stream("GET", f"{path}/live") as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": here"
        server.post(f"/session/{session}/message", prompt("and one more thing"))
        assert next(line for line in lines if line.startswith("event")) == "event: changed"
        assert "and one more thing" in anonymous.get(path).text
        server.send("DELETE", f"/session/{session}/share")
        assert [line for line in lines if line.startswith("event")][-1] == "event: ended"


def test_a_preview_shows_what_would_be_redacted_and_shares_nothing(server: ProjectServer) -> None:
    session = server.post("/session", {})["id"]
    server.post(f"/session/{session}/message", prompt(f"use {KEY}"))
    preview = server.post(f"/weft/session/{session}/share/preview")
    assert (preview["kinds"], preview["messages"]) == ({"anthropic-key": 1}, 2)
    assert KEY not in json.dumps(preview)
    assert server.get("/weft/share") == []


def test_shares_are_listed_without_secrets_and_revoked_by_their_own_id(
    server: ProjectServer, anonymous: httpx2.Client
) -> None:
    session, path = share(server, redact=False, attachments=False)
    assert KEY in anonymous.get(path).text
    [listed] = server.get("/weft/share")
    assert (listed["sessionID"], listed["target"], listed["redact"]) == (session, "server", False)
    assert "secret" not in json.dumps(listed)
    assert server.send("DELETE", f"/weft/share/{listed['id']}") is True
    assert anonymous.get(path).status_code == 404
    assert server.get_refusal(server.client.delete(f"/weft/share/{listed['id']}")) == (404, "NotFoundError")


def test_without_pages_nothing_is_shown_or_received(tmp_path: Path) -> None:
    with serve_project(tmp_path) as server:
        session = server.post("/session", {})["id"]
        assert server.get_refusal(server.client.post(f"/session/{session}/share")) == (
            400,
            "InvalidInputError",
        )
        assert server.client.get(f"/s/{'0' * 40}").status_code == 404
        assert server.get_refusal(server.client.post("/api/share", json={"sessionID": session})) == (
            404,
            "NotFoundError",
        )


def test_disabled_routes_do_not_exist(tmp_path: Path) -> None:
    with serve_project(tmp_path, routes={"share": False}, pages=PAGES) as server:
        session = server.post("/session", {})["id"]
        path = server.post(f"/session/{session}/share")["share"]["url"].removeprefix(PAGES)
        assert server.client.get(path).status_code == 404
        assert server.client.post("/api/share", json={"sessionID": session}).status_code == 404


# --- what others send here ---


async def test_another_engine_shares_here_and_revokes_its_share(
    server: ProjectServer, anonymous: httpx2.Client
) -> None:
    address = server.url.replace("http://", f"http://{':'.join(LOGIN)}@")
    async with open_engine(
        [Say(text="from afar")], sharing=ShareSettings(server=address), skip_waits=True
    ) as afar:
        session = await afar.api.create_session(SessionInput(title="elsewhere"))
        shared = await afar.api.sharing.share(session.id)
        assert shared.share is not None
        path = shared.share.url.removeprefix(PAGES)
        await afar.api.prompt(session.id, text_prompt(f"with {KEY}"))
        await afar.api.sharing.catch_up()
        page = anonymous.get(path).text
        assert ("from afar" in page, "elsewhere" in page, KEY in page) == (True, True, False)
        [listed] = server.get("/weft/share")
        assert (listed["target"], listed["sessionID"]) == ("received", session.id)
        assert server.client.get(f"/session/{session.id}").status_code == 404
        await afar.api.sharing.unshare(session.id)
        assert {status for status, _ in statuses(anonymous, path)} == {404}
    async with open_engine(sharing=ShareSettings(server=server.url), skip_waits=True) as stranger:
        session = await stranger.api.create_session(SessionInput())
        with pytest.raises(SharingError, match="refused: status 401") as refused:
            await stranger.api.sharing.share(session.id)
        assert "name:password@host" in refused.value.hint


def test_received_items_need_the_secret_and_must_be_a_session(
    server: ProjectServer, anonymous: httpx2.Client
) -> None:
    ticket = server.post("/api/share", {"sessionID": f"ses_{'0' * 26}"})
    assert set(ticket) == {"id", "url", "secret"}
    address, path = f"/api/share/{ticket['id']}", f"/s/{ticket['id']}"
    assert anonymous.get(path).status_code == 404  # nothing has come yet
    info = server.post("/session", {"title": "sent"})
    good = {"secret": ticket["secret"], "data": [{"type": "session", "data": info}]}
    assert server.client.post(f"{address}/sync", json={**good, "secret": "x"}).status_code == 404
    assert anonymous.post(f"{address}/sync", json=good).status_code == 401
    bad = {**good, "data": [{"type": "part", "data": {"type": "text", "id": "../x"}}]}
    assert server.get_refusal(server.client.post(f"{address}/sync", json=bad)) == (400, "InvalidInputError")
    assert server.post(f"{address}/sync", good) == {}
    assert "<h1>sent</h1>" in anonymous.get(path).text
    assert server.client.request("DELETE", address, json={"secret": "x"}).status_code == 404
    assert server.send("DELETE", address, {"secret": ticket["secret"]}) == {}
    assert anonymous.get(path).status_code == 404
    assert server.client.post(f"{address}/sync", json=good).status_code == 404
    assert server.client.post("/api/share", json={"sessionID": "../x"}).status_code == 400


def test_the_secret_of_a_received_share_is_stored_as_a_hash(server: ProjectServer, tmp_path: Path) -> None:
    ticket = server.post("/api/share", {"sessionID": f"ses_{'0' * 26}"})
    kept = "".join(path.read_text() for path in (tmp_path / "storage").rglob("*.json"))
    assert (ticket["id"] in kept, ticket["secret"] in kept) == (True, False)


def test_a_share_has_a_size_limit(server: ProjectServer) -> None:
    ticket = server.post("/api/share", {"sessionID": f"ses_{'0' * 26}"})
    info = {**server.post("/session", {}), "title": "x" * (17 << 20)}
    body = {"secret": ticket["secret"], "data": [{"type": "session", "data": info}]}
    refused = server.client.post(f"/api/share/{ticket['id']}/sync", json=body)
    assert (server.get_refusal(refused), "16 MB" in refused.text) == ((400, "InvalidInputError"), True)
