"""The picture for a seed, bit for bit the same whatever happened to the model before.

The measure is the bare pipeline of a fresh process. The makes are small ones with random weights,
sharded where the real ones are, and the shipped models.
"""

import io
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from PIL import Image

from tests.worker.bare_pipelines import same_pixels
from tests.worker.fresh_pictures import WANTED
from tests.worker.small_pipelines import save_flux, save_sd1, save_sd3, save_sdxl
from tests.worker.worker_host import (
    ASSETS,
    FIRST_CARD,
    MODELS,
    POOL_BYTES,
    START_S,
    Host,
    params,
    source_of,
)
from workshop_gpu.host.weight_pool import WeightPool
from workshop_gpu.worker import protocol

Folders = dict[str, Path]
Pictures = dict[str, Image.Image]

ROUNDS = 50
MAKES = {"sd1": save_sd1, "sdxl": save_sdxl, "sd3": save_sd3, "flux": save_flux}
ON_CARD = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Every pipeline that the tests draw with."""
    home = tmp_path_factory.mktemp("makes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries' advice is no error of ours
        small = {name: save(home / name) for name, save in MAKES.items()}
    return small | {name: ASSETS / name for name in MODELS}


@pytest.fixture(scope="module", params=["cpu", ON_CARD])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("this machine has no CUDA card")
    return str(request.param)


@pytest.fixture(scope="module")
def expected(device: str, folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Pictures:
    """The bare pipelines' pictures, from a process of their own."""
    target = tmp_path_factory.mktemp("pictures")
    command = [sys.executable, "-m", "tests.worker.fresh_pictures", device, "float32"]
    subprocess.run(
        [*command, str(target), *map(str, folders.values())],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "HF_HUB_OFFLINE": "1"},
        stderr=subprocess.DEVNULL,
        timeout=START_S,
    )
    pictures = {}
    for name in folders:
        with Image.open(target / f"{name}.png") as image:
            image.load()
            pictures[name] = image
    assert len({picture.tobytes() for picture in pictures.values()}) == len(folders)
    return pictures


class Workers:
    """The worker of this moment; `kill` has another take its place, with the same pool."""

    def __init__(self, device: str) -> None:
        self._pool = WeightPool(POOL_BYTES)
        self._options = ["--device", device]
        if device == "cpu":
            self._options += ["--total-bytes", str(10**9), "--threads", "1"]
        self.now = self._start()

    def kill(self) -> None:
        self.now.process.kill()
        self.now.close()
        self.now = self._start()

    def close(self) -> None:
        self.now.close()
        self._pool.close()

    def _start(self) -> Host:
        host = Host(*self._options, pool=self._pool, CUDA_VISIBLE_DEVICES=FIRST_CARD)
        host.expect(protocol.Ready, START_S)
        return host


@pytest.fixture(scope="module")
def workers(device: str) -> Iterator[Workers]:
    running = Workers(device)
    yield running
    running.close()


@pytest.fixture
def host(workers: Workers) -> Host:
    return workers.now


def load(host: Host, folders: Folders, model: str) -> None:
    host.load(model, folders[model], dtype="float32")


def evict(host: Host, model: str) -> protocol.Evicted:
    return host.ask(protocol.Evict(model), protocol.Evicted)


def drawn(host: Host, model: str, wanted: protocol.GenerateParams = WANTED) -> Image.Image:
    (png,) = host.ask(protocol.Run(f"{model} alone", model, wanted), protocol.Done).images
    return picture(png)


def picture(png: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(png))
    image.load()
    return image


@pytest.mark.parametrize("model", [*MAKES, *MODELS])
def test_loaded_evicted_and_loaded_again_it_draws_as_a_fresh_process(
    host: Host, folders: Folders, expected: Pictures, model: str
) -> None:
    load(host, folders, model)
    assert same_pixels(drawn(host, model), expected[model])
    evict(host, model)
    load(host, folders, model)
    assert same_pixels(drawn(host, model), expected[model])
    evict(host, model)


def test_a_load_beside_a_picture_changes_neither(
    host: Host, folders: Folders, expected: Pictures
) -> None:
    long = params(steps=40, seed=5)
    load(host, folders, "shapes")
    alone = drawn(host, "shapes", long)
    for model in ("sdxl", "flux"):
        host.send(protocol.Run("long", "shapes", long))
        host.expect(protocol.Started)
        host.expect(protocol.Progress)
        host.send(protocol.Load(source_of(model, folders[model], dtype="float32")))
        assert same_pixels(beside_a_load(host), alone), model
        assert same_pixels(drawn(host, model), expected[model])
        evict(host, model)
    evict(host, "shapes")


def beside_a_load(host: Host) -> Image.Image:
    """The running job's picture; the model that is loading beside it is there before."""
    loaded = False
    while not isinstance(report := host.receive(), protocol.Done):
        loaded = loaded or isinstance(report, protocol.Loaded)
        assert not isinstance(report, protocol.LoadFailed | protocol.Failed), report
    assert loaded, "the load waited for the picture"
    return picture(report.images[0])


def test_after_a_workers_death_the_next_one_draws_the_same(
    workers: Workers, folders: Folders, expected: Pictures
) -> None:
    load(workers.now, folders, "sdxl")
    workers.now.send(protocol.Run("never ends", "sdxl", params(steps=900)))
    workers.now.expect(protocol.Started)
    workers.kill()
    for model in ("sdxl", "flux"):
        load(workers.now, folders, model)
        assert same_pixels(drawn(workers.now, model), expected[model])
        evict(workers.now, model)


def test_fifty_random_rounds_change_no_picture_and_leave_no_memory_behind(
    host: Host, folders: Folders, expected: Pictures
) -> None:
    chance = random.Random(7)
    models = sorted(folders)
    for model in models:  # the libraries' caches have all that they will ever have
        load(host, folders, model)
        drawn(host, model)
    held = []
    for _ in range(2):  # the first rounds also show what the libraries allocate once and keep
        random_rounds(host, folders, expected, chance)
        held.append(held_bytes(host, models))
    assert held[1] <= 1.01 * held[0]


def random_rounds(host: Host, folders: Folders, expected: Pictures, chance: random.Random) -> None:
    models = sorted(folders)
    resident: set[str] = set()
    for number in range(ROUNDS):
        model = chance.choice(models)
        if model in resident:
            evict(host, model)
        else:
            load(host, folders, model)
            if chance.random() < 0.3:
                assert same_pixels(drawn(host, model), expected[model]), (number, model)
        resident ^= {model}
    for model in sorted(resident):
        assert same_pixels(drawn(host, model), expected[model])


def held_bytes(host: Host, models: list[str]) -> int:
    """What the worker has in host memory and on the card once all models have left."""
    memory = [evict(host, model).memory for model in models]
    return int(psutil.Process(host.process.pid).memory_info().rss) + memory[-1].ours_bytes
