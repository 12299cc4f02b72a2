"""A project in which shell commands are judged, and the rules for it. No command is run."""

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, convert

from weft.config.agents import build_agents
from weft.config.schema import Config
from weft.host.paths import paths_from
from weft.local.permissions import Explanation, explain
from weft.model.permission import Action, Rulesets
from weft.tool.shell.paths import CommandLocation, locate_command

CORPUS = Path(__file__).parents[1] / "golden" / "bypass"

# Rules of a user, in addition to the defaults.
PERSONS: dict[str, dict[str, object]] = {
    "default": {},
    "plan": {},
    "explore": {},
    "no-rm": {"bash": {"rm *": "deny"}},
    "own-hooks": {"edit": {".git/hooks/*": "allow"}},
    "no-push": {
        "bash": {
            "npm publish *": "deny",
            "kubectl delete *": "deny",
            "git push *": "deny",
            "docker push *": "deny",
        }
    },
    "listed": {
        "bash": {
            "*": "deny",
            **{
                f"{program} *": "allow"
                for program in (
                    "echo",
                    "ls",
                    "cat",
                    "grep",
                    "find",
                    "head",
                    "sort",
                    "git log",
                    "git -C",
                    "git grep",
                )
            },
        },
        "external_directory": "deny",
    },
}


class Group(Struct, frozen=True, kw_only=True):
    """Commands of one kind: the rules they are judged by, the verdict, and the permission that decides it."""

    about: str
    rules: str = "default"
    verdict: Action
    permission: str
    commands: tuple[str, ...]


class Chapter(Struct, frozen=True, kw_only=True):
    title: str
    group: tuple[Group, ...]


def read_corpus() -> dict[str, Chapter]:
    """Return every chapter by the name of its file."""
    return {
        path.stem: convert(tomllib.loads(path.read_text()), Chapter) for path in sorted(CORPUS.glob("*.toml"))
    }


def list_groups() -> Iterator[tuple[str, Group]]:
    """Yield every group with a readable name."""
    for name, chapter in read_corpus().items():
        yield from ((f"{name}: {group.about}", group) for group in chapter.group)


class ShellTree(Struct, frozen=True, kw_only=True):
    """A project with a secret, links that lead out of it, and files outside."""

    top: Path

    @property
    def project(self) -> Path:
        return self.top / "project"

    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.top / "home"), "PATH": "/usr/local/bin:/usr/bin:/bin"}

    def locate(self) -> CommandLocation:
        return locate_command(str(self.project), str(self.project), self.environment())

    def limits(self, rules: str) -> Rulesets:
        config = convert({"permission": PERSONS[rules]}, Config)
        agents = build_agents(config, paths_from(self.environment()), str(self.project))
        agent = agents[rules if rules in agents else "build"]
        return (agent.permission, *agent.limits)

    def explain(self, command: str, rules: str = "default") -> Explanation:
        return explain(command, self.locate(), self.limits(rules))


def make_shell_tree(top: Path) -> ShellTree:
    tree = ShellTree(top=Path(os.path.realpath(top)))
    for path, text in _FILES.items():
        (tree.top / path).parent.mkdir(parents=True, exist_ok=True)
        (tree.top / path).write_text(text)
    for path, target in _LINKS.items():
        (tree.top / path).symlink_to(target)
    return tree


_FILES = {
    "home/.ssh/id_rsa": "key",
    "home/.bashrc": "",
    "outside/secret.txt": "secret",
    "outside/deep/more.txt": "more",
    "project/.env": "KEY=1",
    "project/.env.example": "KEY=",
    "project/config/.env.local": "KEY=2",
    "project/.git/config": "",
    "project/.git/HEAD": "ref: refs/heads/main",
    "project/.git/hooks/pre-commit.sample": "",
    "project/opencode.json": "{}",
    "project/.opencode/agent/own.md": "words",
    "project/.opencode/plans/one.md": "words",
    "project/Makefile": "all:",
    "project/package.json": "{}",
    "project/pyproject.toml": "",
    "project/README.md": "words",
    "project/run.sh": "",
    "project/src/main.py": "",
    "project/src/app.ts": "",
    "project/src/a b.txt": "",
    "project/tests/test_main.py": "",
    "project/data.csv": "a,b",
    "project/build/out.o": "",
}
_LINKS = {
    "project/out": "../outside",
    "project/link.txt": "../outside/secret.txt",
    "project/link1.txt": "../outside/secret.txt",
    "project/[x]link": "../outside/secret.txt",
    "project/settings": ".env",
    "project/hooks": ".git/hooks",
    "project/nowhere": "../outside/not-there",
    "project/src/up": "..",
}
