"""Open every screen of the page in a browser, in both themes, and save it into docs/screenshots/."""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from PIL import Image  # noqa: E402
from playwright.sync_api import Browser, Page, expect  # noqa: E402

from given.http_server import ProjectServer, make_project  # noqa: E402
from given.page import Visit, WordsProvider, open_chromium, serve_page  # noqa: E402
from weft.provider.chunk import Usage  # noqa: E402
from weft.provider.scripted import AnyMove, End, Say, Think, UseTool  # noqa: E402

OUT = ROOT / "docs" / "screenshots"
ANSWER = """The test is flaky because `poll()` reads the clock **twice**: a tick between the two reads makes the second deadline fall in the past.

1. Read the clock once per turn and pass the value on.
2. Let the test turn the clock by hand.

```python
def poll(self, now: float) -> bool:
    deadline = self.started + self.timeout
    return now < deadline  # the same moment for every decision
```

| run | before | after |
|---|--:|--:|
| 1,000 × alone | 7 failures | 0 |
| 1,000 × in parallel | 31 failures | 0 |
"""
BEFORE = "import time\n\n\nclass Poller:\n    def __init__(self, timeout):\n        self.started = time.monotonic()\n        self.timeout = timeout\n\n    def poll(self):\n        deadline = self.started + self.timeout\n        if time.monotonic() > deadline:\n            return False\n        return time.monotonic() < deadline\n"
EDIT = {
    "filePath": "poller.py",
    "oldString": "    def poll(self):\n        deadline = self.started + self.timeout\n        if time.monotonic() > deadline:\n            return False\n        return time.monotonic() < deadline\n",
    "newString": "    def poll(self, now):\n        deadline = self.started + self.timeout\n        return now < deadline\n",
}
TODOS = {
    "todos": [
        {"id": "1", "content": "Find out why the test is flaky", "status": "completed", "priority": "high"},
        {"id": "2", "content": "Read the clock once per turn", "status": "completed", "priority": "high"},
        {
            "id": "3",
            "content": "Run the test a thousand times",
            "status": "in_progress",
            "priority": "medium",
        },
        {"id": "4", "content": "Look for the same mistake elsewhere", "status": "pending", "priority": "low"},
    ]
}
END = End(usage=Usage(input=4200, output=640, cache_read=38_000, cache_write=2100))
SCRIPTS: Mapping[str, Sequence[Sequence[AnyMove]]] = {
    "flaky": [
        [
            Think(text="Two reads of the clock in one method: that is where I should look first."),
            Say(text="I'll read the poller and its test first."),
            UseTool(tool="read", input={"filePath": "poller.py"}),
            UseTool(tool="grep", input={"pattern": "monotonic"}),
            END,
        ],
        [UseTool(tool="todowrite", input=TODOS), UseTool(tool="edit", input=EDIT), END],
        [Say(text=ANSWER), END],
    ],
    "thousand": [
        [
            Say(text="I'll run it often, alone and in parallel."),
            UseTool(
                tool="bash",
                input={
                    "command": "pytest tests/test_poller.py --count 1000 -n 4",
                    "description": "Run the test a thousand times",
                },
            ),
            END,
        ]
    ],
    "short": [[Say(text="Done."), END]],
}
TITLES = (
    "Draft the release notes",
    "Why is the import so slow?",
    "Move settings to one file",
    "Upgrade the parser",
)


def fill(server: ProjectServer) -> str:
    """Make sessions worth looking at, and return the one to open."""
    (server.project / "poller.py").write_text(BEFORE)
    for title in TITLES:
        id = server.post("/session", {"title": title})["id"]
        server.post(f"/session/{id}/message", {"parts": [{"type": "text", "text": f"short: {title}"}]})
    server.send("PATCH", f"/weft/session/{id}", {"change": {"tag": ["parser", "later"]}})
    main: str = server.post("/session", {"title": "Fix the flaky poller test"})["id"]
    words = "The poller test is flaky: it fails about once in a hundred runs. Find out why, and fix it."
    server.post(f"/session/{main}/message", {"parts": [{"type": "text", "text": words}]})
    server.send("PATCH", f"/weft/session/{main}", {"change": {"pinned": True, "tag": ["tests"]}})
    shared = server.post(f"/weft/session/{main}/share", {"to": "server"})
    assert shared["share"]["url"]
    return main


def shoot(page: Page, server: ProjectServer, main: str, theme: str) -> None:
    """Save each screen."""
    ask = {"parts": [{"type": "text", "text": "Now run it a thousand times."}]}
    screens = {
        "sessions": "/",
        "session": f"/web/session/{main}",
        "changes": f"/web/session/{main}?panel=changes&style=split",
        "pictures": "/web/pictures?days=7",
        "time": f"/web/pictures?session={main}",
        "settings": "/web/settings?tab=permissions",
        "health": "/web/settings?tab=health",
        "storage": "/web/settings?tab=storage",
        "trust": "/web/settings?tab=trust",
        "shares": "/web/shares",
    }
    for name, path in screens.items():
        page.goto(server.url + path)
        page.locator("h1").first.wait_for()
        expect(page.get_by_text("Loading …")).to_have_count(0)
        if name == "session":
            page.get_by_label("Agent").wait_for()
            page.wait_for_timeout(500)
            page.mouse.move(500, 400)
            page.mouse.wheel(0, -10_000)
        page.wait_for_timeout(300)
        save(page, f"{name}-{theme}")
        if name == "session":
            page.locator(".facts").get_by_role("button").click()
            page.get_by_role("rowheader", name="Tools").wait_for()
            save(page, f"context-{theme}")
    server.post(f"/weft/session/{main}/submit", ask)
    page.goto(f"{server.url}/web/session/{main}")
    page.get_by_role("button", name="Allow once").wait_for()
    page.wait_for_timeout(500)
    save(page, f"permission-{theme}")
    server.post(f"/session/{main}/abort")


def save(page: Page, name: str) -> None:
    """Save what the page shows, as small as it gets without a change of colour."""
    path = OUT / f"{name}.png"
    page.screenshot(path=str(path))
    with Image.open(path) as image:
        image.convert("RGB").save(path, optimize=True)


def take(browser: Browser, server: ProjectServer, main: str) -> None:
    phone = browser.new_context(
        viewport={"width": 390, "height": 780}, device_scale_factor=2, is_mobile=True, has_touch=True
    )
    page = Visit(server, phone).log_in()
    page.goto(f"{server.url}/web/session/{main}")
    page.get_by_label("Your prompt").wait_for()
    page.wait_for_timeout(800)
    save(page, "phone")
    phone.close()
    for theme in ("light", "dark"):
        context = browser.new_context(viewport={"width": 1180, "height": 820}, color_scheme=theme)
        page = Visit(server, context).log_in()
        shoot(page, server, main, theme)
        context.close()


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        serve_page(
            Path(scratch),
            provider=WordsProvider(SCRIPTS),
            project=make_project(Path(scratch) / "code" / "shuttle"),
        ) as server,
        open_chromium() as browser,
    ):
        take(browser, server, fill(server))
    for path in sorted(OUT.glob("*.png")):
        sys.stdout.write(f"{path.relative_to(ROOT)} {path.stat().st_size // 1024} KB\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
