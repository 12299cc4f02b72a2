"""Where the result of a call differs from that of OpenCode, how, and why. Nothing else may differ."""

import re
from typing import Any

from msgspec import Struct

ABSENT = "(not there)"
# Where the texts of the programs differ, the test only checks that there is a text.
OWN_WORDS = object()


class FieldDifference(Struct, frozen=True, kw_only=True):
    at: str
    theirs: Any
    ours: Any


class Difference(Struct, frozen=True, kw_only=True):
    """Where the two may differ (`at` is a pattern), and how: exactly, by a pattern, or with any text."""

    what: str
    why: str
    at: str
    theirs: Any = OWN_WORDS
    ours: Any = OWN_WORDS

    def explains(self, found: FieldDifference) -> bool:
        same = _fits(self.theirs, found.theirs) and _fits(self.ours, found.ours)
        return same and re.fullmatch(self.at, found.at) is not None


def _fits(listed: Any, found: Any) -> bool:
    if listed is OWN_WORDS:
        return found not in (ABSENT, "", None)
    if isinstance(listed, re.Pattern):
        return isinstance(found, str) and listed.fullmatch(found) is not None
    return bool(listed == found)


def _re(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


CUT = r"The tool call succeeded but the output was truncated\. Full output saved to: /sandbox/data/opencode/tool-output/<tool>"
WRONG = r"The \w+ tool was called with invalid arguments: {}\.\nPlease rewrite the input so it satisfies the expected schema\."
DELETED = {
    "filePath": "/sandbox/project/code/gone.txt",
    "relativePath": "code/gone.txt",
    "type": "delete",
    "diff": "Index: /sandbox/project/code/gone.txt\n"
    f"{'=' * 67}\n--- /sandbox/project/code/gone.txt\n+++ /sandbox/project/code/gone.txt\n@@ -1,1 +0,0 @@\n-goes\n",
    "before": "goes\n",
    "after": "",
    "additions": 0,
}

DIFFERENCES = (
    Difference(
        what="failed call",
        why="the name of a class tells a model nothing",
        at=r".*\.error\.class",
        theirs="Error",
        ours=ABSENT,
    ),
    Difference(
        what="wrong arguments",
        why="a sentence says the same in fewer tokens",
        at=r".*\b(without|wrongly)\b.*\.error",
        theirs=_re(WRONG.format(r"\[\n.*\n\]")),
        ours=_re(WRONG.format(r"[^\n]*")),
    ),
    Difference(
        what="unknown tool",
        why="our own words",
        at=r"read\.unknown tool\.output",
        theirs=_re(
            r"The arguments provided to the tool are invalid: Model tried to call unavailable tool .*"
        ),
        ours=_re(
            r"The arguments provided to the tool are invalid: there is no tool 'unheard_of'; there are .*"
        ),
    ),
    Difference(
        what="directory in the place of a file",
        why="the error says what it is, and which tool helps",
        at=r"(read|edit|write)\.directory\.error",
        ours="/sandbox/project/code is a directory, not a file. Use the glob tool to see what is in it.",
    ),
    Difference(
        what="title of a search in the whole project",
        why="an empty title tells nobody anything",
        at=r"search\.glob.*\.title",
        theirs="",
        ours=".",
    ),
    Difference(
        what="more files than are shown",
        why="the newest of all, not of the hundred that were found first",
        at=r"search\.glob crowd\.output",
        theirs=_re(r"(/sandbox/project/crowd/file\d+\.log\n){100}\n\(Results are truncated\. .*\)"),
        ours="".join(f"/sandbox/project/crowd/file{number:03}.log\n" for number in range(119, 19, -1))
        + "\n(Results are truncated. Consider using a more specific path or pattern.)",
    ),
    Difference(
        what="search in a missing directory",
        why="our own words",
        at=r"search\.glob nowhere\.error",
    ),
    Difference(
        what="invalid pattern",
        why="an invalid pattern is not an empty result: the call fails, and says where the pattern is wrong",
        at=r"search\.grep broken\.output",
        theirs="No files found",
        ours=ABSENT,
    ),
    Difference(
        what="edit that cannot be made",
        why="the model is told what to do about it",
        at=r"edit\.(several|not there|the same)\.error",
    ),
    Difference(
        what="command that failed",
        why="a model must see that it failed",
        at=r"bash\.(failing|unknown program)\.output",
        theirs=_re(r"(half\n|.*command not found\n)"),
        ours=_re(r"(half\n|.*command not found\n)\n\n<bash_metadata>\nexit code \d+\n</bash_metadata>"),
    ),
    Difference(
        what="output that is cut",
        why="our own words on where the rest is",
        at=r"bash\.many lines\.output",
        theirs=_re(r"1\n.*\n2000\n\n\.\.\.3001 lines truncated\.\.\.\n\n" + CUT + r"\nUse the Task tool .*"),
        ours=_re(r"1\n.*\n2000\n\n\.\.\.3001 lines truncated\.\.\.\n\n" + CUT + r"\nSearch it with Grep, .*"),
    ),
    Difference(
        what="output in one long line",
        why="its beginning is shown, not nothing",
        at=r"bash\.heavy\.output",
        theirs=_re(r"\n\n\.\.\.200001 bytes truncated\.\.\.\n\n" + CUT + r".*"),
        ours=_re(r"x{51200}\n\n\.\.\.148801 bytes truncated\.\.\.\n\n" + CUT + r".*"),
    ),
    Difference(
        what="negative time",
        why="our own words",
        at=r"bash\.negative time\.error",
        theirs=_re(r"Invalid timeout value: -1\. .*"),
        ours=_re(r"Invalid timeout value: -1\. .*"),
    ),
    Difference(
        what="todos in the result",
        why="fields in the order in which they are stored, whatever order the model chose",
        at=r"other\.(todowrite|todoread)\.output",
    ),
    Difference(
        what="web page as markdown",
        why="without the page's title twice; links lead somewhere",
        at=r"other\.fetch markdown\.output",
        theirs="Loom\n\n# Loom\n\nWarp & **weft**, [more](/more).\n\n-   one\n-   two",
        ours="# Loom\n\nWarp & **weft**, [more](http://pages/more).\n\n- one\n- two",
    ),
    Difference(
        what="web page as text",
        why="words stay apart, and entities are read",
        at=r"other\.fetch text\.output",
        theirs="LoomLoomWarp &amp; weft, more.onetwo",
        ours="Loom\nWarp & weft, more.\none\ntwo",
    ),
    Difference(
        what="model of a task",
        why="screens show who did it",
        at=r"task\.task\.metadata\.model",
        theirs=ABSENT,
        ours={"providerID": "fake", "modelID": "fake-model"},
    ),
    Difference(
        what="task for an unknown agent",
        why="the error lists the agents",
        at=r"task\.task for nobody\.error",
        theirs="Unknown agent type: nobody is not a valid agent type",
        ours="Unknown agent type: nobody is not a valid agent type. There are: general, explore.",
    ),
    Difference(
        what="lines of a deleted file",
        why="a file that ends with a line break has no line after it",
        at=r"patch\.delete\.metadata\.files",
        theirs=[{**DELETED, "deletions": 2}],
        ours=[{**DELETED, "deletions": 1}],
    ),
    Difference(
        what="patch that cannot be applied",
        why="our own words",
        at=r"patch\.(not found|not matching|not a patch)\.error",
        theirs=_re(r"apply_patch verification failed: .*"),
        ours=_re(r"apply_patch verification failed: .*"),
    ),
)
