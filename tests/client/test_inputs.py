"""What people give to begin with, and the file that is sent."""

import hashlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.client.fakes import FakeServer, a_job, a_model, a_png
from workshop_gpu.api import schemas
from workshop_gpu.client import Client
from workshop_gpu.client.errors import BadRequest, InputUnknown, NotAccepted
from workshop_gpu.client.images import GeneratedImage
from workshop_gpu.client.inputs import MOST_PIXELS, beginning

RED = Image.new("RGB", (64, 48), "red")


@pytest.fixture(autouse=True)
def _answers(fake: FakeServer) -> None:
    fake.answers["POST inputs"] = schemas.Input("a" * 64, 64, 48, 1)
    fake.answers["POST jobs"] = a_job("done")
    fake.answers[f"GET jobs/{'1' * 32}/images/0"] = a_png()


def decoded(content: bytes | None) -> Image.Image:
    assert content is not None
    image = Image.open(BytesIO(content))
    assert image.format == "PNG"
    return image


def test_a_file_goes_once_and_is_named_in_each_job(client: Client, fake: FakeServer) -> None:
    for seed in (1, 2):
        client.submit("a star", "shapes", seed=seed, start_image=RED, strength=0.5)
    (content,) = fake.bodies("POST inputs")
    assert decoded(content).getpixel((3, 3)) == (255, 0, 0)
    bodies = fake.bodies("POST jobs")
    assert {body["start_image"] for body in bodies} == {hashlib.sha256(content).hexdigest()}
    assert (bodies[0]["strength"], bodies[0]["mask"]) == (0.5, "")
    assert (bodies[0]["width"], bodies[0]["height"]) == (None, None)


def test_a_server_that_has_forgotten_the_file_gets_it_once_more(
    client: Client, fake: FakeServer
) -> None:
    client.submit("a star", "shapes", start_image=RED)
    answers: list[Any] = [(404, "input_unknown"), a_job("done")]
    fake.answers["POST jobs"] = lambda: answers.pop(0)
    client.submit("a star", "shapes", start_image=RED)
    assert len(fake.bodies("POST inputs")) == 2
    fake.answers["POST jobs"] = (404, "input_unknown")
    with pytest.raises(InputUnknown):
        client.submit("a star", "shapes", start_image=RED)


def test_every_kind_of_picture_is_taken(tmp_path: Path) -> None:
    RED.save(tmp_path / "red.png")
    buffer = BytesIO()
    RED.save(buffer, "WEBP", lossless=True)
    made = GeneratedImage((tmp_path / "red.png").read_bytes())
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[..., 0] = 255
    kinds: list[Any] = [RED, tmp_path / "red.png", str(tmp_path / "red.png"), buffer.getvalue()]
    files = {beginning(each, None).start_image for each in [*kinds, made, pixels]}
    assert len(files) == 1, "the same picture is the same file, whatever it came in"


def test_transparency_gets_a_ground_and_exif_is_obeyed(tmp_path: Path) -> None:
    clear = Image.new("RGBA", (32, 32), (0, 0, 0, 0))
    assert decoded(beginning(clear, None).start_image).getpixel((0, 0)) == (255, 255, 255)
    strokes = clear.copy()
    strokes.paste("white", (0, 0, 16, 32))
    mask = decoded(beginning(clear, strokes).mask)
    assert (mask.mode, mask.getpixel((1, 1)), mask.getpixel((31, 1))) == ("L", 255, 0)
    exif = Image.Exif()
    exif[0x0112] = 6
    RED.save(tmp_path / "photo.jpg", exif=exif)
    assert decoded(beginning(tmp_path / "photo.jpg", None).start_image).size == (48, 64)


def test_a_mask_may_be_an_array_of_truths() -> None:
    chosen = np.zeros((48, 64), bool)
    chosen[:10] = True
    mask = decoded(beginning(RED, chosen).mask)
    assert (mask.getpixel((0, 0)), mask.getpixel((0, 40))) == (255, 0)


def test_a_photo_of_many_megapixels_is_made_smaller_before_it_goes() -> None:
    photo = Image.new("RGB", (4000, 3000), "red")
    start = beginning(photo, photo.convert("L").point(lambda value: 255))
    image, mask = decoded(start.start_image), decoded(start.mask)
    assert image.size == mask.size
    assert 0.99 * MOST_PIXELS < image.width * image.height <= MOST_PIXELS
    assert image.width / image.height == pytest.approx(4 / 3, rel=0.01)


def moving() -> bytes:
    frames = [Image.new("L", (16, 16), value) for value in (0, 255)]
    buffer = BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("start_image", "mask", "words"),
    [
        (b"no picture", None, "start_image: these bytes are no picture"),
        ("nowhere.png", None, 'start_image: there is no file "nowhere.png"'),
        (7, None, "start_image: give an image"),
        (moving(), None, "start_image: this picture moves"),
        (a_png()[:150], None, "start_image: "),
        (np.zeros((4, 4, 3)), None, "start_image: this array is no picture .*dtype uint8"),
        (RED, Image.new("L", (65, 48), 255), r"mask: it has 65 x 48 .* mask.resize"),
        (RED, Image.new("L", (64, 48), 0), "mask: it is black all over"),
        (RED, 7, "mask: give an image"),
        (None, RED, "mask: it goes with a start image"),
    ],
)
def test_what_is_no_beginning_is_refused_before_anything_is_sent(
    client: Client, fake: FakeServer, start_image: Any, mask: Any, words: str
) -> None:
    with pytest.raises(BadRequest, match=words):
        client.submit("a star", "shapes", start_image=start_image, mask=mask)
    assert fake.requests == []


@pytest.mark.parametrize("strength", ["x", True, [0.5]])
def test_a_strength_that_is_no_number_is_refused_here(client: Client, strength: Any) -> None:
    with pytest.raises(BadRequest, match="strength="):
        client.submit("a star", "shapes", start_image=RED, strength=strength)


def test_without_a_model_one_that_can_is_taken(client: Client, fake: FakeServer) -> None:
    able = a_model("able", accepts=("text", "image"))
    fake.answers["GET models"] = schemas.ModelList([a_model(state="ready"), able])
    client.submit("a star", start_image=RED)
    assert fake.bodies("POST jobs")[0]["model"] == "able"
    with pytest.raises(NotAccepted, match="no model here takes a mask"):
        client.submit("a star", start_image=RED, mask=Image.new("L", RED.size, 255))


def test_again_names_what_the_picture_began_with(client: Client, fake: FakeServer) -> None:
    begun = a_png(start_image="b" * 64, mask="c" * 64, strength=0.4)
    client.again(begun, progress=False)
    (body,) = fake.bodies("POST jobs")
    assert (body["start_image"], body["mask"], body["strength"]) == ("b" * 64, "c" * 64, 0.4)
    fake.answers["POST jobs"] = (404, "input_unknown")
    with pytest.raises(InputUnknown):
        client.again(begun, progress=False)
    fake.answers["POST jobs"] = a_job("done")
    client.again(begun, start_image=RED, mask=Image.new("L", RED.size, 255), progress=False)
    assert fake.bodies("POST jobs")[-1]["strength"] == 0.4
    assert len(fake.bodies("POST inputs")) == 2
