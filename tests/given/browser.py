"""A real headless browser: it opens pages, inspects them, and records their requests and problems."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Message, Request, TextMessage

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 60.0
A_MOMENT = 0.05
ADDRESS = re.compile(r"DevTools listening on (ws://\S+)")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)


class DriverError(Exception):
    """The browser refused a command, or an expression raised in the page."""


def find_chromium() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def open_browser(directory: Path) -> Iterator["Browser"]:
    """Open a browser with an empty profile that can reach this machine alone. At the end none of its processes is left.

    Without a browser the test is skipped, but in CI it fails.
    """
    found = find_chromium()
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no browser here: install chromium")
    # The browser is killed and leaves its temporary files behind, so it gets its own directory for them.
    with TemporaryDirectory(prefix="weft-browser-", ignore_cleanup_errors=True) as scratch:
        env = {"PATH": os.environ["PATH"], "HOME": str(directory), "TMPDIR": scratch, "LANG": "C.UTF-8"}
        command = [found, *FLAGS, f"--user-data-dir={directory / 'profile'}", "about:blank"]
        with _run_browser(command, env) as address, DevTools(address) as devtools:
            yield Browser(devtools)


@contextmanager
def _run_browser(command: list[str], env: dict[str, str]) -> Iterator[str]:
    """Run the browser and yield the address that it listens at."""
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    addresses: SimpleQueue[str] = SimpleQueue()
    listening = threading.Thread(target=_listen, args=(process, addresses))
    listening.start()
    try:
        address = addresses.get(timeout=SECONDS)
        assert address, "the browser ended before it began"
        yield address
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        listening.join()


def _listen(process: subprocess.Popen[str], addresses: SimpleQueue[str]) -> None:
    """Put the address into the queue, then keep reading so that the browser is never blocked. Put an empty text at the end."""
    assert process.stderr is not None
    with process.stderr as said:
        for line in said:
            if found := ADDRESS.search(line):
                addresses.put(found[1])
    addresses.put("")


class DevTools:
    """The DevTools protocol: commands with their answers, and the events in between."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=SECONDS)
        self._socket.sendall(self._protocol.send(Request(host=parts.netloc, target=parts.path)))
        self._half = ""
        self._count = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self.events: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self._accepted = False
        self._receive_until(lambda: self._accepted)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        self._count += 1
        id = self._count
        said = {"id": id, "method": method, "params": params} | ({"sessionId": session} if session else {})
        self._socket.sendall(self._protocol.send(Message(data=json.dumps(said))))
        self._receive_until(lambda: id in self._answers)
        answer = self._answers.pop(id)
        if "error" in answer:
            raise DriverError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def listen(self, seconds: float) -> None:
        """Read events until none has arrived for some `seconds`."""
        self._socket.settimeout(seconds)
        with suppress(TimeoutError):
            self._receive()

    def _receive_until(self, done: Callable[[], bool]) -> None:
        self._socket.settimeout(SECONDS)
        while not done():
            self._receive()

    def _receive(self) -> None:
        raw = self._socket.recv(1 << 20)
        assert raw, "the browser hung up"
        self._protocol.receive_data(raw)
        for event in self._protocol.events():
            if isinstance(event, AcceptConnection):
                self._accepted = True
            elif isinstance(event, TextMessage):
                self._half += event.data
                if event.message_finished:
                    self._record(json.loads(self._half))
                    self._half = ""

    def _record(self, said: dict[str, Any]) -> None:
        if "id" in said:
            self._answers[said["id"]] = said
        else:
            about = self.events.setdefault(said.get("sessionId", ""), [])
            about.append((said["method"], said.get("params", {})))


class Browser:
    def __init__(self, devtools: DevTools) -> None:
        self._devtools = devtools

    @contextmanager
    def open(self, url: str) -> Iterator["Tab"]:
        """Open a new tab that shares nothing with any other."""
        context = self._devtools.call("Target.createBrowserContext")["browserContextId"]
        target = self._devtools.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = self._devtools.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab = Tab(self._devtools, attached["sessionId"])
        try:
            tab.go(url)
            yield tab
        finally:
            self._devtools.call("Target.disposeBrowserContext", browserContextId=context)


class Tab:
    """One open page."""

    def __init__(self, devtools: DevTools, session: str) -> None:
        self._devtools = devtools
        self._session = session
        for domain in ("Page", "Runtime", "Network", "Log", "Audits"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._devtools.call(method, self._session, **params)

    def go(self, url: str) -> None:
        """Open a URL, and wait until the page has loaded."""
        loaded = len(self.events("Page.loadEventFired"))
        failed = self.call("Page.navigate", url=url).get("errorText")
        assert not failed, f"{url}: {failed}"
        self.wait(lambda: len(self.events("Page.loadEventFired")) > loaded, f"{url} never loaded")

    def speed_up_timers(self) -> None:
        """From the next page on, timers run fifty times as fast."""
        quick = "{const wait = setTimeout; window.setTimeout = (what, ms) => wait(what, ms / 50)}"
        self.call("Page.addScriptToEvaluateOnNewDocument", source=quick)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page, once its promise is resolved."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise DriverError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true. While a page is being left it has no value, which counts as false."""

        def holds() -> bool:
            try:
                return bool(self.evaluate(expression))
            except DriverError:
                return False

        self.wait(holds, f"never true: {expression}")

    @contextmanager
    def pause_requests(self, pattern: str) -> Iterator[Callable[[], str]]:
        """Pause matching requests. Each call of the yielded function returns the id of the next one, to continue or answer it."""
        held = iter(range(len(self.events("Fetch.requestPaused")), 1 << 30))
        self.call("Fetch.enable", patterns=[{"urlPattern": pattern}])

        def take() -> str:
            number = next(held)
            self.wait(
                lambda: len(self.events("Fetch.requestPaused")) > number, f"nothing asked for {pattern}"
            )
            id: str = self.events("Fetch.requestPaused")[number]["requestId"]
            return id

        yield take
        self.call("Fetch.disable")

    def text(self) -> str:
        """Return the text of the page, including collapsed elements."""
        said: str = self.evaluate("document.body.textContent")
        return said

    def events(self, method: str) -> list[dict[str, Any]]:
        """Return the events of one method since the tab was opened."""
        return [params for kind, params in self._devtools.events.get(self._session, []) if kind == method]

    def requests(self) -> list[str]:
        """Return the URLs of all requests, without data URLs."""
        sent = [each["request"]["url"] for each in self.events("Network.requestWillBeSent")]
        return [url for url in sent if not url.startswith("data:")]

    def problems(self) -> list[str]:
        """Return console messages, errors, and violations of a policy."""
        said = [
            str([arg.get("value") for arg in each["args"]])
            for each in self.events("Runtime.consoleAPICalled")
        ]
        raised = [str(each["exceptionDetails"]) for each in self.events("Runtime.exceptionThrown")]
        logged = [each["entry"]["text"] for each in self.events("Log.entryAdded")]
        return [*said, *raised, *logged, *(f"policy: {each}" for each in self.violations())]

    def violations(self) -> list[str]:
        """Return the directives of the content security policy that blocked something."""
        issues = [each["issue"] for each in self.events("Audits.issueAdded")]
        return [
            issue["details"]["contentSecurityPolicyIssueDetails"]["violatedDirective"]
            for issue in issues
            if issue["code"] == "ContentSecurityPolicyIssue"
        ]

    def wait(self, done: Callable[[], bool], otherwise: str) -> None:
        end = time.monotonic() + SECONDS
        while not done():
            assert time.monotonic() < end, f"{otherwise}; the page said {self.problems()}"
            self._devtools.listen(A_MOMENT)
