"""The undo matrix: for each row what an agent did, what a person did, and the resulting fate of each file.

`python tests/given/undo_cases.py` prints the rows of `docs/reference/undo-cases.md`.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Thread
from typing import Any

from msgspec import Struct

from given.snapshot_harness import git, init_repository, write
from given.undo_harness import (
    PATCHING_MODEL,
    ToolUse,
    UndoHarness,
    call_bash,
    call_edit,
    call_read,
    call_write,
)
from weft.model.ids import MessageID

Play = Callable[[UndoHarness], Awaitable[MessageID]]

START: dict[str, bytes] = {
    "a.txt": b"one\ntwo\n",
    "b.txt": b"b\n",
    "pic.bin": b"\0\1\2\xff\xfe",
    "deep/in/c.txt": b"c\n",
    "lines.txt": b"with\r\ncarriage\r\nreturns\r\n",
    "big.psd": b"layers\r\n",
    "run.sh": b"#!/bin/sh\n",
    ".gitattributes": b"*.txt text=auto\n*.psd filter=lfs diff=lfs merge=lfs -text\n",
    ".gitignore": b"*.log\nbuild/\n",
}
UNTRACKED: dict[str, bytes] = {"notes.txt": b"mine\n", "kept.log": b"ignored\n", "build/out.log": b"made\n"}


class Case(Struct, frozen=True, kw_only=True):
    """A row. `undo` and `redo` are the fates of the files; `mine` is the content of the person's files after the undo, and
    `left` are files that stay as the agent made them. All other files are as they were before. `redone` lists files that a
    redo does not restore exactly."""

    name: str
    play: Play
    undo: dict[str, str] = {}
    redo: dict[str, str] = {}
    mine: dict[str, bytes | None] = {}
    left: dict[str, bytes | None] = {}
    redone: dict[str, bytes | None] = {}
    then: str = ""
    repository: bool = True
    lay: Callable[[Path], object] = str
    config: dict[str, Any] = {}
    below: str = ""


CASES: list[Case] = []


def case(name: str, **more: Any) -> Callable[[Play], Play]:
    def add(play: Play) -> Play:
        CASES.append(Case(name=name, play=play, **more))
        return play

    return add


def write_files(root: Path, case: Case) -> None:
    """Write the person's files, before anything happens."""
    for name, content in START.items():
        write(root / name, content)
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("a.txt")
    if case.repository:
        init_repository(root)
    for name, content in UNTRACKED.items():
        write(root / name, content)
    case.lay(root)


# --- the agent alone ---


@case("a tool edits a file", undo={"a.txt": "restored"}, redo={"a.txt": "restored"})
async def tool_edits(harness: UndoHarness) -> MessageID:
    a = harness.root / "a.txt"
    return await harness.run_turn([call_read(a)], [call_edit(a, "one", "agent")])


@case(
    "a tool edits a file that is not tracked",
    undo={"notes.txt": "restored"},
    redo={"notes.txt": "restored"},
)
async def tool_edits_untracked(harness: UndoHarness) -> MessageID:
    notes = harness.root / "notes.txt"
    return await harness.run_turn([call_read(notes)], [call_edit(notes, "mine", "agent")])


@case(
    "a tool edits an ignored file",
    undo={"kept.log": "restored"},
    redo={"kept.log": "restored"},
)
async def tool_edits_ignored(harness: UndoHarness) -> MessageID:
    log = harness.root / "kept.log"
    return await harness.run_turn([call_read(log)], [call_edit(log, "ignored", "agent")])


@case(
    "a tool creates a file in new directories",
    undo={"x/y/new.txt": "removed"},
    redo={"x/y/new.txt": "restored"},
)
async def tool_creates(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_write(harness.root / "x/y/new.txt", "agent\n"))


@case(
    "a patch changes, moves, creates and deletes files",
    undo={"a.txt": "restored", "b.txt": "restored", "moved.txt": "removed", "new.txt": "removed"},
    redo={"a.txt": "restored", "b.txt": "removed", "moved.txt": "restored", "new.txt": "restored"},
    lay=lambda root: write(root / "m.txt", "m\n"),
    config={"model": f"{PATCHING_MODEL.provider_id}/{PATCHING_MODEL.id}"},
)
async def tool_patches(harness: UndoHarness) -> MessageID:
    text = "\n".join(
        (
            "*** Begin Patch",
            "*** Update File: a.txt",
            "@@",
            "-one",
            "+agent",
            " two",
            "*** Add File: new.txt",
            "+new",
            "*** Update File: b.txt",
            "*** Move to: moved.txt",
            "@@",
            "-b",
            "+c",
            "*** End Patch",
        )
    )
    read = [call_read(harness.root / "a.txt"), call_read(harness.root / "b.txt")]
    return await harness.run_turn(read, [ToolUse(tool="apply_patch", input={"patchText": text})])


@case(
    "a command edits, creates and deletes files",
    undo={"a.txt": "restored", "b.txt": "restored", "new.txt": "removed", "notes.txt": "restored"},
    redo={"a.txt": "restored", "b.txt": "removed", "new.txt": "restored", "notes.txt": "removed"},
)
async def command_works(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash("echo agent >> a.txt; rm b.txt notes.txt; echo new > new.txt"))


@case(
    "a command renames a file and a directory",
    undo={
        "a.txt": "restored",
        "z.txt": "removed",
        "deep/in/c.txt": "restored",
        "shallow/in/c.txt": "removed",
    },
    redo={
        "a.txt": "removed",
        "z.txt": "restored",
        "deep/in/c.txt": "removed",
        "shallow/in/c.txt": "restored",
    },
)
async def command_renames(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash("mv a.txt z.txt; mv deep shallow"))


@case("a command overwrites a binary file", undo={"pic.bin": "restored"}, redo={"pic.bin": "restored"})
async def command_binary(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash(r"printf '\001\377\000new' > pic.bin"))


@case(
    "a command changes permissions",
    undo={"a.txt": "restored", "run.sh": "restored"},
    redo={"a.txt": "restored", "run.sh": "restored"},
)
async def command_modes(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash("chmod +x a.txt; chmod -x run.sh"))


@case(
    "a tool edits a file that only its owner may read",
    undo={"a.txt": "restored"},
    redo={"a.txt": "restored"},
    lay=lambda root: (root / "a.txt").chmod(0o600),
)
async def tool_edits_private(harness: UndoHarness) -> MessageID:
    a = harness.root / "a.txt"
    return await harness.run_turn([call_read(a)], [call_edit(a, "one", "agent")])


@case(
    "a command retargets a link, creates a link, and replaces a file by a link",
    undo={"link": "restored", "a.txt": "restored", "new-link": "removed"},
    redo={"link": "restored", "a.txt": "restored", "new-link": "restored"},
)
async def command_links(harness: UndoHarness) -> MessageID:
    return await harness.run_step(
        call_bash("ln -sfn b.txt link; ln -s deep new-link; rm a.txt; ln -s /etc/hosts a.txt")
    )


@case(
    "a command moves a directory and leaves a link in its place",
    undo={"deep": "removed", "deep/in/c.txt": "restored", "shallow/in/c.txt": "removed"},
    redo={"deep": "restored", "deep/in/c.txt": "removed", "shallow/in/c.txt": "restored"},
)
async def command_links_directory(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash("mv deep shallow; ln -s shallow deep"))


@case(
    "a command renames a file and changes it",
    undo={"a.txt": "restored", "z.txt": "removed"},
    redo={"a.txt": "removed", "z.txt": "restored"},
)
async def command_renames_and_edits(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash("mv a.txt z.txt; echo agent >> z.txt"))


@case(
    "a command changes a file and gives it back its old time",
    undo={"a.txt": "restored"},
    redo={"a.txt": "restored"},
)
async def command_keeps_time(harness: UndoHarness) -> MessageID:
    return await harness.run_step(
        call_bash("touch -r a.txt .git/time; echo agent > a.txt; touch -r .git/time a.txt; rm .git/time")
    )


@case(
    "a command turns a file into a directory",
    undo={"a.txt": "restored", "a.txt/in": "removed"},
    redo={"a.txt": "removed", "a.txt/in": "restored"},
)
async def command_swaps(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash("rm a.txt; mkdir a.txt; echo in > a.txt/in"))


@case(
    "CRLF under `text=auto`",
    undo={"lines.txt": "restored"},
    redo={"lines.txt": "restored"},
)
async def tool_edits_crlf(harness: UndoHarness) -> MessageID:
    lines = harness.root / "lines.txt"
    return await harness.run_turn(
        [call_read(lines)],
        [call_edit(lines, "carriage", "agent"), call_bash("echo more >> b.txt; git checkout -q b.txt")],
    )


@case(
    "a file with a filter (LFS)",
    undo={"big.psd": "restored"},
    redo={"big.psd": "restored"},
    lay=lambda root: (
        git(root, "config", "filter.lfs.clean", "false"),
        git(root, "config", "filter.lfs.smudge", "false"),
        git(root, "config", "filter.lfs.required", "true"),
    ),
)
async def command_writes_filtered_file(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash(r"printf 'agent\r\n\000' > big.psd"))


ODD = ("übung.txt", 'quo"te.txt', "tab\there.txt", "new\nline.txt", " space .txt", "-n", ":(glob)*")


@case(
    "names with umlauts, quotes, tabs, line breaks, dashes, stars",
    undo=dict.fromkeys(ODD, "restored") | {"ganz-neü.txt": "removed"},
    redo=dict.fromkeys(ODD, "restored") | {"ganz-neü.txt": "restored"},
    lay=lambda root: [write(root / name, f"{name}\n") for name in ODD],
)
async def odd_names(harness: UndoHarness) -> MessageID:
    return await harness.run_step(
        call_bash(
            'for f in *; do grep -q "^" "./$f" && case "$f" in '
            + _odd_pattern()
            + ' echo agent >> "./$f";; esac; done; echo new > ganz-neü.txt'
        )
    )


def _odd_pattern() -> str:
    return "*übung.txt|*te.txt|tab*here.txt|new*line.txt|' space .txt'|-n|':(glob)*')"


@case(
    "started in a subdirectory, the agent changes `../a.txt`",
    undo={"a.txt": "restored", "b.txt": "restored"},
    redo={"a.txt": "restored", "b.txt": "restored"},
    below="deep",
)
async def tool_edits_above_directory(harness: UndoHarness) -> MessageID:
    return await harness.run_turn(
        [call_read("../a.txt")], [call_edit("../a.txt", "one", "agent"), call_bash("echo agent > ../b.txt")]
    )


@case(
    "no git",
    undo={"a.txt": "restored", "b.txt": "restored", "new.txt": "removed"},
    redo={"a.txt": "restored", "b.txt": "removed", "new.txt": "restored"},
    repository=False,
)
async def no_git(harness: UndoHarness) -> MessageID:
    a = harness.root / "a.txt"
    return await harness.run_turn(
        [call_read(a)], [call_edit(a, "one", "agent"), call_bash("rm b.txt; echo new > new.txt")]
    )


@case(
    "the model calls its tool at once",
    undo={"b.txt": "restored"},
    redo={"b.txt": "removed"},
)
async def command_removes(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash("rm b.txt"))


@case("a turn that changes nothing")
async def nobody_changes_anything(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_read(harness.root / "a.txt"), call_bash("true"))


@case(
    "the agent commits",
    undo={"a.txt": "restored"},
    redo={"a.txt": "restored"},
    then="the commit stays: undo does not touch the repository",
)
async def commits(harness: UndoHarness) -> MessageID:
    return await harness.run_step(
        call_bash("echo agent >> a.txt; git -c user.name=A -c user.email=a@example.test commit -qam agent")
    )


# --- the agent and a person ---


@case(
    "the person edits the same file afterwards",
    undo={"a.txt": "kept"},
    mine={"a.txt": b"agent\ntwo\nme\n"},
    redo={},
)
async def person_edits_same_file_after(harness: UndoHarness) -> MessageID:
    a = harness.root / "a.txt"
    prompt = await harness.run_turn([call_read(a)], [call_edit(a, "one", "agent")])
    write(a, "agent\ntwo\nme\n")
    return prompt


@case(
    "the person edits one file that the agent edited; it edited two",
    undo={"a.txt": "kept", "b.txt": "restored"},
    mine={"a.txt": b"mine alone\n"},
    redo={"b.txt": "restored"},
)
async def person_edits_one_of_two_after(harness: UndoHarness) -> MessageID:
    prompt = await harness.run_step(call_bash("echo agent > a.txt; echo agent > b.txt"))
    write(harness.root / "a.txt", "mine alone\n")
    return prompt


@case(
    "the person deletes a file that the agent edited",
    undo={"a.txt": "kept"},
    mine={"a.txt": None},
)
async def person_deletes_after(harness: UndoHarness) -> MessageID:
    prompt = await harness.run_step(call_bash("echo agent > a.txt"))
    (harness.root / "a.txt").unlink()
    return prompt


@case(
    "the person continues to edit a file that the agent created",
    undo={"new.txt": "kept"},
    mine={"new.txt": b"agent\nme\n"},
)
async def person_continues_new_file(harness: UndoHarness) -> MessageID:
    prompt = await harness.run_step(call_write(harness.root / "new.txt", "agent\n"))
    write(harness.root / "new.txt", "agent\nme\n")
    return prompt


@case(
    "the person edits another file while the model is thinking",
    undo={"a.txt": "restored", "new.txt": "removed"},
    mine={"b.txt": b"me\n"},
    redo={"a.txt": "restored", "new.txt": "restored"},
)
async def person_edits_while_model_thinks(harness: UndoHarness) -> MessageID:
    a, b = harness.root / "a.txt", harness.root / "b.txt"
    return await harness.run_turn(
        [call_read(a)],
        [lambda: write(b, "me\n"), call_edit(a, "one", "agent")],
        [call_bash("echo new > new.txt")],
    )


@case(
    "the person edits another file while a tool writes",
    undo={"a.txt": "restored"},
    mine={"b.txt": b"me\n"},
    redo={"a.txt": "restored"},
)
async def person_edits_after_tool(harness: UndoHarness) -> MessageID:
    a, b = harness.root / "a.txt", harness.root / "b.txt"
    return await harness.run_turn([call_read(a)], [call_edit(a, "one", "agent"), lambda: write(b, "me\n")])


@case(
    "the person edits a file between two changes of the agent",
    undo={"a.txt": "restored"},
    mine={"a.txt": b"me\n"},
    redo={"a.txt": "restored"},
    then="it is as the person left it",
)
async def person_edits_between_steps(harness: UndoHarness) -> MessageID:
    a = harness.root / "a.txt"
    return await harness.run_turn(
        [call_bash("echo agent > a.txt")],
        [lambda: write(a, "me\n"), call_read(a)],
        [call_edit(a, "me", "agent again")],
    )


@case(
    "the person creates a file in a directory that the agent created",
    undo={"x/new.txt": "removed"},
    mine={"x/mine.txt": b"me\n"},
    redo={"x/new.txt": "restored"},
)
async def person_adds_file_to_new_directory(harness: UndoHarness) -> MessageID:
    prompt = await harness.run_step(call_write(harness.root / "x/new.txt", "agent\n"))
    write(harness.root / "x/mine.txt", "me\n")
    return prompt


@case(
    "the person has staged changes",
    undo={"a.txt": "restored"},
    mine={"b.txt": b"staged\n"},
    redo={"a.txt": "restored"},
    lay=lambda root: (write(root / "b.txt", "staged\n"), git(root, "add", "b.txt")),
    then="the index is as it was",
)
async def command_edits_staged_file(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash("echo agent > a.txt"))


# --- changes that cannot be undone, and are reported ---


def _add_submodule(root: Path) -> None:
    other = root.parent / "other"
    write(other / "inner.txt", "inner\n")
    init_repository(other)
    git(root, "submodule", "--quiet", "add", str(other), "sub")
    git(root, "commit", "-qm", "two")


@case(
    "a command changes a submodule",
    undo={"sub": "uncovered"},
    left={"sub/inner.txt": b"agent\n"},
    redo={},
    lay=_add_submodule,
)
async def submodule(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash("echo agent > sub/inner.txt"))


@case(
    "a command changes a nested repository",
    undo={"within": "uncovered", "a.txt": "restored"},
    left={"within/w.txt": b"agent\n"},
    redo={"a.txt": "restored"},
    lay=lambda root: (write(root / "within/w.txt", "w\n"), init_repository(root / "within")),
)
async def command_edits_nested_repository(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash("echo agent > within/w.txt; echo agent > a.txt"))


@case(
    "a tool edits a file in a nested repository",
    undo={"within/w.txt": "restored"},
    redo={"within/w.txt": "restored"},
    lay=lambda root: (write(root / "within/w.txt", "w\n"), init_repository(root / "within")),
)
async def tool_edits_nested_repository(harness: UndoHarness) -> MessageID:
    w = harness.root / "within/w.txt"
    return await harness.run_turn([call_read(w)], [call_edit(w, "w", "agent")])


HUGE = b"x" * 2000


@case(
    "a command overwrites a file above the size limit",
    undo={"huge.bin": "uncovered", "a.txt": "restored"},
    left={"huge.bin": b"agent\n"},
    redo={"a.txt": "restored"},
    lay=lambda root: write(root / "huge.bin", HUGE),
    config={"experimental": {"weft": {"snapshots": {"maxFileBytes": 1000}}}},
)
async def command_overwrites_huge_file(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash("echo agent > huge.bin; echo agent > a.txt"))


@case(
    "a command changes an ignored file that no tool has touched",
    left={"build/out.log": b"agent\n"},
    then="weft does not see it, so the report does not mention it: ignored files are recorded only if a tool touches them",
)
async def command_edits_ignored(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash("echo agent > build/out.log"))


@case(
    "a command changes an ignored file that a tool has touched",
    undo={"kept.log": "restored"},
    redo={"kept.log": "restored"},
)
async def tool_and_command_edit_ignored(harness: UndoHarness) -> MessageID:
    log = harness.root / "kept.log"
    return await harness.run_turn(
        [call_read(log)], [call_edit(log, "ignored", "agent")], [call_bash("echo more >> kept.log")]
    )


@case(
    "a command changes an ignored file, and git does not ignore it any more",
    undo={".gitignore": "restored", "kept.log": "uncovered"},
    left={"kept.log": b"ignored\nagent\n"},
    redo={".gitignore": "restored"},
    then="what it contained before is not known: it stays as it is",
)
async def command_tracks_ignored(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash("sed -i /log/d .gitignore; echo agent >> kept.log"))


@case(
    "a command moves an ignored file to a name that is not ignored, and changes it",
    undo={"kept.txt": "uncovered"},
    left={"kept.txt": b"ignored\nagent\n", "kept.log": None},
)
async def command_moves_ignored(harness: UndoHarness) -> MessageID:
    return await harness.run_step(call_bash("mv kept.log kept.txt; echo agent >> kept.txt"))


@case(
    "the person edits another file while a command runs",
    undo={"a.txt": "restored", "b.txt": "restored"},
    redo={"a.txt": "restored", "b.txt": "restored"},
    then="nobody can tell who changed it: the change counts as the command's, the report names it, and a redo restores it",
)
async def person_edits_while_command_runs(harness: UndoHarness) -> MessageID:
    ready, done = harness.root.parent / "ready", harness.root.parent / "done"

    def edit_when_ready() -> None:
        while not ready.exists():
            done.parent.stat()
        write(harness.root / "b.txt", "me\n")
        write(done, "")

    sitting = Thread(target=edit_when_ready)
    sitting.start()
    prompt = await harness.run_step(
        call_bash(f"echo agent > a.txt; touch '{ready}'; until [ -e '{done}' ]; do sleep 0.01; done")
    )
    sitting.join()
    return prompt


# --- the table ---

HEAD = "| what happened | undo | redo |\n|---|---|---|"


def to_row(row: Case) -> str:
    return f"| {row.name} | {_describe_fates(row.undo, row)} | {_describe_fates(row.redo, row, note=False)} |"


FATE_TEXTS = {"kept": "not touched", "uncovered": "not covered"}


def _describe_fates(fates: dict[str, str], row: Case, *, note: bool = True) -> str:
    files = "; ".join(
        f"`{name!r}` {FATE_TEXTS.get(fate, fate)}".replace("'", "")
        if not name.isprintable()
        else f"`{name}` {FATE_TEXTS.get(fate, fate)}"
        for name, fate in sorted(fates.items())
    )
    kept = [f"`{name}`" for name in sorted(row.mine) if name not in fates]
    beside = f"; the person's {', '.join(kept)} untouched" if kept and note else ""
    then = f" ({row.then})" if row.then and note else ""
    return f"{files or 'no file changes'}{beside}{then}"


def to_table() -> str:
    return "\n".join([HEAD, *(to_row(row) for row in CASES)])


if __name__ == "__main__":
    print(to_table())
