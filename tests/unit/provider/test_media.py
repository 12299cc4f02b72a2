"""Files: the content of data URLs, which files a model is shown, and how they are made to fit."""

import base64
import sys
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from given.models import CLAUDE, GPT, TEXT_ONLY
from weft.model.catalog import Model
from weft.provider.anthropic.request import MEDIA_LIMITS, to_messages
from weft.provider.contract import (
    MediaContent,
    ModelRequest,
    ResultContent,
    TextContent,
    ToolModelMessage,
    UserModelMessage,
)
from weft.provider.media import (
    EMPTY_IMAGE,
    DataUrl,
    ImageLimit,
    MediaLimits,
    adapt_files,
    has_files,
    measure_image,
    parse_data_url,
    shrink_image,
)

MIMES = {"PNG": "image/png", "GIF": "image/gif", "JPEG": "image/jpeg", "WEBP": "image/webp"}
SMALL = base64.b64encode(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x23\x28\x00\x00\x00\x10rest").decode()


def picture(data: str = SMALL, *, mime: str = "image/png", name: str | None = "a.png") -> MediaContent:
    return MediaContent(url=f"data:{mime};base64,{data}", mime=mime, filename=name)


def drawn(width: int, height: int, format: str = "PNG", *, mode: str = "RGB", **how: Any) -> DataUrl:
    """Draw a real picture of stripes, which does not compress to nothing."""
    image = Image.radial_gradient("L").resize((width, height)).convert(mode)
    held = BytesIO()
    image.save(held, format=format, **how)
    return DataUrl(mime=MIMES[format], base64=base64.b64encode(held.getvalue()).decode())


def noise(width: int, height: int) -> DataUrl:
    """Draw a picture that compresses badly."""
    held = BytesIO()
    Image.effect_noise((width, height), 90).convert("RGB").save(held, format="PNG")
    return DataUrl(mime="image/png", base64=base64.b64encode(held.getvalue()).decode())


def opened(data: DataUrl) -> Image.Image:
    image = Image.open(BytesIO(base64.b64decode(data.base64)))
    image.load()
    return image


def shown(model: Model, *files: MediaContent, limits: MediaLimits | None = None) -> list[object]:
    [turn] = adapt_files([UserModelMessage(content=files)], model, lambda _: True, limits or MediaLimits())
    return [item.text if isinstance(item, TextContent) else item for item in turn.content]


# --- which ---


def test_what_a_data_url_holds() -> None:
    assert parse_data_url(f"data:image/jpeg;base64,{SMALL}") == DataUrl(mime="image/png", base64=SMALL)
    assert parse_data_url("data:text/plain,a%20b") == DataUrl(mime="text/plain", base64="YSBi")
    assert parse_data_url("data:image/x;base64,AA%3D%3D") == DataUrl(mime="image/x", base64="AA==")
    assert parse_data_url("https://example.com/a.png") is None


def test_what_a_model_cannot_read_is_said() -> None:
    assert shown(TEXT_ONLY, picture(), picture(name=None)) == [
        'ERROR: Cannot read "a.png" (this model does not support image input). Inform the user.',
        "ERROR: Cannot read image (this model does not support image input). Inform the user.",
    ]
    assert shown(GPT, picture("")) == shown(GPT, picture("!!!!")) == [EMPTY_IMAGE]
    assert shown(GPT, MediaContent(url="data:text/csv;base64,YSxi", mime="text/csv", filename="t.csv")) == [
        "t.csv:\na,b"
    ]
    assert shown(GPT, picture()) == [picture()]


def test_a_result_keeps_its_words_when_its_picture_goes() -> None:
    held = ResultContent(call_id="a", tool="read", output="done", files=(picture(),))
    [replaced] = adapt_files([ToolModelMessage(content=(held,))], TEXT_ONLY, lambda _: True, MediaLimits())
    said = 'done\n\nERROR: Cannot read "a.png" (this model does not support image input). Inform the user.'
    assert replaced == ToolModelMessage(content=(ResultContent(call_id="a", tool="read", output=said),))
    assert [has_files([turn]) for turn in (ToolModelMessage(content=(held,)), replaced)] == [True, False]


# --- how much ---

TOO_MUCH = "[a.png is not shown: with the files after it, it exceeds the model's limit]"


@pytest.mark.parametrize(
    "limits",
    [
        MediaLimits(max_files=1),
        MediaLimits(max_total_chars=len(picture().url) + 10),
        MediaLimits(many_files=1, max_files=0),
    ],
)
def test_the_newest_files_stay(limits: MediaLimits) -> None:
    expected: list[object] = [TOO_MUCH, picture()] if limits.max_files else [TOO_MUCH, TOO_MUCH]
    assert shown(GPT, picture(), picture(), limits=limits) == expected


def test_documents_are_counted_for_themselves() -> None:
    pdf = picture(base64.b64encode(b"%PDF-1.7 ...").decode(), mime="application/pdf", name="a.pdf")
    replaced = shown(GPT, pdf, picture(), pdf, limits=MediaLimits(max_documents=1))
    assert replaced == [TOO_MUCH.replace("png", "pdf"), picture(), pdf]


def test_a_picture_that_cannot_be_made_smaller_is_not_shown() -> None:
    [replaced] = shown(GPT, picture(), limits=MediaLimits(max_side=8000))
    assert replaced == "[a.png is not shown: it has 9000 × 16 pixels, the model accepts 8000 per side]"
    assert shown(GPT, picture(), limits=MediaLimits(max_side=9000)) == [picture()]


def test_without_pillow_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    wide, large = drawn(90, 4), noise(120, 120)
    room = MediaLimits(max_side=64, max_file_chars=20_000)
    assert shown(GPT, MediaContent(url=wide.url, mime=wide.mime, filename="w"), limits=room) == [
        "[w is not shown: it has 90 × 4 pixels, the model accepts 64 per side; install weft's extra images to shrink it automatically]"
    ]
    [replaced] = shown(
        GPT, MediaContent(url=large.url, mime=large.mime), limits=MediaLimits(max_file_chars=20_000)
    )
    assert (
        replaced
        == "[image/png is not shown: it is larger than the model accepts; install weft's extra images to shrink it automatically]"
    )


# --- how large ---


@given(st.sampled_from(sorted(MIMES)), st.integers(1, 300), st.integers(1, 300))
@settings(deadline=None, max_examples=60)
def test_the_sides_are_those_that_pillow_sees(format: str, width: int, height: int) -> None:
    assert measure_image(drawn(width, height, format)) == (width, height)


@pytest.mark.parametrize(
    "made",
    [
        drawn(300, 200, "WEBP", lossless=True),
        drawn(300, 200, "WEBP", mode="RGBA"),
        drawn(300, 200, "JPEG", progressive=True),
        drawn(
            300,
            200,
            "JPEG",
            comment=b"x" * 60_000,
            exif=b"Exif\x00\x00" + bytes(40_000),
            icc_profile=bytes(90_000),
        ),
    ],
    ids=["lossless", "transparent", "progressive", "with much before it"],
)
def test_the_sides_of_other_kinds(made: DataUrl) -> None:
    assert measure_image(made) == (300, 200)


@given(st.sampled_from(sorted(MIMES.values())), st.binary(max_size=60))
def test_bytes_of_any_kind_have_sides_or_none(mime: str, data: bytes) -> None:
    width, height = measure_image(DataUrl(mime=mime, base64=base64.b64encode(data).decode()))
    assert min(width, height) >= 0


# --- made smaller ---


@given(
    st.sampled_from(sorted(MIMES)),
    st.sampled_from(["L", "RGB", "RGBA"]),
    st.integers(1, 400),
    st.integers(1, 400),
    st.integers(16, 300),
)
@settings(deadline=None, max_examples=60)
def test_any_picture_fits_and_keeps_its_shape(
    format: str, mode: str, width: int, height: int, pixels: int
) -> None:
    made = drawn(width, height, format, mode="RGB" if format == "JPEG" and mode == "RGBA" else mode)
    room = ImageLimit(pixels, 30_000)
    small = shrink_image(made, room)
    assert small is not None
    seen = opened(small)
    assert max(seen.size) <= pixels
    assert len(small.url) <= room.max_chars
    assert seen.size == measure_image(small)
    scale = max(width, height) / max(seen.size)
    assert seen.width * scale == pytest.approx(width, abs=scale)
    assert seen.height * scale == pytest.approx(height, abs=scale)


def test_the_same_picture_gives_the_same_bytes_each_time() -> None:
    first, second = noise(400, 300), noise(300, 400)
    room, other = ImageLimit(200, 60_000), ImageLimit(100, 60_000)
    made = [shrink_image(each, how) for each in (first, second) for how in (room, other)]
    again = [shrink_image(each, how) for each in (first, second) for how in (room, other)]
    assert made == again
    assert len({each.base64 for each in made if each}) == 4


def test_letters_stay_sharp_where_there_is_room_for_it() -> None:
    screenshot = drawn(800, 600)
    assert [
        small.mime for size in (10**6, 9000) if (small := shrink_image(screenshot, ImageLimit(400, size)))
    ] == [
        "image/png",
        "image/jpeg",
    ]
    photograph = drawn(800, 600, "JPEG")
    small = shrink_image(photograph, ImageLimit(400, 10**6))
    assert small is not None
    assert small.mime == "image/jpeg"


def test_a_picture_is_turned_as_it_is_meant_to_be_seen() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6  # a quarter to the right
    small = shrink_image(drawn(400, 200, "JPEG", exif=turned), ImageLimit(100, 10**6))
    assert small is not None
    assert opened(small).size == (50, 100)


def test_a_huge_picture_in_a_small_file_and_a_broken_one_are_left_alone() -> None:
    wall = bytearray(base64.b64decode(drawn(10, 10).base64))
    wall[16:24] = (100_000).to_bytes(4, "big") * 2
    whole = base64.b64decode(noise(200, 200).base64)
    for data in (bytes(wall), whole[: len(whole) // 2], whole[:40]):
        assert (
            shrink_image(
                DataUrl(mime="image/png", base64=base64.b64encode(data).decode()), ImageLimit(50, 10**6)
            )
            is None
        )


def test_a_picture_in_a_request_stays_the_same_however_many_follow() -> None:
    """Anthropic has a smaller limit for many pictures: all are made to fit that from the start."""
    wide = drawn(MEDIA_LIMITS.max_side_when_many or 0, 300)
    first = drawn((MEDIA_LIMITS.max_side_when_many or 0) + 400, 300)

    def sent(count: int) -> list[dict[str, Any]]:
        files = tuple(MediaContent(url=each.url, mime=each.mime) for each in (first, *[wide] * count))
        request = ModelRequest(model=CLAUDE, system=(), messages=(UserModelMessage(content=files),))
        content: list[dict[str, Any]] = to_messages(request)[0]["content"]
        return content

    few, many = sent(1), sent(24)
    assert (many[:2], len(many)) == (few, 25)
    assert measure_image(DataUrl(mime="image/png", base64=few[0]["source"]["data"])) == (2000, 250)
