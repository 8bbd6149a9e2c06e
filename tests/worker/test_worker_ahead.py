"""Models that were built ahead: they are what they would be otherwise, or are not used."""

import json
import queue
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.worker.bare_pipelines import bare_picture, bare_pipeline, same_pixels
from tests.worker.opening import loader, source
from tests.worker.worker_host import ASSETS, params
from workshop_gpu.worker.protocol import Prepare

pytestmark = pytest.mark.usefixtures("quiet_libraries")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ASSETS / "shapes", tmp_path / "shapes"))


def an_ahead(orders: Any = None) -> Any:
    from workshop_gpu.worker.ahead import Ahead
    from workshop_gpu.worker.turns import Turns

    return Ahead(Turns(), orders)


def built(ahead: Any, folder: Path) -> Any:
    """The pipeline that stands ready, without taking it."""
    assert ahead.build(source(folder), "cpu")
    return ahead._ready[source(folder)].model.pipeline


def load(worker: Any, folder: Path) -> Any:
    return worker.load(source(folder), lambda done, total, speed: None)


def test_a_model_that_was_built_ahead_is_the_one_that_is_loaded_and_draws_the_same(
    folder: Path,
) -> None:
    ahead = an_ahead()
    pipeline = built(ahead, folder)
    assert next(pipeline.unet.parameters()).is_meta, "its weights are not read yet"
    worker = loader(ahead=ahead)
    model = load(worker, folder)
    assert model.pipeline is pipeline
    wanted = params(steps=2)
    expected = bare_picture(bare_pipeline("shapes"), wanted)
    assert same_pixels(bare_picture(pipeline, wanted), expected)


def test_what_is_open_is_not_built_again_until_it_was_closed(folder: Path) -> None:
    orders: queue.SimpleQueue[Prepare] = queue.SimpleQueue()
    ahead = an_ahead(orders)
    ahead._devices[source(folder)] = "cpu"
    worker = loader(ahead=ahead)
    load(worker, folder)
    assert not ahead.build(source(folder), "cpu")
    worker.evict("small")
    worker.close("small")
    assert orders.get_nowait() == Prepare("cpu", (source(folder),))
    assert ahead.build(source(folder), "cpu")


def test_what_was_opened_while_it_was_built_is_not_kept_beside(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workshop_gpu.worker import ahead as module

    ahead, build = an_ahead(), module.bare_model

    def opened_meanwhile(plan: Any, turns: Any) -> Any:
        assert ahead.take(plan) is None
        return build(plan, turns)

    monkeypatch.setattr(module, "bare_model", opened_meanwhile)
    assert not ahead.build(source(folder), "cpu")
    assert not ahead._ready


@pytest.mark.parametrize("changed", ["unet/config.json", "vae/diffusion_pytorch_model.safetensors"])
def test_a_model_whose_files_changed_since_is_built_from_the_new_ones(
    folder: Path, changed: str
) -> None:
    ahead = an_ahead()
    pipeline = built(ahead, folder)
    content = (folder / changed).read_bytes()
    if changed.endswith(".json"):
        content = json.dumps(json.loads(content) | {"_diffusers_version": "0.0.1"}).encode()
    (folder / changed).unlink()
    (folder / changed).write_bytes(content)
    assert load(loader(ahead=ahead), folder).pipeline is not pipeline


def test_a_model_that_cannot_be_had_without_its_weights_is_left_to_its_load(tmp_path: Path) -> None:
    missing = source(tmp_path / "nowhere")
    with pytest.raises(Exception, match="nothing at"):
        an_ahead().build(missing, "cpu")
    (tmp_path / "one.safetensors").write_bytes((8).to_bytes(8, "little") + b"{}      ")
    assert not an_ahead().build(source(tmp_path / "one.safetensors"), "cpu")
