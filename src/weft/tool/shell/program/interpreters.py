"""Shells and interpreters: what they run from their command line or input."""

import re
from typing import Final

from msgspec import Struct

from weft.tool.shell.field import Field, Reading, has_hole, names, split
from weft.tool.shell.parse import reads_alike
from weft.tool.shell.places import is_secret
from weft.tool.shell.program.inner import Inner, Script
from weft.tool.shell.program.table import use_looks
from weft.tool.shell.scene import Feed, Scene

_WHY: Final = "code on the command line that reaches for files, programs or the network"
# A file opened by its name, and how.
_OPENED: Final = re.compile(
    r"""\b(?:open|readFileSync|readFile|writeFileSync|appendFileSync|require|file_get_contents|File\.read)"""
    r"""\(\s*(["'])(?P<path>[^"'\\$#{}\n]*)\1\s*(?:,\s*(?:mode\s*=\s*)?["'](?P<mode>[\w+-]*)["'])?\s*(?P<end>\))"""
)
_STRING: Final = re.compile(r"""(["'])((?:(?!\1)[^\\\n]|\\.)*)\1""")
_WRITES: Final = re.compile(r"[wax+]|^utf")
# What leads out of a language into the world. Names of libraries that do it in their own words are not all here:
# code is told apart by care, not by proof.
_WAYS = """
open exec eval execfile compile system popen spawn spawnSync execSync execFile fork subprocess pty socket urllib requests
httplib http https net fetch XMLHttpRequest ctypes cffi importlib runpy __\\w+__ getattr setattr globals locals vars
builtins os shutil pathlib Path io fileinput linecache tempfile glob zipfile tarfile sqlite3 pickle marshal mmap
fs child_process process\\.(?:binding|mainModule|dlopen) vm worker_threads Function Reflect Bun Deno
require unlink remove rename rmtree rmdir removedirs IO File FileUtils Dir Kernel Process Open3 Pathname Tempfile syscall
qx readpipe glob sysopen opendir do\\s+shell shell_exec passthru proc_open popen fopen readfile include include_once
require_once file_put_contents dofile loadfile loadstring package\\.loadlib
"""
_WAY: Final = re.compile(
    rf"(?<![\w.])(?:{'|'.join(_WAYS.split())})\b|\bimport\s*\(|\.(?:system|popen|spawn|exec|constructor)\b"
)
_SHELL_QUOTES: Final = re.compile(r"`|%x\s*\W|\bqx\b|<\s*\$?\w*\s*>|\|\s*-?['\"]")


def look_at_code(code: str, scene: Scene, *, quotes_run: bool = False) -> None:
    """Note the files that code names. What may reach further is unclear. `quotes_run`: backticks run programs."""
    for found in _OPENED.finditer(code):
        wrote = (
            "write" in found[0].partition("(")[0]
            or "append" in found[0]
            or _WRITES.search(found["mode"] or "")
        )
        path = found["path"]
        if not found[0].startswith("require") or path.startswith((".", "/")):
            scene.touch(Field(path), "write" if wrote and "utf" not in (found["mode"] or "") else "read")
    left = _OPENED.sub(_without_opening, code)
    for found in _STRING.finditer(left):
        if _is_path(found[2], scene):
            scene.touch(Field(found[2]), "read")
    if _WAY.search(_STRING.sub('""', left)) or (quotes_run and _SHELL_QUOTES.search(left)):
        scene.unclear(code, _WHY)


def _without_opening(found: re.Match[str]) -> str:
    """A module that is no file stays: some of them are ways out."""
    path = found["path"]
    if found[0].startswith("require") and not path.startswith((".", "/")):
        return f" {path.removeprefix('node:')} "
    return '""'


def _is_path(text: str, scene: Scene) -> bool:
    if not text or "\n" in text or " " in text:
        return False
    if is_secret(text.rpartition("/")[2]) or text.startswith(("/", "~/", "../")):
        return text not in ("/", "//")
    return "/" in text and any(scene.where.exists(text, cwd) for cwd in scene.cwds or ())


_SHELLS: Final = frozenset({"bash", "sh", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "yash", "posh"})
_FOREIGN: Final = names(
    "fish nu csh tcsh pwsh powershell elvish xonsh osascript expect tclsh wish ipython julia groovy scala elixir iex erl"
    " ghc ghci clojure clj racket guile sbcl ocaml R mongo mongosh m4 bc dc"
)
# Modules of Python that take code, or commands, for arguments.
_CODE_MODULES: Final = names("timeit pdb cProfile profile trace IPython code")
_STDIN: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


class Language(Struct, frozen=True, kw_only=True):
    """`code`: options whose value is code; `files`: whose value is a file to be run first; `quotes`: backticks run."""

    code: frozenset[str]
    taking: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    quotes: bool = False


def _language(
    code: str, taking: str = "", files: str = "", modules: str = "", *, quotes: bool = False
) -> Language:
    return Language(
        code=names(code),
        taking=names(f"{code} {taking} {files} {modules}"),
        files=names(files),
        modules=names(modules),
        quotes=quotes,
    )


_PYTHON: Final = _language("-c", "-W -X", modules="-m")
_PERL: Final = _language("-e -E", "-I -M -m -x", quotes=True)
_RUBY: Final = _language("-e", "-I -E -C -x", "-r", quotes=True)
_NODE: Final = _language(
    "-e -p --eval --print", "-C", "-r --require --import --loader --experimental-loader --env-file"
)
_PHP: Final = _language("-r -B -R -E", "-d -c -t -S", "-f", quotes=True)
_LUA: Final = _language("-e", files="-l")
_R: Final = _language("-e", files="-f")
_LANGUAGES: Final = {
    "pypy": _PYTHON, "perl": _PERL, "ruby": _RUBY, "node": _NODE, "nodejs": _NODE, "bun": _NODE,
    "tsx": _NODE, "ts-node": _NODE, "php": _PHP, "lua": _LUA, "luajit": _LUA, "Rscript": _R,
}  # fmt: skip


def language_of(name: str) -> Language | None:
    if re.fullmatch(r"python[\d.]*w?|pypy[\d.]*", name):
        return _PYTHON
    return _LANGUAGES.get(re.sub(r"[\d.]+$", "", name))


def interpret(name: str, rest: Reading, scene: Scene, stdin: Feed | None) -> list[Inner] | None:
    """What an interpreter runs; None when this is none."""
    if name in _SHELLS:
        return _shell(name, rest, scene, stdin)
    if name in _FOREIGN:
        return _foreign(name, rest, scene, stdin)
    if name == "deno":
        return _deno(rest, scene)
    language = language_of(name)
    if language is None:
        return None
    _run_code(name, language, rest, scene, stdin)
    return []


def _shell(name: str, rest: Reading, scene: Scene, stdin: Feed | None) -> list[Inner]:
    waiting = list(rest)
    command = False
    while waiting and (waiting[0].text.startswith(("-", "+")) and waiting[0].text not in _STDIN):
        option = waiting.pop(0).text
        if option == "--":
            break
        if option in ("--rcfile", "--init-file", "-o", "+o", "-O", "+O") and waiting:
            value = waiting.pop(0)
            if option.startswith("--"):
                scene.touch(value, "read")
        elif not option.startswith("--"):
            command |= "c" in option and option.startswith("-")
            # `-s`: the words are arguments, and the input is what is run.
            if "s" in option.lstrip("-+") and not command:
                waiting.clear()
    if command:
        _look_at_dialect(name, waiting[0].text if waiting else "", scene)
        return [Script(text=waiting[0].text, stdin=stdin)] if waiting else []
    if waiting and waiting[0].text not in _STDIN:
        _run_file(name, waiting[0], scene)
        return []
    return _from_input(name, scene, stdin)


def _run_file(name: str, field: Field, scene: Scene) -> None:
    if field.text.startswith(("/dev/", "/proc/")):
        scene.unclear(f"{name} {field.text}", f"what {name} is given to run is not known")
    scene.touch(field, "read")


def _from_input(name: str, scene: Scene, stdin: Feed | None) -> list[Inner]:
    if stdin is None:
        return []
    if stdin.text is None:
        scene.unclear(f"{name} of its input", f"what {name} is given to run is not known")
        return []
    _look_at_dialect(name, stdin.text, scene)
    return [Script(text=stdin.text)]


def _look_at_dialect(name: str, text: str, scene: Scene) -> None:
    if not reads_alike(text, name):
        scene.unclear(f"{name} -c {text}", f"{name} may read it in another way than bash does")


def _foreign(name: str, rest: Reading, scene: Scene, stdin: Feed | None) -> list[Inner]:
    """Languages that we do not read at all."""
    words = [field for field in rest if not field.text.startswith("-")]
    if stdin is not None or len(words) < len(rest):
        scene.unclear(
            " ".join([name, *(field.text for field in rest)]), f"what {name} is given to run cannot be judged"
        )
    for field in words[:1]:
        scene.touch(field, "read")
    return []


def _deno(rest: Reading, scene: Scene) -> list[Inner]:
    words = [field for field in rest if not field.text.startswith("-")]
    if words and words[0].text == "eval":
        for field in words[1:2]:
            _look_at(field, scene, quotes=False)
    return []


def _run_code(name: str, language: Language, rest: Reading, scene: Scene, stdin: Feed | None) -> None:
    # Whatever follows the name of a module, or code for Python, is for that.
    last = language.modules | (language.code if language.modules else frozenset())
    if language is _NODE:
        rest = tuple(Field("-e") if field.text == "-pe" else field for field in rest)
    given = split(rest, language.taking, until_word=True, last=last)
    code, words = given.values(*language.code), given.words
    if any(field.text in _CODE_MODULES for field in given.values(*language.modules)):
        code = [*code, *words]
    for field in code:
        _look_at(field, scene, quotes=language.quotes)
    for field in given.values(*language.files):
        scene.touch(field, "read")
    if not code and not given.has(*language.modules):
        if words and words[0].text not in _STDIN:
            _run_file(name, words[0], scene)
        elif stdin is not None and not given.has("--version", "-V", "--help"):
            _run_input(name, language, scene, stdin)
        words = words[1:]
    use_looks(words, scene)
    if given.has("-i") and name in ("perl", "ruby"):
        for field in words:
            scene.touch(field, "write")


def _run_input(name: str, language: Language, scene: Scene, stdin: Feed) -> None:
    if stdin.text is None:
        scene.unclear(f"{name} of its input", f"what {name} is given to run is not known")
    else:
        _look_at(Field(stdin.text), scene, quotes=language.quotes)


def _look_at(field: Field, scene: Scene, *, quotes: bool) -> None:
    if has_hole(field.text):
        scene.unclear(field.text, "the code that is run is not known")
    else:
        look_at_code(field.text, scene, quotes_run=quotes)
