"""The calls that both programs make: for every tool, what it should do and what it should refuse, by name."""

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from opencode.fake_model import Answer, ModelCall, answer_text

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
FILES: dict[str, str | bytes] = {
    "long.txt": "".join(f"line {number}\n" for number in range(1, 3001)),
    "wide.txt": f"{'w' * 2500}\nshort\n",
    "heavy.txt": "".join(f"{number:04} {'h' * 94}\n" for number in range(1, 1001)),
    "empty.txt": "",
    "endless.txt": "no line break at the end",
    "unicode.txt": "grüße – «ä» \U0001f9f6\nzwei\n",
    "windows.txt": b"one\r\ntwo\r\nthree\r\n",
    "null.dat": b"\x00\x01\x02binary",
    "archive.zip": "not a zip at all",
    "dot.png": base64.b64decode(PICTURE),
    "paper.pdf": b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\n%%EOF\n",
    "picture.svg": "<svg/>\n",
    "code/app.py": (
        "def main():\n    value = 1\n    if value:\n        print('one')\n    return value\n\n\ndef other():\n    value = 1\n"
    ),
    "code/deep/util.py": "TODO = 'later'\n",
    "code/notes.md": "# Notes\n\nTODO: weave\n",
    "code/two.txt": "same\nsame\n",
    "code/trim.txt": "  first  \n\tsecond\t\nthird\n",
    "code/anchor.txt": "begin\n  a\n  b\n  c\nend\nrest\n",
    "code/space.txt": "a  =   b\nnext\n",
    "code/indent.txt": "        deep\n          deeper\n        back\n",
    "code/escape.txt": 'say "it"\tnow\n',
    "code/crlf.txt": b"alpha\r\nbeta\r\ngamma\r\n",
    "code/unread.txt": "nobody read this\n",
    "code/overwrite.txt": "before\n",
    "code/gone.txt": "goes\n",
    "code/moves.txt": "one\ntwo\nthree\n",
    ".hidden/found.txt": "TODO hidden\n",
    "ignored/seen.txt": "TODO ignored\n",
    ".gitignore": "ignored/\n",
    "many/hits.txt": "".join(f"hit {number}\n" for number in range(1, 151)),
    "many/wide.txt": f"wide hit {'x' * 2500}\n",
    **{f"crowd/file{number:03}.log": "crowd\n" for number in range(120)},
}
# Older than any file that a call makes, and each from a different second, so that sorting by age gives the same order.
OLD = 1_700_000_000


class Case(Struct, frozen=True):
    """A named call, and what the model says before the call has ended."""

    name: str
    call: ModelCall
    meanwhile: tuple[Answer, ...] = ()


def put_files(project: Path) -> None:
    for number, (name, content) in enumerate(FILES.items()):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        os.utime(path, (OLD + number, OLD + number))
    (project.parent / "outside.txt").write_text("outside\n")


def groups(project: Path, pages: str) -> dict[str, list[Case]]:
    """Return the calls of each conversation, in order."""
    return {
        "read": list(_reads(project)),
        "search": list(_searches(project)),
        "edit": list(_edits(project)),
        "write": list(_writes(project)),
        "bash": list(_commands(project)),
        "other": list(_others(pages)),
        "task": list(_tasks()),
    }


def patches(project: Path) -> list[Case]:
    return list(_patches(project))


def _case(name: str, tool: str, **input: Any) -> Case:
    return Case(name, ModelCall(tool, input))


def _reads(project: Path) -> Iterator[Case]:
    def read(name: str, file: str, **more: Any) -> Case:
        return _case(name, "read", filePath=str(project / file), **more)

    yield read("text", "hello.txt")
    yield read("many lines", "long.txt")
    yield read("range", "long.txt", offset=10, limit=5)
    yield read("last lines", "long.txt", offset=2998)
    yield read("beyond the end", "hello.txt", offset=50)
    yield read("wide line", "wide.txt")
    yield read("heavy", "heavy.txt")
    yield read("empty", "empty.txt")
    yield read("without a last break", "endless.txt")
    yield read("unicode", "unicode.txt")
    yield read("windows", "windows.txt")
    yield read("missing", "nowhere-like-it.xyz")
    yield read("misspelled", "hello.tx")
    yield read("binary", "null.dat")
    yield read("archive", "archive.zip")
    yield read("picture", "dot.png")
    yield read("paper", "paper.pdf")
    yield read("drawing", "picture.svg")
    yield read("directory", "code")
    yield read("outside", "../outside.txt")
    yield _case("relative", "read", filePath="hello.txt")
    yield _case("without a path", "read")
    yield _case("unknown tool", "unheard_of", x=1)


def _searches(project: Path) -> Iterator[Case]:
    yield _case("glob", "glob", pattern="**/*.py")
    yield _case("glob below", "glob", pattern="*.txt", path=str(project / "code"))
    yield _case("glob nothing", "glob", pattern="*.nothing")
    yield _case("glob hidden", "glob", pattern="**/found.txt")
    yield _case("glob ignored", "glob", pattern="**/seen.txt")
    yield _case("glob crowd", "glob", pattern="crowd/*.log")
    yield _case("glob nowhere", "glob", pattern="*", path=str(project / "nowhere"))
    yield _case("grep", "grep", pattern="TODO")
    yield _case("grep include", "grep", pattern="TODO", include="*.py")
    yield _case("grep below", "grep", pattern="TODO", path=str(project / "code"))
    yield _case("grep pattern", "grep", pattern=r"^def \w+\(")
    yield _case("grep nothing", "grep", pattern="nothing like it")
    yield _case("grep many", "grep", pattern="^hit ", path=str(project / "many"))
    yield _case("grep wide", "grep", pattern="wide hit", path=str(project / "many"))
    yield _case("grep broken", "grep", pattern="(unclosed")
    yield _case("grep without a pattern", "grep")


def _edits(project: Path) -> Iterator[Case]:
    def read(file: str) -> Case:
        return _case(f"read {file}", "read", filePath=str(project / file))

    def edit(name: str, file: str, old: str, new: str, **more: Any) -> Case:
        return _case(name, "edit", filePath=str(project / file), oldString=old, newString=new, **more)

    yield edit("unread", "code/unread.txt", "nobody", "somebody")
    yield read("code/app.py")
    yield edit("plain", "code/app.py", "print('one')", "print('two')")
    yield edit("several", "code/app.py", "value = 1", "value = 2")
    yield edit("all", "code/app.py", "value = 1", "value = 2", replaceAll=True)
    yield edit("not there", "code/app.py", "never written", "x")
    yield edit("the same", "code/app.py", "return", "return")
    yield read("code/two.txt")
    yield edit("deletion", "code/two.txt", "same\nsame\n", "same\n")
    yield read("code/trim.txt")
    yield edit("line-trimmed", "code/trim.txt", "first\nsecond\nthird", "one\ntwo\nthree")
    yield read("code/anchor.txt")
    yield edit("block anchor", "code/anchor.txt", "begin\n  a\n  x\n  c\nend", "begin\n  d\nend")
    yield read("code/space.txt")
    yield edit("whitespace", "code/space.txt", "a = b", "a = c")
    yield read("code/indent.txt")
    yield edit("indentation", "code/indent.txt", "deep\n  deeper\nback", "flat\n")
    yield read("code/escape.txt")
    yield edit("escapes", "code/escape.txt", 'say \\"it\\"\\tnow', "said")
    yield read("code/crlf.txt")
    yield edit("windows", "code/crlf.txt", "beta", "BETA")
    yield edit("new file", "code/born.txt", "", "born\n")
    yield edit("missing", "code/nowhere.txt", "a", "b")
    yield edit("directory", "code", "a", "b")
    yield _case("edit without arguments", "edit", filePath=str(project / "code/app.py"))


def _writes(project: Path) -> Iterator[Case]:
    def write(name: str, file: str, content: str) -> Case:
        return _case(name, "write", filePath=str(project / file), content=content)

    yield write("new", "written.txt", "new\n")
    yield write("nested", "a/b/c/written.txt", "nested\n")
    yield write("unread", "code/overwrite.txt", "over\n")
    yield _case("read first", "read", filePath=str(project / "code/overwrite.txt"))
    yield write("read", "code/overwrite.txt", "over\n")
    yield write("empty", "nothing.txt", "")
    yield write("directory", "code", "x")
    yield _case("write without content", "write", filePath=str(project / "x.txt"))


def _commands(project: Path) -> Iterator[Case]:
    def bash(name: str, command: str, **more: Any) -> Case:
        return _case(name, "bash", command=command, description=f"The {name} command", **more)

    yield bash("plain", "echo hello; pwd")
    yield bash("failing", "echo half; exit 3")
    yield bash("silent", "true")
    # OpenCode reads both outputs through pipes of their own, so only a pause keeps their order.
    yield bash("both outputs", "echo out; sleep 0.2; echo err >&2")
    yield bash("elsewhere", "pwd", workdir=str(project / "code"))
    yield bash("slow", "echo begun; sleep 20", timeout=700)
    yield bash("many lines", "seq 1 5000")
    yield bash("heavy", "head -c 200000 /dev/zero | tr '\\0' x; echo")
    yield bash("unknown program", "no-such-program")
    yield bash("negative time", "echo x", timeout=-1)
    yield _case("without a description", "bash", command="echo x")


def _others(pages: str) -> Iterator[Case]:
    todos = [
        {"id": "1", "content": "Weave", "status": "in_progress", "priority": "high"},
        {"id": "2", "content": "Rest", "status": "completed", "priority": "low"},
    ]
    yield _case("todoread nothing", "todoread")
    yield _case("todowrite", "todowrite", todos=todos)
    yield _case("todoread", "todoread")
    yield _case("todowrite wrongly", "todowrite", todos="none")
    yield _case("fetch markdown", "webfetch", url=f"{pages}/page.html", format="markdown")
    yield _case("fetch text", "webfetch", url=f"{pages}/page.html", format="text")
    yield _case("fetch html", "webfetch", url=f"{pages}/page.html", format="html")
    yield _case("fetch plain", "webfetch", url=f"{pages}/plain.txt", format="markdown")
    yield _case("fetch data", "webfetch", url=f"{pages}/data.json", format="text")
    yield _case("fetch missing", "webfetch", url=f"{pages}/missing", format="text")
    yield _case("fetch a file", "webfetch", url="file:///etc/hostname", format="text")


def _tasks() -> Iterator[Case]:
    child_task = {"description": "Look around", "prompt": "Look around here.", "subagent_type": "general"}
    looks = Answer(calls=(ModelCall("read", {"filePath": "hello.txt"}),))
    yield Case("task", ModelCall("task", child_task), (looks, answer_text("There is a greeting.")))
    yield Case("task for nobody", ModelCall("task", {**child_task, "subagent_type": "nobody"}))
    yield Case("task without a prompt", ModelCall("task", {"description": "x", "subagent_type": "general"}))


def _patches(project: Path) -> Iterator[Case]:
    def patch(name: str, *lines: str) -> Case:
        text = "\n".join(("*** Begin Patch", *lines, "*** End Patch"))
        return _case(name, "apply_patch", patchText=text)

    def read(file: str) -> Case:
        return _case(f"read {file}", "read", filePath=str(project / file))

    yield patch("add", "*** Add File: patched/new.txt", "+one", "+two")
    yield read("code/moves.txt")
    yield patch("update", "*** Update File: code/moves.txt", "@@", " one", "-two", "+TWO", " three")
    yield read("code/moves.txt")
    yield patch(
        "move", "*** Update File: code/moves.txt", "*** Move to: code/moved.txt", "@@", "-one", "+ONE"
    )
    yield read("code/gone.txt")
    yield patch("delete", "*** Delete File: code/gone.txt")
    yield read("hello.txt")
    yield patch(
        "several",
        *("*** Add File: patched/other.txt", "+other"),
        *("*** Update File: hello.txt", "@@", "-hello", "+goodbye"),
    )
    yield patch("not found", "*** Update File: nowhere.txt", "@@", "-a", "+b")
    yield patch("not matching", "*** Update File: hello.txt", "@@", "-never written", "+b")
    yield patch("empty")
    yield _case("not a patch", "apply_patch", patchText="hello")
    yield _case("without a patch", "apply_patch")
