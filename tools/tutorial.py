"""Run the commands of the tutorial and of the picture in README.md, and put their real output into the documents.

    python tools/tutorial.py          write the output into the documents
    python tools/tutorial.py check    fail if a document shows another output

A fence with a title is a file to write. In a `console` fence each line that starts with `$ ` is a command to run, and the
lines below it are its output. Ids, times and paths differ from run to run, so each is replaced by a fixed one, and token counts are rounded.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from given.long_session import PROMPTS, bash_call, make_scripts  # noqa: E402  found by the line above
from given.model_server import open_model_server  # noqa: E402
from weft.provider.scripted import Say  # noqa: E402

# In this order: all run in one project, one after the other.
PAGES = tuple(
    ROOT / "docs" / page
    for page in ("tutorial.md", "explanation/shell.md", "guides/blame.md", "guides/data.md")
)
# Each has a project of its own, and a model that plays a script.
STORIES = tuple(ROOT / "docs" / "guides" / page for page in ("compare.md", "after-a-crash.md"))
# It kills weft, the parent of the supervisor of the command, half way.
DOOMED_COMMAND = "echo warp > warp.txt; sleep 1; kill -9 $(ps -o ppid= $PPID); sleep 60; echo weft > weft.txt"
PICTURE = ROOT / "docs" / "demo.svg"
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
IDS = ("4dKq8XbT2mW6sYcR1vLzHp", "9fGn3JaU7oE5tQhS0wMxBk", "2cVr6NdP8yI1uZjF4gOqAl")
WIDTH, LINE, MARGIN = 860, 17, 20
STYLE = (
    "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d8dee9;white-space:pre}"
    ".dim{fill:#8a94a6}.add{fill:#a3d39c}.del{fill:#e78a8a}.tool{fill:#8fb8de}.ask{fill:#ebcb8b}"
    "@media (prefers-reduced-motion:no-preference){text{opacity:0;animation:show .2s forwards}}"
    "@keyframes show{to{opacity:1}}"
)


def main(command: str = "write") -> int:
    with tempfile.TemporaryDirectory() as scratch:
        shell = Scratch(Path(scratch))
        wanted = {page: run_page(page.read_text(), shell) for page in PAGES}
        wanted[PICTURE] = draw(shell.run_demo())
    for story in STORIES:
        with tempfile.TemporaryDirectory() as scratch, open_model_server(make_scripts_of_stories()) as server:
            told = Scratch(Path(scratch), {**server.config, "formatter": False, "lsp": False})
            wanted[story] = run_page(story.read_text(), told)
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if command == "check":
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)} shows another output: run make reference\n")
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path])
    return 0


def make_scripts_of_stories() -> dict[str, Any]:
    """Return what the model of the stories does: it breaks the cloth in the second prompt, mends it in two ways, and kills weft."""
    scripts: dict[str, Any] = make_scripts()
    scripts["loom: mend it"] = [
        (bash_call("sed -i 's/thread . 3/thread * 2/' loom.py"),),
        (Say(text="Mended."),),
    ]
    scripts["shuttle: mend it"] = [(bash_call("sed -i 's/thread . 3/4/' loom.py"),), (Say(text="Mended."),)]
    scripts[f"shuttle: {PROMPTS[1]}"] = [(Say(text="I would look at the warp first."),)]
    scripts["Weave the cloth."] = [(bash_call(DOOMED_COMMAND),)]
    scripts["Go on."] = [(Say(text="The warp is there, the weft is missing. I weave it in."),)]
    return scripts


class Scratch:
    """A home directory and a project of its own, in which commands run one after the other."""

    def __init__(self, root: Path, config: Mapping[str, Any] | None = None) -> None:
        self.project = root / "greeter"
        self.project.mkdir()
        home = root / "home"
        home.mkdir()
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}
        self.env = kept | {
            "HOME": str(home),
            "TMPDIR": str(root),
            "PYTHONUNBUFFERED": "1",  # standard output and standard error in the order of a terminal
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            **{f"GIT_{who}_{what}": "ada@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }  # fmt: skip
        if config is not None:
            self.env["OPENCODE_CONFIG_CONTENT"] = json.dumps(config)
        self._root, self._code, self._ids = root, 0, dict[str, str]()

    def run(self, command: str) -> str:
        """Run one command as a shell would. Return what it printed, made the same for every run."""
        script = f"(exit {self._code}); {command}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        self._code = done.returncode
        return self.normalise(done.stdout)

    def run_demo(self) -> str:
        return self.run("weft demo").partition("\n\nThe session is")[0]

    def normalise(self, text: str) -> str:
        text = re.sub(r"\b(ses|per|msg|prt)_\w{26}\b", self._fix_id, text)
        text = re.sub(r"\bses_\w{10}\b", f"ses_1f0a{IDS[0][:6]}", text)
        text = re.sub(rf"{re.escape(str(self._root))}/weft-demo-\w+", "/tmp/weft-demo", text)
        text = text.replace(str(self.project), "/home/ada/greeter").replace(str(self._root), "/home/ada")
        text = re.sub(r"\b\d\d:\d\d\b", "10:24", text)
        text = re.sub(r"\bses_\w{12}\b", "ses_1f0a4dKq8XbT", text)
        text = re.sub(r"\b\d\.\ds\b", "0.7s", text)
        text = re.sub(r"\bdiscarded [a-z]+-[a-z]+-(\d)\b", r"discarded amber-otter-\1", text)
        # Calls of one step end in any order, so a search among them may take one run more or less.
        text = re.sub(r"\b\d runs for", "9 runs for", text)
        text = re.sub(r"\b([\d,]+) tokens in", _round_tokens, text)
        return "\n".join(line.rstrip() for line in text.rstrip().splitlines()) + "\n" if text.strip() else ""

    def _fix_id(self, found: re.Match[str]) -> str:
        return self._ids.setdefault(found[0], f"{found[1]}_1f0a{IDS[len(self._ids) % len(IDS)]}")


def _round_tokens(found: re.Match[str]) -> str:
    """Round to hundreds: a longer path in the system prompt is a few more tokens."""
    return f"{round(int(found[1].replace(',', '')), -2):,} tokens in"


def run_page(text: str, shell: Scratch) -> str:
    """Return the page with the output that its commands print now."""

    def put_output(found: re.Match[str]) -> str:
        language, title, body = found.groups()
        if title:
            (shell.project / title).write_text(body)
        if language != "console":
            return found[0]
        commands = [line for line in body.splitlines() if line.startswith("$ ")]
        shown = "".join(f"{command}\n{shell.run(command.removeprefix('$ '))}" for command in commands)
        return f"```console\n{shown}```"

    return FENCE.sub(put_output, text)


def draw(output: str) -> str:
    """Draw a terminal in which `weft demo` prints its lines one after the other."""
    lines = ["$ weft demo", *wrapped(output.splitlines())]
    height = 2 * MARGIN + 26 + LINE * len(lines)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" xml:space="preserve" role="img" aria-label="weft demo at work">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#232a35"/>',
        *(
            f'<circle cx="{MARGIN + 18 * at}" cy="18" r="5" fill="{fill}"/>'
            for at, fill in enumerate(("#e78a8a", "#ebcb8b", "#a3d39c"))
        ),
    ]
    for at, line in enumerate(lines):
        place = f'x="{MARGIN}" y="{MARGIN + 26 + LINE * at}" style="animation-delay:{0.15 * at:.2f}s"'
        drawn.append(f'<text {place} class="{colour(line)}">{escape(line, quote=False)}</text>')
    return "\n".join([*drawn, "</svg>"]) + "\n"


def wrapped(lines: list[str], most: int = 104) -> list[str]:
    found = []
    for line in lines:
        rest = line
        while len(rest) > most:
            at = rest.rfind(" ", 0, most)
            found.append(rest[:at])
            rest = rest[at + 1 :]
        found.append(rest)
    return found


def colour(line: str) -> str:
    kinds = {"  +": "add", "  -": "del", "  @": "dim", "| ": "tool", "> ": "ask", "$ ": "ask", "/": "dim"}
    return next((kind for start, kind in kinds.items() if line.startswith(start)), "")


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:2]))
