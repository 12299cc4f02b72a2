"""Every route of a server with the ids of somebody else: what a principal learns of another, which must be nothing."""

import json
import re
from typing import Any

import httpx2

from given.http_server import prompt

SECRET_WORDS = "herring"
# They wait for something to happen, or answer with a stream; each has a test of its own.
WAITING = {"GET /event", "GET /global/event", "GET /weft/view/event", "GET /tui/control/next"}
# A page is for everybody who knows its address.
PUBLIC = ("/s/",)
MIN_COMPARED = 75
ANY_ID = re.compile(r"\b[a-z]{2,8}_[0-9A-Za-z]{6,}")
VARYING = re.compile(
    r"\b1[67]\d{11}\b|\b[0-9a-f]{40,64}\b|\"slug\":\"[a-z-]+\"|\d{4}-\d\d-\d\dT[0-9:.]+Z|[\"a-zA-Z]*(?:port|pid)\":\d+"
)


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


def make_session(client: httpx2.Client) -> str:
    session = client.post("/session", json={"title": "mine"}).json()["id"]
    client.post(f"/session/{session}/message", json=prompt("mine", noReply=True))
    return str(session)


def assert_nothing_leaks(ben: httpx2.Client, ada: httpx2.Client) -> None:
    """Send every request that `ada` can make with the ids of `ben`, and with ids that never existed: the answers are the same."""
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
