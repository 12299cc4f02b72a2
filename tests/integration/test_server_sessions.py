"""Sessions, messages and runs over real HTTP, in the shapes that OpenCode's clients expect."""

import gc
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from given.failing_disk import limit_file_size
from given.http_server import ProjectServer, prompt, serve_project
from weft.provider.scripted import Say, UseTool, Wait
from weft.server.state import IdempotencyKeys


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProjectServer]:
    with serve_project(tmp_path) as server:
        yield server


@pytest.fixture
def session(server: ProjectServer) -> str:
    id: str = server.post("/session", {})["id"]
    return id


def test_a_session_is_created_with_or_without_a_body(server: ProjectServer) -> None:
    empty = server.client.post("/session", content=b"", headers={"content-type": "application/json"})
    assert (empty.status_code, empty.json()["title"][:14]) == (200, "New session - ")
    named = server.post("/session", {"title": "mine", "unknown": 1})
    assert {"id", "slug", "version", "projectID", "directory", "title", "time"} <= set(named)
    assert [each["title"] for each in server.get("/session?limit=1")] == ["mine"]


def test_a_limit_of_zero_returns_one_session_as_in_opencode(server: ProjectServer, session: str) -> None:
    newest = server.post("/session", {})["id"]
    assert [each["id"] for each in server.get("/session?limit=0")] == [newest]
    assert server.get("/weft/session?limit=0") == []


def test_a_session_is_changed_forked_and_removed(server: ProjectServer, session: str) -> None:
    assert server.send("PATCH", f"/session/{session}", {"title": "other"})["title"] == "other"
    child = server.post("/session", {"parentID": session})
    assert [each["id"] for each in server.get(f"/session/{session}/children")] == [child["id"]]
    server.post(f"/session/{session}/message", prompt("hi"))
    fork = server.post(f"/session/{session}/fork")
    assert len(server.get(f"/session/{fork['id']}/message")) == 2
    assert server.send("DELETE", f"/session/{session}") is True
    assert server.get_refusal(server.client.get(f"/session/{session}")) == (404, "NotFoundError")


def test_the_client_sets_the_time_of_archiving_and_an_empty_change_changes_nothing(
    server: ProjectServer, session: str
) -> None:
    def patch_archived(body: object) -> object:
        return server.send("PATCH", f"/session/{session}", body)["time"].get("archived")

    assert patch_archived({"time": {"archived": 12345}}) == 12345
    assert patch_archived({"time": {}}) == 12345
    assert patch_archived({"title": "other"}) == 12345
    assert patch_archived({"time": {"archived": 67890.5}}) == 67890.5
    assert server.get("/weft/session?archived=true")[0]["id"] == session
    # OpenCode's clients take 0 for "not archived", and have no other way to say so.
    assert patch_archived({"time": {"archived": 0}}) == 0
    assert server.get("/weft/session?archived=true") == []
    assert [each["id"] for each in server.get("/weft/session?archived=false")] == [session]


@pytest.mark.parametrize("time", [None, True, "yesterday", []])
def test_an_invalid_archive_time_is_refused(server: ProjectServer, session: str, time: object) -> None:
    before = server.get(f"/session/{session}")
    refused = server.client.patch(f"/session/{session}", json={"time": {"archived": time}})
    assert server.get_refusal(refused) == (400, "DocumentError")
    assert "time.archived" in refused.json()["data"]["message"]
    assert server.get(f"/session/{session}") == before


ODD = ("ses_x", "msg_x", "nope", "ses_..", "ses_%2e%2e%2fx", "ses%00", "ses_\u00e9", "ses_" + "x" * 300)


@pytest.mark.parametrize("id", ODD)
def test_an_unknown_session_id_is_not_found_however_odd(server: ProjectServer, id: str) -> None:
    asked = [
        ("GET", "", None),
        ("PATCH", "", {"title": "x"}),
        ("DELETE", "", None),
        ("GET", "/children", None),
        ("GET", "/todo", None),
        ("GET", "/diff", None),
        ("GET", "/message", None),
        ("GET", "/message/msg_x", None),
        ("POST", "/message", prompt("hi")),
        ("POST", "/prompt_async", prompt("hi")),
        ("POST", "/command", {"command": "init", "arguments": ""}),
        ("POST", "/shell", {"agent": "build", "command": "true"}),
        ("POST", "/fork", {}),
        ("POST", "/share", None),
        ("POST", "/revert", {"messageID": "msg_x"}),
        ("POST", "/unrevert", None),
    ]
    answers = [
        server.get_refusal(server.client.request(method, f"/session/{id}{path}", json=body))
        for method, path, body in asked
    ]
    assert answers == [(404, "NotFoundError")] * len(asked)
    assert server.get("/session") == []


def test_an_unknown_id_of_any_other_kind_is_not_found(server: ProjectServer, session: str) -> None:
    asked = [
        ("GET", f"/session/{session}/message/nope", None),
        ("DELETE", f"/session/{session}/message/msg_x/part/prt_x", None),
        ("POST", f"/session/{session}/revert", {"messageID": "nope"}),
        ("POST", f"/session/{session}/fork", {"messageID": "nope"}),
        ("POST", "/session", {"parentID": "nope"}),
        ("POST", "/permission/nope/reply", {"reply": "once"}),
        ("POST", "/question/nope/reply", {"answers": []}),
        ("POST", "/question/nope/reject", {}),
        ("GET", "/pty/nope", None),
        ("PATCH", "/project/..%2fx", {"name": "x"}),
        ("POST", "/tui/select-session", {"sessionID": "nope"}),
    ]
    answers = [
        server.get_refusal(server.client.request(method, path, json=body)) for method, path, body in asked
    ]
    assert answers == [(404, "NotFoundError")] * len(asked)


def test_a_session_with_a_short_id_of_opencode_is_opened(server: ProjectServer, session: str) -> None:
    stored = next((server.project.parent / "storage" / "session").glob(f"*/{session}.json"))
    short = json.loads(stored.read_text()) | {"id": "ses_short"}
    stored.with_name("ses_short.json").write_text(json.dumps(short))
    assert server.get("/session/ses_short")["id"] == "ses_short"
    assert server.post("/session/ses_short/message", prompt("hi"))["info"]["sessionID"] == "ses_short"


def test_a_prompt_is_answered_with_the_last_message(server: ProjectServer, session: str) -> None:
    answer = server.post(f"/session/{session}/message", prompt("hi"))
    assert (answer["info"]["role"], answer["info"]["finish"]) == ("assistant", "stop")
    stored = server.get(f"/session/{session}/message")
    assert [message["info"]["role"] for message in stored] == ["user", "assistant"]
    assert stored[-1] == answer
    assert server.get(f"/session/{session}/message/{answer['info']['id']}") == answer
    assert server.get("/session/status") == {}
    assert server.get(f"/session/{session}/todo") == []
    assert server.get(f"/session/{session}/diff") == []
    assert server.get(f"/session/{session}/diff?messageID={answer['info']['parentID']}") == []


def test_an_async_prompt_is_stored_before_it_is_acknowledged(tmp_path: Path) -> None:
    with serve_project(tmp_path, [[Wait(seconds=60)]]) as server:
        session = server.post("/session", {})["id"]
        assert server.client.post(f"/session/{session}/prompt_async", json=prompt("hi")).status_code == 204
        (stored,) = server.get(f"/session/{session}/message?limit=1")[:1]
        assert stored["info"]["sessionID"] == session
        assert server.get("/session/status")[session]["type"] == "busy"
        wait_for(lambda: server.get(f"/session/{session}/message")[1:])
        assert server.post(f"/session/{session}/abort") is True
        last = server.get(f"/session/{session}/message")[-1]
        assert last["info"]["error"]["name"] == "MessageAbortedError"
        assert server.get("/session/status") == {}


def test_a_run_of_another_server_is_not_aborted_and_the_error_names_its_process(tmp_path: Path) -> None:
    with (
        serve_project(tmp_path, [[Wait(seconds=60)]]) as server,
        serve_project(tmp_path, project=server.project) as other,
    ):
        session = server.post("/session", {})["id"]
        server.client.post(f"/session/{session}/prompt_async", json=prompt("hi"))
        wait_for(lambda: server.get(f"/session/{session}/message")[1:])
        for path in (f"/session/{session}/abort", f"/weft/session/{session}/abort"):
            refused = other.post(path, status=409)
            assert refused["name"] == "SessionBusyError"
            assert f"process {os.getpid()} on " in refused["data"]["message"]
        assert server.get("/session/status")[session]["type"] == "busy"
        assert server.post(f"/session/{session}/abort") is True
        assert server.get("/session/status") == {}
        assert other.post(f"/session/{session}/abort") is True  # there is nothing to abort


def test_a_run_can_be_aborted_through_any_directory_of_the_server(tmp_path: Path) -> None:
    with serve_project(tmp_path, [[Wait(seconds=60)]]) as server:
        (server.project / "sub").mkdir()
        here, below = {"directory": str(server.project)}, {"directory": str(server.project / "sub")}
        session = server.post("/session", {}, params=below)["id"]
        server.client.post(f"/session/{session}/prompt_async", json=prompt("hi"), params=below)
        wait_for(lambda: server.get(f"/session/{session}/message")[1:])
        assert server.post(f"/weft/session/{session}/abort", params=here) is True
        assert server.get("/session/status", params=below) == {}


def test_a_running_session_is_busy_for_callers_that_cannot_wait(tmp_path: Path) -> None:
    with serve_project(tmp_path, [[Wait(seconds=60)]]) as server:
        session = server.post("/session", {})["id"]
        server.client.post(f"/session/{session}/prompt_async", json=prompt("hi"))
        model = {"providerID": "scripted", "modelID": "test"}
        busy = server.client.post(f"/session/{session}/summarize", json=model)
        assert server.get_refusal(busy) == (409, "SessionBusyError")
        shell = server.client.post(f"/session/{session}/shell", json={"agent": "build", "command": "true"})
        assert server.get_refusal(shell) == (409, "SessionBusyError")


def test_messages_are_paged_with_a_link_to_the_next(server: ProjectServer, session: str) -> None:
    for number in range(3):
        server.post(f"/session/{session}/message", prompt(f"number {number}"))
    everything = [message["info"]["id"] for message in server.get(f"/session/{session}/message")]
    assert len(everything) == 6

    read: list[str] = []
    address = f"/session/{session}/message?limit=4"
    while address:
        page = server.client.get(address)
        read = [message["info"]["id"] for message in page.json()] + read
        cursor = page.headers.get("x-next-cursor")
        address = f"/session/{session}/message?limit=4&before={cursor}" if cursor else ""
        assert (cursor is None) == ("link" not in page.headers)
    assert read == everything
    assert server.get(f"/session/{session}/message?limit=0") == server.get(f"/session/{session}/message")
    lonely = server.client.get(f"/session/{session}/message?before={everything[0]}")
    assert server.get_refusal(lonely) == (400, "InvalidInputError")


def test_a_repeated_request_is_one_prompt(server: ProjectServer, session: str) -> None:
    headers = {"idempotency-key": "a key of mine"}
    first = server.post(f"/session/{session}/message", prompt("hi"), headers=headers)
    again = server.post(f"/session/{session}/message", prompt("hi"), headers=headers)
    assert again == first
    assert len(server.get(f"/session/{session}/message")) == 2
    other = server.client.post(f"/session/{session}/message", json=prompt("bye"), headers=headers)
    assert server.get_refusal(other) == (409, "ConflictError")
    server.post(f"/session/{session}/message", prompt("hi"), headers={"idempotency-key": "another"})
    assert len(server.get(f"/session/{session}/message")) == 4


def test_two_concurrent_requests_with_one_key_are_one_prompt(server: ProjectServer, session: str) -> None:
    headers, answers = {"idempotency-key": "k"}, []

    def send() -> None:
        answers.append(server.post(f"/session/{session}/message", prompt("hi"), headers=headers))

    threads = [threading.Thread(target=send) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({answer["info"]["id"] for answer in answers}) == 1
    assert len(server.get(f"/session/{session}/message")) == 2


def test_a_removed_session_leaves_no_key_in_memory(server: ProjectServer, session: str) -> None:
    def is_held() -> bool:
        kept = [each for each in gc.get_objects() if isinstance(each, IdempotencyKeys)]
        return any(session == owner for each in kept for owner, _ in each._ids)

    server.post(f"/session/{session}/message", prompt("hi"), headers={"idempotency-key": "k"})
    assert is_held()
    server.send("DELETE", f"/session/{session}")
    assert not is_held()


def test_an_idempotency_key_survives_a_restart(tmp_path: Path) -> None:
    headers = {"idempotency-key": "k"}
    with serve_project(tmp_path) as server:
        session = server.post("/session", {})["id"]
        first = server.post(f"/session/{session}/message", prompt("hi"), headers=headers)
        project = server.project
    with serve_project(tmp_path, project=project) as server:
        again = server.post(f"/session/{session}/message", prompt("hi"), headers=headers)
        assert again == first
        assert len(server.get(f"/session/{session}/message")) == 2
        other = server.client.post(f"/session/{session}/message", json=prompt("bye"), headers=headers)
        assert server.get_refusal(other) == (409, "ConflictError")


def test_an_id_chosen_by_the_client_is_kept(server: ProjectServer, session: str) -> None:
    id = "msg_1e10b972b001AbCdEfGhIjKlMn"
    answer = server.post(f"/session/{session}/message", prompt("hi", messageID=id))
    assert answer["info"]["parentID"] == id
    assert server.post(f"/session/{session}/message", prompt("hi", messageID=id)) == answer


def test_the_fields_of_opencodes_python_package_are_accepted(server: ProjectServer, session: str) -> None:
    flat = prompt("hi", providerID="scripted", modelID="test", mode="plan")
    answer = server.post(f"/session/{session}/message", flat)
    assert (answer["info"]["modelID"], answer["info"]["agent"]) == ("test", "plan")
    unknown = server.client.post(
        f"/session/{session}/message", json=prompt("hi", providerID="none", modelID="such")
    )
    assert server.get_refusal(unknown) == (400, "ProviderModelNotFoundError")
    assert {"providerID", "modelID", "suggestions"} <= set(unknown.json()["data"])


def test_a_prompt_without_a_reply_is_stored_and_returned(server: ProjectServer, session: str) -> None:
    stored = server.post(f"/session/{session}/message", prompt("note this", noReply=True))
    assert stored["info"]["role"] == "user"
    assert server.get(f"/session/{session}/message") == [stored]


def test_parts_and_messages_are_changed_and_removed(server: ProjectServer, session: str) -> None:
    answer = server.post(f"/session/{session}/message", prompt("hi"))
    message, part = answer["info"]["id"], answer["parts"][1]
    at = f"/session/{session}/message/{message}/part/{part['id']}"
    assert server.send("PATCH", at, {**part, "text": "other"})["text"] == "other"
    elsewhere = server.client.request("PATCH", at, json={**part, "messageID": answer["info"]["parentID"]})
    assert server.get_refusal(elsewhere) == (400, "InvalidInputError")
    assert server.send("DELETE", at) is True
    assert server.send("DELETE", f"/session/{session}/message/{message}") is True
    assert len(server.get(f"/session/{session}/message")) == 1


def test_permissions_are_listed_and_answered(tmp_path: Path) -> None:
    script = [
        [UseTool(tool="bash", input={"command": "true", "description": "nothing"})],
        [Say(text="done")],
    ]
    with serve_project(tmp_path, script, config={"permission": {"bash": "ask"}}) as server:
        session = server.post("/session", {"title": "t"})["id"]
        server.client.post(f"/session/{session}/prompt_async", json=prompt("go"))
        asked = wait_for(lambda: server.get("/permission"))[0]
        assert (asked["permission"], asked["sessionID"]) == ("bash", session)
        assert server.post(f"/permission/{asked['id']}/reply", {"reply": "once"}) is True
        wait_for(lambda: server.get("/session/status") == {})
        late = server.client.post(f"/permission/{asked['id']}/reply", json={"reply": "once"})
        assert server.get_refusal(late) == (409, "ConflictError")
        assert server.get("/question") == []


def test_the_second_of_two_concurrent_answers_to_a_permission_is_a_conflict(tmp_path: Path) -> None:
    script = [
        [UseTool(tool="bash", input={"command": "true", "description": "nothing"})],
        [Say(text="done")],
    ]
    with serve_project(tmp_path, script, config={"permission": {"bash": "ask"}}) as server:
        session = server.post("/session", {"title": "t"})["id"]
        server.client.post(f"/session/{session}/prompt_async", json=prompt("go"))
        asked = wait_for(lambda: server.get("/permission"))[0]
        where = f"/permission/{asked['id']}/reply"
        with ThreadPoolExecutor(2) as threads:
            answers = threads.map(
                lambda reply: server.client.post(where, json={"reply": reply}), ("always", "reject")
            )
            always, reject = (answer.status_code for answer in answers)
        wait_for(lambda: server.get("/session/status") == {})
        [part] = [
            part
            for message in server.get(f"/session/{session}/message")
            for part in message["parts"]
            if part["type"] == "tool"
        ]

        assert sorted((always, reject)) == [200, 409]
        assert part["state"]["status"] == ("completed" if always == 200 else "error")
        assert len(server.get("/weft/grant")) == (always == 200)


def wait_for(look: object) -> list[dict[str, str]]:
    assert callable(look)
    for _ in range(6000):
        if found := look():
            return found  # type: ignore[no-any-return]
        threading.Event().wait(0.005)
    raise AssertionError("it did not come to be")


def test_nothing_is_shared_without_a_configured_server(server: ProjectServer, session: str) -> None:
    assert server.get_refusal(server.client.post(f"/session/{session}/share")) == (400, "InvalidInputError")
    assert server.get_refusal(server.client.delete(f"/session/{session}/share")) == (404, "NotFoundError")


def test_commands_and_shell_commands_run(tmp_path: Path) -> None:
    config = {"command": {"greet": {"template": "say hello to $ARGUMENTS"}}}
    with serve_project(tmp_path, config=config) as server:
        session = server.post("/session", {})["id"]
        assert "greet" in [command["name"] for command in server.get("/command")]
        answer = server.post(f"/session/{session}/command", {"command": "greet", "arguments": "you"})
        assert answer["info"]["role"] == "assistant"
        assert server.get(f"/session/{session}/message")[0]["parts"][0]["text"] == "say hello to you"
        ran = server.post(f"/session/{session}/shell", {"agent": "build", "command": "echo over here"})
        assert "over here" in ran["parts"][0]["state"]["output"]
        unknown = server.client.post(f"/session/{session}/command", json={"command": "nope", "arguments": ""})
        assert server.get_refusal(unknown) == (404, "NotFoundError")


def test_an_undo_that_does_not_fit_on_the_disk_is_refused_with_its_files(tmp_path: Path) -> None:
    run = UseTool(tool="bash", input={"command": "echo small > big.txt", "description": "Shrink it"})
    script = [[run], [Say(text="Done.")]]
    with serve_project(tmp_path, script, config={"permission": "allow"}) as server:
        big = server.project / "big.txt"
        big.write_text("large\n" * 100_000)
        session = server.post("/session", {})["id"]
        asked = server.post(f"/session/{session}/message", prompt("go"))["info"]["parentID"]
        for path in (f"/session/{session}/revert", f"/weft/session/{session}/revert"):
            with limit_file_size(300_000):
                refused = server.post(path, {"messageID": asked}, 507)
            assert (refused["name"], refused["data"]["files"]) == ("RestoreFailedError", [str(big)])
        assert (big.read_text(), "revert" in server.get(f"/session/{session}")) == ("small\n", False)
        server.post(f"/session/{session}/revert", {"messageID": asked})
        assert big.read_text() == "large\n" * 100_000
