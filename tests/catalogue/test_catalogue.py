import pytest

from tests.catalogue.on_disk import write_pipeline, write_snapshot
from workshop_gpu.catalogue import catalogue as module
from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.catalogue.files import LocalState
from workshop_gpu.conductor.errors import ModelUnavailable, ModelUnknown

ONE = '[[model]]\nid = "one"\nsource = { folder = "pipeline" }\npin = true\nvram_gb = 1.5\n'
OFF = '[[model]]\nid = "off"\nsource = { folder = "x" }\nenabled = false\nreason = "on Thursday"\n'


@pytest.fixture
def file(pipeline):
    path = pipeline.parent / "models.toml"
    path.write_text(ONE)
    return path


def loaded(path, hub):
    catalogue = Catalogue(path, hub=hub)
    catalogue.load()
    return catalogue


def test_without_a_file_the_shipped_models_and_the_cache_are_offered(hub):
    write_snapshot(hub, "org/found")
    catalogue = loaded(None, hub)
    ids = [spec.id for spec in catalogue.specs]
    assert ids == ["shapes", "shapes-dit", "shapes-dit-turbo", "found"]
    assert catalogue.problems == ()


def test_the_shipped_models_are_whole_and_fit_their_own_limits(hub):
    catalogue = loaded(None, hub)
    for spec in catalogue.specs:
        local = catalogue.local(spec.id)
        assert local.state is LocalState.READY, local.problem
        assert 10_000_000 < local.file_bytes < 40_000_000
        assert catalogue.source(spec.id).path == local.path
        assert spec.defaults.width * spec.defaults.height <= spec.limits.max_pixels


def test_the_conductor_is_told_what_it_must_know(file, hub, pipeline):
    file.write_text(ONE + OFF)
    one, off = loaded(file, hub).facts()
    assert (one.model, one.pinned, one.problem, one.explicit_bytes) == (
        "one",
        True,
        "",
        1_500_000_000,
    )
    assert one.file_bytes == 3 * 32 * 4
    assert (off.enabled, off.disabled_reason) == (False, "on Thursday")
    assert "does not exist" in off.problem


def test_the_worker_is_told_where_the_files_are(file, hub, pipeline):
    source = loaded(file, hub).source("one")
    assert (source.model, source.kind, source.path) == ("one", "diffusers", str(pipeline))


def test_a_model_that_is_not_there_or_cannot_be_used_is_an_error_of_its_kind(file, hub):
    file.write_text(ONE + OFF)
    catalogue = loaded(file, hub)
    with pytest.raises(ModelUnknown, match="Offered here: one"):
        catalogue.get("two")
    with pytest.raises(ModelUnavailable, match="does not exist"):
        catalogue.source("off")


def test_a_file_is_read_again_when_it_changes(file, hub):
    catalogue = loaded(file, hub)
    assert not catalogue.changed()
    file.write_text(ONE + OFF)
    assert catalogue.changed()
    catalogue.load()
    assert [spec.id for spec in catalogue.specs] == ["one", "off"]
    assert not catalogue.changed()


def test_a_mistake_keeps_the_whole_old_catalogue_and_is_shown(file, hub):
    catalogue = loaded(file, hub)
    file.write_text(OFF + ONE.replace("pin", "pinn"))
    catalogue.load()
    assert [spec.id for spec in catalogue.specs] == ["one"]
    assert catalogue.get("one").pin
    assert catalogue.problems == ('models.toml line 9: unknown key "pinn" (did you mean "pin"?)',)
    assert not catalogue.changed()
    file.write_text(OFF)
    catalogue.load()
    assert [spec.id for spec in catalogue.specs] == ["off"]
    assert catalogue.problems == ()


def test_a_file_that_vanishes_keeps_the_old_catalogue(file, hub):
    catalogue = loaded(file, hub)
    file.unlink()
    assert catalogue.changed()
    catalogue.load()
    assert [spec.id for spec in catalogue.specs] == ["one"]
    assert "cannot be read" in catalogue.problems[0]


def test_a_mistake_at_the_first_reading_leaves_the_right_entries(file, hub):
    file.write_text(ONE + OFF.replace("reason", "raeson"))
    catalogue = loaded(file, hub)
    assert [spec.id for spec in catalogue.specs] == ["one"]
    assert len(catalogue.problems) == 1


def test_a_named_file_that_is_missing_is_said_but_not_the_default_one(tmp_path, hub, monkeypatch):
    named = loaded(tmp_path / "typo.toml", hub)
    assert "typo.toml does not exist" in named.problems[0]
    assert named.get("shapes")
    monkeypatch.setattr(module, "default_models_file", lambda: tmp_path / "models.toml")
    assert loaded(tmp_path / "models.toml", hub).problems == ()


def test_a_file_that_appears_later_is_read(tmp_path, hub):
    path = tmp_path / "models.toml"
    catalogue = loaded(path, hub)
    path.write_text(OFF)
    assert catalogue.changed()
    catalogue.load()
    assert [spec.id for spec in catalogue.specs] == ["off"]


def test_a_change_during_the_reading_is_seen_afterwards(file, hub, monkeypatch):
    catalogue = Catalogue(file, hub=hub)
    read = module.read_models

    def read_then_change(path):
        found = read(path)
        file.write_text(ONE + OFF)
        return found

    monkeypatch.setattr(module, "read_models", read_then_change)
    catalogue.load()
    assert catalogue.changed()


def test_a_folder_that_comes_or_goes_is_a_change(file, hub, pipeline):
    catalogue = loaded(file, hub)
    pipeline.rename(pipeline.parent / "elsewhere")
    assert catalogue.changed()
    catalogue.load()
    assert "does not exist" in catalogue.local("one").problem
    write_pipeline(pipeline)
    assert catalogue.changed()


def test_a_model_of_the_hub_has_no_problem_before_it_is_downloaded(tmp_path, hub):
    path = tmp_path / "models.toml"
    path.write_text('[[model]]\nid = "far"\nsource = { hub = "org/far" }\n')
    catalogue = loaded(path, hub)
    assert catalogue.facts()[0].problem == ""
    assert catalogue.local("far").state is LocalState.TO_DOWNLOAD
    with pytest.raises(ModelUnavailable, match="not downloaded yet"):
        catalogue.source("far")
    folder = write_snapshot(hub, "org/far")
    assert catalogue.changed()
    assert catalogue.look_again("far").path == str(folder)
    assert catalogue.source("far").path == str(folder)


def test_models_of_one_shape_are_told_as_such_and_others_are_not(hub, tmp_path):
    folders = {name: write_pipeline(tmp_path / name) for name in ("large", "turbo", "wide", "bare")}
    for name, width in (("large", 8), ("turbo", 8), ("wide", 16)):
        for config in folders[name].glob("*/config.json"):
            config.write_text(f'{{"_name_or_path": "{name}", "_class_name": "X", "w": {width}}}')
    for config in folders["bare"].glob("*/config.json"):
        config.write_text("{not json")
    path = tmp_path / "models.toml"
    path.write_text(
        "".join(f'[[model]]\nid = "{name}"\nsource = {{ folder = "{name}" }}\n' for name in folders)
    )
    shapes = {facts.model: facts.denoiser for facts in loaded(path, hub).facts()}
    assert shapes["large"] == shapes["turbo"] != ""
    assert shapes["wide"] not in ("", shapes["large"])
    assert shapes["bare"] == ""
