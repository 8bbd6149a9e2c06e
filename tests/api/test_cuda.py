"""The whole line on a real card: server, worker, images as the bare pipeline makes them."""

import io
import struct

import psutil
import pytest
from PIL import Image, ImageChops

from tests.api.kernels import RunningKernel
from tests.api.people import Person
from tests.serverprocess import ServerProcess
from tests.worker.worker_host import FIRST_CARD
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
    with (
        ServerProcess(devices=(f"cuda:{FIRST_CARD}",)) as process,
        Person(process, "ann") as somebody,
    ):
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
    weights_bytes = sum(map(tensors_bytes, (ASSETS / "shapes").rglob("*.safetensors")))
    # Half precision in the files and on the card; the allocator rounds small tensors up. The VAE
    # may be another model's too.
    names = [name for name in held if "shapes" in name.removeprefix("shared by ").split(", ")]
    shapes_bytes = sum(held[name] for name in names)
    assert weights_bytes <= shapes_bytes <= 2 * weights_bytes


def tensors_bytes(file):
    """Of a file of safetensors, without what it says of them."""
    with file.open("rb") as opened:
        (header_bytes,) = struct.unpack("<Q", opened.read(8))
    return file.stat().st_size - 8 - header_bytes


def test_an_evicted_model_gives_its_memory_back_and_draws_the_same_again(card):
    def draw():
        job = card.ended(card.submit(model="shapes", steps=5, seed=3)["id"])
        return card.http.get(f"api/jobs/{job['id']}/images/0").content

    first = Image.open(io.BytesIO(draw())).tobytes()
    card.http.post("api/models/shapes/evict").raise_for_status()
    card.until(lambda event: "shapes" not in card.slots())
    assert Image.open(io.BytesIO(draw())).tobytes() == first


def holders(card, kind):
    [device] = card.get("api/status")["devices"]
    return {part["name"]: part["bytes"] for part in device["holders"] if part["kind"] == kind}


def test_what_a_notebook_uses_goes_by_its_name_and_counts_once_where_it_is_reserved(card):
    card.ended(card.submit(model="shapes", steps=1)["id"])
    own = {process.pid for process in gpu_readings.gpu_processes()}
    if not own & set(descendants(card.server.pid)):
        pytest.skip("the driver counts processes in another way than this machine does")
    with RunningKernel(card.server, "training.ipynb") as kernel, kernel.person() as notebook:
        taken = "__import__('torch').ones(2**28, device='cuda').sum().item()"
        assert kernel.value(taken) == 2**28
        card.until(lambda event: holders(card, "notebook").get("training", 0) > 2**30)
        free_bytes = card.get("api/status")["devices"][0]["free_bytes"]
        body = {"size_bytes": 4 * 2**30}
        reserved = notebook.http.post("api/reservations", json=body).raise_for_status().json()
        assert reserved["state"] == "granted"
        card.until(lambda event: "training" not in holders(card, "notebook"))
        held = holders(card, "reservation")["training"]
        assert held == 4 * 2**30
        left = card.get("api/status")["devices"][0]["free_bytes"]
        assert left > free_bytes - 3.1 * 2**30


def descendants(pid):
    return [process.pid for process in psutil.Process(pid).children(recursive=True)]
