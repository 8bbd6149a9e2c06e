"""Pipelines of other makes through the worker's own functions, beside the bare pipeline's call."""

import gc
import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.conductor.laddered import ordered
from tests.conductor.staging import stage
from tests.worker.bare_pipelines import bare_picture, same_pixels
from tests.worker.opening import loader, opened, source
from tests.worker.original_format import save_single_file
from tests.worker.small_pipelines import save_flux, save_sdxl, sd1
from tests.worker.worker_host import params
from workshop_gpu.catalogue.catalogue import Catalogue

pytestmark = pytest.mark.usefixtures("quiet_libraries")

SMALL = params(width=64, height=32, steps=3)


@pytest.fixture(scope="module")
def sdxl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_sdxl(tmp_path_factory.mktemp("models") / "sdxl")


@pytest.fixture(scope="module")
def flux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_flux(tmp_path_factory.mktemp("models") / "flux")


def bare(folder: Path, dtype: str = "float32") -> Any:
    import diffusers
    import torch

    pipeline = diffusers.DiffusionPipeline.from_pretrained(
        str(folder), torch_dtype=getattr(torch, dtype), local_files_only=True
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def drawn(model: Any, wanted: Any = SMALL) -> Any:
    from workshop_gpu.worker.drawing import draw

    (picture,) = draw(model, [wanted], lambda step: None)
    return picture.image


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_two_encoders_and_a_vae_that_decodes_in_float32(sdxl: Path, dtype: str) -> None:
    model = opened(sdxl, dtype=dtype)
    for wanted in (SMALL, params(width=32, height=32, steps=2, negative_prompt="a star")):
        assert same_pixels(drawn(model, wanted), bare_picture(bare(sdxl, dtype), wanted))


def test_a_job_broken_off_inside_a_pipelines_cast_leaves_no_trace(sdxl: Path) -> None:
    import torch

    model = opened(sdxl, dtype="float16")
    expected = drawn(model)

    class Broken(torch.nn.Module):
        def forward(self, latents: torch.Tensor) -> torch.Tensor:
            raise torch.OutOfMemoryError("allocate 2.00 GiB")

    vae = model.pipeline.vae
    whole, vae.decoder = vae.decoder, Broken()
    with pytest.raises(torch.OutOfMemoryError):
        drawn(model)
    vae.decoder = whole
    assert vae.dtype == torch.float32, "the pipeline's own cast was not reached"
    vae_part = next(part for part in model.components if part.name == "vae")
    assert vae_part.mend()
    assert not vae_part.mend(), "nothing is left to mend"
    assert same_pixels(drawn(model), expected)


def test_sharded_weights_packed_latents_and_guidance_inside_the_network(flux: Path) -> None:
    assert len(list((flux / "transformer").glob("*-of-*.safetensors"))) > 1
    model = opened(flux)
    assert same_pixels(drawn(model), bare_picture(bare(flux), SMALL))
    changed = params(width=64, height=32, steps=3, guidance=6.0)
    assert not same_pixels(drawn(model, changed), drawn(model)), "guidance reached the network"


def test_packed_latents_get_previews_after_the_first_picture(flux: Path) -> None:
    from workshop_gpu.worker.drawing import draw
    from workshop_gpu.worker.previews import PreviewMap

    model, previews = opened(flux), PreviewMap()
    previews.guess_from_decoder(model.pipeline)
    (picture,) = draw(model, [SMALL], lambda step: None)
    assert previews.jpeg(picture.latents, 32, 64) == b"", "tokens are no latent maps"
    previews.learn(picture)
    assert previews.jpeg(picture.latents, 32, 64)


def test_a_missing_shard_is_named(flux: Path, tmp_path: Path) -> None:
    from workshop_gpu.worker.checkpoints import BadCheckpoint

    copy = Path(shutil.copytree(flux, tmp_path / "flux"))
    shard = min((copy / "transformer").glob("*-of-*.safetensors"))
    shard.unlink()
    with pytest.raises(BadCheckpoint, match=shard.name):
        opened(copy)


def test_each_picture_has_a_scheduler_of_its_own(sdxl: Path) -> None:
    from workshop_gpu.worker.drawing import draw

    model = opened(sdxl)
    seen: list[Any] = []
    for _ in range(2):
        draw(model, [SMALL], lambda step: seen.append(step.scheduler))
    schedulers = {id(scheduler) for scheduler in seen} | {id(model.pipeline.scheduler)}
    assert len(schedulers) == 3
    assert model.pipeline.scheduler.num_inference_steps is None
    assert "_guidance_scale" not in vars(model.pipeline)


def test_a_failed_job_lets_go_of_its_tensors(sdxl: Path) -> None:
    from workshop_gpu.worker.drawing import Step, draw
    from workshop_gpu.worker.failures import Broken, attempt

    model = opened(sdxl)
    kept: list[Any] = []

    def stumble(step: Step) -> None:
        kept.append(weakref.ref(step.latents))
        raise ValueError("stumbled")

    assert attempt(lambda: draw(model, [SMALL], stumble)) == Broken("ValueError: stumbled")
    gc.collect()
    assert kept[0]() is None


def test_a_dropped_model_is_gone(sdxl: Path) -> None:
    model = opened(sdxl)
    drawn(model)
    weights = weakref.ref(model.pipeline.unet.conv_in.weight)
    del model
    gc.collect()
    assert weights() is None


def test_a_single_file_draws_as_its_folder_does(tmp_path: Path) -> None:
    pipeline = sd1()
    pipeline.set_progress_bar_config(disable=True)
    file = save_single_file(pipeline, tmp_path / "small.safetensors")
    pipeline.save_pretrained(str(tmp_path / "small"))
    for weights in (tmp_path / "small").rglob("*.safetensors"):
        weights.unlink()  # only the small files lie beside a single file
    model = opened(file)
    assert same_pixels(drawn(model), bare_picture(pipeline, SMALL))


def test_a_single_file_is_placed_as_asked_before_it_was_ever_loaded(tmp_path: Path) -> None:
    """What its names tell of its parts is what the library makes of them."""
    pipeline = sd1()
    file = save_single_file(pipeline, tmp_path / "small.safetensors")
    pipeline.save_pretrained(str(tmp_path / "small"))
    models = tmp_path / "models.toml"
    models.write_text(
        f'[[model]]\nid = "one"\nsource = {{ file = "{file}" }}\n'
        'memory = { placement = "staged-streamed" }\n'
    )
    catalogue = Catalogue(models)
    catalogue.load()
    (facts,) = catalogue.facts()
    made = stage(facts)
    made.submit("one", pixels=64 * 32)
    placement = ordered(made)
    assert placement.streamed_bytes
    model = loader().load(catalogue.source("one"), lambda *_: None, placement)
    told = {role.role: role for role in facts.roles}
    assert [*told] == [role.role for role in model.roles]
    for found in model.roles:
        assert told[found.role].size_bytes == pytest.approx(found.size_bytes, rel=0.05)
        blocks_bytes = sum(told[found.role].blocks_bytes)
        assert blocks_bytes == pytest.approx(sum(found.blocks_bytes), rel=0.1)


def test_an_old_folder_with_a_safety_checker_draws_without_it(tmp_path: Path) -> None:
    """As runwayml's and many finetunes are: their classes for the checker are gone by now."""
    pipeline = sd1()
    pipeline.set_progress_bar_config(disable=True)
    pipeline.save_pretrained(str(tmp_path))
    index = json.loads((tmp_path / "model_index.json").read_text())
    index["safety_checker"] = ["stable_diffusion", "StableDiffusionSafetyChecker"]
    index["feature_extractor"] = ["transformers", "CLIPFeatureExtractor"]
    index["requires_safety_checker"] = True
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    assert same_pixels(drawn(opened(tmp_path)), bare_picture(pipeline, SMALL))


def test_a_single_file_of_unknown_shape_says_what_is_missing(tmp_path: Path) -> None:
    from workshop_gpu.worker.checkpoints import BadCheckpoint

    file = save_single_file(sd1(), tmp_path / "small.safetensors")
    with pytest.raises(BadCheckpoint, match="configuration is not on this machine"):
        opened(file)


def test_a_pipeline_that_needs_a_picture_is_refused(sdxl: Path, tmp_path: Path) -> None:

    from workshop_gpu.worker.checkpoints import BadCheckpoint

    copy = Path(shutil.copytree(sdxl, tmp_path / "sdxl"))
    index = json.loads((copy / "model_index.json").read_text())
    index["_class_name"] = "DDPMPipeline"
    (copy / "model_index.json").write_text(json.dumps(index))
    with pytest.raises((BadCheckpoint, ValueError)):
        opened(copy)


@pytest.mark.parametrize("make", ["WanPipeline", "CogVideoXPipeline", "HunyuanVideoPipeline"])
def test_a_model_that_makes_videos_is_refused_before_anything_of_it_is_read(
    make: str, tmp_path: Path
) -> None:
    import torch

    from workshop_gpu.worker.checkpoints import BadCheckpoint
    from workshop_gpu.worker.pipelines import plan_model

    index = {"_class_name": make, "transformer": ["diffusers", "WanTransformer3DModel"]}
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    (tmp_path / "transformer").mkdir()  # without weights, which would be missed later
    with pytest.raises(BadCheckpoint, match=f"{make} makes videos, which this version"):
        plan_model(source(tmp_path), torch.float32)


@pytest.mark.parametrize("distilled", [True, False], ids=["Flux", "Qwen-Image"])
def test_guidance_goes_where_the_make_of_the_network_wants_it(distilled: bool) -> None:
    from types import SimpleNamespace

    from workshop_gpu.worker.drawing import call_arguments

    class Pipeline:
        transformer = SimpleNamespace(config=SimpleNamespace(guidance_embeds=distilled))

        def __call__(
            self, prompt: str, true_cfg_scale: float, guidance_scale: float, negative_prompt: str
        ) -> None:
            """The parameters that both have."""

    arguments = call_arguments(Pipeline(), [params(guidance=4.0)])
    name = "guidance_scale" if distilled else "true_cfg_scale"
    assert arguments[name] == 4.0
    assert arguments["negative_prompt"] == (None if distilled else " ")
    assert set(arguments) == {"prompt", "negative_prompt", name}
