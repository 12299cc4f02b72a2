"""Code given to an interpreter on its command line: not understood, but looked through for files and ways out."""

import re
from typing import Final

from weft.tool.shell.field import Field
from weft.tool.shell.places import is_secret
from weft.tool.shell.scene import Scene

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
