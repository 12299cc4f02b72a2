"""Our page in a real browser, on a server whose model answers by what it is asked."""

import os
import shlex
import shutil
import struct
import sys
import zlib
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    expect,
    sync_playwright,
)

from given.browser import find_chromium
from given.http_server import ProjectServer, serve_project
from weft.host.clock import SystemClock
from weft.provider.chunk import AnyChunk
from weft.provider.contract import AssistantModelMessage, ModelRequest, TextContent, UserModelMessage
from weft.provider.scripted import AnyMove, End, Fail, Say, Think, UseTool, Wait, play
from weft.server.access import AccessPolicy

PASSWORD = "a password for the page"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]
TIMEOUT_MS = 20_000
PROSE = (
    "## What I found\n\nThe loom drops a thread when **two shuttles** meet.\n\n- the first waits\n- the second does not\n\n"
    "```python\ndef meet(first, second):\n    return first or second\n```\n\n| shuttle | waits |\n|---|--:|\n| first | 12 |\n| second | 0 |\n"
)
# By a word of the prompt: the answers to it, step by step.
SCRIPTS: Mapping[str, Sequence[Sequence[AnyMove]]] = {
    "prose": [[Think(text="I should look at both shuttles first."), Say(text=PROSE)]],
    "slowly": [[Say(text="word " * 40), Wait(seconds=600), Say(text="never said")]],
    "edit": [
        [UseTool(tool="read", input={"filePath": "hello.txt"})],
        [
            Say(text="I will change the greeting."),
            UseTool(
                tool="edit",
                input={
                    "filePath": "hello.txt",
                    "oldString": "hello there",
                    "newString": "hello loom\nand weft",
                },
            ),
        ],
        [Say(text="The greeting is changed.")],
    ],
    "shell": [
        [UseTool(tool="bash", input={"command": "echo warp and weft", "description": "Say two words"})],
        [Say(text="The shell has spoken.")],
    ],
    "outside": [
        [UseTool(tool="bash", input={"command": "ls ../looms", "description": "Look next door"})],
        [Say(text="There are looms.")],
    ],
    "todos": [
        [
            UseTool(
                tool="todowrite",
                input={
                    "todos": [
                        {"id": "1", "content": "string the loom", "status": "completed", "priority": "high"},
                        {
                            "id": "2",
                            "content": "throw the shuttle",
                            "status": "in_progress",
                            "priority": "high",
                        },
                        {"id": "3", "content": "beat the weft", "status": "pending", "priority": "low"},
                    ]
                },
            )
        ],
        [Say(text="The plan is made.")],
    ],
    "question": [
        [
            UseTool(
                tool="question",
                input={
                    "questions": [
                        {
                            "question": "Which thread?",
                            "header": "Thread",
                            "options": [
                                {"label": "wool", "description": "warm"},
                                {"label": "silk", "description": "smooth"},
                            ],
                        }
                    ]
                },
            )
        ],
        [Say(text="Then so be it.")],
    ],
    "child": [
        [
            UseTool(
                tool="task",
                input={"description": "look around", "prompt": "say prose", "subagent_type": "general"},
            )
        ],
        [Say(text="The child has reported.")],
    ],
    "errand": [
        [
            UseTool(
                tool="task",
                input={"description": "run", "prompt": "use the shell", "subagent_type": "general"},
            )
        ],
        [Say(text="The errand is run.")],
    ],
    "break": [[Fail(message="the model is out of thread", status=400)]],
}
OTHERWISE: Sequence[Sequence[AnyMove]] = [[Say(text="Here is a short answer.")]]


class WordsProvider:
    """A model that answers each prompt by the first word of it that it knows, however often it is asked."""

    def __init__(
        self, scripts: Mapping[str, Sequence[Sequence[AnyMove]]] = SCRIPTS, *, pace: float = 0
    ) -> None:
        self._scripts = scripts
        self._pace = pace
        self._count = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self._count += 1
        step = 0
        prompt = ""
        for message in reversed(request.messages):
            if isinstance(message, UserModelMessage):
                texts = [each.text for each in message.content if isinstance(each, TextContent)]
                prompt = texts[0] if texts else ""  # what follows it was added by agents
                break
            step += isinstance(message, AssistantModelMessage)
        script = self._choose_script(prompt, request) if request.tools else [[Say(text="Words about a loom")]]
        moves = script[step] if step < len(script) else [Say(text="That was all."), End()]
        async for chunk in play(moves, request, SystemClock(), number=self._count, pace=self._pace):
            yield chunk

    def _choose_script(self, prompt: str, request: ModelRequest) -> Sequence[Sequence[AnyMove]]:
        del request
        found = [(prompt.index(word), word) for word in self._scripts if word in prompt]
        return self._scripts[min(found)[1]] if found else OTHERWISE


def make_png(width: int = 24, height: int = 16) -> bytes:
    """Return a picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\x0f\x76\x6e" * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


@contextmanager
def clean_environment(home: Path) -> Iterator[None]:
    """Hide the settings of the person who runs the tests, for fixtures that outlive a single test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("OPENCODE_", "XDG_", "GIT_")) or name.endswith("_API_KEY"):
                patch.delenv(name)
        patch.setenv("HOME", str(home))
        for kind in ("DATA", "CONFIG", "STATE", "CACHE"):
            patch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
        for role in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{role}_NAME", "Ada Loom")
            patch.setenv(f"GIT_{role}_EMAIL", "ada@example.test")
        yield


@contextmanager
def serve_page(
    tmp_path: Path, *, provider: WordsProvider | None = None, **more: Any
) -> Iterator[ProjectServer]:
    """Serve a project with a password and a model that knows the scripts."""
    (tmp_path / "home").mkdir(parents=True, exist_ok=True)
    config = {"permission": {"bash": "ask"}, **more.pop("config", {})}
    with (
        clean_environment(tmp_path / "home"),
        serve_project(
            tmp_path,
            access=AccessPolicy(password=PASSWORD, open_to_all="/s/"),
            config=config,
            provider=provider or WordsProvider(),
            pages="http://127.0.0.1",
            **more,
        ) as server,
    ):
        server.client.auth = ("opencode", PASSWORD)
        yield server


@contextmanager
def open_page_browser() -> Iterator[Browser]:
    """Open the browser that `WEFT_TEST_BROWSER` names, `firefox` or by default chromium."""
    opened = open_firefox() if os.environ.get("WEFT_TEST_BROWSER") == "firefox" else open_chromium()
    with opened as browser:
        yield browser


@contextmanager
def open_firefox() -> Iterator[Browser]:
    """Open the Firefox of this machine, with an empty profile."""
    with TemporaryDirectory(prefix="weft-firefox-") as place, sync_playwright() as playwright:
        launcher = _write_launcher(Path(place))
        browser = playwright.firefox.launch(
            channel="moz-firefox", executable_path=str(launcher), env={**os.environ, "HOME": place}
        )
        try:
            yield browser
        finally:
            browser.close()


def _write_launcher(place: Path) -> Path:
    """Write a command that starts Firefox through `given.firefox`, and return its path."""
    found = next((path for name in ("firefox", "firefox-esr") if (path := shutil.which(name))), None)
    assert found is not None, "there is no Firefox: install firefox-esr"
    command = shlex.join([sys.executable, str(Path(__file__).with_name("firefox.py")), found])
    launcher = place / "firefox"
    launcher.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    launcher.chmod(0o755)
    return launcher


@contextmanager
def open_chromium() -> Iterator[Browser]:
    """Open a browser that can reach this machine alone. Without one the test is skipped, but in CI it fails."""
    found = find_chromium()
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no browser here: install chromium")
    with sync_playwright() as playwright:
        browser = launch(playwright, str(found))
        try:
            yield browser
        finally:
            browser.close()


def launch(playwright: Playwright, path: str) -> Browser:
    return playwright.chromium.launch(executable_path=path, args=FLAGS)


class Visit:
    """A browser that is logged in, and everything that went wrong in its pages."""

    def __init__(self, server: ProjectServer, context: BrowserContext) -> None:
        self.server = server
        self.context = context
        self.problems: list[str] = []
        self.requests: list[str] = []
        context.set_default_timeout(TIMEOUT_MS)
        expect.set_options(timeout=TIMEOUT_MS)
        context.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error('policy: ' + e.violatedDirective + ' ' + e.blockedURI))"
        )
        context.on("page", self._watch)

    def _watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", self._note)
        page.on("request", lambda request: self.requests.append(request.url))

    def _note(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self.problems.append(f"console: {said.text} {said.location.get('url', '')}")

    def log_in(self) -> Page:
        """Open the page by a link that logs in."""
        ticket = self.server.post("/weft/login-link")["ticket"]
        page = self.context.new_page()
        page.goto(f"{self.server.url}/#login={ticket}")
        page.get_by_role("heading", name="Sessions", exact=True).wait_for()
        return page

    def make_session(self, *prompts: str, title: str | None = "A loom") -> str:
        """Make a session, and wait for the answers to its prompts."""
        id: str = self.server.post("/session", {"title": title} if title else {})["id"]
        for words in prompts:
            self.server.post(f"/session/{id}/message", {"parts": [{"type": "text", "text": words}]})
        return id

    def open_session(self, page: Page, *prompts: str, title: str | None = "A loom") -> str:
        """Make a session and show it."""
        id = self.make_session(*prompts, title=title)
        page.goto(f"{self.server.url}/web/session/{id}")
        page.get_by_label("Your prompt").wait_for()
        return id

    def check(self) -> None:
        """Fail if a page reported a problem, or loaded something from elsewhere."""
        assert self.problems == [], self.problems
        assert [url for url in self.requests if not url.startswith((self.server.url, "data:", "blob:"))] == []


@contextmanager
def visit(server: ProjectServer, browser: Browser, **options: Any) -> Iterator[Visit]:
    """Open a browser profile of its own, and check at the end that nothing went wrong in it."""
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 850}, **options})
    try:
        visit = Visit(server, context)
        yield visit
        visit.check()
    finally:
        context.close()


def ask(page: Page, words: str) -> None:
    """Write a prompt, and send it."""
    page.get_by_label("Your prompt").fill(words)
    page.get_by_role("button", name="Send").click()
