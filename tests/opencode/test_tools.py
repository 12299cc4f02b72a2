"""The same calls, made by the real OpenCode and by weft in equal directories, with their results compared.

Compared are how a call ended, its title, its output or its error, every field of its metadata, and its attachments.
Every difference is listed in `tool_differences.py` with its reason, and in the table of `docs/explanation/compatibility.md`.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from given.web import Answer as Page
from given.web import open_web
from opencode.fake_model import Answer, FakeModel, answer_text
from opencode.sandbox import PATIENCE, Sandbox, make_sandbox
from opencode.tool_calls import Case, groups, patches, put_files
from opencode.tool_differences import ABSENT, DIFFERENCES, FieldDifference

pytestmark = pytest.mark.opencode

Json = dict[str, Any]

COMPAT = Path(__file__).parents[2] / "docs" / "explanation" / "compatibility.md"
HEADING = "## Tools, side by side"
# Looked up while this file is loaded, before a stand-in takes its place.
RIPGREP = shutil.which("rg")
HTML = (
    "<html><head><title>Loom</title><style>p {}</style><script>run()</script></head><body><h1>Loom</h1>"
    "<p>Warp &amp; <b>weft</b>, <a href='/more'>more</a>.</p><ul><li>one</li><li>two</li></ul></body></html>"
)
PAGES = {
    "/page.html": Page(HTML.encode(), kind="text/html; charset=utf-8"),
    "/plain.txt": Page(b"plain words\n", kind="text/plain"),
    "/data.json": Page(b'{"a": 1}', kind="application/json"),
}
IDS = re.compile(r"\b(prt|msg|ses|tool)_[0-9a-f]{12}[0-9A-Za-z]{14}\b")
PLAIN, PATCHING_MODEL = "fake/fake-model", "fake/gpt-5-fake"


@pytest.fixture(scope="module")
def results(
    program: Path, model_server: tuple[FakeModel, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Json], dict[str, Json]]:
    """The result of every call by name: of OpenCode, and of weft."""
    assert RIPGREP, "OpenCode searches with ripgrep: install it (rg)"
    model, url = model_server
    found = []
    with open_web(PAGES) as web:
        for name in ("opencode", "weft"):
            sandbox = make_sandbox(tmp_path_factory.mktemp(name), program, url)
            prepare(sandbox, RIPGREP)
            raw = json.dumps(run_all_calls(sandbox, model, name, web.url))
            alike = raw.replace(str(sandbox.root), "/sandbox").replace(web.url, "http://pages")
            found.append(json.loads(IDS.sub(lambda found: f"<{found[1]}>", alike)))
    return found[0], found[1]


def prepare(sandbox: Sandbox, ripgrep: str) -> None:
    stand_in = sandbox.root / "bin" / "rg"
    stand_in.unlink()
    stand_in.symlink_to(ripgrep)
    put_files(sandbox.project)
    file = sandbox.root / "config" / "opencode" / "opencode.json"
    config = json.loads(file.read_text())
    models = config["provider"]["fake"]["models"]
    models[PATCHING_MODEL.partition("/")[2]] = models[PLAIN.partition("/")[2]]
    file.write_text(json.dumps(config))


def run_all_calls(sandbox: Sandbox, model: FakeModel, name: str, pages: str) -> dict[str, Json]:
    found = attach(sandbox, model, name)
    for group, cases in groups(sandbox.project, pages).items():
        found |= run_calls(sandbox, model, name, group, cases)
    return found | run_calls(sandbox, model, name, "patch", patches(sandbox.project))


def run_calls(
    sandbox: Sandbox, model: FakeModel, name: str, group: str, cases: list[Case]
) -> dict[str, Json]:
    """Run one conversation in which the model makes one call after the other."""
    model.play(
        *(answer for case in cases for answer in (Answer(calls=(case.call,)), *case.meanwhile)),
        answer_text("Done."),
    )
    with_model = PATCHING_MODEL if group == "patch" else PLAIN
    session = find_session_id(
        getattr(sandbox, name)("run", "--format", "json", "-m", with_model, f"go through {group}")
    )
    parts = [part for part in list_parts(sandbox, session) if part["type"] == "tool"]
    assert len(parts) == len(cases), [part["tool"] for part in parts]
    return {
        f"{group}.{case.name}": {"tool": part["tool"], **part["state"]}
        for case, part in zip(cases, parts, strict=True)
    }


def attach(sandbox: Sandbox, model: FakeModel, name: str) -> dict[str, Json]:
    """Attach a directory, which lists it: neither program offers a model a tool for that."""
    model.play(answer_text("Seen."))
    directory = sandbox.project / "code"
    if name == "weft":
        session = find_session_id(
            sandbox.weft("run", "--format", "json", "-m", PLAIN, "look", "-f", str(directory))
        )
    else:
        session = attach_over_http(sandbox, directory)
    parts = list_parts(sandbox, session)
    texts = [part["text"] for part in parts if part["type"] == "text" and part.get("synthetic")]
    return {"list.attached": {"tool": "list", "output": texts}}


def attach_over_http(sandbox: Sandbox, directory: Path) -> str:
    """Attach over HTTP: OpenCode's command line accepts files only."""
    kind = "application/x-directory"
    shown = {"type": "file", "mime": kind, "filename": directory.name, "url": directory.as_uri()}
    with sandbox.run_opencode("serve", "--hostname", "127.0.0.1", "--port", "0") as opencode:
        assert opencode.stdout is not None
        lines = iter(opencode.stdout.readline, "")
        server = next(found[1] for line in lines if (found := re.search(r"listening on (http://\S+)", line)))
        session = str(post(f"{server}/session", {})["id"])
        post(f"{server}/session/{session}/message", {"parts": [shown, {"type": "text", "text": "look"}]})
    return session


def post(url: str, body: Json) -> Json:
    request = Request(url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    with build_opener(ProxyHandler({})).open(request, timeout=PATIENCE) as answer:
        return dict(json.loads(answer.read()))


def find_session_id(output: str) -> str:
    """Return the session of a run."""
    return next(str(json.loads(line)["sessionID"]) for line in output.splitlines() if '"sessionID"' in line)


def list_parts(sandbox: Sandbox, session: str) -> Iterator[Json]:
    """Read the parts from files. OpenCode's own export is cut off where it does not fit into a pipe."""
    messages = [json.loads(file.read_text()) for file in (sandbox.storage / "message" / session).iterdir()]
    for message in sorted(messages, key=lambda each: each["time"]["created"]):
        for file in sorted((sandbox.storage / "part" / message["id"]).glob("*.json")):
            yield json.loads(file.read_text())


# --- the comparison ---


@pytest.fixture(scope="module")
def differences(results: tuple[dict[str, Json], dict[str, Json]]) -> list[FieldDifference]:
    theirs, ours = results
    return report_once([each for name in theirs for each in compare(theirs[name], ours[name], name)])


def compare(theirs: Json, ours: Json, where: str) -> Iterator[FieldDifference]:
    left, right = dict(list_fields(theirs)), dict(list_fields(ours))
    for at in sorted(left.keys() | right.keys()):
        # As JSON, for which 1 is not True.
        pair = left.get(at, ABSENT), right.get(at, ABSENT)
        if json.dumps(pair[0], sort_keys=True) != json.dumps(pair[1], sort_keys=True):
            yield FieldDifference(at=f"{where}.{at}", theirs=pair[0], ours=pair[1])


def report_once(found: list[FieldDifference]) -> list[FieldDifference]:
    """Report a call that failed on one side alone as one difference, not one for each field."""
    split = {each.at.rpartition(".")[0] for each in found if each.at.endswith(".status")}
    return [
        each
        for each in found
        if not any(each.at.startswith(f"{call}.") and each.at != f"{call}.output" for call in split)
    ]


def list_fields(call: Json) -> Iterator[tuple[str, Any]]:
    """Return every field of a result except times; of an error its class and its message."""
    for name, value in call.items():
        if name == "metadata":
            yield from ((f"metadata.{key}", each) for key, each in value.items())
        elif name == "error":
            kind, text = re.fullmatch(r"(?:(\w*Error): )?(.*)", value, re.DOTALL).groups()  # type: ignore[union-attr]
            yield from ((key, each) for key, each in (("error.class", kind), ("error", text)) if each)
        elif name not in ("time", "input"):
            yield name, value


# --- what must hold ---


def test_every_call_of_both_programs_completed_or_failed(
    results: tuple[dict[str, Json], dict[str, Json]],
) -> None:
    theirs, ours = results
    assert list(theirs) == list(ours)
    ended = {each.get("status", "completed") for each in (*theirs.values(), *ours.values())}
    assert ended == {"completed", "error"}


def test_tools_differ_only_as_listed(differences: list[FieldDifference]) -> None:
    assert [each for each in differences if not any(known.explains(each) for known in DIFFERENCES)] == []


def test_every_listed_difference_exists(differences: list[FieldDifference]) -> None:
    gone = [known.what for known in DIFFERENCES if not any(known.explains(each) for each in differences)]
    assert gone == []


def test_the_documentation_lists_the_same_differences(
    results: tuple[dict[str, Json], dict[str, Json]],
) -> None:
    theirs, ours = results
    equal = sum(not list(compare(theirs[name], ours[name], name)) for name in theirs)
    section = COMPAT.read_text().partition(f"{HEADING}\n")[2].partition("\n## ")[0]
    assert re.findall(r"^(\d+) calls|\b(\d+) are the same", section, re.MULTILINE) == [
        (str(len(theirs)), ""),
        ("", str(equal)),
    ]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    assert [(row[0], row[-1]) for row in rows[1:]] == [(known.what, known.why) for known in DIFFERENCES]
