"""Two principals on one server: every route with the other's ids, events, searches, shares, scopes and limits."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from given.http_server import prompt
from given.postgres import make_url
from given.principals import PASSWORD, TeamServer, serve_team
from weft.model.principal import PrincipalChange, PrincipalLimits
from weft.provider.scripted import Say, UseTool

SECRET_WORDS = "herring"
# They wait for something to happen, or answer with a stream; each has a test of its own.
WAITING = {"GET /event", "GET /global/event", "GET /weft/view/event", "GET /tui/control/next"}
# A page is for everybody who knows its address.
PUBLIC = ("/s/",)
MIN_COMPARED = 75
MAX_POLLS = 1000
ANY_ID = re.compile(r"\b[a-z]{2,8}_[0-9A-Za-z]{6,}")
VARYING = re.compile(
    r"\b1[67]\d{11}\b|\b[0-9a-f]{40,64}\b|\"slug\":\"[a-z-]+\"|\d{4}-\d\d-\d\dT[0-9:.]+Z|[\"a-zA-Z]*(?:port|pid)\":\d+"
)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def team(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TeamServer]:
    url = f"sqlite:{tmp_path}/team.db" if request.param == "sqlite" else make_url()
    with serve_team(tmp_path, url) as served:
        yield served


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[TeamServer]:
    with serve_team(tmp_path, f"file:{tmp_path}/storage") as served:
        yield served


def fill(client: httpx2.Client) -> dict[str, str]:
    """Make one of everything, and return the ids."""
    session = client.post("/session", json={"title": SECRET_WORDS}).json()["id"]
    asked = client.post(
        f"/session/{session}/message", json=prompt(f"{SECRET_WORDS} fillets", noReply=True)
    ).json()
    child = client.post("/session", json={"title": f"{SECRET_WORDS} child", "parentID": session}).json()["id"]
    binned = client.post("/session", json={"title": f"{SECRET_WORDS} binned"}).json()["id"]
    assert client.request("DELETE", f"/weft/session/{binned}").status_code == 200
    shared = client.post(f"/weft/session/{session}/share", json={"to": "server"})
    assert shared.status_code == 200, shared.text
    share = client.get("/weft/share").json()[0]["id"]
    return {
        "sessionID": session,
        "parentID": child,
        "messageID": asked["info"]["id"],
        "partID": asked["parts"][0]["id"],
        "shareID": share,
        "projectID": client.get("/project/current").json()["id"],
        "binned": binned,
    }


def make_unknown(ids: dict[str, str]) -> dict[str, str]:
    """Return ids of the same form that never existed."""
    return {
        name: id[:-6] + id[-6:][::-1].swapcase() if "_" in id else id[:-6] + "0a1b2c"
        for name, id in ids.items()
    }


class RequestMaker:
    """Makes valid requests from the OpenAPI document, with given ids wherever an id belongs."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._schemas = document.get("components", {}).get("schemas", {})
        self.operations = [
            (method.upper(), path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]

    def make(
        self, path: str, operation: dict[str, Any], ids: dict[str, str]
    ) -> tuple[str, dict[str, str], Any]:
        filled = re.sub(r"\{(\w+)\}", lambda match: self._find_id(match[1], ids), path)
        query = {
            each["name"]: self._find_id(each["name"], ids)
            for each in operation.get("parameters", ())
            if each["in"] == "query" and (each["name"] in ids or each.get("required"))
        }
        schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        return filled, query, None if schema is None else self._make_value(schema, "", ids)

    def _find_id(self, name: str, ids: dict[str, str]) -> str:
        return {"query": SECRET_WORDS, "words": SECRET_WORDS, "pattern": SECRET_WORDS}.get(name) or ids.get(
            name, "1"
        )

    def _make_value(self, schema: dict[str, Any], name: str, ids: dict[str, str], depth: int = 0) -> Any:
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"].rpartition("/")[2]]
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                options = [each for each in schema[choice] if each.get("type") != "null"]
                return self._make_value(options[0], name, ids, depth)
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        match schema.get("type"):
            case "object":
                required = schema.get("required", ())
                return {
                    key: self._make_value(each, key, ids, depth + 1)
                    for key, each in schema.get("properties", {}).items()
                    if key in required or key in ids
                }
            case "array":
                items = schema.get("items") or (schema.get("prefixItems") or [{}])[0]
                return [self._make_value(items, name, ids, depth + 1)] if items else []
            case "integer" | "number":
                return max(1, int(schema.get("minimum", 1)))
            case "boolean":
                return True
            case _:
                return ids.get("sessionID" if name == "id" and depth < 2 else name, "text")


def send(client: httpx2.Client, method: str, request: tuple[str, dict[str, str], Any]) -> tuple[int, str]:
    path, query, body = request
    content = None if body is None else json.dumps(body)
    headers = {} if body is None else {"content-type": "application/json"}
    response = client.request(method, path, params=query, content=content, headers=headers)
    return response.status_code, response.text


def to_comparable(answer: tuple[int, str], ids: dict[str, str]) -> tuple[int, str]:
    """Return an answer without the ids that were sent, new ids, times and hashes."""
    status, text = answer
    for id in sorted(ids.values(), key=len, reverse=True):
        text = text.replace(id, "ID")
    return status, VARYING.sub("", ANY_ID.sub("ID", text))


def test_every_route_answers_for_anothers_ids_as_for_none(team: TeamServer) -> None:
    with team.connect(team.admit("ben")) as ben, team.connect(team.admit("ada")) as ada:
        theirs = fill(ben)
        nowhere, compared = make_unknown(theirs), 0
        maker = RequestMaker(ada.get("/doc").json())
        for method, path, operation in maker.operations:
            if f"{method} {path}" in WAITING or path.startswith(PUBLIC):
                continue
            # With all ids of the other; then with the other's ids in a session of one's own.
            for same in ({}, {"sessionID": "ses_same"}):
                requests = [maker.make(path, operation, {**ids, **same}) for ids in (nowhere, theirs)]
                takes_ids = requests[0] != requests[1]
                if same and not takes_ids:
                    continue
                answers = []
                for ids in (nowhere, theirs):
                    mixed = {**ids, "sessionID": make_session(ada)} if same else ids
                    answer = send(ada, method, maker.make(path, operation, mixed))
                    answers.append(to_comparable(answer, mixed))
                    assert SECRET_WORDS not in answer[1].replace(f"'{SECRET_WORDS}'", ""), (
                        method,
                        path,
                        answer,
                    )
                    assert answer[0] != 500, (method, path, answer)
                if takes_ids:
                    assert answers[0] == answers[1], (method, path, same)
                    compared += 1
        assert compared > MIN_COMPARED
        # Nothing of the other was changed, either.
        assert ben.get(f"/session/{theirs['sessionID']}").json()["title"] == SECRET_WORDS
        (message,) = ben.get(f"/session/{theirs['sessionID']}/message").json()
        assert [part["text"] for part in message["parts"]] == [f"{SECRET_WORDS} fillets"]
        assert [each["id"] for each in ben.get("/weft/share").json()] == [theirs["shareID"]]
        assert [each["sessions"][0]["id"] for each in ben.get("/weft/trash").json()] == [theirs["binned"]]


def make_session(client: httpx2.Client) -> str:
    session = client.post("/session", json={"title": "mine"}).json()["id"]
    client.post(f"/session/{session}/message", json=prompt("mine", noReply=True))
    return str(session)


def test_lists_and_searches_show_only_what_is_ones_own(team: TeamServer) -> None:
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


def test_a_directory_of_another_is_not_served(quick: TeamServer) -> None:
    with quick.connect(quick.admit("ben")) as ben, quick.connect(quick.admit("ada")) as ada:
        fill(ben)
        for other in (
            quick.root / "ben",
            quick.root / "admin",
            quick.root / "nowhere",
            Path("/"),
            quick.root,
        ):
            for path in ("/session", "/file?path=.", "/event", "/project/current"):
                response = ada.get(path, headers={"x-opencode-directory": str(other)})
                assert response.status_code == 403, (path, other, response.text)
        outside = str(quick.root / "ben" / "hello.txt")
        assert ada.get("/file/content", params={"path": outside}).status_code in (400, 403, 404)
        session = make_session(ada)
        attached = {"type": "file", "mime": "text/plain", "url": f"file://{outside}"}
        asked = ada.post(f"/session/{session}/message", json={"parts": [attached], "noReply": True}).text
        assert "outside of the directories" in asked
        assert "hello there" not in asked


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
def test_events_of_one_do_not_reach_the_other(quick: TeamServer, path: str) -> None:
    with quick.connect(quick.admit("ben")) as ben, quick.connect(quick.admit("ada")) as ada:
        ada.get("/session")
        seen, ready = list[str](), threading.Event()
        listener = threading.Thread(target=read_events, args=(ada, path, seen, ready, "the last"))
        listener.start()
        assert ready.wait(30)
        fill(ben)
        with quick.connect() as admin:
            admin.post("/session", json={"title": SECRET_WORDS})
        with httpx2.Client(base_url=quick.url, headers=dict(ada.headers)) as other:
            other.post("/session", json={"title": "the last"})
        listener.join(30)
        assert any("the last" in line for line in seen)
        assert not any(SECRET_WORDS in line or "ben" in line for line in seen)


def test_a_stream_ends_with_its_token(quick: TeamServer) -> None:
    secret = quick.admit("ada")
    with quick.connect(secret) as ada, quick.connect(quick.admit("again", principal="ada")) as again:
        ada.get("/session")
        seen, ready = list[str](), threading.Event()
        listener = threading.Thread(target=read_events, args=(ada, "/event", seen, ready, "never"))
        listener.start()
        assert ready.wait(30)
        asyncio.run(quick.tokens.revoke("ada"))
        while listener.is_alive():  # the server believes for a second what it knows
            assert again.post("/session", json={"title": "after"}).status_code == 200
            listener.join(0.1)
        with quick.connect(secret) as late:
            refused = late.get("/session")
        assert (refused.status_code, refused.json()["name"]) == (401, "UnauthorizedError")
        assert "was revoked" in refused.text


def test_scopes_say_what_a_token_may_do(quick: TeamServer) -> None:
    secrets = {
        "run": quick.admit("ada"),
        "read": quick.admit("eyes", "read", principal="ada"),
        "admin": quick.admit("root", "admin"),
    }
    with (
        quick.connect(secrets["run"]) as run,
        quick.connect(secrets["read"]) as read,
        quick.connect(secrets["admin"]) as admin,
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


def test_tokens_are_managed_over_http(quick: TeamServer) -> None:
    with quick.connect() as admin:
        made = make_one(admin, "ada", directories=[str(quick.root)])
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
            ({"name": "ben", "directories": ["/srv"], "expires": 1}, "that time is over"),
            ({"name": "ben", "scope": "everything"}, "scope"),
            ({"name": "ben", "scope": "admin", "directories": ["/srv"]}, "may use every directory"),
            ({"name": "ben", "principal": "ada", "directories": ["/srv"]}, "weft token limit ada"),
        ):
            refused = admin.post("/weft/token", json=mistake)
            assert (refused.status_code, words in refused.text) == (400, True), (mistake, refused.text)
        with quick.connect(made["secret"]) as ada:
            assert ada.get("/session").status_code == 200
        root = make_one(admin, "root", scope="admin")
        last = admin.request("DELETE", "/weft/token/root")
        assert (last.status_code, "last admin token" in last.text) == (400, True)
        assert admin.request("DELETE", "/weft/token/root", params={"force": "true"}).json() == root["token"]
        changed = admin.patch("/weft/principal/ada", json={"limits": {"sessions": 2}}).json()
        assert changed == {"name": "ada", "directories": [str(quick.root)], "limits": {"sessions": 2}}
        assert admin.patch("/weft/principal/eve", json={}).status_code == 400
        assert admin.request("DELETE", "/weft/token/ada").status_code == 200
        assert admin.get("/weft/token").json() == {"tokens": [], "principals": []}


def make_one(admin: httpx2.Client, name: str, **more: Any) -> dict[str, Any]:
    response = admin.post("/weft/token", json={"name": name, **more})
    assert response.status_code == 200, response.text
    made: dict[str, Any] = response.json()
    return made


def test_a_token_works_where_only_a_password_can_be_sent(quick: TeamServer) -> None:
    secret = quick.admit("ada")
    login = {"auth": ("opencode", secret)}
    with httpx2.Client(base_url=quick.url) as client:
        session = client.post("/session", json={}, **login).json()["id"]
        assert [each["id"] for each in client.get("/session", **login).json()] == [session]
        assert client.get("/session", auth=("opencode", PASSWORD)).json() == []
        for wrong in ("weft_00000000_x", "something"):
            assert client.get("/session", auth=("opencode", wrong)).status_code == 401
            assert client.get("/session", headers={"authorization": f"Bearer {wrong}"}).status_code == 401


def test_shared_pages_are_shown_to_everybody(quick: TeamServer) -> None:
    with quick.connect(quick.admit("ben")) as ben, quick.connect(quick.admit("ada")) as ada:
        share = fill(ben)["shareID"]
        with httpx2.Client(base_url=quick.url) as visitor:
            for client in (visitor, ada, ben):
                assert SECRET_WORDS in client.get(f"/s/{share}").text
            assert visitor.get(f"/s/{share[::-1]}").status_code == 404
        assert ada.request("DELETE", f"/weft/share/{share}").status_code == 404


def test_limits_hold_for_a_principal(tmp_path: Path) -> None:
    waiting = [
        [UseTool(tool="write", input={"filePath": "note.txt", "content": "wait"})],
        *[[Say(text="Done.")]] * 50,
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
            while "budget" not in (
                answer := ada.post(f"/session/{second}/message", json=prompt("more")).text
            ):
                assert "Done." in answer  # for a second the server believes what it knows
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


def test_a_principal_cannot_let_itself_out_of_its_directories(tmp_path: Path) -> None:
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
