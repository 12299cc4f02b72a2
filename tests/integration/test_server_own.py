"""Our own routes: what the promise has and OpenCode's wire does not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from given.serving import Site, prompt, served
from weft.provider.scripted import Say, UseTool, Wait


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with served(tmp_path) as site:
        yield site


def make(site: Site, **more: Any) -> str:
    return str(site.post("/session", more)["id"])


def test_a_session_is_changed_in_one_step_and_only_as_expected(site: Site) -> None:
    session = make(site, title="first")
    before = site.get(f"/session/{session}")
    change = {"title": "second", "pinned": True, "tag": ["red", "blue"]}
    after = site.send("PATCH", f"/weft/session/{session}", {"change": change, "expected": before})
    assert (after["title"], after["weft"]["pinned"], set(after["weft"]["tags"])) == (
        "second",
        True,
        {"red", "blue"},
    )
    again = {"change": {"untag": ["red"]}, "expected": before}
    assert site.send("PATCH", f"/weft/session/{session}", again, 409)["name"] == "ConflictError"
    archived = site.send("PATCH", f"/weft/session/{session}", {"change": {"archived": True}})
    assert archived["time"]["archived"] > 0


def test_sessions_are_listed_by_what_they_are_told_apart_by(site: Site) -> None:
    red, plain = make(site, title="a red one"), make(site)
    site.send("PATCH", f"/weft/session/{red}", {"change": {"tag": ["red"]}})
    assert [each["id"] for each in site.get("/weft/session", params={"tag": "red"})] == [red]
    site.send("PATCH", f"/weft/session/{plain}", {"change": {"archived": True}})
    assert [each["id"] for each in site.get("/weft/session", params={"archived": "false"})] == [red]
    here = {"at": str(site.project), "limit": 1, "order": "updated", "everywhere": "true"}
    assert len(site.get("/weft/session", params=here)) == 1
    assert site.get("/weft/session", 400, params={"order": "size"})["name"] == "InvalidInputError"


def test_a_session_is_made_under_an_id_of_ones_own_in_the_project_alone(site: Site, tmp_path: Path) -> None:
    id = "ses_0000000000000000000000000a"
    (site.project / "below").mkdir()
    made = site.post("/weft/session", {"id": id, "directory": "below", "title": "mine"})
    assert (made["id"], made["directory"]) == (id, str(site.project / "below"))
    assert site.post("/weft/session", {"id": id}, 409)["name"] == "ConflictError"
    assert site.post("/weft/session", {"directory": str(tmp_path)}, 403)["name"] == "OutsideError"
    assert site.post("/weft/session", {"directory": "a\0b"}, 403)["name"] == "OutsideError"
    (site.project / "out").symlink_to(tmp_path)
    assert site.post("/weft/session", {"directory": "out"}, 403)["name"] == "OutsideError"


def test_a_tree_goes_into_the_trash_and_comes_back_or_goes_for_good(site: Site) -> None:
    top = make(site)
    child = make(site, parentID=top)
    tree = site.get(f"/weft/session/{top}/tree")
    assert (tree["session"]["id"], [each["session"]["id"] for each in tree["children"]]) == (top, [child])
    assert [each["id"] for each in site.send("DELETE", f"/weft/session/{top}")] == [child, top]
    assert [each["sessions"][0]["id"] for each in site.get("/weft/trash")] == [top]
    assert {each["id"] for each in site.post(f"/weft/session/{top}/restore")} == {top, child}
    site.client.delete(f"/weft/session/{top}", params={"trash": "false"}).raise_for_status()
    assert site.get("/weft/trash") == []
    assert site.post(f"/weft/session/{top}/restore", status=404)["name"] == "NotFoundError"


def test_touching_says_that_it_was_worked_on(site: Site) -> None:
    session = make(site)
    before = site.get(f"/session/{session}")["time"]["updated"]
    assert site.post(f"/weft/session/{session}/touch")["time"]["updated"] >= before


def test_what_was_said_is_found_counted_and_moved(site: Site) -> None:
    session = make(site, title="about otters")
    site.post(f"/session/{session}/message", prompt("where do otters live"))
    assert [hit["sessionID"] for hit in site.get("/weft/search", params={"words": "otters"})] == [session]
    assert site.get(f"/weft/session/{session}/spending")["own"]["steps"] == 1
    assert site.get("/weft/figures", params={"days": 0})["sessions"] == 1
    export = site.get(f"/weft/session/{session}/export")
    assert export["info"]["id"] == session
    tried = site.post("/weft/import", export, params={"dryRun": "true"})
    assert (tried["verdict"], tried["id"]) == ("same", session)
    site.client.delete(f"/weft/session/{session}", params={"trash": "false"}).raise_for_status()
    assert site.post("/weft/import", export)["verdict"] == "new"
    assert len(site.get(f"/session/{session}/message")) == 2


def test_a_prompt_is_checked_sent_and_given_back_as_it_was_stored(site: Site) -> None:
    session = make(site)
    assert site.post("/weft/prompt/check", prompt("hi", agent="nobody"), 404)["name"] == "NotFoundError"
    assert site.post("/weft/prompt/check", prompt("hi"), 204) is None
    sent = site.post(f"/weft/session/{session}/submit", prompt("hi"))
    assert (sent["info"]["role"], sent["parts"][0]["text"]) == ("user", "hi")


def test_messages_and_parts_are_put_where_the_address_says(site: Site) -> None:
    session = make(site)
    asked = site.post(f"/weft/session/{session}/submit", prompt("hi", noReply=True))
    info, part = asked["info"], asked["parts"][0]
    at = f"/weft/session/{session}/message/{info['id']}"
    assert site.send("PUT", at, {**info, "agent": "plan"})["agent"] == "plan"
    put = site.send("PUT", f"{at}/part/{part['id']}", {"part": {**part, "text": "hi you"}, "delta": " you"})
    assert put["text"] == "hi you"
    assert site.send("PUT", at, {**info, "id": "msg_" + "0" * 26}, 400)["name"] == "InvalidInputError"


def test_summing_up_gives_the_summary_and_can_be_taken_back(site: Site) -> None:
    session = make(site)
    site.post(f"/session/{session}/message", prompt("hi"))
    assert site.post(f"/weft/session/{session}/uncompact") is False
    assert site.post(f"/weft/session/{session}/compact")["info"]["summary"] is True
    assert site.post(f"/weft/session/{session}/uncompact") is True


def test_aborting_says_whether_there_was_a_run(tmp_path: Path) -> None:
    with served(tmp_path, [[Wait(seconds=60)], [Say(text="title")]]) as site:
        session = make(site, title="long")
        assert site.post(f"/weft/session/{session}/abort") is False
        assert site.get(f"/weft/session/{session}/status") == {"type": "idle"}
        site.post(f"/weft/session/{session}/submit", prompt("wait"))
        assert site.get(f"/weft/session/{session}/status")["type"] == "busy"
        assert site.post(f"/weft/session/{session}/abort") is True


def test_taking_back_says_what_becomes_of_files_and_can_be_tried_first(tmp_path: Path) -> None:
    call = UseTool(tool="write", input={"filePath": "made.txt", "content": "made\n"})
    with served(tmp_path, [[call], [Say(text="done")]]) as site:
        session = make(site, title="writes")
        asked = site.post(f"/weft/session/{session}/submit", prompt("write"))
        site.post(f"/session/{session}/message", prompt("and?", noReply=True))
        wait_until_idle(site, session)
        message = asked["info"]["id"]
        tried = site.post(f"/weft/session/{session}/revert", {"messageID": message, "dryRun": True})
        made = site.project / "made.txt"
        assert [each["file"] for each in tried["files"]] == [str(made)]
        assert made.exists()
        none = site.post(f"/weft/session/{session}/revert", {"messageID": message, "files": []})
        assert none["session"]["revert"]["messageID"] == message
        assert made.exists()
        site.post(f"/weft/session/{session}/unrevert")
        site.post(f"/weft/session/{session}/revert", {"messageID": message})
        assert not made.exists()
        back = site.post(f"/weft/session/{session}/unrevert", {"dryRun": False})
        assert [each["file"] for each in back["files"]] == [str(made)]
        assert made.exists()


def wait_until_idle(site: Site, session: str) -> None:
    """A prompt that is answered only when the run is over."""
    with site.client.stream("GET", "/event") as events:
        if site.get(f"/weft/session/{session}/status")["type"] == "idle":
            return
        for line in events.iter_lines():
            if '"session.idle"' in line and session in line:
                return


def test_a_grant_has_terms_is_listed_and_taken_back(tmp_path: Path) -> None:
    ask = {"permission": {"bash": "ask"}}
    call = UseTool(tool="bash", input={"command": "echo hi", "description": "say hi"})
    with served(tmp_path, [[call], [Say(text="done")]], config=ask) as site:
        session = make(site, title="asks")
        with site.client.stream("GET", "/event") as events:
            lines = events.iter_lines()
            site.post(f"/weft/session/{session}/submit", prompt("say hi"))
            next(line for line in lines if '"permission.asked"' in line)
        (asked,) = site.get("/permission")
        answer = {"reply": "always", "grant": {"scope": "session", "anyAgent": True}}
        assert site.post(f"/weft/permission/{asked['id']}/reply", answer) is True
        (grant,) = site.get("/weft/grant")
        assert (grant["scope"], grant["permission"]) == ("session", "bash")
        assert site.send("DELETE", f"/weft/grant/{grant['id']}") is True
        assert site.get("/weft/grant") == []
        assert site.send("DELETE", f"/weft/grant/{grant['id']}", None, 404)["name"] == "NotFoundError"


def test_one_command_and_all_tools_are_there_by_name(site: Site) -> None:
    assert site.get("/weft/command/init")["name"] == "init"
    assert site.get("/weft/command/nothing", 404)["name"] == "NotFoundError"
    assert "bash" in {tool["id"] for tool in site.get("/weft/tool")}
