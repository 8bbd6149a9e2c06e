import shutil
from collections import namedtuple

import pytest
from huggingface_hub import constants

from tests.catalogue.hub_server import hub_server
from tests.catalogue.on_disk import SD_INDEX, safetensors, write_pipeline, write_snapshot
from workshop_gpu.catalogue.download import HubProblem, HuggingFaceHub, Listing, download
from workshop_gpu.catalogue.hub_files import needed_files
from workshop_gpu.catalogue.pipeline_folder import Incomplete, PipelineIndex, Refused
from workshop_gpu.catalogue.spec import ModelSpec, Source
from workshop_gpu.conductor.errors import ModelUnavailable

INDEX = PipelineIndex(
    "StableDiffusionPipeline",
    {
        name: tuple(entry)
        for name, entry in SD_INDEX.items()
        if isinstance(entry, list) and entry[0]
    },
)
SPEC = ModelSpec(id="far", source=Source(hub="org/model"))


@pytest.fixture
def repository(tmp_path):
    """What lies at the hub: the pipeline and a lot that must not be fetched."""
    folder = write_pipeline(tmp_path / "repository")
    (folder / "vae" / "diffusion_pytorch_model.safetensors").write_bytes(safetensors((9, 9)))
    (folder / "README.md").write_text("# A model")
    (folder / "model.ckpt").write_bytes(b"\x80\x04.")
    (folder / "all_in_one.safetensors").write_bytes(safetensors())
    (folder / "unet" / "diffusion_pytorch_model.bin").write_bytes(b"\x80\x04.")
    (folder / "unet" / "diffusion_pytorch_model.fp16.safetensors").write_bytes(safetensors())
    (folder / "unet" / "code.py").write_text("raise SystemExit")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"onnx")
    return folder


@pytest.fixture
def online(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


class CopyingHub:
    """A hub that copies from a folder."""

    def __init__(self, repository, cache):
        self.repository = repository
        self.cache = cache
        self.fetched = []

    def listing(self, hub_id, revision):
        files = [path for path in self.repository.rglob("*") if path.is_file()]
        sizes = {str(path.relative_to(self.repository)): path.stat().st_size for path in files}
        return Listing("c" * 40, sizes)

    def fetch(self, hub_id, revision, paths, arrived):
        folder = write_snapshot(self.cache, hub_id)
        shutil.rmtree(folder)
        done = 0
        for path in paths:
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((self.repository / path).read_bytes())
            done += target.stat().st_size
            arrived(done)
        self.fetched += paths
        return folder


def test_a_model_is_fetched_with_progress_and_only_what_it_needs(repository, hub):
    steps = []
    stand_in = CopyingHub(repository, hub)
    folder = download(
        SPEC, lambda done, total: steps.append((done, total)), hub=stand_in, cache=hub
    )
    assert (folder / "unet" / "diffusion_pytorch_model.safetensors").is_file()
    total = steps[0][1]
    assert steps[0] == (0, total)
    assert steps[-1] == (total, total)
    assert steps == sorted(steps)
    assert len(steps) > 5
    unwanted = (
        ".bin",
        ".ckpt",
        ".py",
        ".onnx",
        ".md",
        ".fp16.safetensors",
        "all_in_one.safetensors",
    )
    assert not [path for path in stand_in.fetched if path.endswith(unwanted)]


def test_a_variant_is_fetched_where_it_is_and_the_plain_weights_elsewhere(repository):
    files = CopyingHub(repository, None).listing("org/model", "").files
    paths = needed_files(INDEX, files, "fp16")
    assert "unet/diffusion_pytorch_model.fp16.safetensors" in paths
    assert "unet/diffusion_pytorch_model.safetensors" not in paths
    assert "vae/diffusion_pytorch_model.safetensors" in paths


def test_shards_are_fetched_with_their_index():
    index = PipelineIndex(
        "P", {"transformer": ("diffusers", "T"), "text_encoder": ("transformers", "E")}
    )
    shards = [f"transformer/diffusion_pytorch_model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    listing = [
        "model_index.json",
        "transformer/config.json",
        "transformer/diffusion_pytorch_model.safetensors.index.json",
        *shards,
        "text_encoder/config.json",
        "text_encoder/model.safetensors",
        "text_encoder/model.safetensors.index.json",
        "text_encoder/model-00001-of-00001.safetensors",
    ]
    paths = needed_files(index, listing, "")
    assert set(shards) < set(paths)
    assert "transformer/diffusion_pytorch_model.safetensors.index.json" in paths
    assert "text_encoder/model.safetensors" in paths
    assert "text_encoder/model-00001-of-00001.safetensors" not in paths


def test_a_repository_with_pickle_only_is_refused_before_anything_large_is_fetched(repository, hub):
    (repository / "vae" / "diffusion_pytorch_model.safetensors").rename(
        repository / "vae" / "diffusion_pytorch_model.bin"
    )
    stand_in = CopyingHub(repository, hub)
    with pytest.raises(ModelUnavailable, match="pickle"):
        download(SPEC, lambda done, total: None, hub=stand_in, cache=hub)
    assert stand_in.fetched == ["model_index.json"]


def test_what_the_repository_lacks_is_named(repository):
    files = set(CopyingHub(repository, None).listing("org/model", "").files)
    with pytest.raises(Incomplete, match="no folder vae/"):
        needed_files(INDEX, [path for path in files if not path.startswith("vae/")], "")
    with pytest.raises(Incomplete, match="no safetensors weights for vae"):
        needed_files(INDEX, files - {"vae/diffusion_pytorch_model.safetensors"}, "")
    with pytest.raises(Refused, match="pickle"):
        needed_files(INDEX, files - {"unet/diffusion_pytorch_model.safetensors"}, "")


def test_something_that_is_no_pipeline_is_refused(tmp_path, hub):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelUnavailable, match="it is no diffusers pipeline"):
        download(SPEC, lambda *_: None, hub=CopyingHub(tmp_path / "empty", hub), cache=hub)


def test_a_disk_that_is_too_small_is_said_before_the_download(repository, hub, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(9, 0, 9))
    with pytest.raises(ModelUnavailable, match="are free"):
        download(SPEC, lambda *_: None, hub=CopyingHub(repository, hub), cache=hub)


def test_a_file_that_arrives_broken_is_noticed(repository, hub):
    class LosingHub(CopyingHub):
        def fetch(self, hub_id, revision, paths, arrived):
            folder = super().fetch(hub_id, revision, paths, arrived)
            file = folder / "vae" / "diffusion_pytorch_model.safetensors"
            if file.exists():
                file.write_bytes(file.read_bytes()[:-1])
            return folder

    with pytest.raises(ModelUnavailable, match="files are missing; try again"):
        download(SPEC, lambda *_: None, hub=LosingHub(repository, hub), cache=hub)


def test_the_real_client_fetches_what_is_needed_and_reports_bytes(repository, hub, online):
    steps = []
    with hub_server(repository) as server:
        client = HuggingFaceHub(hub, server.address)
        folder = download(SPEC, lambda *step: steps.append(step), hub=client, cache=hub)
        assert "unet/diffusion_pytorch_model.bin" not in server.fetched
        assert "vae/diffusion_pytorch_model.safetensors" in server.fetched
        before = len(server.fetched)
        assert download(SPEC, lambda *_: None, hub=client, cache=hub) == folder
        assert len(server.fetched) == before
    total = steps[-1][1]
    assert steps[-1] == (total, total)
    assert any(0 < done < total for done, _ in steps)
    assert steps == sorted(steps)
    assert not list(folder.rglob("*.bin"))
    assert not list(folder.rglob("*.py"))


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, "RepoNotFound", "the hub has no model org/model, or it is private"),
        (403, "GatedRepo", "accept its terms"),
        (404, "RevisionNotFound", "no such revision"),
        (418, "Teapot", "the hub refused org/model"),
    ],
)
def test_the_hubs_own_reasons_reach_the_instructor(repository, hub, online, status, code, words):
    with hub_server(repository) as server:
        server.refusal = (status, code)
        with pytest.raises(ModelUnavailable, match=words):
            download(SPEC, lambda *_: None, hub=HuggingFaceHub(hub, server.address), cache=hub)


def test_a_hub_that_is_forbidden_or_not_reached_is_said(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelUnavailable, match="HF_HUB_OFFLINE forbids"):
        download(SPEC, lambda *_: None, cache=hub)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(HubProblem, match="was not reached"):
        HuggingFaceHub(hub, "http://127.0.0.1:9").listing("org/model", "")
