"""The sizes of models of which models.toml names nothing but a folder."""

import json
from pathlib import Path

import pytest

from tests.catalogue.on_disk import write_pipeline
from tests.worker.bare_pipelines import bare_pipeline
from tests.worker.small_pipelines import save_flux, save_sd1, save_sd3, save_sdxl
from workshop_gpu.api.generation import Beginning, complete
from workshop_gpu.api.schemas import GenerateRequest, Input
from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.catalogue.shipped import ASSETS
from workshop_gpu.catalogue.sizes import Sizes, sizes_of
from workshop_gpu.catalogue.spec import ModelSpec
from workshop_gpu.conductor.errors import InvalidRequest

# The libraries' advice, where a test builds a pipeline itself, is no error of ours.
pytestmark = pytest.mark.filterwarnings("ignore")


def offered(folder: Path, place: Path, more: str = "") -> ModelSpec:
    file = place / "models.toml"
    file.write_text(f'[[model]]\nid = "bare"\nsource = {{ folder = "{folder}" }}\n{more}\n')
    catalogue = Catalogue(file, hub=place)
    catalogue.load()
    assert catalogue.problems == ()
    assert catalogue.specs == (catalogue.get("bare"),)
    return catalogue.get("bare")


def drawn(spec: ModelSpec, **said: int) -> tuple[int, int]:
    params = complete(GenerateRequest(model="bare", prompt="a red ring", **said), spec)
    return params.width, params.height


def configured(
    place: Path, denoiser: str = "", index: str = "StableDiffusionPipeline", **config: object
) -> Sizes:
    """Of a pipeline whose denoiser has this class and configuration, and a VAE of four levels."""
    folder = write_pipeline(place / "configured")
    file = folder / "model_index.json"
    said = json.loads(file.read_text()) | {"_class_name": index}
    if denoiser:
        said["transformer"] = ["diffusers", denoiser]
        (folder / "unet").rename(folder / "transformer")
        del said["unet"]
    file.write_text(json.dumps(said))
    (folder / ("transformer" if denoiser else "unet") / "config.json").write_text(
        json.dumps(config)
    )
    (folder / "vae" / "config.json").write_text('{"block_out_channels": [1, 2, 3, 4]}')
    return sizes_of(folder)


@pytest.mark.parametrize(
    ("save", "side"), [(save_sd1, 64), (save_sd3, 64), (save_sdxl, 256), (save_flux, 256)]
)
def test_a_bare_folder_draws_at_the_size_that_its_own_pipeline_takes(save, side, tmp_path) -> None:
    """Without a sample_size diffusers takes 128 cells, here of 2 pixels each."""
    spec = offered(save(tmp_path / "small"), tmp_path)
    assert drawn(spec) == (side, side)
    assert drawn(spec, width=48) == (48, side)


@pytest.mark.parametrize("model", ["shapes", "shapes-dit", "shapes-dit-turbo"])
def test_shipped_models_by_their_folder_draw_at_the_size_that_they_are_offered_with(
    model, tmp_path
) -> None:
    assert drawn(offered(ASSETS / model, tmp_path)) == (128, 128)


def test_what_the_transformers_table_does_not_reach_is_refused_with_the_numbers(tmp_path) -> None:
    spec = offered(save_sd3(tmp_path / "small"), tmp_path)
    assert drawn(spec, width=128, height=64) == (128, 64)
    with pytest.raises(InvalidRequest) as refused:
        drawn(spec, width=64, height=136)
    assert refused.value.facts == {"field": "height", "pixels": 136, "multiple": 8, "maximum": 128}
    assert refused.value.message == (
        "height: 136 pixels are too many; bare draws at most 128 a side. Ask for a multiple of 8 "
        "between 8 and 128"
    )


def test_the_limit_is_where_diffusers_itself_gives_up(tmp_path) -> None:
    most = sizes_of(ASSETS / "shapes-dit").max_side
    pipeline = bare_pipeline("shapes-dit")
    said = {"num_inference_steps": 1, "height": 64, "output_type": "latent"}
    assert pipeline("a red ring", width=most, **said).images.shape[-1] == most // 8
    with pytest.raises(ValueError, match="pos_embed_max_size"):
        pipeline("a red ring", width=most + 16, **said)


def test_a_size_or_limit_in_models_toml_counts_as_far_as_the_model_can(tmp_path) -> None:
    folder = save_sd3(tmp_path / "small")
    assert drawn(offered(folder, tmp_path, "defaults = { width = 96 }")) == (96, 64)
    assert drawn(offered(folder, tmp_path, "defaults = { width = 1024 }")) == (128, 64)
    limited = offered(folder, tmp_path, "limits = { max_side = 40, max_pixels = 1280 }")
    assert drawn(limited) == (32, 32)
    wide = offered(folder, tmp_path, "limits = { max_side = 4096 }")
    assert wide.limits.max_side == 128


def test_a_start_image_is_drawn_no_larger_than_the_model_can(tmp_path) -> None:
    spec = offered(save_sd3(tmp_path / "small"), tmp_path)
    start = Beginning(Input("photo", 800, 400, 1))
    request = GenerateRequest(model="bare", prompt="a red ring")
    params = complete(request, spec, start, ("text", "image"))
    assert (params.width, params.height) == (128, 64)


@pytest.mark.parametrize(
    ("denoiser", "index", "config", "sizes"),
    [
        # Stable Diffusion 1.5 and 2.1, and SDXL Turbo.
        ("", "StableDiffusionPipeline", {"sample_size": 64}, Sizes(512, 512, 0, 8)),
        ("", "StableDiffusionPipeline", {"sample_size": 96}, Sizes(768, 768, 0, 8)),
        ("", "StableDiffusionXLPipeline", {"sample_size": [64, 128]}, Sizes(1024, 512, 0, 8)),
        (
            "SD3Transformer2DModel",
            "StableDiffusion3Pipeline",
            {"sample_size": 128, "patch_size": 2, "pos_embed_max_size": 192},
            Sizes(1024, 1024, 3072, 16),
        ),
        ("FluxTransformer2DModel", "FluxPipeline", {"patch_size": 1}, Sizes(1024, 1024, 0, 8)),
        (
            "AuraFlowTransformer2DModel",
            "AuraFlowPipeline",
            {"sample_size": 64, "patch_size": 2, "pos_embed_max_size": 9216},
            Sizes(512, 512, 1536, 16),
        ),
        (
            "CogView4Transformer2DModel",
            "CogView4Pipeline",
            {"sample_size": 128, "patch_size": 2, "pos_embed_max_size": 128},
            Sizes(1024, 1024, 0, 16),
        ),
        # What makes no sense, and what nobody knows.
        ("", "StableDiffusionPipeline", {"sample_size": "large"}, Sizes(1024, 1024, 0, 8)),
        ("SD3Transformer2DModel", "StableDiffusion3Pipeline", {}, Sizes(1024, 1024, 0, 8)),
    ],
)
def test_what_the_configuration_says_becomes_pixels(
    denoiser, index, config, sizes, tmp_path
) -> None:
    assert configured(tmp_path, denoiser, index, **config) == sizes


def test_what_has_no_configuration_has_the_usual_size(tmp_path) -> None:
    assert sizes_of(tmp_path) == Sizes() == Sizes(1024, 1024, 0, 1)
    file = write_pipeline(tmp_path / "broken") / "unet" / "config.json"
    file.write_text("[")
    assert sizes_of(file.parent.parent) == Sizes(1024, 1024, 0, 8)
