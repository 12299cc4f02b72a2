"""A repository on which sessions and a person worked in turns, and who wrote each line of it.

A scripted model uses the real tools: it edits, writes, runs commands, renames a file, commits and delegates, in more than
thirty steps of one session. Then another session and a person change the same files, a prompt is undone, and the commits
are squashed.
"""

import subprocess
from pathlib import Path

from msgspec import Struct

import weft
from weft.model.ids import SessionID
from weft.model.message import AssistantMessage
from weft.testing.script import Script

FIRST, DELEGATE, SECOND, THIRD = "Build the steps.", "Add a helper.", "Shout.", "Add a mistake."
CHILD = "Write the helper."
END = "# end\n"

# The text of a line, and who wrote it: the step of the first session, or one of the other writers.
Expected = list[tuple[str, int | str]]


class LongWork(Struct, frozen=True, kw_only=True):
    """The repository, its sessions by the names of the writers, and the authors of each line by file."""

    root: Path
    sessions: dict[str, SessionID]
    expected: dict[str, Expected]
    steps: int


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


def make_script(root: Path) -> Script:
    app, tools = f"{root}/app.py", f"{root}/tools.py"
    script = Script(FIRST).calls("read", filePath=app)
    for number in range(2, 12):
        code = f"def step_{number}():\n    return {number}\n"
        script.calls("edit", filePath=app, oldString=END, newString=code + END)
    script.calls("write", filePath=f"{root}/util.py", content="def one():\n    return 1\n# end\n")
    script.calls("bash", command="printf 'APPENDED = True\\n' >> util.py", description="append")
    script.calls("bash", command="git mv -f util.py tools.py || mv util.py tools.py", description="rename")
    script.calls("read", filePath=tools)
    for number in range(16, 26):
        code = f"VALUE_{number} = {number}\n"
        script.calls("edit", filePath=tools, oldString=END, newString=code + END)
    script.calls("bash", command="git add -A && git commit -qm work", description="commit")
    script.calls(
        "bash", command="sed -i 's/return 5$/return 5 * 1/' app.py", description="change by a command"
    )
    script.calls("read", filePath=app)
    script.calls("edit", filePath=app, oldString="    return 7\n", newString="    return 7 + 0\n")
    script.calls("bash", command="sed -i 's/$/\\r/' tools.py", description="convert line ends")
    script.calls("bash", command="printf '\\000\\001\\002' > picture.bin", description="write a binary file")
    script.calls("read", filePath=f"{root}/notes.md").says("Built.")
    script.asked(DELEGATE).calls("task", description="helper", prompt=CHILD, subagent_type="general")
    script.says("Delegated.")
    script.asked(CHILD).calls(
        "write", filePath=f"{root}/helper.py", content="HELP = 'from the child session'\n"
    )
    script.says("Helped.")
    script.asked(SECOND).calls("read", filePath=app)
    script.calls("edit", filePath=app, oldString=END, newString="SHOUT = 'from the second session'\n" + END)
    script.says("Shouted.")
    script.asked(THIRD).calls("bash", command="printf 'MISTAKE = 1\\n' >> app.py", description="a mistake")
    return script.says("Added.")


def do_long_work(root: Path, *, store: str | None = None) -> LongWork:
    """Do all the work in a new repository."""
    root.mkdir()
    (root / "app.py").write_text("import os\n\n# end\n")
    (root / "notes.md").write_text("# Notes\n")
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "first"]):
        git(root, *words)
    sessions: dict[str, SessionID] = {}
    with weft.open(root, model=make_script(root), store=store, permissions={"*": "allow"}) as agent:
        first = agent.converse()
        assert first.ask(FIRST).text == "Built."
        assert first.ask(DELEGATE).text == "Delegated."
        steps = sum(isinstance(each.info, AssistantMessage) for each in first.messages())
        app = root / "app.py"
        app.write_text(app.read_text().replace("import os\n", "import sys  # by hand\n"))
        second = agent.converse()
        assert second.ask(SECOND).text == "Shouted."
        app.write_text(app.read_text() + "LAST = 'by hand'\n")
        third = agent.converse()
        assert third.ask(THIRD).text == "Added."
        prompt = third.messages()[0].info.id
        agent.wait(agent.api.revert(third.session, prompt))
        (child,) = agent.wait(agent.api.list_children(first.session))
        sessions = {
            "first": first.session,
            "child": child.id,
            "second": second.session,
            "third": third.session,
        }
    git(root, "add", "-A")
    git(root, "commit", "-qm", "more")
    git(root, "reset", "-q", "--soft", git(root, "rev-list", "--max-parents=0", "HEAD").strip())
    git(root, "commit", "-qm", "squashed")
    return LongWork(root=root, sessions=sessions, expected=list_expected(), steps=steps)


def list_expected() -> dict[str, Expected]:
    app: Expected = [("import sys  # by hand", "person"), ("", "unknown")]
    for number in range(2, 12):
        app.append((f"def step_{number}():", number))
        returned = {5: ("    return 5 * 1", 27), 7: ("    return 7 + 0", 29)}
        app.append(returned.get(number, (f"    return {number}", number)))
    app += [
        ("SHOUT = 'from the second session'", "second"),
        ("# end", "unknown"),
        ("LAST = 'by hand'", "person"),
    ]
    tools: Expected = [("def one():", 12), ("    return 1", 12)]
    tools += [(f"VALUE_{number} = {number}", number) for number in range(16, 26)]
    tools += [("# end", 12), ("APPENDED = True", 13)]
    return {
        "app.py": app,
        "tools.py": tools,
        "helper.py": [("HELP = 'from the child session'", "child")],
        "notes.md": [("# Notes", "unknown")],
    }
