"""The shape of the source: what the rules of size and naming say of one module, and a short report of the whole.

Run as a script it prints the report (`make shape`).
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "weft"

MODULE_LINES, FUNCTION_LINES = 600, 60
ROOT_LINES = 40
BANNED = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "service", "core", "base", "v2"}
BANNED_ENDINGS = ("Manager", "Service", "Helper", "Handler", "Controller", "Factory", "Util", "Utils", "V2")
# A small command must not pay for what it does not use: these choose what to load when they know what is wanted.
LATE_IMPORTS = {
    "__main__.py",
    "config/store_address.py",
    "local/permissions.py",
    "local/reader.py",
    "local/telemetry.py",
    "cli/acp/command.py",
    "host/files.py",
    "host/watcher.py",
    "search/database.py",
    "store/url.py",
    "tool/shell/parse.py",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules(source: Path = SOURCE) -> list[Path]:
    return sorted(source.rglob("*.py"))


def name(path: Path, source: Path = SOURCE) -> str:
    return path.relative_to(source).as_posix()


def lines(text: str) -> int:
    return len(text.splitlines())


def length(node: Function) -> int:
    """Lines from `def` to the end, decorators not counted."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def faults(path: Path, source: Path = SOURCE) -> list[str]:
    """What is wrong with a module, one line each."""
    text = path.read_text()
    if path.name == "__init__.py":
        return list(_faults_of_init(text, is_root=path.parent == source))
    tree = ast.parse(text)
    return [
        *_faults_of_module(path, text, tree),
        *_faults_of_definitions(tree),
        *_faults_of_imports(path, tree, source),
    ]


def _faults_of_init(text: str, *, is_root: bool) -> Iterator[str]:
    if is_root and lines(text) > ROOT_LINES:
        yield f"the root has {lines(text)} lines, {ROOT_LINES} are allowed"
    if not is_root and text:
        yield "an __init__.py is empty: a name has one address"


def _faults_of_module(path: Path, text: str, tree: ast.Module) -> Iterator[str]:
    if not BANNED.isdisjoint({path.stem, path.parent.name}):
        yield f"{path.parent.name}/{path.stem} says nothing: name it for the noun it serves"
    if lines(text) > MODULE_LINES:
        yield f"{lines(text)} lines, {MODULE_LINES} are allowed"
    if not ast.get_docstring(tree):
        yield "no docstring: say what this module is for"


def _faults_of_definitions(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, Function) and length(node) > FUNCTION_LINES:
            yield f"{node.name} has {length(node)} lines, {FUNCTION_LINES} are allowed"
        if isinstance(node, ast.ClassDef) and node.name.endswith(BANNED_ENDINGS):
            yield f"{node.name}: name a class for what it is"


def _faults_of_imports(path: Path, tree: ast.Module, source: Path) -> Iterator[str]:
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute | ast.alias) and _word(node) == "TYPE_CHECKING":
            yield "TYPE_CHECKING hides a circle"
        late = isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in top
        if late and name(path, source) not in LATE_IMPORTS:
            yield f"line {node.lineno}: import at the top, and not in a try"


def _word(node: ast.Name | ast.Attribute | ast.alias) -> str:
    match node:
        case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word):
            return word


def report(source: Path = SOURCE) -> str:
    counted = [path for path in modules(source) if path.name != "__init__.py"]
    sizes = sorted((lines(path.read_text()), name(path, source)) for path in counted)
    functions = sorted(
        (length(node), f"{node.name} in {name(path, source)}")
        for path in counted
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, Function)
    )
    rows = [
        f"modules            {len(sizes)}, {sum(size for size, _ in sizes)} lines",
        f"median module      {sizes[len(sizes) // 2][0]} lines",
        *(f"largest module     {size} lines: {what}" for size, what in reversed(sizes[-3:])),
        f"functions          {len(functions)}, median {functions[len(functions) // 2][0]} lines",
        *(f"largest function   {size} lines: {what}" for size, what in reversed(functions[-3:])),
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(report() + "\n")
