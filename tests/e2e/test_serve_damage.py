"""A server reports the documents that it cannot read: in its log, and on a route."""

import signal
from pathlib import Path

import httpx2

from given.http_server import prompt, serve_project
from given.serve_process import start_serve


def test_damaged_documents_are_logged_once_and_listed_on_a_route(tmp_path: Path) -> None:
    with serve_project(tmp_path) as server:
        ids = [server.post("/session", {"title": title})["id"] for title in ("Whole", "Cut off")]
        server.post(f"/session/{ids[0]}/message", prompt("Go."))
    root = tmp_path / "storage"
    [session] = root.glob(f"session/*/{ids[1]}.json")
    session.write_text('{"id": "ses_')
    part = next(root.glob("part/*/*.json"))
    part.write_text("")
    stray = session.parent / "notes.txt"
    stray.write_text("mine")
    damaged = [str(part), str(session), str(stray)]

    with (
        start_serve(tmp_path / "project", "--auth", "none", "--store", str(root)) as process,
        httpx2.Client(base_url=process.url, timeout=60) as client,
    ):
        for _ in range(2):
            assert [each["title"] for each in client.get("/session").json()] == ["Whole"]
            assert len(client.get(f"/session/{ids[0]}/message").json()) == 2
        listed = client.get("/weft/damage").json()
        assert process.end(signal.SIGTERM) == 0
    assert sorted(each["where"] for each in listed) == sorted(damaged)
    for path in damaged:
        lines = [line for line in process.noted if path in line]
        assert len(lines) == 1, process.noted
        assert lines[0].startswith("warning: ")
        assert lines[0].endswith("; the document is skipped")
