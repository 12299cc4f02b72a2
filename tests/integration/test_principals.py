"""Two principals on one server: every route with the other's ids, events, searches, shares, scopes and limits."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from given.http_server import make_project, prompt
from given.postgres import make_url
from given.principal_requests import SECRET_WORDS, assert_nothing_leaks, fill, make_session
from given.principals import PASSWORD, TeamServer, serve_team
from weft.model.principal import PrincipalChange, PrincipalLimits, TokenInput
from weft.provider.scripted import Say, UseTool

MAX_POLLS = 1000


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def team(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TeamServer]:
    url = f"sqlite:{tmp_path}/team.db" if request.param == "sqlite" else make_url()
    with serve_team(tmp_path, url) as served:
        yield served


@pytest.fixture
def file_team(tmp_path: Path) -> Iterator[TeamServer]:
    with serve_team(tmp_path, f"file:{tmp_path}/storage") as served:
        yield served


def test_every_route_answers_for_ids_of_others_as_for_unknown_ids(tmp_path: Path) -> None:
    # On Postgres with two nodes: tests/e2e/test_cluster_principals.py.
    with (
        serve_team(tmp_path, f"sqlite:{tmp_path}/team.db") as team,
        team.connect(team.admit("ben")) as ben,
        team.connect(team.admit("ada")) as ada,
    ):
        assert_nothing_leaks(ben, ada)


def test_a_new_session_with_the_id_of_another_is_refused_and_nothing_else_is_told(team: TeamServer) -> None:
    with team.connect(team.admit("ben")) as ben, team.connect(team.admit("ada")) as ada:
        theirs = fill(ben)["sessionID"]
        before = ben.get(f"/session/{theirs}").json()
        refused = ada.post("/weft/session", json={"id": theirs, "title": "mine"})
        assert (refused.status_code, "another id" in refused.text) == (409, True)
        assert not any(word in refused.text for word in ("ben", before["title"], SECRET_WORDS))
        assert ada.get(f"/session/{theirs}").status_code == 404
        assert ben.get(f"/session/{theirs}").json() == before


def test_lists_and_searches_show_only_own_sessions(team: TeamServer) -> None:
    with (
        team.connect(team.admit("ben")) as ben,
        team.connect(team.admit("ada")) as ada,
        team.connect() as admin,
    ):
        theirs = fill(ben)
        mine = ada.post("/session", json={"title": "kipper"}).json()["id"]
        assert [each["id"] for each in ada.get("/session").json()] == [mine]
        assert [each["id"] for each in ada.get("/weft/session", params={"everywhere": "true"}).json()] == [
            mine
        ]
        assert ada.get("/weft/search", params={"words": SECRET_WORDS}).json() == []
        assert ada.get("/weft/figures").json()["sessions"] == 1
        assert ada.get("/weft/share").json() == ada.get("/weft/trash").json() == []
        (project,) = ada.get("/project").json()
        assert project["worktree"] == str(team.root / "ada")
        found = admin.get("/weft/session", params={"everywhere": "true"}).json()
        assert {each["id"]: each["weft"]["owner"] for each in found} == {
            mine: "ada",
            theirs["sessionID"]: "ben",
            theirs["parentID"]: "ben",
        }
        assert admin.get("/weft/search", params={"words": SECRET_WORDS, "everywhere": "true"}).json() != []
        assert "owner" not in ada.get(f"/session/{mine}").json().get("weft", {})


def test_directories_of_others_are_not_served(file_team: TeamServer) -> None:
    with file_team.connect(file_team.admit("ben")) as ben, file_team.connect(file_team.admit("ada")) as ada:
        fill(ben)
        for other in (
            file_team.root / "ben",
            file_team.root / "admin",
            file_team.root / "nowhere",
            Path("/"),
            file_team.root,
        ):
            for path in ("/session", "/file?path=.", "/event", "/project/current"):
                response = ada.get(path, headers={"x-opencode-directory": str(other)})
                assert response.status_code == 403, (path, other, response.text)
        outside = str(file_team.root / "ben" / "hello.txt")
        assert ada.get("/file/content", params={"path": outside}).status_code in (400, 403, 404)
        session = make_session(ada)
        attached = {"type": "file", "mime": "text/plain", "url": f"file://{outside}"}
        asked = ada.post(f"/session/{session}/message", json={"parts": [attached], "noReply": True}).text
        assert "outside of the directories" in asked
        assert "hello there" not in asked


def test_a_principal_of_one_subdirectory_does_not_see_the_rest_of_the_checkout(file_team: TeamServer) -> None:
    project = make_project(file_team.root / "whole")
    part = project / "part"
    part.mkdir()
    input = TokenInput(name="eve", scope="run", directories=(str(part),))
    with file_team.connect(asyncio.run(file_team.tokens.create(input)).secret) as eve:
        make_session(eve)
        for directory, status in ((part, 200), (project, 403)):
            answer = eve.get("/session", headers={"x-opencode-directory": str(directory)})
            assert answer.status_code == status, answer.text


def read_events(
    client: httpx2.Client, path: str, seen: list[str], ready: threading.Event, until: str
) -> None:
    with client.stream("GET", path) as response:
        for line in response.iter_lines():
            seen.append(line)
            ready.set()
            if until in line:
                return


@pytest.mark.parametrize("path", ["/event", "/global/event", "/weft/view/event"])
def test_events_of_one_principal_do_not_reach_another(file_team: TeamServer, path: str) -> None:
    with file_team.connect(file_team.admit("ben")) as ben, file_team.connect(file_team.admit("ada")) as ada:
        ada.get("/session")
        seen, ready = list[str](), threading.Event()
        listener = threading.Thread(target=read_events, args=(ada, path, seen, ready, "the last"))
        listener.start()
        assert ready.wait(60)
        fill(ben)
        with file_team.connect() as admin:
            admin.post("/session", json={"title": SECRET_WORDS})
        with httpx2.Client(base_url=file_team.url, headers=dict(ada.headers)) as other:
            other.post("/session", json={"title": "the last"})
        listener.join(60)
        assert any("the last" in line for line in seen)
        assert not any(SECRET_WORDS in line or "ben" in line for line in seen)


def test_a_stream_ends_with_its_token(file_team: TeamServer) -> None:
    secret = file_team.admit("ada")
    with (
        file_team.connect(secret) as ada,
        file_team.connect(file_team.admit("again", principal="ada")) as again,
    ):
        ada.get("/session")
        seen, ready = list[str](), threading.Event()
        listener = threading.Thread(target=read_events, args=(ada, "/event", seen, ready, "never"))
        listener.start()
        assert ready.wait(60)
        asyncio.run(file_team.tokens.revoke("ada"))
        while listener.is_alive():  # the server caches what it knows for a second
            assert again.post("/session", json={"title": "after"}).status_code == 200
            listener.join(0.1)
        with file_team.connect(secret) as late:
            refused = late.get("/session")
        assert (refused.status_code, refused.json()["name"]) == (401, "UnauthorizedError")
        assert "was revoked" in refused.text


def test_scopes_limit_what_a_token_may_do(file_team: TeamServer) -> None:
    secrets = {
        "run": file_team.admit("ada"),
        "read": file_team.admit("eyes", "read", principal="ada"),
        "admin": file_team.admit("root", "admin"),
    }
    with (
        file_team.connect(secrets["run"]) as run,
        file_team.connect(secrets["read"]) as read,
        file_team.connect(secrets["admin"]) as admin,
    ):
        session = make_session(run)
        assert read.get(f"/session/{session}/message").status_code == 200
        for method, path in (
            ("POST", "/session"),
            ("POST", f"/session/{session}/message"),
            ("PATCH", f"/session/{session}"),
            ("DELETE", f"/session/{session}"),
            ("POST", f"/session/{session}/abort"),
            ("PUT", "/auth/anthropic"),
            ("GET", "/weft/token"),
            ("GET", "/tui/control/next"),
        ):
            assert read.request(method, path).status_code == 403, (method, path)
        for method, path in (
            ("PATCH", "/config"),
            ("PUT", "/auth/anthropic"),
            ("POST", "/pty"),
            ("POST", f"/session/{session}/shell"),
            ("GET", "/weft/token"),
            ("POST", "/weft/token"),
            ("DELETE", "/weft/token/ada"),
            ("PATCH", "/weft/principal/ada"),
            ("POST", "/experimental/worktree"),
            ("POST", "/mcp"),
        ):
            refused = run.request(method, path)
            assert refused.status_code == 403, (method, path)
            assert "needs a token with the scope admin" in refused.text
        assert run.get("/weft/metrics").status_code == 404
        assert admin.get("/weft/metrics").status_code == 200
        assert [each["name"] for each in admin.get("/weft/token").json()["tokens"]] == ["ada", "eyes", "root"]
        assert admin.get(f"/session/{session}").json()["weft"]["owner"] == "ada"


def test_tokens_are_managed_over_http(file_team: TeamServer) -> None:
    with file_team.connect() as admin:
        made = make_one(admin, "ada", directories=[str(file_team.root)])
        assert made["token"]["scope"] == "run"
        assert made["secret"].startswith(made["token"]["id"])
        assert made["secret"] not in admin.get("/weft/token").text
        for mistake, words in (
            ({"name": "ada", "directories": ["/srv"]}, "already"),
            ({"name": "Ada", "directories": ["/srv"]}, "is not a name"),
            ({"name": "ben"}, "name at least one"),
            ({"name": "ben", "directories": ["srv"]}, "absolute path"),
            ({"name": "ben", "directories": ["/"]}, "below the root"),
            ({"name": "ben", "directories": ["/srv"], "limits": {"sessions": 0}}, "would allow nothing"),
            ({"name": "ben", "directories": ["/srv"], "limits": {"cost": -1}}, "would allow nothing"),
            ({"name": "ben", "directories": ["/srv"], "expires": 1}, "that time has passed"),
            ({"name": "ben", "scope": "everything"}, "scope"),
            ({"name": "ben", "scope": "admin", "directories": ["/srv"]}, "may use every directory"),
            ({"name": "ben", "principal": "ada", "directories": ["/srv"]}, "weft token limit ada"),
        ):
            refused = admin.post("/weft/token", json=mistake)
            assert (refused.status_code, words in refused.text) == (400, True), (mistake, refused.text)
        with file_team.connect(made["secret"]) as ada:
            assert ada.get("/session").status_code == 200
        root = make_one(admin, "root", scope="admin")
        last = admin.request("DELETE", "/weft/token/root")
        assert (last.status_code, "last admin token" in last.text) == (400, True)
        assert admin.request("DELETE", "/weft/token/root", params={"force": "true"}).json() == root["token"]
        changed = admin.patch("/weft/principal/ada", json={"limits": {"sessions": 2}}).json()
        assert changed == {"name": "ada", "directories": [str(file_team.root)], "limits": {"sessions": 2}}
        assert admin.patch("/weft/principal/eve", json={}).status_code == 404
        assert admin.request("DELETE", "/weft/token/eve").status_code == 404
        assert admin.request("DELETE", "/weft/token/ada").status_code == 200
        assert admin.get("/weft/token").json() == {"tokens": [], "principals": []}


def make_one(admin: httpx2.Client, name: str, **more: Any) -> dict[str, Any]:
    response = admin.post("/weft/token", json={"name": name, **more})
    assert response.status_code == 200, response.text
    made: dict[str, Any] = response.json()
    return made


def test_a_token_can_be_sent_as_a_password(file_team: TeamServer) -> None:
    secret = file_team.admit("ada")
    login = {"auth": ("opencode", secret)}
    with httpx2.Client(base_url=file_team.url) as client:
        session = client.post("/session", json={}, **login).json()["id"]
        assert [each["id"] for each in client.get("/session", **login).json()] == [session]
        assert client.get("/session", auth=("opencode", PASSWORD)).json() == []
        for wrong in ("weft_00000000_x", "something"):
            assert client.get("/session", auth=("opencode", wrong)).status_code == 401
            assert client.get("/session", headers={"authorization": f"Bearer {wrong}"}).status_code == 401


def test_passwords_that_a_principal_tries_count_like_those_of_anybody_else(file_team: TeamServer) -> None:
    with file_team.connect(file_team.admit("ada")) as ada, httpx2.Client(base_url=file_team.url) as stranger:
        for _ in range(7):
            assert ada.post("/web/login", json={"password": "guess"}).status_code == 401
        began = time.monotonic()
        assert stranger.post("/web/login", json={"password": "guess"}).status_code == 401
    # This is the eighth: the sixth is the first that is answered late, by 0.1 s.
    assert time.monotonic() - began >= 0.3


def test_shared_pages_are_shown_to_everybody(file_team: TeamServer) -> None:
    with file_team.connect(file_team.admit("ben")) as ben, file_team.connect(file_team.admit("ada")) as ada:
        share = fill(ben)["shareID"]
        with httpx2.Client(base_url=file_team.url) as visitor:
            for client in (visitor, ada, ben):
                assert SECRET_WORDS in client.get(f"/s/{share}").text
            assert visitor.get(f"/s/{share[::-1]}").status_code == 404
        assert ada.request("DELETE", f"/weft/share/{share}").status_code == 404


def test_limits_of_a_principal_are_enforced(tmp_path: Path) -> None:
    waiting = [
        [UseTool(tool="write", input={"filePath": "note.txt", "content": "wait"})],
        *[[Say(text="Done.")]] * 10_000,  # more than anybody asks for within a second
    ]
    config = {"permission": {"edit": "ask"}}
    with serve_team(tmp_path, f"sqlite:{tmp_path}/team.db", waiting, config) as served:
        limited = served.admit("ada", limits=PrincipalLimits(sessions=1))
        with served.connect(limited) as ada, served.connect(served.admit("ben")) as ben:
            first, second = make_session(ada), make_session(ada)
            assert ada.post(f"/session/{first}/prompt_async", json=prompt("go")).status_code == 204
            request = wait_for_request(ada)
            refused = ada.post(f"/session/{second}/message", json=prompt("go"))
            assert (refused.status_code, refused.json()["data"]["limit"]) == (429, "sessions")
            # What is refused is not stored, and others are not affected.
            assert len(ada.get(f"/session/{second}/message").json()) == 1
            assert ben.get("/permission").json() == []
            unknown = f"{request[:-6]}{request[-6:][::-1].swapcase()}"
            answers = [
                ben.post(f"/permission/{id}/reply", json={"reply": "once"}) for id in (request, unknown)
            ]
            assert {each.status_code for each in answers} == {404}
            assert answers[0].text.replace(request, unknown) == answers[1].text
            mine = make_session(ben)
            assert (
                ben.post(f"/session/{mine}/message", json=prompt("go")).json()["parts"][-2]["text"] == "Done."
            )
            assert ada.post(f"/session/{first}/abort").json() is True
            assert ada.post(f"/session/{second}/message", json=prompt("go")).status_code == 200
            # The administrator lowers what it may use in a day; its next request is answered by the new rules.
            change = PrincipalChange(limits=PrincipalLimits(tokens=1))
            asyncio.run(served.tokens.change_principal("ada", change))
            until = time.monotonic() + 30
            while "budget" not in (
                answer := ada.post(f"/session/{second}/message", json=prompt("more")).text
            ):
                assert "Done." in answer  # the server caches what it knows for a second
                assert time.monotonic() < until
            assert "budget" not in ben.post(f"/session/{mine}/message", json=prompt("more")).text


def wait_for_request(client: httpx2.Client) -> str:
    found: list[dict[str, Any]] = []
    for _ in range(MAX_POLLS):
        if not found:
            found = client.get("/permission").json()
    return str(found[0]["id"])


def test_an_administrator_aborts_the_run_of_a_principal(tmp_path: Path) -> None:
    waiting = [
        [UseTool(tool="write", input={"filePath": "note.txt", "content": "wait"})],
        *[[Say(text="Done.")]] * 50,
    ]
    with (
        serve_team(
            tmp_path, f"sqlite:{tmp_path}/team.db", waiting, {"permission": {"edit": "ask"}}
        ) as served,
        served.connect(served.admit("ada")) as ada,
        served.connect() as admin,
    ):
        session = make_session(ada)
        ada.post(f"/session/{session}/prompt_async", json=prompt("go"))
        wait_for_request(ada)
        assert admin.post(f"/session/{session}/abort").json() is True
        assert ada.get("/session/status").json() == {}


def test_a_principal_cannot_permit_itself_other_directories(tmp_path: Path) -> None:
    outside = tmp_path / "ben" / "hello.txt"
    script = [[UseTool(tool="read", input={"filePath": str(outside)})], *[[Say(text="Done.")]] * 50]
    config = {"permission": {"*": "allow"}}
    with serve_team(tmp_path, f"sqlite:{tmp_path}/team.db", script, config) as served:
        served.admit("ben")
        with served.connect(served.admit("ada")) as ada:
            session = make_session(ada)
            answer = ada.post(f"/session/{session}/message", json=prompt("read it")).text
            history = ada.get(f"/session/{session}/message").text
            assert "hello there" not in answer + history
            assert "external_directory" in history
