"""`wg.Studio()` without a browser: its traits, and what the browser may send."""

import threading
from typing import Any

import pytest
import traitlets

from tests.client.fakes import FakeServer, a_job, a_model, a_png, a_slot
from tests.client.test_mirror import a_snapshot
from workshop_gpu.api import schemas
from workshop_gpu.client import Client, Studio
from workshop_gpu.client.errors import BadRequest
from workshop_gpu.client.widgets.choices import as_code, size_choices

JOB = "1" * 32


@pytest.fixture(autouse=True)
def _answers(fake: FakeServer) -> None:
    models = [a_model("shapes"), a_model("other"), a_model("off", enabled=False, reason="later")]
    fake.answers |= {
        "GET models": schemas.ModelList(models),
        "POST jobs": a_job(),
        f"GET jobs/{JOB}/images/0": a_png(),
        f"DELETE jobs/{JOB}": a_job("cancelled"),
    }


@pytest.fixture
def studio(client: Client) -> Studio:
    return Studio(client)


def wait_for(studio: Studio, name: str, condition: Any) -> None:
    """Wait until the trait meets the condition."""
    met = threading.Event()

    def look(change: Any) -> None:
        if condition(change["new"]):
            met.set()

    studio.observe(look, name)
    if condition(getattr(studio, name)):
        met.set()
    assert met.wait(10), f"{name} is {getattr(studio, name)!r}"


def test_a_click_makes_a_picture_that_is_a_trait(studio: Studio, fake: FakeServer) -> None:
    stream, _ = fake.next_stream()
    studio.prompt, studio.seed, studio.steps = "a red circle", 7, 10
    studio._on_message(studio, {"wish": "generate"}, [])
    (body,) = fake.bodies("POST jobs")
    assert (body["prompt"], body["seed"], body["steps"]) == ("a red circle", 7, 10)
    assert (body["model"], body["width"]) == ("shapes", None)
    stream.send(schemas.JobEvent(a_job("running", step=5)))
    wait_for(studio, "_job", lambda job: job["text"] == "Step 5 of 20")
    stream.send(schemas.PreviewEvent(JOB, 5, 20, 0, "data:image/jpeg;base64,eA=="))
    wait_for(studio, "_preview", lambda data: data.startswith("data:"))
    stream.send(schemas.JobEvent(a_job("done")))
    wait_for(studio, "images", lambda images: len(images) == 1)
    wait_for(studio, "_job", lambda job: job["state"] == "done")
    assert studio.images[-1].seed == 7
    assert studio._picture == a_png()
    assert studio._made["code"].startswith("wg.generate('a red circle', model='shapes'")
    assert studio._strip[0]["data"].startswith("data:image/jpeg")
    assert studio._preview == ""


def test_a_second_click_while_a_picture_is_made_is_refused_in_words(
    studio: Studio, fake: FakeServer
) -> None:
    studio.generate()
    with pytest.raises(BadRequest, match="already"):
        studio.generate()
    studio._on_message(studio, {"wish": "generate"}, [])
    assert "already" in studio._error["message"]
    assert len(fake.bodies("POST jobs")) == 1


def test_the_servers_refusal_is_shown(studio: Studio, fake: FakeServer) -> None:
    fake.answers["POST jobs"] = (429, "queue_full")
    studio._on_message(studio, {"wish": "generate"}, [])
    assert studio._error == {"title": "Too many waiting jobs", "message": "queue_full!"}
    fake.answers["POST jobs"] = a_job()
    studio._on_message(studio, {"wish": "generate"}, [])
    assert studio._error == {}


def test_a_job_that_fails_says_why(studio: Studio, fake: FakeServer) -> None:
    stream, _ = fake.next_stream()
    studio.generate()
    stream.send(schemas.JobEvent(a_job("failed")))
    wait_for(studio, "_error", bool)
    wait_for(studio, "_job", lambda job: job["state"] == "failed")


def test_cancel_by_message_reaches_the_server(studio: Studio, fake: FakeServer) -> None:
    studio._on_message(studio, {"wish": "cancel"}, [])
    studio.generate()
    studio._on_message(studio, {"wish": "cancel"}, [])
    assert fake.requests[-1][0] == f"DELETE jobs/{JOB}"


@pytest.mark.parametrize("content", [None, [], {"wish": "fly"}, {"wish": "show", "index": 5}])
def test_a_message_that_makes_no_sense_is_no_error(studio: Studio, content: Any) -> None:
    studio._on_message(studio, content, [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", -1),
        ("seed", "x"),
        ("steps", 0),
        ("guidance", -1.0),
        ("width", 0),
        ("prompt", 5),
        ("model", "nothing"),
        ("images", ["no picture"]),
    ],
)
def test_nonsense_in_a_trait_is_refused(studio: Studio, name: str, value: Any) -> None:
    before = getattr(studio, name)
    with pytest.raises(traitlets.TraitError):
        setattr(studio, name, value)
    assert getattr(studio, name) == before


def test_another_model_brings_its_own_defaults(studio: Studio) -> None:
    studio.steps, studio.width = 5, 64
    studio.model = "other"
    assert [studio.steps, studio.width] == [None, None]


def test_options_may_be_given_at_the_start(client: Client) -> None:
    studio = Studio(client, prompt="a star", model="other", steps=3)
    assert (studio.prompt, studio.model, studio.steps) == ("a star", "other", 3)


def test_the_model_menu_follows_the_stream(studio: Studio, fake: FakeServer) -> None:
    stream, _ = fake.next_stream()
    stream.send(a_snapshot(models=[a_model("shapes")]))
    stream.send(schemas.SlotEvent(a_slot("ready"), 0, ""))
    wait_for(studio, "_models", lambda models: models[0]["words"] == "ready on cpu:0")


def test_a_model_that_is_off_is_in_the_menu_and_cannot_be_picked(studio: Studio) -> None:
    off = next(model for model in studio._models if model["id"] == "off")
    assert (off["usable"], off["words"]) == (False, "switched off: later")


def test_sizes_keep_the_models_limits() -> None:
    limits = {"max_pixels": 128 * 128, "size_multiple": 16}
    sizes = size_choices({"width": 128, "height": 128}, limits)
    assert sizes[0] == ("Square", 128, 128)
    for _, width, height in sizes:
        assert width * height <= 128 * 128
        assert width % 16 == height % 16 == 0
    odd = size_choices({"width": 832, "height": 1216}, {"max_pixels": 2**22, "size_multiple": 8})
    assert odd[0] == ("Default", 832, 1216)


def test_the_code_makes_the_same_picture() -> None:
    made = {"prompt": "it's", "model": "m", "seed": 7, "steps": 4, "width": 8, "height": 16}
    assert as_code(made) == """wg.generate("it's", model='m', seed=7, steps=4, size=(8, 16))"""


def test_a_closed_studio_no_longer_listens(studio: Studio, client: Client) -> None:
    studio.close()
    assert client.events._subscribers == []
