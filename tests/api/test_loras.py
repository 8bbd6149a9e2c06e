"""LoRAs through a running server: offered, put on, refused, and nothing left of them."""

import hashlib
import io
import json
from typing import Any

import pytest
from PIL import Image

from tests.api.people import Person
from tests.worker.bare_pipelines import bare_picture, bare_pipeline, same_pixels
from tests.worker.worker_host import ASSETS, params

WANTED = {"prompt": "a red circle on a blue background", "seed": 7, "steps": 4, "guidance": 3.0}
PAIRS = [("shapes", "shapes-outline"), ("shapes-dit", "shapes-dit-outline")]


def picture(person: Person, **fields: Any) -> Image.Image:
    job = person.ended(person.submit(**{**WANTED, **fields})["id"])
    assert job["state"] == "done", job["error"]
    return opened(person, job)


def opened(person: Person, job: dict[str, Any]) -> Image.Image:
    content = person.http.get(f"api/jobs/{job['id']}/images/0").raise_for_status().content
    image = Image.open(io.BytesIO(content))
    image.load()
    return image


@pytest.mark.filterwarnings("ignore")  # the libraries' advice is no error of ours
@pytest.mark.parametrize(("model", "lora"), PAIRS)
def test_the_picture_is_the_bare_pipelines_with_this_lora(
    person: Person, model: str, lora: str
) -> None:
    before = picture(person, model=model)
    made = picture(person, model=model, loras={lora: 0.8})
    after = picture(person, model=model)
    pipeline = bare_pipeline(model)
    pipeline.load_lora_weights(str(ASSETS / "loras" / lora), adapter_name="outline")
    try:
        pipeline.set_adapters(["outline"], [0.8])
        expected = bare_picture(pipeline, params())
    finally:
        pipeline.unload_lora_weights()
    assert same_pixels(made, expected)
    assert same_pixels(before, after)
    assert not same_pixels(made, before)


def test_what_is_offered_is_told_with_each_model(person: Person) -> None:
    offered = {model["id"]: model["loras"] for model in person.get("api/models")["models"]}
    assert [lora["id"] for lora in offered["shapes"]] == ["shapes-outline"]
    assert [lora["id"] for lora in offered["shapes-dit"]] == ["shapes-dit-outline"]
    assert offered["shapes-dit-turbo"] == []
    (lora,) = offered["shapes"]
    assert (lora["title"], lora["scale"], lora["problem"]) == ("Outlines", 1.0, "")
    assert lora["bytes"] > 500_000


def test_a_picture_tells_its_loras_and_one_without_a_scale_takes_the_usual(person: Person) -> None:
    job = person.submit(model="shapes", steps=1, loras={"shapes-outline": None})
    assert job["params"]["loras"] == {"shapes-outline": 1.0}
    text = opened(person, person.ended(job["id"])).text
    assert json.loads(text["workshop_gpu"])["params"]["loras"] == {"shapes-outline": 1.0}
    assert "<lora:shapes-outline:1>" in text["parameters"]
    file = ASSETS / "loras" / "shapes-outline" / "pytorch_lora_weights.safetensors"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert json.loads(text["workshop_gpu"])["lora_sha256"] == {"shapes-outline": digest}
    (slot,) = next(each for each in person.get("api/models")["models"] if each["id"] == "shapes")[
        "slots"
    ]
    assert slot["loras"] == ["shapes-outline"], "it is ready for the next job"


@pytest.mark.parametrize(
    ("loras", "status", "kind", "words"),
    [
        ({"nope": 1}, 404, "lora_unknown", "Offered for it: shapes-outline."),
        ({"shapes-dit-outline": 1}, 404, "lora_unknown", 'for "shapes"'),
        ({"shapes-outline": 2.1}, 400, "invalid_request", "2.1 for shapes-outline is not between"),
        ({"shapes-outline": -9e99}, 400, "invalid_request", "between -2 and 2"),
        ({str(n): 1 for n in range(5)}, 400, "invalid_request", "at most 4 go together"),
        ({"shapes-outline": "much"}, 400, "invalid_request", "loras"),
    ],
    ids=["unknown", "of another model", "too strong", "much too strong", "too many", "no number"],
)
def test_what_cannot_be_put_on_is_refused_at_the_door(
    person: Person, loras: dict[str, Any], status: int, kind: str, words: str
) -> None:
    body = {"model": "shapes", "prompt": "a star", "loras": loras}
    found, error = person.refused("POST", "api/jobs", json=body)
    assert (found, error["kind"]) == (status, kind)
    assert words in error["message"]
