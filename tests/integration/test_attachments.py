"""Files of a prompt: each is stored as the model will read it, and a file that cannot be read says so."""

import base64
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from given.engine import ALLOW, PLACE, open_engine
from weft.cli.prompt import read_attachment
from weft.errors import InvalidInputError
from weft.model.agent import AgentInfo
from weft.model.input import AgentInput, AnyPartInput, FileInput, PromptInput, SessionInput
from weft.model.message import MessageWithParts
from weft.model.part import AgentPart, FilePart, TextPart
from weft.model.permission import Rule
from weft.provider.scripted import Say
from weft.tool.registry import LIST, READ

PNG = b"\x89PNG\r\n\x1a\n" + bytes(24)
GENERAL = AgentInfo(name="general", mode="subagent", permission=ALLOW)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "loom.txt").write_text("".join(f"line {number}\n" for number in range(1, 6)))
    (tmp_path / "a name.txt").write_text("spaced")
    (tmp_path / "loom.png").write_bytes(PNG)
    (tmp_path / "shed").mkdir()
    (tmp_path / "shed" / "shuttle.txt").write_text("x")
    return tmp_path


async def send_attachments(project: Path, *parts: AnyPartInput, **more: Any) -> MessageWithParts:
    """Send a prompt with attachments, check that it is answered, and return it as it is stored."""
    place = replace(PLACE, directory=str(project), worktree=str(project))
    async with open_engine(
        [Say(text="ok")], place=place, tools=(READ, LIST), agents=(GENERAL,), **more
    ) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        await engine.api.prompt(session, PromptInput(parts=parts))
        asked, answer = await engine.api.list_messages(session)
        assert [part.text for part in answer.parts if isinstance(part, TextPart)] == ["ok"]
        return asked


def texts(message: MessageWithParts) -> list[str]:
    parts = [part for part in message.parts if isinstance(part, TextPart)]
    assert all(part.synthetic for part in parts)
    return [part.text for part in parts]


def files(message: MessageWithParts) -> list[FilePart]:
    return [part for part in message.parts if isinstance(part, FilePart)]


def file(path: Path, query: str = "", mime: str = "text/plain") -> FileInput:
    return FileInput(mime=mime, filename=path.name, url=f"{path.as_uri()}{query}")


async def test_an_attached_text_file_is_read_and_its_content_added(project: Path) -> None:
    asked = await send_attachments(project, file(project / "loom.txt"))
    called, shown = texts(asked)
    assert called == f'Called the Read tool with the following input: {{"filePath":"{project}/loom.txt"}}'
    assert "line 1" in shown
    assert "line 5" in shown
    assert [part.filename for part in files(asked)] == ["loom.txt"]


async def test_only_the_named_lines_of_a_file_are_added(project: Path) -> None:
    called, shown = texts(await send_attachments(project, file(project / "loom.txt", "?start=2&end=3")))
    assert called.endswith(f'{{"filePath":"{project}/loom.txt","offset":1,"limit":2}}')
    assert [number for number in range(1, 6) if f"line {number}" in shown] == [2, 3]


async def test_an_attached_directory_is_listed(project: Path) -> None:
    asked = await send_attachments(project, file(project / "shed"))
    called, shown = texts(asked)
    assert called == f'Called the list tool with the following input: {{"path":"{project}/shed"}}'
    assert "shuttle.txt" in shown
    assert [part.mime for part in files(asked)] == ["application/x-directory"]


async def test_an_image_is_embedded_even_if_declared_as_text(project: Path) -> None:
    for mime in ("image/png", "text/plain"):
        [part] = files(await send_attachments(project, file(project / "loom.png", mime=mime)))
        assert (part.mime, part.url) == (
            "image/png",
            f"data:image/png;base64,{base64.b64encode(PNG).decode()}",
        )


async def test_a_file_name_with_a_space_is_found(project: Path) -> None:
    assert "spaced" in texts(await send_attachments(project, file(project / "a name.txt")))[1]


async def test_a_missing_attachment_becomes_an_error_text_and_the_prompt_is_answered(project: Path) -> None:
    asked = await send_attachments(
        project, file(project / "gone.txt"), file(project / "gone.png", mime="image/png")
    )
    text, picture = texts(asked)
    for said, name in ((text, "gone.txt"), (picture, "gone.png")):
        assert said.startswith(f"Read tool failed to read {project}/{name} with the following error: ")
    assert files(asked) == []


@pytest.mark.parametrize("mime", ["text/plain", "image/png"])
@pytest.mark.parametrize("url", ["file://[x/loom.txt", "file:///loom%00.txt", "file:///" + "x" * 5000])
async def test_an_address_that_no_file_can_have_becomes_an_error_text(
    url: str, mime: str, project: Path
) -> None:
    asked = await send_attachments(project, FileInput(mime=mime, filename="loom.txt", url=url))
    [text] = texts(asked)
    assert text.startswith("Read tool failed to read ")
    assert files(asked) == []


@pytest.mark.parametrize(
    "query", ["?start=²", f"?start={'9' * 5000}", "?start=1&end=²", f"?start={'9' * 400}"]
)
async def test_lines_that_are_no_usable_numbers_are_ignored(query: str, project: Path) -> None:
    _, shown = texts(await send_attachments(project, file(project / "loom.txt", query)))
    assert [number for number in range(1, 6) if f"line {number}" in shown] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("data:text/plain;base64," + base64.b64encode("wärp".encode()).decode(), "wärp"),
        ("data:text/plain,two%20words", "two words"),
        ("data:text/plain;base64,!", "[unreadable data: 1 characters that are not base64]"),
    ],
)
async def test_text_in_a_data_url_is_decoded(url: str, text: str, project: Path) -> None:
    asked = await send_attachments(project, FileInput(mime="text/plain", filename="note.txt", url=url))
    assert texts(asked) == [
        'Called the Read tool with the following input: {"filePath":"note.txt"}',
        text,
    ]


async def test_a_mentioned_agent_is_named_to_the_model_even_if_it_is_denied(project: Path) -> None:
    denied = (*ALLOW, Rule(permission="task", pattern="general", action="deny"))
    words = " Use the above message and context to generate a prompt and call the task tool with subagent: general"
    for rules, end in ((ALLOW, ""), (denied, " . Invoked by user; guaranteed to exist.")):
        asked = await send_attachments(project, AgentInput(name="general"), rules=rules)
        assert [part.name for part in asked.parts if isinstance(part, AgentPart)] == ["general"]
        assert texts(asked) == [words + end]


@pytest.mark.parametrize("name", ["missing.txt", "n" * 300])
def test_a_file_that_no_disk_can_have_is_missing(name: str) -> None:
    with pytest.raises(InvalidInputError, match="there is no file"):
        read_attachment(name)
