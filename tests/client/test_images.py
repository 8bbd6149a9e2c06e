"""Pictures that know how they were made."""

import pickle
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from tests.client.fakes import a_png
from workshop_gpu.client.errors import BadRequest
from workshop_gpu.client.images import GeneratedImage, read_metadata


def test_it_is_a_pil_image_that_knows_its_metadata() -> None:
    image = GeneratedImage(a_png("a red circle", 7))
    assert isinstance(image, Image.Image)
    assert image.size == (32, 32)
    assert (image.prompt, image.seed, image.model) == ("a red circle", 7, "shapes")
    assert image.metadata["steps"] == 20
    assert image.metadata["versions"] == {"torch": "2"}
    assert "seed=7" in repr(image)


def test_a_notebook_shows_the_servers_own_bytes_once() -> None:
    png = a_png()
    image = GeneratedImage(png)
    assert image._repr_png_() == png
    assert Image.Image._repr_jpeg_ is not GeneratedImage._repr_jpeg_


def test_a_picture_that_was_painted_on_shows_the_paint_and_keeps_the_metadata() -> None:
    image = GeneratedImage(a_png())
    image.paste((0, 0, 255), (0, 0, 4, 4))
    again = GeneratedImage(image.png_bytes)
    assert again.getpixel((0, 0)) == (0, 0, 255)
    assert again.metadata == image.metadata


def test_a_measured_picture_shows_how_each_steps_time_was_spent() -> None:
    steps = [{"copy_s": 0.02, "wait_s": 0.001, "compute_s": 0.03}] * 2
    image = GeneratedImage(a_png(profile=True, about={"profile": steps}))
    assert image.metadata["profile"] == steps
    second = image.profile[1]
    assert (second.number, second.copy_s, second.wait_s, second.compute_s) == (2, 0.02, 0.001, 0.03)
    assert "<td" in image.profile._repr_html_()
    assert "30.00 ms" in repr(image.profile)


def test_a_picture_that_was_not_measured_says_how_to_ask_for_it() -> None:
    image = GeneratedImage(a_png(profile=False))
    assert "profile" not in image.metadata
    assert list(image.profile) == []
    assert "profile=True" in repr(image.profile)
    for foreign in (["x"], [{"copy_s": "?"}], 7):
        assert list(GeneratedImage(a_png(about={"profile": foreign})).profile) == []


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp", "a.tiff"])
def test_saving_keeps_the_metadata_in_each_format(tmp_path: Path, name: str) -> None:
    image = GeneratedImage(a_png("ein Würfel ★"))
    image.save(tmp_path / name)
    assert read_metadata(tmp_path / name) == image.metadata
    assert read_metadata(str(tmp_path / name)) == image.metadata


def test_saving_into_a_buffer_keeps_the_metadata() -> None:
    buffer = BytesIO()
    image = GeneratedImage(a_png())
    image.save(buffer, "JPEG")
    assert read_metadata(buffer.getvalue()) == image.metadata


def test_pixels_survive_saving_as_png(tmp_path: Path) -> None:
    image = GeneratedImage(a_png())
    image.save(tmp_path / "a.png")
    assert Image.open(tmp_path / "a.png").tobytes() == image.tobytes()


def test_changed_copies_and_pickles_keep_the_metadata() -> None:
    image = GeneratedImage(a_png())
    assert read_metadata(image.resize((8, 8))) == image.metadata
    assert read_metadata(image.copy()) == image.metadata
    assert read_metadata(pickle.loads(pickle.dumps(image))) == image.metadata


def test_a_picture_of_somebody_else_has_no_metadata() -> None:
    assert read_metadata(Image.new("RGB", (4, 4))) == {}
    foreign = Image.new("RGB", (4, 4))
    foreign.info["workshop_gpu"] = "not JSON"
    assert read_metadata(foreign) == {}
    foreign.info["workshop_gpu"] = "[1]"
    assert read_metadata(foreign) == {}


def test_what_is_no_picture_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no picture that can be read"):
        read_metadata(b"not a picture")
    with pytest.raises(BadRequest, match=r"nothing\.png"):
        read_metadata(tmp_path / "nothing.png")
    with pytest.raises(BadRequest, match="not int"):
        read_metadata(5)  # type: ignore[arg-type]
