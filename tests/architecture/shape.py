"""Check the size and naming rules for the modules of the source, and print a short report about them.

Run as a script, it prints the report (`make shape`).
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src" / "weft"

MODULE_LINES, FUNCTION_LINES = 600, 60
ROOT_LINES = 130  # a table of the public names, and how they are found
BANNED = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "service", "core", "base", "v2"}
BANNED_ENDINGS = ("Manager", "Service", "Helper", "Handler", "Controller", "Factory", "Util", "Utils", "V2")
# A late import is allowed if its line says why, after the code of the rule that it breaks.
LATE_IMPORT = re.compile(r"#\s*noqa:[^#]*\bPLC0415\s+\S")

SMALL_LINES = 60
# How a table names a function that is loaded when it is needed, as in `tool/registry.py`.
LOADED_BY_NAME = re.compile(r"([\w.]+):(\w+)")
# Small modules that one other module imports, and why each is a module of its own. One that a table names, such as a tool or
# an adapter, needs no reason: each row of the table has its module.
SMALL_FOR_A_REASON = {
    "api/permissions.py": "one module for each part of the Api",
    "host/file_watcher.py": "the only user of an optional package",
    "importers/export_file.py": "one module for each source that sessions are imported from",
    "provider/catalog/fetch.py": "loads HTTP, which only a refresh needs",
    "provider/demo.py": "loaded for the demo alone",
    "share/sender.py": "loaded only if a session is shared",
    "testing/clock.py": "offered to users",
    "testing/pytest_plugin.py": "found by pytest",
    "testing/replay.py": "offered to users",
    "tool/grep_scan.py": "run as a script",
    "tool/shell/program/inspection.py": "one module for each kind of program",
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


def directories(source: Path = SOURCE) -> list[Path]:
    return sorted({path.parent for path in modules(source)})


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
    nodes = list(ast.walk(tree))
    return [
        *_faults_of_module(path, text, tree),
        *_faults_of_definitions(nodes),
        *_faults_of_imports(text, tree, nodes),
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


def _faults_of_definitions(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Function) and length(node) > FUNCTION_LINES:
            yield f"{node.name} has {length(node)} lines, {FUNCTION_LINES} are allowed"
        if isinstance(node, ast.ClassDef) and node.name.endswith(BANNED_ENDINGS):
            yield f"{node.name}: name a class for what it is"


def _faults_of_imports(text: str, tree: ast.Module, nodes: Sequence[ast.AST]) -> Iterator[str]:
    # Imports for types alone may be skipped at run time; the import contracts check them, too.
    typed = [
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    top = {id(node) for node in (*tree.body, *(each for block in typed for each in block.body))}
    rows = text.splitlines()
    for node in nodes:
        late = isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in top
        if late and not LATE_IMPORT.search(rows[node.lineno - 1]):
            yield f"line {node.lineno}: import at the top, or say why not: # noqa: PLC0415  <reason>"


class Facts(NamedTuple):
    """What other modules must know of one: its length, what it defines, imports and uses."""

    lines: int
    classes: list[str]
    definitions: list[str]  # functions and constants
    imports: set[str]
    used: set[str]
    loaded: set[tuple[str, str]]  # modules and functions that a table names


def read_facts(path: Path) -> Facts:
    text = path.read_text()
    tree = ast.parse(text)
    facts = Facts(
        lines=lines(text),
        classes=[node.name for node in tree.body if isinstance(node, ast.ClassDef)],
        definitions=[defined for node in tree.body for defined in _list_defined(node)],
        imports=set(),
        used=set(),
        loaded=set(),
    )
    for node in ast.walk(tree):
        facts.used.update(_list_used(node))
        if isinstance(node, ast.ImportFrom) and node.module:
            facts.imports.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            facts.loaded.update(found.groups() for found in [LOADED_BY_NAME.fullmatch(node.value)] if found)
    return facts


def read_all_facts(source: Path = SOURCE) -> dict[Path, Facts]:
    # No syntax tree is kept: the garbage collector would go through all of them again and again.
    return {path: read_facts(path) for path in modules(source)}


def tree_faults(source: Path = SOURCE) -> list[str]:
    """Return what is wrong with the whole tree: class names used twice, modules that are too small, names that nobody uses."""
    facts = read_all_facts(source)
    return sorted(
        (
            *_repeated_classes(facts, source),
            *_small_modules(facts, source),
            *_unused_names(facts, source),
            *_list_participles(source),
        )
    )


def _repeated_classes(facts: Mapping[Path, Facts], source: Path) -> Iterator[str]:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, each in facts.items():
        for defined in each.classes:
            places[defined].append(name(path, source))
    for found, where in places.items():
        if len(where) > 1:
            yield f"{found} means several classes: {', '.join(where)}"


def _small_modules(facts: Mapping[Path, Facts], source: Path) -> Iterator[str]:
    for where in list_small_modules(facts, source):
        if where not in SMALL_FOR_A_REASON:
            yield f"{where} has under {SMALL_LINES} lines and one importer: put it where it is used, or give the reason in SMALL_FOR_A_REASON"


def list_small_modules(facts: Mapping[Path, Facts], source: Path = SOURCE) -> Iterator[str]:
    """Yield small modules that at most one other module imports and that no table names."""
    importers: Counter[str] = Counter(imported for each in facts.values() for imported in each.imports)
    loaded = {named for each in facts.values() for named in each.loaded}
    for path, each in facts.items():
        dotted = ".".join((source.name, *path.relative_to(source).with_suffix("").parts))
        defined = {*each.definitions, *each.classes}
        is_named = any(dotted.endswith(f".{module}") and thing in defined for module, thing in loaded)
        is_small = path.name != "__init__.py" and each.lines < SMALL_LINES
        if is_small and importers[dotted] < 2 and not is_named:
            yield name(path, source)


def _unused_names(facts: Mapping[Path, Facts], source: Path) -> Iterator[str]:
    """Yield functions and constants of modules that nothing in the source uses.

    `weft.testing` is for programs of others. Classes are left out: events are found by what they inherit from.
    """
    used = {word for each in facts.values() for word in each.used}
    for path, each in facts.items():
        where = name(path, source)
        for defined in each.definitions:
            is_kept = defined in used or defined in USED_BY_TESTS or defined.startswith("__")
            if not is_kept and not where.startswith("testing/"):
                yield f"{where}: nothing uses {defined}: remove it"


def _list_defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=defined) | ast.AsyncFunctionDef(name=defined):
            return [defined]
        case ast.Assign(targets=[ast.Name(id=defined)]) | ast.AnnAssign(target=ast.Name(id=defined)):
            return [defined]
        case _:
            return []


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
