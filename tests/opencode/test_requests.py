"""One conversation with the real OpenCode and with weft: what each sends to the model, compared.

The conversation has text, a picture, reasoning, two parallel calls, a call that fails, a command that fails and a change of
model. Every difference is listed here with its reason, and in the table of `docs/explanation/compatibility.md`.
"""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from opencode.fake_model import Answer, FakeModel, ModelCall, answer_call, answer_text
from opencode.sandbox import Sandbox, make_sandbox

pytestmark = pytest.mark.opencode

Json = dict[str, Any]

COMPAT = Path(__file__).parents[2] / "docs" / "explanation" / "compatibility.md"
HEADING = "## The request, side by side"
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SEEN = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
ABILITIES = {
    "attachment": True,
    "temperature": True,
    "modalities": {"input": ["text", "image"], "output": ["text"]},
    "interleaved": {"field": "reasoning_content"},
    "options": {"reasoningEffort": "low"},
}
ABSENT = "(not there)"
# Where the texts of the programs differ, the test only checks that there is a text.
OWN_WORDS = object()


class Difference(Struct, frozen=True, kw_only=True):
    """Where the two may differ (`at` is a pattern of paths), exactly how, and why."""

    what: str
    why: str
    at: str
    theirs: Any = OWN_WORDS
    ours: Any = OWN_WORDS

    def explains(self, found: "FieldDifference") -> bool:
        same = _fits(self.theirs, found.theirs) and _fits(self.ours, found.ours)
        return same and re.fullmatch(self.at, found.at) is not None


def _fits(listed: Any, found: Any) -> bool:
    return found not in (ABSENT, "", None) if listed is OWN_WORDS else bool(listed == found)


class FieldDifference(Struct, frozen=True, kw_only=True):
    at: str
    theirs: Any
    ours: Any


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


READ_CALL = _text('Called the Read tool with the following input: {"filePath":"/sandbox/project/dot.png"}')
DIFFERENCES = (
    Difference(
        what="system prompt",
        why="our own words",
        at=r"\d\.messages\.0\.content",
    ),
    Difference(
        what="descriptions of tools",
        why="our own words",
        at=r"\d\.tools\.\w+\.description",
    ),
    Difference(
        what="schemas of tools",
        why="the same parameters; ours say limits and defaults",
        at=r"\d\.tools\.\w+\.schema",
    ),
    Difference(
        what="tools offered",
        why="there is no skill to load",
        at=r"\d\.tools\.skill",
        ours=ABSENT,
    ),
    Difference(
        what="required arguments of `webfetch`",
        why="markdown is the default, and a default may be left out",
        at=r"\d\.tools\.webfetch\.needs",
        theirs=["format", "url"],
        ours=["url"],
    ),
    Difference(
        what="arguments of `bash`",
        why="a server or a watcher keeps running, has an id, and ends with the session",
        at=r"\d\.tools\.bash\.takes",
        theirs=["command", "description", "timeout", "workdir"],
        ours=["background", "command", "description", "timeout", "workdir"],
    ),
    Difference(
        what="words of a prompt",
        why="a single argument is taken as it is",
        at=r"3\.messages\.8\.content",
        theirs='"and now?"\n',
        ours="and now?",
    ),
    Difference(
        what="attached picture",
        why="files stay where they were put, and the words come last",
        at=r"\d\.messages\.1\.content",
        theirs=[_text('"what is there?"\n'), READ_CALL, SEEN, _text("Image read successfully")],
        ours=[READ_CALL, SEEN, _text("what is there?")],
    ),
    Difference(
        what="failed call",
        why="the name of a class tells a model nothing",
        at=r"\d\.messages\.4\.content",
        theirs="Error: File not found: /sandbox/project/missing.txt",
        ours="File not found: /sandbox/project/missing.txt",
    ),
    Difference(
        what="failed command without output",
        why="a model must see that it failed, and many servers refuse empty content",
        at=r"\d\.messages\.6\.content",
        theirs="",
        ours="\n\n<bash_metadata>\nexit code 3\n</bash_metadata>",
    ),
    Difference(
        what="answer of calls alone",
        why="many servers refuse empty content",
        at=r"\d\.messages\.5\.content",
        theirs="",
        ours=None,
    ),
    Difference(
        what="call without reasoning",
        why="servers that want reasoning back refuse a call without it",
        at=r"\d\.messages\.5\.reasoning_content",
        theirs=ABSENT,
        ours=" ",
    ),
)


# --- the conversation ---


@pytest.fixture(scope="module")
def differences(
    program: Path, model_server: tuple[FakeModel, str], tmp_path_factory: pytest.TempPathFactory
) -> list[FieldDifference]:
    """Every difference between the requests of the two programs."""
    model, url = model_server
    both = []
    for name in ("opencode", "weft"):
        sandbox = make_sandbox(tmp_path_factory.mktemp(name), program, url)
        prepare(sandbox)
        both.append(capture_requests(sandbox, model, name))
    theirs, ours = both
    assert (len(theirs), len(ours)) == (4, 4)
    return [each for number in range(4) for each in compare(theirs[number], ours[number], str(number))]


def prepare(sandbox: Sandbox) -> None:
    file = sandbox.root / "config" / "opencode" / "opencode.json"
    config = json.loads(file.read_text())
    models = config["provider"]["fake"]["models"]
    models["fake-model"] |= ABILITIES
    models["other-model"] = models["fake-model"]
    config["agent"] = {"build": {"temperature": 0.3, "top_p": 0.9}}
    file.write_text(json.dumps(config))
    (sandbox.project / "dot.png").write_bytes(base64.b64decode(PICTURE))


def capture_requests(sandbox: Sandbox, model: FakeModel, name: str) -> list[Json]:
    """Return the requests of one program, with directories and call ids made equal."""
    run = getattr(sandbox, name)
    reads = tuple(
        ModelCall("read", {"filePath": str(sandbox.project / file)}) for file in ("hello.txt", "missing.txt")
    )
    model.play(
        Answer(thought="First I look.", words=("I look.",), calls=reads),
        answer_call("bash", command="exit 3", description="Fails"),
        answer_text("One is there."),
        answer_text("Still one."),
    )
    began = ("run", "--format", "json")
    picture = str(sandbox.project / "dot.png")
    result = run(*began, "-m", "fake/fake-model", "what is there?", "-f", picture)
    session = json.loads(result.splitlines()[0])["sessionID"]
    run(*began, "-s", session, "-m", "fake/other-model", "and now?")
    return normalise(model.requests, sandbox.root)


def normalise(requests: list[Json], root: Path) -> list[Json]:
    names: dict[str, str] = {}
    raw = json.dumps(requests).replace(str(root), "/sandbox")
    renamed = re.sub(r"call_\d+_\d+", lambda call: names.setdefault(call[0], f"call {len(names)}"), raw)
    made: list[Json] = json.loads(renamed)
    return made


# --- the comparison ---


def compare(theirs: Json, ours: Json, where: str) -> Iterator[FieldDifference]:
    left, right = dict(list_fields(theirs, where)), dict(list_fields(ours, where))
    for at in sorted(left.keys() | right.keys()):
        # As JSON, for which 1 is not True.
        pair = left.get(at, ABSENT), right.get(at, ABSENT)
        if json.dumps(pair[0], sort_keys=True) != json.dumps(pair[1], sort_keys=True):
            yield FieldDifference(at=at, theirs=pair[0], ours=pair[1])


def list_fields(request: Json, where: str) -> Iterator[tuple[str, Any]]:
    """Return every field of a request by its path, including every message and tool."""
    for name, value in request.items():
        if name == "messages":
            for number, message in enumerate(value):
                yield from ((f"{where}.messages.{number}.{key}", each) for key, each in message.items())
        elif name == "tools":
            for tool in value:
                yield from list_tool_fields(tool, f"{where}.tools.{tool['function']['name']}")
        else:
            yield f"{where}.{name}", value


def list_tool_fields(tool: Json, where: str) -> Iterator[tuple[str, Any]]:
    function = tool["function"]
    parameters = function["parameters"]
    yield where, {"type": tool["type"], "fields": sorted(function)}
    yield f"{where}.description", function["description"]
    yield f"{where}.takes", sorted(parameters["properties"])
    yield f"{where}.needs", sorted(parameters.get("required", []))
    yield f"{where}.schema", parameters


def report_once(found: list[FieldDifference]) -> list[FieldDifference]:
    """Report a tool that only one program has as one difference, not one for each field."""
    missing = {each.at for each in found if ".tools." in each.at and ABSENT in (each.theirs, each.ours)}
    return [each for each in found if each.at.rpartition(".")[0] not in missing]


# --- what must hold ---


def test_requests_differ_only_as_listed(differences: list[FieldDifference]) -> None:
    unlisted = [
        each for each in report_once(differences) if not any(known.explains(each) for known in DIFFERENCES)
    ]
    assert unlisted == []


def test_every_listed_difference_exists(differences: list[FieldDifference]) -> None:
    gone = [known.what for known in DIFFERENCES if not any(known.explains(each) for each in differences)]
    assert gone == []


def test_the_documentation_lists_the_same_differences() -> None:
    section = COMPAT.read_text().partition(f"{HEADING}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    listed = [(row[0], row[-1]) for row in rows[1:]]
    assert listed == [(known.what, known.why) for known in DIFFERENCES]
