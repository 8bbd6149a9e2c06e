import pytest

from tests.catalogue.on_disk import write_snapshot
from workshop_gpu.catalogue.discovery import discovered_specs
from workshop_gpu.catalogue.files import LocalState, inspect


def test_pipelines_of_the_cache_are_offered_with_defaults_of_their_kind(hub, tmp_path):
    write_snapshot(hub, "org/sd-one")
    write_snapshot(hub, "org/sdxl-base", class_name="StableDiffusionXLPipeline")
    write_snapshot(hub, "org/flux-schnell", class_name="FluxPipeline")
    specs = {spec.id: spec for spec in discovered_specs(hub)}
    assert list(specs) == ["flux-schnell", "sd-one", "sdxl-base"]
    assert (specs["sd-one"].defaults.width, specs["sd-one"].defaults.steps) == (512, 30)
    assert specs["sdxl-base"].defaults.width == 1024
    assert (specs["flux-schnell"].defaults.steps, specs["flux-schnell"].defaults.guidance) == (4, 0)
    for spec in specs.values():
        assert inspect(spec, tmp_path, hub=hub).state is LocalState.READY


@pytest.mark.parametrize("name", ["sdxl-turbo", "SDXL-Lightning", "lcm-sdxl"])
def test_names_of_distilled_models_mean_few_steps(hub, name):
    write_snapshot(hub, f"org/{name}", class_name="StableDiffusionXLPipeline")
    (spec,) = discovered_specs(hub)
    assert (spec.defaults.steps, spec.defaults.guidance) == (4, 0.0)


def test_what_cannot_be_used_is_not_offered(hub):
    write_snapshot(hub, "org/video", class_name="SomeVideoPipeline")
    half = write_snapshot(hub, "org/half")
    (half / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    pickled = write_snapshot(hub, "org/pickled")
    weights = pickled / "unet" / "diffusion_pytorch_model.safetensors"
    weights.rename(pickled / "unet" / "diffusion_pytorch_model.bin")
    (hub / "models--org--empty").mkdir()
    (hub / "models--nonsense").write_text("")
    assert discovered_specs(hub) == ()
    assert discovered_specs(hub / "nowhere") == ()


def test_a_cache_with_only_half_precision_is_offered_as_that_variant(hub, tmp_path):
    write_snapshot(hub, "org/half-precision", variant="fp16")
    (spec,) = discovered_specs(hub)
    assert spec.source.variant == "fp16"
    assert inspect(spec, tmp_path, hub=hub).state is LocalState.READY


def test_a_short_name_that_is_taken_becomes_the_long_one(hub):
    write_snapshot(hub, "one/shapes")
    write_snapshot(hub, "two/shapes")
    assert [spec.id for spec in discovered_specs(hub, ["shapes"])] == ["one-shapes", "two-shapes"]


def test_a_snapshot_without_a_main_revision_is_offered_by_its_commit(hub, tmp_path):
    folder = write_snapshot(hub, "org/name")
    (folder.parent.parent / "refs" / "main").unlink()
    (spec,) = discovered_specs(hub)
    assert spec.source.revision == folder.name
    assert inspect(spec, tmp_path, hub=hub).path == str(folder)
