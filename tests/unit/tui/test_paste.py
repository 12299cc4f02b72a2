"""Pasted text and images: shown by a short name, sent in full, and remembered."""

from pathlib import Path
from shlex import quote
from time import monotonic

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weft.errors import InvalidInputError
from weft.model.input import FileInput
from weft.tui.paste import MAX_IMAGE_BYTES, Pastes, find_image, read_image


def test_a_long_pasted_text_is_shown_by_name_and_sent_in_full() -> None:
    pastes, long = Pastes(), "\n".join(map(str, range(30)))
    assert pastes.fold("short\r\ntext") == "short\ntext"
    assert [pastes.fold(long), pastes.fold("x" * 2000)] == ["[paste 1: 30 lines]", "[paste 2: 1 line]"]
    assert pastes.fold(f"{long}\n") == "[paste 3: 30 lines]"
    assert pastes.unfold("see [paste 1: 30 lines]!") == f"see {long}!"
    assert pastes.to_history("see [paste 1: 30 lines]!") == f"see {long}!"


def test_a_pasted_text_that_names_another_paste_is_sent_as_it_is() -> None:
    pastes = Pastes()
    first = "\n".join(["[paste 2: 30 lines]", "[image 1: a.png]", *map(str, range(28))])
    second = "\n".join(map(str, range(30)))
    names = [pastes.fold(each) for each in (first, second)]
    assert names == ["[paste 1: 30 lines]", "[paste 2: 30 lines]"]
    assert pastes.unfold(" ".join(names)) == f"{first} {second}"


def test_a_long_line_is_pasted_at_once() -> None:
    began = monotonic()
    assert Pastes().fold("w" * 1_000_000) == "[paste 1: 1 line]"
    assert monotonic() - began < 5


def test_an_image_path_is_recognised_in_the_format_of_every_terminal(tmp_path: Path) -> None:
    image = tmp_path / "a shot.png"
    image.write_bytes(b"\x89PNG")
    path = str(image)
    written = (path, f" {path}\n", quote(path), path.replace(" ", "\\ "), image.as_uri())
    assert [find_image(each) for each in written] == [path] * len(written)
    others = (str(tmp_path), f"{path}x", "a shot.png", f"look at {path}", f"{path}\n{path}", "don't")
    assert [find_image(each) for each in others] == [""] * len(others)


def test_an_image_is_sent_with_the_prompt_that_names_it(tmp_path: Path) -> None:
    image = tmp_path / "shot.png"
    image.write_bytes(b"\x89PNG")
    pastes = Pastes()
    name = pastes.fold(str(image))
    assert name == "[image 1: shot.png]"
    assert pastes.list_images(f"look at {name}") == [str(image)]
    assert pastes.list_images("look at nothing") == []
    assert pastes.to_history(f"look at {name}") == f"look at @{image}"
    assert read_image(str(image)) == FileInput(
        mime="image/png", filename="shot.png", url="data:image/png;base64,iVBORw=="
    )


def test_an_image_that_cannot_be_sent_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"gone\.png.*cannot be read"):
        read_image(str(tmp_path / "gone.png"))
    with open(tmp_path / "large.png", "wb") as file:
        file.truncate(MAX_IMAGE_BYTES + 1)
    with pytest.raises(InvalidInputError, match="more than 20 MB"):
        read_image(str(tmp_path / "large.png"))


@given(st.text() | st.tuples(st.sampled_from(["~", "file://", "'", "/"]), st.text(max_size=9)).map("".join))
@example("file://[")
@example("~a\0")
@example("~\ud800")
def test_pasted_text_is_never_lost(text: str) -> None:
    pastes = Pastes()
    assert pastes.unfold(pastes.fold(text)) == text.replace("\r\n", "\n").replace("\r", "\n")
