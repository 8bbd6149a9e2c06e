"""Pictures that begin with one: bit for bit what diffusers' own pipelines draw, on every rung."""

import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tests.worker.bare_pipelines import same_pixels
from tests.worker.fake_pool import FakePool
from tests.worker.opening import loader, source
from tests.worker.small_pipelines import save_flux, save_sd1, save_sd3, save_sdxl
from tests.worker.worker_host import ASSETS, Host, params
from workshop_gpu.conductor.errors import ImagesNotAccepted
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, RESIDENT, ROLES, VAE, Placement
from workshop_gpu.worker import protocol

pytestmark = pytest.mark.usefixtures("quiet_libraries")

BARE = {
    ("shapes", False): "StableDiffusionImg2ImgPipeline",
    ("shapes-dit", False): "StableDiffusion3Img2ImgPipeline",
    ("shapes-dit", True): "StableDiffusion3InpaintPipeline",
}
PROMPT = "a blue star on a yellow background"


def start_image(size: tuple[int, int] = (128, 128)) -> Image.Image:
    image = Image.new("RGB", size, "yellow")
    width, height = size
    ImageDraw.Draw(image).ellipse((width // 4, height // 4, width // 2, height * 3 // 4), "red")
    return image


def mask(size: tuple[int, int] = (128, 128)) -> Image.Image:
    image = Image.new("L", size, 0)
    ImageDraw.Draw(image).rectangle((0, 0, size[0] // 2, size[1]), 255)
    return image


def saved(folder: Path, image: Image.Image, name: str) -> str:
    path = folder / name
    image.save(path, "PNG")
    return str(path)


def files(folder: Path, image: Image.Image, cover: Image.Image | None) -> protocol.InputFiles:
    covered = saved(folder, cover, "mask") if cover else ""
    return protocol.InputFiles(saved(folder, image, "start"), covered)


def wanted(masked: bool, **changes: Any) -> protocol.GenerateParams:
    values = {"prompt": PROMPT, "start_image": "a" * 64, "strength": 0.6, "steps": 5}
    return params(**values | {"mask": "b" * 64 if masked else ""} | changes)


def bare_picture(
    folder: Path, pipeline_class: str, made: protocol.GenerateParams, image: Any, cover: Any
) -> Image.Image:
    """As a user of diffusers would draw it."""
    import diffusers
    import torch

    torch.set_num_threads(1)
    pipeline = getattr(diffusers, pipeline_class).from_pretrained(
        str(folder), torch_dtype=torch.float32, local_files_only=True
    )
    pipeline.set_progress_bar_config(disable=True)
    sizes = {"width": made.width, "height": made.height}
    if pipeline_class == "StableDiffusionImg2ImgPipeline":
        sizes = {}
    picture: Image.Image = pipeline(
        made.prompt,
        image=image,
        **({"mask_image": cover} if cover else {}),
        **sizes,
        strength=made.strength,
        num_inference_steps=made.steps,
        guidance_scale=made.guidance,
        generator=torch.Generator().manual_seed(made.seed),
    ).images[0]
    return picture


@pytest.mark.parametrize(("model", "masked"), BARE)
def test_a_shipped_model_draws_what_the_librarys_own_pipeline_does(
    worker: Host, tmp_path: Path, model: str, masked: bool
) -> None:
    image, cover = start_image(), mask() if masked else None
    made = wanted(masked)
    expected = bare_picture(ASSETS / model, BARE[model, masked], made, image, cover)
    before = worker.load(model).weights_bytes
    run = protocol.Run("begun", model, made, inputs=files(tmp_path, image, cover))
    worker.send(run)
    done, reports = worker.collect(protocol.Done)
    assert same_pixels(opened(done.images[0]), expected)
    steps = [each for each in reports if isinstance(each, protocol.Progress)]
    assert (steps[-1].step, steps[-1].steps) == (3, 3), "60 % of five steps"
    text = worker.ask(protocol.Run("text", model, params()), protocol.Done)
    again = worker.ask(protocol.Run("again", model, made, inputs=run.inputs), protocol.Done)
    assert same_pixels(opened(again.images[0]), expected)
    assert not same_pixels(opened(text.images[0]), expected)
    evicted = worker.ask(protocol.Evict(model), protocol.Evicted)
    assert evicted.freed_bytes == before, "it took nothing beside the model's own weights"


def opened(png: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(png))
    image.load()
    return image


def test_under_a_mask_what_is_black_stays(worker: Host, tmp_path: Path) -> None:
    worker.load("shapes-dit-turbo")
    made = wanted(True, strength=1.0, steps=4, guidance=1.0)
    image, cover = start_image(), mask()
    run = protocol.Run("covered", "shapes-dit-turbo", made, inputs=files(tmp_path, image, cover))
    drawn = np.asarray(opened(worker.ask(run, protocol.Done).images[0]), float)
    change = np.abs(drawn - np.asarray(image, float)).mean(axis=2)
    worker.ask(protocol.Evict("shapes-dit-turbo"), protocol.Evicted)
    assert change[:, 80:].mean() < 20, "the VAE alone changes a little"
    assert change[:, :64].mean() > 2 * change[:, 80:].mean()


def test_more_strength_changes_more(worker: Host, tmp_path: Path) -> None:
    worker.load("shapes")
    image = start_image()
    begins = files(tmp_path, image, None)
    changes = []
    for strength in (0.1, 0.9):
        made = wanted(False, strength=strength, steps=20)
        run = protocol.Run("strong", "shapes", made, inputs=begins)
        drawn = opened(worker.ask(run, protocol.Done).images[0])
        changes.append(float(np.abs(np.asarray(drawn, float) - np.asarray(image, float)).mean()))
    worker.ask(protocol.Evict("shapes"), protocol.Evicted)
    assert changes[1] > 1.5 * changes[0]


@pytest.mark.parametrize(
    ("content", "problem"), [(b"no picture", "cannot be read"), (b"", "cannot be read")]
)
def test_a_file_that_is_no_picture_fails_the_job_and_says_so(
    worker: Host, tmp_path: Path, content: bytes, problem: str
) -> None:
    worker.load("shapes")
    (tmp_path / "start").write_bytes(content)
    begins = protocol.InputFiles(str(tmp_path / "start"))
    run = protocol.Run("broken", "shapes", wanted(False), inputs=begins)
    error = worker.ask(run, protocol.Failed).error
    assert (error.kind, error.facts["field"]) == ("invalid_request", "start_image")
    assert problem in error.message
    worker.ask(protocol.Evict("shapes"), protocol.Evicted)


def test_a_model_that_takes_no_mask_says_so(worker: Host, tmp_path: Path) -> None:
    worker.load("shapes")
    begins = files(tmp_path, start_image(), mask())
    run = protocol.Run("covered", "shapes", wanted(True), inputs=begins)
    error = worker.ask(run, protocol.Failed).error
    assert error.kind == "images_not_accepted"
    assert "takes no masks" in error.message
    worker.ask(protocol.Evict("shapes"), protocol.Evicted)


# how files become what a job begins with


def read(folder: Path, image: Image.Image, cover: Image.Image | None = None, **size: int) -> Any:
    from workshop_gpu.worker.inputs import read_inputs

    return read_inputs(files(folder, image, cover), wanted(cover is not None, **size))


def test_another_shape_is_scaled_to_cover_and_cut_evenly(tmp_path: Path) -> None:
    wide = Image.new("RGB", (300, 100), "green")
    wide.paste("red", (0, 0, 100, 100))
    wide.paste("blue", (200, 0, 300, 100))
    inputs = read(tmp_path, wide, width=64, height=64)
    assert inputs.image.size == (64, 64)
    assert np.ptp(np.asarray(inputs.image).reshape(-1, 3), axis=0).max() < 16, "only the middle"
    covered = read(tmp_path, wide, Image.new("L", wide.size, 255), width=64, height=64)
    assert covered.mask.size == (64, 64)


def test_a_photo_is_turned_upright_and_what_is_transparent_gets_a_ground(tmp_path: Path) -> None:
    from workshop_gpu.worker.inputs import read_inputs

    image = Image.new("RGB", (40, 20), "red")
    image.paste("blue", (0, 0, 20, 20))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    image.save(tmp_path / "photo", "JPEG", exif=exif, quality=95)
    begins = protocol.InputFiles(str(tmp_path / "photo"))
    upright = read_inputs(begins, wanted(False, width=20, height=40))
    assert upright is not None
    red, _, blue = upright.image.getpixel((10, 5))  # type: ignore[misc]
    assert blue > red

    clear = Image.new("RGBA", (32, 32), (255, 0, 0, 0))
    assert read(tmp_path, clear, width=32, height=32).image.getpixel((1, 1)) == (255, 255, 255)
    half = Image.new("RGBA", (32, 32), (255, 255, 255, 0))
    half.paste("white", (0, 0, 16, 32))
    covered = read(tmp_path, clear, half, width=32, height=32).mask
    assert (covered.getpixel((2, 2)), covered.getpixel((30, 2))) == (255, 0)


@pytest.mark.parametrize(
    ("cover", "problem"),
    [
        (Image.new("L", (64, 65), 255), "64 x 65 pixels and the start image 64 x 64"),
        (Image.new("L", (64, 64), 0), "black all over"),
    ],
)
def test_a_mask_that_does_not_fit_or_does_nothing_is_refused(
    tmp_path: Path, cover: Image.Image, problem: str
) -> None:
    from workshop_gpu.conductor.errors import InvalidRequest

    with pytest.raises(InvalidRequest, match=problem):
        read(tmp_path, start_image((64, 64)), cover, width=64, height=64)


# other makes, on every rung

MAKES = {"sd1": save_sd1, "sdxl": save_sdxl, "sd3": save_sd3, "flux": save_flux}
CLASSES = {
    "sd1": "StableDiffusion",
    "sdxl": "StableDiffusionXL",
    "sd3": "StableDiffusion3",
    "flux": "Flux",
}
RUNGS = (
    Placement(staged=ROLES),
    Placement(staged=(ENCODERS, VAE), streamed_bytes=10**12),
    Placement(staged=(ENCODERS, DENOISER), on_cpu=()),
    Placement(on_cpu=(ENCODERS,)),
)


@pytest.fixture(scope="module", params=MAKES)
def make(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(make: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries' advice is no error of ours
        return MAKES[make](tmp_path_factory.mktemp("make") / make)


@pytest.fixture
def pool() -> Iterator[FakePool]:
    pool = FakePool()
    yield pool
    pool.close()


def drawn(worker: Any, model: Any, made: protocol.GenerateParams, cover: Any) -> Any:
    from workshop_gpu.worker.course import Course
    from workshop_gpu.worker.drawing import draw
    from workshop_gpu.worker.inputs import Inputs

    inputs = Inputs(start_image((64, 32)), cover)
    course = Course(model, worker.stager)
    (picture,) = draw(model, [made], lambda step: None, course, inputs)
    return picture


@pytest.mark.parametrize("masked", [False, True])
def test_every_make_on_every_rung_draws_what_the_librarys_pipeline_does(
    make: str, folder: Path, pool: FakePool, masked: bool
) -> None:
    worker = loader(pool)
    cover = mask((64, 32)) if masked else None
    made = wanted(masked, width=64, height=32, steps=3)
    if make == "sd3" and masked:
        model = worker.load(source(folder), lambda *_: None, RESIDENT)
        with pytest.raises(ImagesNotAccepted, match="masks"):
            drawn(worker, model, made, cover)
        return
    name = CLASSES[make] + ("InpaintPipeline" if masked else "Img2ImgPipeline")
    expected = bare_picture(folder, name, made, start_image((64, 32)), cover)
    for rung in (RESIDENT, *RUNGS):
        model = worker.load(source(folder), lambda *_: None, rung)
        at_rest_bytes = worker.resident_bytes
        assert same_pixels(drawn(worker, model, made, cover).image, expected), rung
        assert worker.resident_bytes == at_rest_bytes


def test_a_vae_that_the_pipeline_casts_is_there_before_it_is(
    pool: FakePool, tmp_path: Path
) -> None:
    """Stable Diffusion XL's encodes in float32 whatever the model's numbers are."""
    folder = save_sdxl(tmp_path / "sdxl")
    worker = loader(pool)
    made = wanted(False, width=64, height=32, steps=2)
    pictures = []
    for rung in (RESIDENT, Placement(staged=ROLES), RESIDENT):
        model = worker.load(source(folder, dtype="bfloat16"), lambda *_: None, rung)
        pictures.append(drawn(worker, model, made, None).pixels)
        for component in model.components:
            component.mend()
    assert np.array_equal(pictures[0], pictures[1])
    assert np.array_equal(pictures[0], pictures[2])


def test_never_more_is_on_the_device_than_a_staged_placement_says(
    make: str, folder: Path, pool: FakePool
) -> None:
    """The VAE that looks at the start image comes only once the text encoders have left."""
    staged = Placement(staged=ROLES)
    plan = loader(pool).load(source(folder), lambda *_: None, staged)
    tight = loader(pool, total_bytes=plan.weights_bytes + plan.transient_bytes)
    model = tight.load(source(folder), lambda *_: None, staged)
    made = wanted(False, width=64, height=32, steps=2)
    assert drawn(tight, model, made, None).pixels.std() > 0


def test_the_preview_of_a_picture_that_begins_with_one_knows_its_noise() -> None:
    """The first steps were left out, so the noise after a step is less than it would be."""
    import diffusers
    import torch

    from workshop_gpu.worker.drawing import Step
    from workshop_gpu.worker.noise import noise_level

    for name in ("EulerDiscreteScheduler", "DDIMScheduler", "FlowMatchEulerDiscreteScheduler"):
        scheduler = getattr(diffusers, name)()
        scheduler.set_timesteps(10)
        latents = torch.zeros(1, 4, 2, 2)
        late = noise_level(Step(1, 4, latents, scheduler))
        assert late == noise_level(Step(7, 10, latents, scheduler)), name
