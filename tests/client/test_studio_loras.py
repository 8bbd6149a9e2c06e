"""The studio's LoRAs: what may be put on, what the browser sends, what another model keeps."""

from typing import Any

import pytest
import traitlets

from tests.client.fakes import FakeServer, a_job, a_model
from tests.client.test_studio import click, wait_for_bodies
from workshop_gpu.api import schemas
from workshop_gpu.client import Client, Studio

INK = schemas.Lora("ink", "Ink", "Draws lines.", 0.7, 1_000_000)
BOTH = schemas.Lora("grain", "Grain", "", 1.0, 1_000_000)
BROKEN = schemas.Lora("gone", "Gone", "", 1.0, 0, problem="it is not there.")


@pytest.fixture
def studio(client: Client, fake: FakeServer) -> Studio:
    models = [a_model("shapes", loras=[INK, BOTH, BROKEN]), a_model("other", loras=[BOTH])]
    fake.answers |= {
        "GET models": schemas.ModelList(models),
        "GET jobs": schemas.JobList([]),
        "POST jobs": a_job(),
    }
    return Studio(client, model="shapes")


def test_those_that_can_be_used_are_offered_with_the_model(studio: Studio) -> None:
    (shapes, other) = studio._models
    assert [lora["id"] for lora in shapes["loras"]] == ["ink", "grain"]
    assert shapes["loras"][0] == {
        "id": "ink",
        "title": "Ink",
        "description": "Draws lines.",
        "scale": 0.7,
    }
    assert [lora["id"] for lora in other["loras"]] == ["grain"]


@pytest.mark.parametrize(
    ("loras", "problem"),
    [
        ({"nope": 1}, 'no LoRA "nope" for shapes. Offered here: ink, grain'),
        ({"gone": 1}, "no LoRA"),
        ({"ink": 3}, "from -2 to 2"),
        ({"ink": float("nan")}, "from -2 to 2"),
        ({"ink": "1"}, "from -2 to 2"),
        ({str(n): 1 for n in range(5)}, "at most 4"),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(
    studio: Studio, loras: dict[str, Any], problem: str
) -> None:
    studio.loras = {"ink": 1}
    with pytest.raises(traitlets.TraitError, match=problem):
        studio.loras = loras
    assert studio.loras == {"ink": 1.0}
    studio.set_state({"loras": loras})
    assert problem[:8] in studio._error["message"]
    assert studio.loras == {"ink": 1.0}


def test_another_model_keeps_those_that_are_for_it_too(studio: Studio) -> None:
    studio.loras = {"ink": 0.5, "grain": -1}
    studio.model = "other"
    assert studio.loras == {"grain": -1.0}


def test_a_click_brings_them_along(studio: Studio, fake: FakeServer) -> None:
    click(studio, options={"prompt": "a star", "loras": {"ink": 0.25}})
    (body,) = wait_for_bodies(fake, 1)
    assert body["loras"] == {"ink": 0.25}
    assert studio.loras == {"ink": 0.25}


def test_again_takes_those_of_the_picture(studio: Studio, fake: FakeServer) -> None:
    made = {"prompt": "a star", "model": "shapes", "seed": 7}
    studio._shown = [
        {"key": "with", "made": made | {"loras": {"ink": 0.5}}},
        {"key": "without", "made": made},
    ]
    studio._on_message(studio, {"wish": "again", "key": "with"}, [])
    (body,) = wait_for_bodies(fake, 1)
    assert (body["loras"], body["seed"]) == ({"ink": 0.5}, 7)
    assert studio.loras == {"ink": 0.5}
