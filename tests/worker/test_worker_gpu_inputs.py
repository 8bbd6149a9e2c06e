"""Pictures that begin with one, on a card: diffusers' own pipelines' bits, on every rung."""

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.worker.bare_pipelines import same_pixels
from tests.worker.test_worker_gpu_placements import card, folder, placed  # noqa: F401 - fixtures
from tests.worker.test_worker_inputs import CLASSES, files, mask, start_image, wanted
from tests.worker.test_worker_placements import EXACT
from tests.worker.worker_host import Host
from workshop_gpu.conductor.rungs import RESIDENT
from workshop_gpu.worker import protocol

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("quiet_libraries")]

SIZE = (128, 64)


def bare(folder: Path, name: str, dtype: str, made: protocol.GenerateParams, **begins: Any) -> Any:  # noqa: F811
    import diffusers
    import torch

    pipeline = getattr(diffusers, name).from_pretrained(
        str(folder), torch_dtype=getattr(torch, dtype), local_files_only=True
    )
    pipeline.set_progress_bar_config(disable=True)
    takes_sizes = name not in ("StableDiffusionImg2ImgPipeline", "StableDiffusionXLImg2ImgPipeline")
    sizes = {"width": made.width, "height": made.height} if takes_sizes else {}
    return (
        pipeline.to("cuda")(
            made.prompt,
            **begins,
            **sizes,
            strength=made.strength,
            num_inference_steps=made.steps,
            guidance_scale=made.guidance,
            generator=torch.Generator().manual_seed(made.seed),
        )
        .images[0]
        .convert("RGB")
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("masked", [False, True])
def test_on_every_rung_the_card_draws_what_the_librarys_pipeline_does(
    card: Host,  # noqa: F811
    folder: Path,  # noqa: F811
    tmp_path: Path,
    masked: bool,
    dtype: str,
) -> None:
    make = folder.name
    if make == "sd3" and masked:
        pytest.skip("the small one has too few channels to inpaint")
    cover = mask(SIZE) if masked else None
    made = wanted(masked, width=SIZE[0], height=SIZE[1], steps=4)
    begins = files(tmp_path, start_image(SIZE), cover)
    run = protocol.Run("begun", "placed", made, inputs=begins)
    placed(card, folder, RESIDENT, dtype)
    expected = drawn(card, run)
    name = CLASSES[make] + ("InpaintPipeline" if masked else "Img2ImgPipeline")
    given = {"image": start_image(SIZE), **({"mask_image": cover} if cover else {})}
    assert same_pixels(expected, bare(folder, name, dtype, made, **given))
    for rung in EXACT.values():
        placed(card, folder, rung, dtype)
        assert same_pixels(drawn(card, run), expected), rung
    card.ask(protocol.Evict("placed"), protocol.Evicted)


def drawn(card: Host, run: protocol.Run) -> Image.Image:  # noqa: F811
    image = Image.open(io.BytesIO(card.ask(run, protocol.Done).images[0]))
    image.load()
    return image
