"""Convert the content blocks of an editor to parts of a prompt."""

import pytest
from acp import audio_block, image_block, resource_link_block, text_block
from acp.schema import (
    Annotations,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from weft.acp.content import Block, find_command, to_parts
from weft.errors import InvalidInputError
from weft.model.input import FileInput, TextInput


def to_linked_part(uri: str, mime: str | None = None) -> FileInput | TextInput:
    [part] = to_parts([resource_link_block("x", uri, mime_type=mime)])
    return part


def test_text_blocks_keep_their_audience() -> None:
    blocks = [
        TextContentBlock(type="text", text=text, annotations=Annotations(audience=audience))
        for text, audience in (
            ("both", ["user", "assistant"]),
            ("model", ["assistant"]),
            ("person", ["user"]),
        )
    ]
    assert to_parts(blocks) == (
        TextInput(text="both"),
        TextInput(text="model", synthetic=True),
        TextInput(text="person", ignored=True),
    )


def test_an_image_block_becomes_a_file() -> None:
    assert to_parts([image_block("aGk=", "image/png", uri="file:///a/b.png")]) == (
        FileInput(mime="image/png", filename="b.png", url="data:image/png;base64,aGk="),
    )


@pytest.mark.parametrize(
    ("uri", "url"),
    [
        ("file:///a/b%20c.py", "file:///a/b%20c.py"),
        ("file:///a/b.py#L3", "file:///a/b.py?start=3&end=3"),
        ("file:///a/b.py#L3-9", "file:///a/b.py?start=3&end=9"),
        ("file:///a/b.py#L3:9", "file:///a/b.py?start=3&end=9"),
        ("file:///a/b.py#heading", "file:///a/b.py"),
    ],
)
def test_a_link_to_a_file_may_name_lines(uri: str, url: str) -> None:
    part = to_linked_part(uri)
    assert isinstance(part, FileInput)
    assert (part.mime, part.url) == ("text/plain", url)


def test_a_linked_image_becomes_a_file_and_other_links_stay_text() -> None:
    assert to_linked_part("file:///a/b.png") == FileInput(
        mime="image/png", filename="b.png", url="file:///a/b.png"
    )
    assert to_linked_part("https://example.test/x") == TextInput(text="[x](https://example.test/x)")
    assert to_linked_part("zed://symbol") == TextInput(text="[x](zed://symbol)")


def test_embedded_resources_become_files() -> None:
    held = TextResourceContents(uri="file:///a/b.md", text="unsaved")
    blob = BlobResourceContents(uri="file:///a/b.pdf", blob="aGk=", mime_type="application/pdf")
    blocks = [EmbeddedResourceContentBlock(type="resource", resource=each) for each in (held, blob)]
    assert to_parts(blocks) == (
        FileInput(mime="text/plain", filename="/a/b.md", url="data:text/plain;base64,dW5zYXZlZA=="),
        FileInput(mime="application/pdf", filename="b.pdf", url="data:application/pdf;base64,aGk="),
    )


def test_an_audio_block_is_refused_with_its_position() -> None:
    with pytest.raises(InvalidInputError, match=r"prompt\[1\]"):
        to_parts([text_block("listen"), audio_block("aGk=", "audio/wav")])


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("/init", ("init", "")),
        ("/greet  ada and\nbob ", ("greet", "ada and\nbob")),
        ("/usr/bin", None),
        ("say /init", None),
        ("/ init", None),
        ("", None),
    ],
)
def test_a_slash_command_is_a_slash_followed_by_a_word(words: str, command: tuple[str, str] | None) -> None:
    assert find_command((TextInput(text=words),)) == command


@pytest.mark.parametrize(
    "block",
    [
        resource_link_block("x", "http://[x"),
        image_block("", "image/png", uri="http://[x"),
        EmbeddedResourceContentBlock(
            type="resource", resource=TextResourceContents(uri="file://[x", text="words")
        ),
    ],
)
def test_an_invalid_address_is_refused(block: Block) -> None:
    with pytest.raises(InvalidInputError, match=r"prompt\[1\]: its uri is invalid"):
        to_parts([text_block("look"), block])
