"""A real repository and a scripted model that works in it for 36 steps, one of which breaks the tests."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from weft.host.clock import SystemClock
from weft.local.api import LocalApi
from weft.local.open import OpenOptions, open_directory
from weft.model.ids import SessionID
from weft.model.input import SessionInput, prompt
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.chunk import AnyChunk
from weft.provider.contract import AssistantModelMessage, ModelRequest, TextContent, UserModelMessage
from weft.provider.registry import ServedModel
from weft.provider.scripted import AnyMove, Say, UseTool, play

STEPS: Final = 36
BREAKING_STEP: Final = 23
BROKEN: Final = "def scale(thread):\n    return thread * 3\n"
WHOLE: Final = "def scale(thread):\n    return thread * 2\n"
CHECK: Final = "python3 -B check.py"
CHECK_SCRIPT: Final = (
    "from loom import scale\nassert scale(2) == 4, f'scale(2) is {scale(2)}'\nprint('fine')\n"
)
PROMPTS: Final = ("lay the warp", "weave the weft", "finish the cloth")
NUMBER_PER_PROMPT: Final = STEPS // len(PROMPTS)

Script = Sequence[Sequence[AnyMove]]


def write_call(path: str, content: str) -> UseTool:
    return UseTool(tool="write", input={"filePath": path, "content": content})


def bash_call(command: str) -> UseTool:
    return UseTool(tool="bash", input={"command": command, "description": "Does it"})


def make_scripts() -> dict[str, Script]:
    """Return a script for each prompt: 12 steps each, with real changes by writes, edits and commands."""
    steps = [_make_step(number) for number in range(1, STEPS + 1)]
    return {
        prompt: steps[index * NUMBER_PER_PROMPT : (index + 1) * NUMBER_PER_PROMPT]
        for index, prompt in enumerate(PROMPTS)
    }


def _make_step(number: int) -> Sequence[AnyMove]:
    if number % NUMBER_PER_PROMPT == 0:
        return (Say(text=f"Row {number} ends this part."),)
    if number == BREAKING_STEP:
        return (
            write_call(f"rows/{number}.txt", f"row {number}\n"),
            UseTool(
                tool="edit",
                input={"filePath": "loom.py", "oldString": "thread * 2", "newString": "thread * 3"},
            ),
        )
    match number % 4:
        case 0:
            return (bash_call(f"mkdir -p rows && echo row {number} >> rows/all.txt"),)
        case 1:
            return (UseTool(tool="read", input={"filePath": "loom.py"}),)
        case 2:
            return (write_call(f"rows/{number}.txt", f"row {number}\n"), Say(text=f"Row {number}."))
        case _:
            return (bash_call(f"printf 'row %s\\n' {number} > last.txt; git log --format=%s -1"),)


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make_repository(root: Path) -> Path:
    """Make a repository with a loom that works, and a check of it."""
    root.mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.name", "Ada")
    git(root, "config", "user.email", "ada@example.org")
    (root / "loom.py").write_text(WHOLE)
    (root / "check.py").write_text(CHECK_SCRIPT)
    (root / ".gitignore").write_text("__pycache__/\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "A loom")
    return root


class LoomProvider:
    """A model that plays the script of the last prompt, in any session."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self.scripts = dict(scripts)
        self.default: Script = ((Say(text="I know nothing about that."),),)
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self.requests.append(request)
        moves: Sequence[AnyMove] = (Say(text="A title"),)
        if request.tools or request.format is not None:
            prompt, step = _find_prompt(request)
            script = self.scripts.get(f"{request.model.id}: {prompt}") or self.scripts.get(
                prompt, self.default
            )
            moves = script[min(step, len(script) - 1)]
        number = len(self.requests)
        async with aclosing(play(moves, request, SystemClock(), number=number)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def aclose(self) -> None:
        pass


def _find_prompt(request: ModelRequest) -> tuple[str, int]:
    step = 0
    for message in reversed(request.messages):
        if isinstance(message, UserModelMessage):
            texts = [part.text for part in message.content if isinstance(part, TextContent)]
            return texts[0].partition("\n\n<system-reminder>")[0].strip(), step
        step += isinstance(message, AssistantModelMessage)
    return "", step


@asynccontextmanager
async def open_loom(root: Path, provider: LoomProvider, **more: Any) -> AsyncIterator[LocalApi]:
    """Open the engine in a directory, with two models that the provider plays: `scripted/loom` and `scripted/shuttle`."""
    config = {"model": "scripted/loom", "permission": "allow", "formatter": False, "lsp": False}
    served = tuple(ServedModel(make_scripted_model(name), provider) for name in ("loom", "shuttle"))
    env = {**os.environ, "OPENCODE_CONFIG_CONTENT": json.dumps(config)}
    async with open_directory(OpenOptions(directory=str(root), env=env, models=served, **more)) as api:
        yield api


async def weave(api: LocalApi) -> SessionID:
    """Run the whole session, and return its id."""
    session = await api.create_session(SessionInput(title="A cloth"))
    for text in PROMPTS:
        answer = await api.prompt(session.id, prompt(text))
        assert getattr(answer.info, "error", None) is None, answer
    return session.id


class CommandRunner:
    """Runs the installed command in a repository, with a home of its own and the model of a `ModelServer`."""

    def __init__(self, top: Path, config: Mapping[str, Any]) -> None:
        self.root = make_repository(top / "cloth")
        home = top / "home"
        home.mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        settings = {**config, "formatter": False, "lsp": False}
        self.env = kept | {"HOME": str(home), "OPENCODE_CONFIG_CONTENT": json.dumps(settings)}

    def weft(self, *words: str, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "weft", *words],
            cwd=self.root,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def weave(self) -> str:
        """Run the whole session, and return its id."""
        session = ""
        for text in PROMPTS:
            again = ["-s", session] if session else []
            ran = self.weft("run", *again, "--title", "A cloth", "--format", "json", text)
            assert ran.returncode == 0, ran.stderr
            session = json.loads(ran.stdout.splitlines()[0])["sessionID"]
        return session

    def worktrees(self) -> list[str]:
        """Return the checkouts of the repository besides the person's own."""
        return git(self.root, "worktree", "list").splitlines()[1:]
