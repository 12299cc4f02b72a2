"""Configuration and instructions from the network, in a real run: fetched if allowed, limited in time and size, and cached."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from given.http_server import make_project
from given.web import Answer, open_web
from weft.errors import ConfigError
from weft.host.clock import SystemClock
from weft.host.web import WebError, fetch
from weft.local.open import OpenOptions, open_directory
from weft.model.input import SessionInput, prompt
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.registry import ServedModel
from weft.provider.scripted import Say, ScriptedProvider


async def read_system_prompt(tmp_path: Path, project: Path) -> tuple[str, list[str]]:
    """Return the system prompt of a new session, and the warnings."""
    provider = ScriptedProvider([[Say(text="ok")]], SystemClock())
    warnings: list[ConfigError] = []
    opening = OpenOptions(
        directory=str(project),
        env=dict(os.environ),
        store=f"file:{tmp_path / 'storage'}",
        models=(ServedModel(make_scripted_model("test"), provider),),
        warn=warnings.append,
    )
    async with open_directory(opening) as api:
        session = await api.create_session(SessionInput(title="t"))
        await api.prompt(session.id, prompt("go"))
    return "\n".join(provider.requests[0].system), [str(warning) for warning in warnings]


def configure(url: str) -> None:
    own, data = (Path(os.environ[name]) / "opencode" for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"))
    own.mkdir(parents=True, exist_ok=True)
    data.mkdir(parents=True, exist_ok=True)
    said = {"model": "scripted/test", "instructions": [f"{url}/mine.md"]}
    (own / "opencode.json").write_text(json.dumps(said))
    login = {url: {"type": "wellknown", "key": "ORG_TOKEN", "token": "t0ken"}}
    (data / "auth.json").write_text(json.dumps(login))


def age_copies() -> None:
    for copy in (Path(os.environ["XDG_CACHE_HOME"]) / "opencode" / "weft" / "remote").iterdir():
        os.utime(copy, (0, 0))


async def test_remote_configuration_and_instructions_reach_the_model_even_offline(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path / "project")
    pages = {
        "/org.md": Answer(b"Speak of the organisation.", kind="text/markdown"),
        "/mine.md": Answer(b"Speak of me.", kind="text/markdown"),
        "/theirs.md": Answer(b"Speak of them.", kind="text/markdown"),
    }
    with open_web(pages) as web:
        configure(web.url)
        pages["/.well-known/opencode"] = Answer(
            json.dumps({"config": {"instructions": [f"{web.url}/org.md"]}}).encode()
        )
        (project / "opencode.json").write_text(json.dumps({"instructions": [f"{web.url}/theirs.md"]}))
        system_prompt, _ = await read_system_prompt(tmp_path, project)
        assert sorted(asked.path for asked in web.requests) == [
            "/.well-known/opencode",
            "/mine.md",
            "/org.md",
        ]

    assert "Speak of the organisation." in system_prompt
    assert "Speak of me." in system_prompt
    assert "Speak of them." not in system_prompt
    age_copies()
    offline, warnings = await read_system_prompt(tmp_path, project)
    assert "Speak of the organisation." in offline
    assert "Speak of me." in offline
    failed = "could not be fetched (no connection (ConnectError)); using an earlier copy"
    assert f"{web.url}/.well-known/opencode: {failed}" in warnings


async def test_an_organisation_that_was_never_reached_does_not_prevent_starting(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    with open_web({}) as web:
        url = web.url
    configure(url)
    system_prompt, warnings = await read_system_prompt(tmp_path, project)
    assert f"{url}/mine.md" in system_prompt
    assert "[not read: it could not be fetched (no connection (ConnectError))]" in system_prompt
    assert f"{url}/.well-known/opencode: could not be fetched (no connection (ConnectError))" in warnings


@contextmanager
def serve_endless_headers() -> Iterator[str]:
    """A server that sends its headers one byte at a time, and never finishes."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
                while not over.wait(0.01):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            over.set()
            thread.join()


def test_a_response_that_never_ends_is_given_up() -> None:
    with serve_endless_headers() as url, pytest.raises(WebError, match=r"no whole answer within 0\.2 s"):
        fetch(url, seconds=0.2)


def test_a_large_or_missing_document_is_refused_and_a_redirect_is_followed() -> None:
    pages = {
        "/large": Answer(b"x" * 1001),
        "/small": Answer(b"x" * 1000),
        "/moved": Answer(b"", status=302, headers=(("location", "/small"),)),
        "/round": Answer(b"", status=302, headers=(("location", "/round"),)),
    }
    with open_web(pages) as web:
        assert (
            fetch(f"{web.url}/small", max_bytes=1000)
            == fetch(f"{web.url}/moved", max_bytes=1000)
            == b"x" * 1000
        )
        for path, reason in (
            ("/large", "more than 1,000 bytes"),
            ("/nothing", "status 404"),
            ("/round", "no connection (TooManyRedirects)"),
        ):
            with pytest.raises(WebError) as caught:
                fetch(f"{web.url}{path}", max_bytes=1000)
            assert str(caught.value) == reason
