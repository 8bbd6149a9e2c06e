"""The studio's start image, strength and mask, without a browser."""

from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import traitlets
from PIL import Image

from tests.client.fakes import FakeServer, a_job, a_model, a_png
from tests.client.test_studio import JOB, click, make_one, wait_for_bodies
from workshop_gpu.api import schemas
from workshop_gpu.client import Client, Studio
from workshop_gpu.client.widgets.choices import as_code

SKETCH = Image.new("RGB", (64, 32), "red")


@pytest.fixture
def studio(client: Client, fake: FakeServer) -> Studio:
    models = [a_model("shapes", accepts=("text", "image", "mask")), a_model("other")]
    fake.answers |= {
        "GET models": schemas.ModelList(models),
        "GET jobs": schemas.JobList([]),
        "POST jobs": a_job(),
        "POST inputs": schemas.Input("0" * 64, 64, 32, 99),
        f"GET jobs/{JOB}/images/0": a_png(),
    }
    return Studio(client, prompt="a star")


def data_url(image: Image.Image) -> str:
    buffer = BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + b64encode(buffer.getvalue()).decode()


def a_mask(size: tuple[int, int] = (64, 32)) -> Image.Image:
    mask = Image.new("L", size, 0)
    mask.paste(255, (0, 0, 8, 8))
    return mask


def test_what_is_dropped_and_drawn_goes_into_the_job(studio: Studio, fake: FakeServer) -> None:
    click(studio, wish="begin", data=data_url(SKETCH))
    assert (studio.start_image.size, studio._start["width"]) == ((64, 32), 64)
    click(studio, wish="mask", data=data_url(a_mask()), view="one")
    assert studio._cover["view"] == "one"
    assert studio.mask.getbbox() == (0, 0, 8, 8)
    studio.strength = 0.5
    click(studio)
    (body,) = wait_for_bodies(fake, 1)
    assert (body["strength"], len(body["start_image"]), len(body["mask"])) == (0.5, 64, 64)
    assert (body["width"], body["height"]) == (None, None)


def test_a_mask_that_was_wiped_out_is_none(studio: Studio, fake: FakeServer) -> None:
    click(studio, wish="begin", data=data_url(SKETCH))
    click(studio, wish="mask", data=data_url(a_mask()), view="one")
    click(studio, wish="mask", data="", view="one")
    click(studio)
    (body,) = wait_for_bodies(fake, 1)
    assert (len(body["start_image"]), body["mask"]) == (64, "")


def test_another_start_image_takes_the_mask_away(studio: Studio) -> None:
    studio.start_image = SKETCH
    studio.mask = a_mask()
    studio.start_image = SKETCH.resize((16, 16))
    assert studio.mask is None
    assert studio._cover["data"] == ""
    click(studio, wish="begin", data="")
    assert (studio.start_image, studio._start) == (None, {})


def test_a_file_may_be_the_start_image(studio: Studio, tmp_path: Path) -> None:
    SKETCH.save(tmp_path / "sketch.png")
    studio.start_image = str(tmp_path / "sketch.png")
    assert studio.start_image.size == (64, 32)


def test_a_picture_that_was_made_may_be_the_start_image(studio: Studio, fake: FakeServer) -> None:
    make_one(studio, fake)
    click(studio, wish="begin", key=f"{JOB}:0")
    assert studio.start_image.size == (32, 32)


def test_again_begins_with_the_same_picture(studio: Studio, fake: FakeServer) -> None:
    make_one(studio, fake)
    buffer = BytesIO()
    SKETCH.save(buffer, "PNG")
    fake.answers[f"GET inputs/{'7' * 64}"] = buffer.getvalue()
    (shown,) = studio._shown
    studio._shown = [shown | {"made": shown["made"] | {"start_image": "7" * 64, "strength": 0.4}}]
    click(studio, wish="again", key=f"{JOB}:0")
    body = wait_for_bodies(fake, 2)[-1]
    assert (body["strength"], body["seed"], len(body["start_image"])) == (0.4, 7, 64)
    assert studio.start_image.size == (64, 32)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("start_image", 5),
        ("start_image", "no-such-file.png"),
        ("start_image", b"no picture"),
        ("mask", a_mask((8, 8))),
        ("mask", "no-such-file.png"),
        ("strength", 0.0),
        ("strength", 1.5),
        ("strength", float("nan")),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(studio: Studio, name: str, value: Any) -> None:
    studio.start_image = SKETCH
    before = getattr(studio, name)
    with pytest.raises(traitlets.TraitError, match=name):
        setattr(studio, name, value)
    assert getattr(studio, name) == before


def test_a_mask_needs_a_start_image(studio: Studio) -> None:
    with pytest.raises(traitlets.TraitError, match="start_image first"):
        studio.mask = a_mask()


@pytest.mark.parametrize(
    "data",
    [
        "data:text/html,<b>",
        "data:image/png;base64,###",
        "data:image/png;base64,eA==",
        "x" * 13_000_000,
    ],
)
def test_what_is_no_picture_is_said_in_words(studio: Studio, data: str) -> None:
    click(studio, wish="begin", data=data)
    assert studio._error["message"]
    assert studio.start_image is None


def test_the_code_says_where_pictures_go() -> None:
    made = {"prompt": "a", "model": "m", "start_image": "7", "mask": "8", "strength": 0.5}
    line = as_code(made)
    assert 'start_image="START.png", mask="MASK.png", strength=0.5)' in line
