"""Which packages may use what: processes and the clock in `host`, SQL in `store` and `dataset`, print in `cli`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from architecture import shape

CLOCKS = {"host/now.py", "host/files.py"}  # files: the age of a file, by the kernel's own clock
# Places that turn any exception into a value: the tool call, the step, the run (and its title), the command, the route, the plugin. `host/tasks.py`
# carries one out of a task group. A handler that raises again is not listed here.
BROAD = {
    "acp/workspaces.py",  # an error in one file or update of an editor does not affect the others
    "cli/main.py",
    "cluster/inbox.py",  # an error in a delivery is told to its caller, who may be on another node
    "host/tasks.py",
    "plugin/loader.py",
    "plugin/worker.py",
    "run/calls.py",
    "run/runner.py",
    "run/step.py",
    "run/title.py",
    "server/application.py",
    "telemetry/export.py",  # an error in the thread of an exporter is reported once
    "store/sqlite/writer.py",  # an error in an operation is raised in the task that waits for it
    "server/directories.py",  # an error while opening is raised in the caller
    "tool/mcp/server.py",  # the library of an MCP server may raise anything: the connection ends and reports why
}

PROCESSES = {
    "asyncio.create_subprocess_exec",
    "asyncio.create_subprocess_shell",
    "os.execv",
    "os.execve",
    "os.execvp",
    "os.fork",
    "os.forkpty",
    "os.popen",
    "os.posix_spawn",
    "os.system",
    "pty.fork",
    "pty.spawn",
}
WALL_CLOCK = {
    "date.today",
    "datetime.now",
    "datetime.today",
    "datetime.utcnow",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "time.gmtime",
    "time.localtime",
    "time.strftime",
    "time.time",
    "time.time_ns",
}
PROCESS_PACKAGES = {"host", "sandbox"}  # the sandbox replaces itself with the command
DATABASES = {"store", "dataset"}
DRIVERS = {"aiosqlite", "apsw", "asyncpg", "psycopg", "sqlalchemy", "sqlite3"}
SQL = re.compile(
    r"\b(SELECT\s.+\sFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+(TABLE|INDEX)|PRAGMA\s)\b",
    re.DOTALL,
)


def faults(path: Path, source: Path = shape.SOURCE) -> list[str]:
    where = shape.name(path, source)
    return [f"line {line}: {said}" for line, said in _faults(where, ast.parse(path.read_text()))]


def _faults(where: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    package = where.partition("/")[0]
    for node in ast.walk(tree):
        for module in list_imported(node):
            if module == "subprocess" and package not in PROCESS_PACKAGES:
                yield node.lineno, "processes are host's"
            if module in DRIVERS and package not in DATABASES:
                yield node.lineno, "databases are the store's"
        if isinstance(node, ast.Attribute | ast.Name):
            called = to_dotted_name(node)
            if called in PROCESSES and package not in PROCESS_PACKAGES:
                yield node.lineno, f"{called}: processes are host's"
            if called in WALL_CLOCK and where not in CLOCKS:
                yield node.lineno, f"{called}: the time is host/now.py's"
            if called == "time.sleep" and package != "host":
                yield node.lineno, "sleeping is host's"
        if isinstance(node, ast.Constant) and package not in DATABASES and SQL.search(str(node.value)):
            yield node.lineno, "SQL is the store's"
        if isinstance(node, ast.Call) and to_dotted_name(node.func) == "print" and package != "cli":
            yield node.lineno, "printing is cli's"
        if isinstance(node, ast.ExceptHandler) and is_broad(node) and where not in BROAD:
            yield node.lineno, "a broad except that swallows: catch what you expect"


def list_imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name.partition(".")[0] for alias in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module.partition(".")[0]]
        case _:
            return []


def to_dotted_name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=word):
            return word
        case ast.Attribute(value=value, attr=attr):
            return f"{to_dotted_name(value)}.{attr}"
        case _:
            return ""


def is_broad(handler: ast.ExceptHandler) -> bool:
    """Return True if a handler catches everything and does not raise it again."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    everything = any(kind is None or to_dotted_name(kind) in {"Exception", "BaseException"} for kind in kinds)
    return everything and not any(isinstance(node, ast.Raise) for node in handler.body)


@pytest.mark.parametrize("directory", shape.directories(), ids=shape.name)
def test_modules_use_only_what_their_layer_allows(directory: Path) -> None:
    found = {shape.name(path): faults(path) for path in directory.glob("*.py")}
    assert {where: each for where, each in found.items() if each} == {}


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("run/x.py", "import subprocess"),
        ("tool/x.py", "from subprocess import run"),
        ("tool/x.py", "asyncio.create_subprocess_exec('ls')"),
        ("run/x.py", "os.system('ls')"),
        ("run/x.py", "now = time.time()"),
        ("host/git.py", "now = time.time_ns()"),
        ("run/x.py", "time.sleep(1)"),
        ("session/x.py", "now = datetime.now(UTC)"),
        ("session/x.py", "make = datetime.datetime.utcnow"),
        ("run/x.py", "import sqlite3"),
        ("run/x.py", "query = 'SELECT id FROM session'"),
        ("run/x.py", "print('hello')"),
        ("run/x.py", "try:\n    x()\nexcept Exception:\n    pass"),
        ("run/x.py", "try:\n    x()\nexcept:\n    pass"),
        ("run/x.py", "try:\n    x()\nexcept (ValueError, BaseException):\n    pass"),
    ],
)
def test_the_check_finds_a_forbidden_use(where: str, line: str, tmp_path: Path) -> None:
    planted = tmp_path / where
    planted.parent.mkdir(parents=True)
    planted.write_text(line + "\n")
    assert len(faults(planted, tmp_path)) == 1


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("host/processes.py", "import subprocess"),
        ("host/now.py", "now = time.time_ns()"),
        ("store/sqlite.py", "query = 'SELECT id FROM session'"),
        ("cli/run.py", "print('hello')"),
        ("run/x.py", "said = 'please select one from the list'"),
        ("run/calls.py", "try:\n    x()\nexcept Exception:\n    pass"),
        ("run/x.py", "try:\n    x()\nexcept BaseException:\n    undo()\n    raise"),
    ],
)
def test_the_check_accepts_permitted_uses(where: str, line: str, tmp_path: Path) -> None:
    allowed = tmp_path / where
    allowed.parent.mkdir(parents=True)
    allowed.write_text(line + "\n")
    assert faults(allowed, tmp_path) == []
