"""Measure the page: its size, the time to the end of a long session, and what streaming and idling cost tab and server.

python bench/page.py
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import httpx2  # noqa: E402
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page  # noqa: E402

from given.page import PASSWORD, WordsProvider, open_chromium, serve_page  # noqa: E402
from weft.provider.scripted import Say  # noqa: E402
from weft.web.files import load_files  # noqa: E402

MESSAGES = 5000
LONG = f"ses_{0:012x}{0:014d}"
TOKENS = 2000
PACE_SECONDS = 0.005
IDLE_SECONDS = 10
TICKS = os.sysconf("SC_CLK_TCK")
SAMPLE = (
    "## A heading\n\nA paragraph with **bold** words and `code` that is long enough to be wrapped at the width of a page.\n\n"
    "- an item\n- another\n\n```python\ndef weave(warp: list[str]) -> str:\n    return ''.join(warp)\n```\n\n"
)
LONG_TASKS = "window.longest = 0; new PerformanceObserver((list) => { for (const each of list.getEntries()) longest = Math.max(longest, each.duration) }).observe({type: 'longtask', buffered: true})"


def serve() -> None:
    """Serve until standard input is closed, and print the address."""
    words = SAMPLE.split(" ")
    text = " ".join(words[at % len(words)] for at in range(TOKENS))
    with (
        tempfile.TemporaryDirectory() as scratch,
        serve_page(
            Path(scratch), provider=WordsProvider({"stream": [[Say(text=text)]]}, pace=PACE_SECONDS)
        ) as server,
    ):
        print(server.url, flush=True)
        sys.stdin.read()


def read_cpu_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / TICKS


def read_tab_ms(browser: CDPSession) -> float:
    """Return the CPU time of all tabs, without that of the browser around them."""
    found: list[dict[str, Any]] = browser.send("SystemInfo.getProcessInfo")["processInfo"]
    return 1000 * sum(each["cpuTime"] for each in found if each["type"] == "renderer")


def import_long_session(client: httpx2.Client) -> str:
    """Make a session of thousands of messages, half of them prompts."""
    id = client.post("/session", json={"title": "A long session"}).json()["id"]
    client.post(f"/session/{id}/message", json={"parts": [{"type": "text", "text": "hello"}]})
    export = client.get(f"/weft/session/{id}/export").json()
    prompt, answer = export["messages"][:2]
    start = export["info"]["time"]["created"] - MESSAGES * 1000
    messages = []
    for number in range(MESSAGES):
        source = (prompt, answer)[number % 2]
        message = f"msg_{(start + number * 1000) * 4096 % (1 << 48):012x}{number:014d}"
        info = {
            **source["info"],
            "id": message,
            "sessionID": LONG,
            "time": {"created": start + number * 1000},
        }
        if number % 2:
            info |= {
                "parentID": messages[-1]["info"]["id"],
                "time": {**info["time"], "completed": start + number * 1000 + 500},
            }
        text = {
            "type": "text",
            "text": f"message {number}\n\n{SAMPLE}",
            "id": message.replace("msg", "prt"),
            "messageID": message,
            "sessionID": LONG,
        }
        messages.append({"info": info, "parts": [text]})
    export["info"] |= {"id": LONG, "title": "A long session"}
    imported = client.post("/weft/import", json={**export, "messages": messages})
    assert imported.is_success, imported.text[:500]
    return LONG


def open_page(context: BrowserContext, client: httpx2.Client, url: str) -> tuple[Page, CDPSession]:
    ticket = client.post("/weft/login-link").json()["ticket"]
    context.set_default_timeout(60_000)
    page = context.new_page()
    devtools = context.new_cdp_session(page)
    devtools.send("Network.enable")
    page.goto(f"{url}/#login={ticket}")
    page.get_by_role("heading", name="Sessions", exact=True).wait_for()
    return page, devtools


def measure(browser: Browser, client: httpx2.Client, url: str, pid: int) -> None:
    files = load_files()
    scripts = [each for name, each in files.items() if name.endswith(".js")]
    print(
        f"all files {sum(len(each.content) for each in files.values()) / 1024:.0f} KB, compressed {sum(len(each.packed) for each in files.values()) / 1024:.0f} KB"
    )
    print(
        f"scripts {sum(len(each.content) for each in scripts) / 1024:.0f} KB, compressed {sum(len(each.packed) for each in scripts) / 1024:.0f} KB"
    )

    context = browser.new_context()
    processes = browser.new_browser_cdp_session()
    sizes: list[float] = []
    page, devtools = open_page(context, client, url)
    devtools.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    session = import_long_session(client)
    page.goto("about:blank")
    started = time.perf_counter()
    page.goto(f"{url}/web/session/{session}", wait_until="commit")
    page.get_by_text(f"message {MESSAGES - 1}", exact=True).wait_for()
    print(
        f"end of a session of {MESSAGES:,} messages: {1000 * (time.perf_counter() - started):.0f} ms, {sum(sizes) / 1024:.0f} KB transferred"
    )
    page.goto("about:blank")
    started = time.perf_counter()
    page.goto(f"{url}/web/session/{session}", wait_until="commit")
    page.get_by_text(f"message {MESSAGES - 1}", exact=True).wait_for()
    print(f"again: {1000 * (time.perf_counter() - started):.0f} ms")
    page.wait_for_timeout(2000)
    tab, server = read_tab_ms(processes), read_cpu_ms(pid)
    time.sleep(IDLE_SECONDS)
    print(
        f"idle in it: tab {(read_tab_ms(processes) - tab) / IDLE_SECONDS:.2f} ms, server {(read_cpu_ms(pid) - server) / IDLE_SECONDS:.2f} ms of CPU per second"
    )

    id = client.post("/session", json={"title": "streamed"}).json()["id"]
    page.goto(f"{url}/web/session/{id}")
    page.get_by_label("Your prompt").wait_for()
    page.wait_for_timeout(1000)
    page.evaluate(LONG_TASKS)
    tab, server = read_tab_ms(processes), read_cpu_ms(pid)
    client.post(f"/session/{id}/message", json={"parts": [{"type": "text", "text": "stream"}]})
    page.wait_for_timeout(500)
    longest = page.evaluate("longest")
    print(
        f"{TOKENS:,} streamed tokens: tab {(read_tab_ms(processes) - tab) / TOKENS:.3f} ms, server {(read_cpu_ms(pid) - server) / TOKENS:.3f} ms of CPU per token"
    )
    print(f"longest task while streaming: {f'{longest:.0f} ms' if longest else 'none over 50 ms'}")
    context.close()


def main() -> None:
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        url = process.stdout.readline().strip()
        with (
            httpx2.Client(base_url=url, auth=("opencode", PASSWORD), timeout=300) as client,
            open_chromium() as browser,
        ):
            measure(browser, client, url, process.pid)
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    serve() if "--serve" in sys.argv else main()
