"""Open every screen of the page in a browser, in both themes, and save it into docs/screenshots/."""

import json
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from PIL import Image  # noqa: E402
from playwright.sync_api import Browser, Page, expect  # noqa: E402

from given.http_server import ProjectServer, make_project  # noqa: E402
from given.page import Visit, WordsProvider, open_chromium, serve_page  # noqa: E402
from weft.provider.chunk import Usage  # noqa: E402
from weft.provider.contract import AssistantModelMessage, ModelRequest  # noqa: E402
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
TRIED = "Make the poller test deterministic."
CHECK = "python3 -B check.py"
CHECKER = """import pathlib, sys

text = pathlib.Path("poller.py").read_text()
print("4 tests passed" if "def poll(self, now)" in text else "1 of 4 tests failed: poll() read the clock again")
sys.exit("def poll(self, now)" not in text)
"""
ATTEMPTS: Sequence[Sequence[Sequence[AnyMove]]] = (
    [
        [Say(text="The caller should say what time it is."), UseTool(tool="read", input={"filePath": "poller.py"}), END],
        [UseTool(tool="edit", input=EDIT), END],
        [Say(text="The poller gets the time from its caller, so a test decides it."), END],
    ],
    [
        [Say(text="A retry hides the failure."), UseTool(tool="read", input={"filePath": "poller.py"}), END],
        [UseTool(tool="edit", input={**EDIT, "newString": EDIT["oldString"].replace(">", ">=")}), END],
        [UseTool(tool="grep", input={"pattern": "monotonic"}), END],
        [Say(text="The comparison is less strict now."), END],
    ],
)  # fmt: skip


class AttemptsProvider(WordsProvider):
    """Does one thing in the first trial of a prompt, and another in the next."""

    def __init__(self) -> None:
        super().__init__(SCRIPTS)
        self._begun = 0

    def _choose_script(self, prompt: str, request: ModelRequest) -> Sequence[Sequence[AnyMove]]:
        if TRIED not in prompt:
            return super()._choose_script(prompt, request)
        said = [str(each) for each in request.messages if isinstance(each, AssistantModelMessage)]
        if not said:
            self._begun += 1
            return ATTEMPTS[(self._begun - 1) % 2]
        return ATTEMPTS["retry" in said[0]]


# Each with the days since, and how many prompts it had.
TITLES = {
    "Draft the release notes": (6, 2),
    "Why is the import so slow?": (5, 5),
    "Move settings to one file": (3, 3),
    "Name the columns of the report": (2, 4),
    "Upgrade the parser": (1, 6),
}
ID = re.compile(r"\b(ses|msg|prt)_(\w+)\w\b")
TIME = re.compile(r"\b(1[6-9]\d{11})\b")
DAY_MS = 24 * 60 * 60 * 1000


def fill(server: ProjectServer) -> tuple[str, str]:
    """Make sessions worth looking at, and return the one to open, and the address that it is shared at."""
    (server.project / "poller.py").write_text(BEFORE)
    for title, (days, prompts) in TITLES.items():
        id = server.post("/session", {"title": title})["id"]
        for _ in range(prompts):
            server.post(f"/session/{id}/message", {"parts": [{"type": "text", "text": f"short: {title}"}]})
        id = make_older(server, id, days)
    server.send("PATCH", f"/weft/session/{id}", {"change": {"tag": ["parser", "later"]}})
    main: str = server.post("/session", {"title": "Fix the flaky poller test"})["id"]
    words = "The poller test is flaky: it fails about once in a hundred runs. Find out why, and fix it."
    server.post(f"/session/{main}/message", {"parts": [{"type": "text", "text": words}]})
    server.send("PATCH", f"/weft/session/{main}", {"change": {"pinned": True, "tag": ["tests"]}})
    shared = server.post(f"/weft/session/{main}/share", {"to": "server"})
    assert shared["share"]["url"]
    return main, shared["share"]["url"]


def make_older(server: ProjectServer, id: str, days: int) -> str:
    """Put a copy of a session that is some days older in its place, and return it."""
    text = json.dumps(server.get(f"/weft/session/{id}/export"))
    older = TIME.sub(lambda found: str(int(found[1]) - days * DAY_MS), ID.sub(r"\1_\2Z", text))
    server.send("DELETE", f"/weft/session/{id}")
    server.post("/weft/import", json.loads(older))
    return f"{id[:-1]}Z"


def try_twice(server: ProjectServer) -> str:
    """Make two trials of a prompt, check them, and return the first."""
    (server.project / "poller.py").write_text(BEFORE)
    (server.project / "check.py").write_text(CHECKER)
    words = {"prompt": {"parts": [{"type": "text", "text": TRIED}]}, "count": 2, "check": CHECK}
    first: str = server.post("/weft/try", words)[0]["session"]
    while any(each["outcome"] in ("running", "empty") for each in compare(server, first)):
        time.sleep(0.2)
    server.post("/weft/compare", {"sessions": [first], "runCheck": True})
    (server.project / "poller.py").write_text(BEFORE.replace(EDIT["oldString"], EDIT["newString"]))
    return first


def compare(server: ProjectServer, session: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = server.get(f"/weft/compare?session={session}")["sessions"]
    return found


def shoot(page: Page, server: ProjectServer, shown: Mapping[str, str], theme: str) -> None:
    """Save each screen."""
    main = shown["main"]
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
        "trials": f"/web/trials?session={shown['trial']}",
        "blame": f"/web/blame?path=poller.py&directory={server.project}",
        "share": shown["share"],
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


def take(browser: Browser, server: ProjectServer, shown: Mapping[str, str]) -> None:
    phone = browser.new_context(
        viewport={"width": 390, "height": 780}, device_scale_factor=2, is_mobile=True, has_touch=True
    )
    page = Visit(server, phone).log_in()
    page.goto(f"{server.url}/web/session/{shown['main']}")
    page.get_by_role("option", name="build").wait_for(state="attached")
    page.wait_for_timeout(800)
    save(page, "phone")
    phone.close()
    for theme in ("light", "dark"):
        context = browser.new_context(viewport={"width": 1180, "height": 820}, color_scheme=theme)
        page = Visit(server, context).log_in()
        shoot(page, server, shown, theme)
        context.close()


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        serve_page(
            Path(scratch),
            provider=AttemptsProvider(),
            project=make_project(Path(scratch) / "code" / "shuttle"),
        ) as server,
        open_chromium() as browser,
    ):
        main, share = fill(server)
        take(browser, server, {"main": main, "share": urlsplit(share).path, "trial": try_twice(server)})
    for path in sorted(OUT.glob("*.png")):
        sys.stdout.write(f"{path.relative_to(ROOT)} {path.stat().st_size // 1024} KB\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
