"""Files: the content of data URLs, which files a model is shown, and how they are made to fit."""

import base64
import sys
from io import BytesIO
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from given.damage import damaged_bytes
from given.examples import examples
from given.models import CLAUDE, GPT, TEXT_ONLY
from weft.model.catalog import Model
from weft.provider.anthropic.request import MEDIA_LIMITS, to_body
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


def draw_picture(width: int, height: int, format: str = "PNG", *, mode: str = "RGB", **how: Any) -> DataUrl:
    """Draw a real picture of stripes, which does not compress to nothing."""
    image = Image.radial_gradient("L").resize((width, height)).convert(mode)
    held = BytesIO()
    image.save(held, format=format, **how)
    return DataUrl(mime=MIMES[format], base64=base64.b64encode(held.getvalue()).decode())


def draw_noise(width: int, height: int) -> DataUrl:
    """Draw a picture that compresses badly."""
    held = BytesIO()
    Image.effect_noise((width, height), 90).convert("RGB").save(held, format="PNG")
    return DataUrl(mime="image/png", base64=base64.b64encode(held.getvalue()).decode())


def open_picture(data: DataUrl) -> Image.Image:
    image = Image.open(BytesIO(base64.b64decode(data.base64)))
    image.load()
    return image


def show(model: Model, *files: MediaContent, limits: MediaLimits | None = None) -> list[object]:
    [turn] = adapt_files([UserModelMessage(content=files)], model, lambda _: True, limits or MediaLimits())
    return [item.text if isinstance(item, TextContent) else item for item in turn.content]


# --- which ---


def test_data_urls_are_parsed() -> None:
    assert parse_data_url(f"data:image/jpeg;base64,{SMALL}") == DataUrl(mime="image/png", base64=SMALL)
    assert parse_data_url("data:text/plain,a%20b") == DataUrl(mime="text/plain", base64="YSBi")
    assert parse_data_url("data:text/plain,a\ud83db") == DataUrl(mime="text/plain", base64="YT9i")
    assert parse_data_url("data:image/x;base64,AA%3D%3D") == DataUrl(mime="image/x", base64="AA==")
    assert parse_data_url("https://example.com/a.png") is None


def test_files_that_a_model_cannot_read_are_described() -> None:
    assert show(TEXT_ONLY, picture(), picture(name=None)) == [
        'ERROR: Cannot read "a.png" (this model does not support image input). Inform the user.',
        "ERROR: Cannot read image (this model does not support image input). Inform the user.",
    ]
    assert show(GPT, picture("")) == show(GPT, picture("!!!!")) == [EMPTY_IMAGE]
    assert show(GPT, MediaContent(url="data:text/csv;base64,YSxi", mime="text/csv", filename="t.csv")) == [
        "t.csv:\na,b"
    ]
    assert show(GPT, picture()) == [picture()]


def test_a_result_keeps_its_text_when_its_image_is_removed() -> None:
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
def test_the_newest_files_are_kept(limits: MediaLimits) -> None:
    expected: list[object] = [TOO_MUCH, picture()] if limits.max_files else [TOO_MUCH, TOO_MUCH]
    assert show(GPT, picture(), picture(), limits=limits) == expected


def test_documents_have_a_limit_of_their_own() -> None:
    pdf = picture(base64.b64encode(b"%PDF-1.7 ...").decode(), mime="application/pdf", name="a.pdf")
    replaced = show(GPT, pdf, picture(), pdf, limits=MediaLimits(max_documents=1))
    assert replaced == [TOO_MUCH.replace("png", "pdf"), picture(), pdf]


def test_an_image_that_cannot_be_shrunk_is_omitted() -> None:
    [replaced] = show(GPT, picture(), limits=MediaLimits(max_side=8000))
    assert replaced == "[a.png is not shown: it has 9000 × 16 pixels, the model accepts 8000 per side]"
    assert show(GPT, picture(), limits=MediaLimits(max_side=9000)) == [picture()]


def test_without_pillow_the_hint_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    wide, large = draw_picture(90, 4), draw_noise(120, 120)
    room = MediaLimits(max_side=64, max_file_chars=20_000)
    assert show(GPT, MediaContent(url=wide.url, mime=wide.mime, filename="w"), limits=room) == [
        "[w is not shown: it has 90 × 4 pixels, the model accepts 64 per side; install weft's extra images to shrink it automatically]"
    ]
    [replaced] = show(
        GPT, MediaContent(url=large.url, mime=large.mime), limits=MediaLimits(max_file_chars=20_000)
    )
    assert (
        replaced
        == "[image/png is not shown: it is larger than the model accepts; install weft's extra images to shrink it automatically]"
    )


# --- how large ---


@given(st.sampled_from(sorted(MIMES)), st.integers(1, 300), st.integers(1, 300))
@examples(60)
def test_image_sizes_match_those_of_pillow(format: str, width: int, height: int) -> None:
    assert measure_image(draw_picture(width, height, format)) == (width, height)


@pytest.mark.parametrize(
    "made",
    [
        draw_picture(300, 200, "WEBP", lossless=True),
        draw_picture(300, 200, "WEBP", mode="RGBA"),
        draw_picture(300, 200, "JPEG", progressive=True),
        draw_picture(
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
def test_image_sizes_of_other_variants_are_read(made: DataUrl) -> None:
    assert measure_image(made) == (300, 200)


DRAWN = [draw_picture(90, 60, format) for format in MIMES]
DAMAGED = st.sampled_from(DRAWN).flatmap(
    lambda image: st.tuples(st.just(image.mime), damaged_bytes(base64.b64decode(image.base64)))
)


@given(DAMAGED | st.tuples(st.sampled_from(sorted(MIMES.values())), st.binary(max_size=60)))
@settings(suppress_health_check=[HealthCheck.large_base_example])
def test_a_damaged_image_is_measured_and_shrunk_or_refused(made: tuple[str, bytes]) -> None:
    mime, raw = made
    image = DataUrl(mime=mime, base64=base64.b64encode(raw).decode())
    small = shrink_image(image, ImageLimit(40, 30_000))
    assert small is None or max(measure_image(small)) in range(1, 41)


# --- shrinking ---


@given(
    st.sampled_from(sorted(MIMES)),
    st.sampled_from(["L", "RGB", "RGBA"]),
    st.integers(1, 400),
    st.integers(1, 400),
    st.integers(16, 300),
)
@examples(60)
def test_any_image_is_shrunk_to_its_limit_and_keeps_its_proportions(
    format: str, mode: str, width: int, height: int, pixels: int
) -> None:
    made = draw_picture(width, height, format, mode="RGB" if format == "JPEG" and mode == "RGBA" else mode)
    room = ImageLimit(pixels, 30_000)
    small = shrink_image(made, room)
    assert small is not None
    seen = open_picture(small)
    assert max(seen.size) <= pixels
    assert len(small.url) <= room.max_chars
    assert seen.size == measure_image(small)
    scale = max(width, height) / max(seen.size)
    assert seen.width * scale == pytest.approx(width, abs=scale)
    assert seen.height * scale == pytest.approx(height, abs=scale)


def test_the_same_image_gives_the_same_bytes() -> None:
    first, second = draw_noise(400, 300), draw_noise(300, 400)
    room, other = ImageLimit(200, 60_000), ImageLimit(100, 60_000)
    made = [shrink_image(each, how) for each in (first, second) for how in (room, other)]
    again = [shrink_image(each, how) for each in (first, second) for how in (room, other)]
    assert made == again
    assert len({each.base64 for each in made if each}) == 4


def test_screenshots_stay_png_if_the_limit_allows() -> None:
    screenshot = draw_picture(800, 600)
    assert [
        small.mime for size in (10**6, 9000) if (small := shrink_image(screenshot, ImageLimit(400, size)))
    ] == [
        "image/png",
        "image/jpeg",
    ]
    photograph = draw_picture(800, 600, "JPEG")
    small = shrink_image(photograph, ImageLimit(400, 10**6))
    assert small is not None
    assert small.mime == "image/jpeg"


def test_the_orientation_of_a_photo_is_applied() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6  # a quarter to the right
    small = shrink_image(draw_picture(400, 200, "JPEG", exif=turned), ImageLimit(100, 10**6))
    assert small is not None
    assert open_picture(small).size == (50, 100)


def test_a_huge_image_in_a_small_file_and_a_broken_image_are_not_decoded() -> None:
    wall = bytearray(base64.b64decode(draw_picture(10, 10).base64))
    wall[16:24] = (100_000).to_bytes(4, "big") * 2
    whole = base64.b64decode(draw_noise(200, 200).base64)
    for data in (bytes(wall), whole[: len(whole) // 2], whole[:40]):
        assert (
            shrink_image(
                DataUrl(mime="image/png", base64=base64.b64encode(data).decode()), ImageLimit(50, 10**6)
            )
            is None
        )


def test_an_image_in_a_request_does_not_change_when_others_follow() -> None:
    """Anthropic has a smaller limit for many pictures: all are made to fit that from the start."""
    wide = draw_picture(MEDIA_LIMITS.max_side_when_many or 0, 300)
    first = draw_picture((MEDIA_LIMITS.max_side_when_many or 0) + 400, 300)

    def make_sent_content(count: int) -> list[dict[str, Any]]:
        files = tuple(MediaContent(url=each.url, mime=each.mime) for each in (first, *[wide] * count))
        request = ModelRequest(model=CLAUDE, system=(), messages=(UserModelMessage(content=files),))
        content: list[dict[str, Any]] = to_body(request)["messages"][0]["content"]
        return [{key: value for key, value in block.items() if key != "cache_control"} for block in content]

    few, many = make_sent_content(1), make_sent_content(24)
    assert (many[:2], len(many)) == (few, 25)
    assert measure_image(DataUrl(mime="image/png", base64=few[0]["source"]["data"])) == (2000, 250)
