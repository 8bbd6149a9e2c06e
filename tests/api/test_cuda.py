"""The whole line on a real card: server, worker, images as the bare pipeline makes them."""

import io

import pytest
from PIL import Image, ImageChops

from tests.api.people import Person
from tests.serverprocess import ServerProcess
from workshop_gpu.catalogue.shipped import ASSETS
from workshop_gpu.host import gpu_readings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_readings.gpus(), reason="this machine has no NVIDIA GPU"),
]

PROMPT = "a red circle on a blue background"
CASES = [("shapes", 20, 3.0), ("shapes-dit", 20, 3.0), ("shapes-dit-turbo", 4, 1.0)]


@pytest.fixture(scope="module")
def card():
    with ServerProcess(devices=("cuda:0",)) as process, Person(process, "ann") as somebody:
        yield somebody


def bare_picture(model, steps, guidance, seed):
    """The same call on the pipeline, in this process."""
    import torch
    from diffusers import DiffusionPipeline

    pipeline = DiffusionPipeline.from_pretrained(ASSETS / model, torch_dtype=torch.bfloat16)
    pipeline.to("cuda").set_progress_bar_config(disable=True)
    generator = torch.Generator("cpu").manual_seed(seed)
    arguments = {"width": 128, "height": 128, "generator": generator}
    return pipeline(PROMPT, num_inference_steps=steps, guidance_scale=guidance, **arguments).images[
        0
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("model", "steps", "guidance"), CASES)
def test_an_image_from_the_server_equals_the_bare_pipelines(card, model, steps, guidance):
    body = {"prompt": PROMPT, "model": model, "steps": steps, "guidance": guidance, "seed": 7}
    job = card.ended(card.submit(**body)["id"])
    assert job["state"] == "done", job
    png = card.http.get(f"api/jobs/{job['id']}/images/0").content
    served = Image.open(io.BytesIO(png)).convert("RGB")
    bare = bare_picture(model, steps, guidance, 7)
    assert ImageChops.difference(served, bare).getbbox() is None


def test_the_account_of_the_card_is_measured_and_adds_up(card):
    card.ended(card.submit(model="shapes")["id"])
    [device] = card.get("api/status")["devices"]
    assert "NVIDIA" in device["name"]
    held = {holder["name"]: holder["bytes"] for holder in device["holders"]}
    assert device["free_bytes"] + sum(held.values()) == device["total_bytes"]
    files_bytes = sum(file.stat().st_size for file in (ASSETS / "shapes").rglob("*.safetensors"))
    # Half precision in the files and on the card; the allocator rounds small tensors up.
    assert files_bytes <= held["shapes"] <= 2 * files_bytes


def test_an_evicted_model_gives_its_memory_back_and_draws_the_same_again(card):
    def draw():
        job = card.ended(card.submit(model="shapes", steps=5, seed=3)["id"])
        return card.http.get(f"api/jobs/{job['id']}/images/0").content

    first = Image.open(io.BytesIO(draw())).tobytes()
    card.http.post("api/models/shapes/evict").raise_for_status()
    card.until(lambda event: "shapes" not in card.slots())
    assert Image.open(io.BytesIO(draw())).tobytes() == first
