"""Models lie in the folders for models, links followed; a pickle is no model by any name."""

import os
import pickle

import pytest

from tests.catalogue.on_disk import safetensors, write_pipeline
from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.catalogue.files import LocalState, inspect
from workshop_gpu.catalogue.shipped import shipped_specs
from workshop_gpu.catalogue.spec import ModelSpec, Source


@pytest.fixture
def models(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def look(models, **source):
    return inspect(ModelSpec(id="m", source=Source(**source)), models, roots=(models,))


def refused(models, **source):
    found = look(models, **source)
    return found.state is LocalState.UNUSABLE and "outside of the folders" in found.problem


def test_what_lies_in_a_root_is_taken_and_the_root_may_be_a_link_itself(models, tmp_path):
    write_pipeline(models / "sd")
    assert look(models, folder="sd").state is LocalState.READY
    link = tmp_path / "link"
    link.symlink_to(models)
    spec = ModelSpec(id="m", source=Source(folder="sd"))
    assert inspect(spec, link, roots=(link,)).state is LocalState.READY


def test_paths_out_of_the_roots_are_refused_however_they_are_written(models, tmp_path):
    write_pipeline(tmp_path / "elsewhere")
    assert refused(models, folder=str(tmp_path / "elsewhere"))
    assert refused(models, folder="../elsewhere")
    assert refused(models, folder="/etc")
    (tmp_path / "models-too").mkdir()
    assert refused(models, folder=str(tmp_path / "models-too"))


def test_links_out_of_the_roots_are_refused_wherever_they_are(models, tmp_path):
    elsewhere = write_pipeline(tmp_path / "elsewhere")
    (models / "whole").symlink_to(elsewhere)
    assert refused(models, folder="whole")
    part = write_pipeline(models / "part") / "vae"
    part.rename(tmp_path / "vae")
    part.symlink_to(tmp_path / "vae")
    assert refused(models, folder="part")
    weights = write_pipeline(models / "file") / "unet" / "diffusion_pytorch_model.safetensors"
    weights.rename(tmp_path / "weights")
    weights.symlink_to(tmp_path / "weights")
    assert refused(models, folder="file")
    (tmp_path / "one.safetensors").write_bytes(safetensors())
    (models / "one.safetensors").symlink_to(tmp_path / "one.safetensors")
    assert refused(models, file="one.safetensors")


def test_links_within_the_roots_are_followed(models):
    write_pipeline(models / "sd")
    (models / "again").symlink_to(models / "sd")
    assert look(models, folder="again").state is LocalState.READY


def test_a_catalogue_with_roots_still_offers_the_shipped_models(models, tmp_path):
    catalogue = Catalogue(tmp_path / "none.toml", hub=tmp_path, roots=(models,))
    catalogue.load()
    for spec in shipped_specs():
        assert catalogue.local(spec.id).state is LocalState.READY


class Bomb:
    """Opened by pickle it makes a folder."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("name", ["diffusion_pytorch_model.safetensors", "model.fp16.safetensors"])
def test_a_pickle_by_the_name_of_another_format_is_refused_and_not_opened(models, tmp_path, name):
    target = tmp_path / "opened"
    bomb = pickle.dumps(Bomb(target), protocol=4)
    folder = write_pipeline(models / "sd")
    (folder / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(bomb)
    (models / name).write_bytes(bomb)
    assert look(models, folder="sd").state is LocalState.UNUSABLE
    assert look(models, file=name).state is LocalState.UNUSABLE
    assert not target.exists()
