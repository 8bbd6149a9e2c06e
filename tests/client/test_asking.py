"""From what people write to a request."""

import re
from typing import Any

import pytest

from tests.client.fakes import FakeServer, a_job, a_model
from workshop_gpu.client import Client
from workshop_gpu.client.asking import parse_size, pick_model
from workshop_gpu.client.errors import BadRequest, ModelNotOffered, NotAllowed


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (None, (None, None)),
        (128, (128, 128)),
        ((128, 96), (128, 96)),
        ([128, 96], (128, 96)),
        ("128", (128, 128)),
        ("128x96", (128, 96)),
        ("128 X 96", (128, 96)),
        ("128×96", (128, 96)),
    ],
)
def test_a_size_may_be_written_in_several_ways(written: Any, size: Any) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize("written", ["", "big", "1x2x3", "-5", "12.5", (1,), (1, 2, 3), 1.5, True])
def test_any_other_size_is_refused_with_examples(written: Any) -> None:
    with pytest.raises(BadRequest, match="768x512"):
        parse_size(written)


def test_a_model_that_is_ready_is_taken_before_the_first_offered() -> None:
    models = [a_model("a"), a_model("b", state="loading"), a_model("c", state="ready")]
    assert pick_model(models) == "c"
    assert pick_model(models[:2]) == "b"
    assert pick_model(models[:1]) == "a"


def test_models_that_are_off_or_broken_are_never_taken() -> None:
    off = a_model("a", enabled=False, state="ready")
    assert pick_model([off, a_model("b", state="unavailable"), a_model("c")]) == "c"
    with pytest.raises(ModelNotOffered):
        pick_model([off])


@pytest.mark.parametrize(
    "options",
    [
        {"prompt": 5},
        {"prompt": None},
        {"prompt": b"a circle"},
        {"negative_prompt": 5},
        {"seed": "x"},
        {"seed": 1.5},
        {"seed": True},
        {"steps": "20"},
        {"guidance": "high"},
        {"images": None},
        {"model": 7},
        {"placement": 7},
    ],
)
def test_what_no_request_can_carry_is_refused_before_it_is_sent(
    client: Client, fake: FakeServer, options: dict[str, Any]
) -> None:
    fake.answers["POST jobs"] = a_job()
    with pytest.raises(BadRequest):
        client.submit(**{"prompt": "a circle", "model": "shapes", **options})
    assert fake.bodies("POST jobs") == []


def test_who_may_not_say_how_a_model_is_placed_is_told_so_by_the_server(
    client: Client, fake: FakeServer
) -> None:
    fake.answers["POST jobs"] = (403, "not_allowed")
    with pytest.raises(NotAllowed):
        client.generate("a circle", "shapes", placement="resident")


def test_a_request_carries_all_options(client: Client, fake: FakeServer) -> None:
    fake.answers["POST jobs"] = a_job()
    client.submit(
        "a circle",
        "shapes",
        seed=7,
        steps=4,
        size="128x96",
        guidance=2,
        negative_prompt="a star",
        images=2,
        placement="all-streamed",
        profile=True,
        priority="low",
    )
    (body,) = fake.bodies("POST jobs")
    assert re.fullmatch("[0-9a-f]{32}", body.pop("id"))
    assert body == {
        "model": "shapes",
        "prompt": "a circle",
        "negative_prompt": "a star",
        "seed": 7,
        "steps": 4,
        "guidance": 2,
        "width": 128,
        "height": 96,
        "images": 2,
        "priority": "low",
        "batch": 1,
        "place": 0,
        "compiled": None,
        "placement": "all-streamed",
        "profile": True,
        "start_image": "",
        "mask": "",
        "strength": None,
        "manner": "",
        "loras": {},
    }
