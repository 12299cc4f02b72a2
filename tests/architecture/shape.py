"""Check the size and naming rules for the modules of the source, and print a short report about them.

Run as a script, it prints the report (`make shape`).
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "weft"

MODULE_LINES, FUNCTION_LINES = 600, 60
ROOT_LINES = 130  # a table of the public names, and how they are found
BANNED = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "service", "core", "base", "v2"}
BANNED_ENDINGS = ("Manager", "Service", "Helper", "Handler", "Controller", "Factory", "Util", "Utils", "V2")
# A late import is allowed if its line says why, after the code of the rule that it breaks.
LATE_IMPORT = re.compile(r"#\s*noqa:[^#]*\bPLC0415\s+\S")

SMALL_LINES = 60
# Small modules that one other module imports, and why each is a module of its own.
SMALL_FOR_A_REASON = {
    "api/permissions.py": "one module for each part of the Api",
    "cli/main.py": "the way in",
    "host/watcher.py": "the only user of an optional package",
    "importers/export_file.py": "one module for each source that sessions are imported from",
    "importers/opencode_tree.py": "one module for each source that sessions are imported from",
    "provider/anthropic/adapter.py": "found by its name in the catalogue",
    "provider/azure.py": "found by its name in the catalogue",
    "provider/gemini/adapter.py": "found by its name in the catalogue",
    "provider/catalog/fetch.py": "loads HTTP, which only a refresh needs",
    "provider/demo.py": "loaded for the demo alone",
    "share/delivery.py": "loaded only if a session is shared",
    "testing/clock.py": "offered to users",
    "testing/pytest_plugin.py": "found by pytest",
    "testing/replay.py": "offered to users",
    "tool/batch.py": "one module for each tool",
    "tool/glob.py": "one module for each tool",
    "tool/grep_scan.py": "run as a script",
    "tool/history.py": "one module for each tool",
    "tool/question.py": "one module for each tool",
    "tool/recall.py": "one module for each tool",
    "tool/task.py": "one module for each tool",
    "tool/todo.py": "one module for each tool",
    "tool/write.py": "one module for each tool",
}
# Functions that only tests call, and why they are part of the source.
USED_BY_TESTS = {
    "add_reminders": "what `context/view.py` works out message by message must be equal to it",
    "serve_script": "the demo's model with a script of the test",
}
# The one other package whose names people import from its root.
OFFERS_NAMES = '"""Test agents without a key'
PARTICIPLE = re.compile(
    r"\w+ed|\w+ing|gone|said|told|kept|seen|spent|shown|given|taken|found|meant|held|made"
)
# Nouns that look like participles.
NOUNS = {
    "briefing",
    "feed",
    "string",
    "pricing",
    "scripted",
    "spending",
    "sharing",
    "blocking",
    "listing",
    "opening",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules(source: Path = SOURCE) -> list[Path]:
    return sorted(source.rglob("*.py"))


def name(path: Path, source: Path = SOURCE) -> str:
    return path.relative_to(source).as_posix()


def lines(text: str) -> int:
    return len(text.splitlines())


def length(node: Function) -> int:
    """Return the number of lines from `def` to the end, without decorators."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def faults(path: Path, source: Path = SOURCE) -> list[str]:
    """Return what is wrong with a module, one line each."""
    text = path.read_text()
    if path.name == "__init__.py":
        holds_api = path.parent == source / "api"
        return [] if holds_api else list(_faults_of_init(text, is_root=path.parent == source))
    tree = ast.parse(text)
    return [
        *_faults_of_module(path, text, tree),
        *_faults_of_definitions(tree),
        *_faults_of_imports(text, tree),
    ]


def _faults_of_init(text: str, *, is_root: bool) -> Iterator[str]:
    if is_root and lines(text) > ROOT_LINES:
        yield f"the root has {lines(text)} lines, {ROOT_LINES} are allowed"
    if not is_root and text and not text.startswith(OFFERS_NAMES):
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


def _faults_of_imports(text: str, tree: ast.Module) -> Iterator[str]:
    # Imports for types alone may be skipped at run time; the import contracts check them, too.
    typed = [
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    top = {id(node) for node in (*tree.body, *(each for block in typed for each in block.body))}
    rows = text.splitlines()
    for node in ast.walk(tree):
        late = isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in top
        if late and not LATE_IMPORT.search(rows[node.lineno - 1]):
            yield f"line {node.lineno}: import at the top, or say why not: # noqa: PLC0415  <reason>"


def tree_faults(source: Path = SOURCE) -> list[str]:
    """Return what is wrong with the whole tree: class names used twice, modules that are too small, names that nobody uses."""
    trees = {path: ast.parse(path.read_text()) for path in modules(source)}
    return sorted(
        (
            *_repeated_classes(trees, source),
            *_small_modules(trees, source),
            *_unused_names(trees, source),
            *_list_participles(source),
        )
    )


def _repeated_classes(trees: Mapping[Path, ast.Module], source: Path) -> Iterator[str]:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name(path, source))
    for found, where in places.items():
        if len(where) > 1:
            yield f"{found} means several classes: {', '.join(where)}"


def _small_modules(trees: Mapping[Path, ast.Module], source: Path) -> Iterator[str]:
    importers: defaultdict[str, set[Path]] = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for imported in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    importers[imported].add(path)
    for path in trees:
        where = name(path, source)
        dotted = ".".join((source.name, *path.relative_to(source).with_suffix("").parts))
        is_small = path.name != "__init__.py" and lines(path.read_text()) < SMALL_LINES
        if is_small and len(importers[dotted]) < 2 and where not in SMALL_FOR_A_REASON:
            yield f"{where} has under {SMALL_LINES} lines and one importer: put it where it is used, or give the reason in SMALL_FOR_A_REASON"


def _unused_names(trees: Mapping[Path, ast.Module], source: Path) -> Iterator[str]:
    """Yield functions and constants of modules that nothing in the source uses.

    `weft.testing` is for programs of others. Classes are left out: events are found by what they inherit from.
    """
    used = {word for tree in trees.values() for node in ast.walk(tree) for word in _list_used(node)}
    for path, tree in trees.items():
        where = name(path, source)
        for node in tree.body:
            match node:
                case ast.FunctionDef(name=defined) | ast.AsyncFunctionDef(name=defined):
                    pass
                case ast.Assign(targets=[ast.Name(id=defined)]) | ast.AnnAssign(target=ast.Name(id=defined)):
                    pass
                case _:
                    continue
            is_kept = defined in used or defined in USED_BY_TESTS or defined.startswith("__")
            if not is_kept and not where.startswith("testing/"):
                yield f"{where}: nothing uses {defined}: remove it"


def _list_used(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=word, ctx=ast.Load()) | ast.Attribute(attr=word):
            return [word]
        case ast.ImportFrom(names=names):
            return [alias.name for alias in names]
        case ast.Constant(value=str() as text) if " " not in text:
            return re.findall(r"\w+", text)  # a table names functions as `module:function`
        case _:
            return []


def _list_participles(source: Path) -> Iterator[str]:
    for path in modules(source):
        words = path.stem.split("_")
        if any(PARTICIPLE.fullmatch(word) and word not in NOUNS for word in words):
            yield f"{name(path, source)}: name a module for a thing"


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
