"""Models come to the card and leave it while the weight pool still lacks what they brought."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.fake_pool import FakePool
from tests.worker.late_fill_gate import Gate, never
from tests.worker.opening import source
from tests.worker.pretended_card import pretended_card
from tests.worker.worker_host import ASSETS
from workshop_gpu.conductor.rungs import ENCODERS, RESIDENT, VAE, Placement

pytestmark = pytest.mark.usefixtures("quiet_libraries")

Load = Callable[..., Any]


@pytest.fixture
def pool() -> Iterator[FakePool]:
    pool = FakePool()
    yield pool
    pool.close()


@pytest.fixture
def worker(pool: FakePool, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The loader of a card that is none."""
    from workshop_gpu.worker.loading import Loader
    from workshop_gpu.worker.turns import Turns

    card, _ = pretended_card(monkeypatch)
    return Loader(card, Turns(), pool)


@pytest.fixture
def load(worker: Any, tmp_path: Path) -> Load:
    """Loads from files of this test alone: nobody else has them leave the page cache."""

    def loaded(name: str = "shapes", placement: Placement = RESIDENT) -> Any:
        folder = tmp_path / name
        if not folder.is_dir():
            shutil.copytree(ASSETS / name, folder)
        return worker.load(source(folder, name), lambda *_: None, placement)

    return loaded


def weights(model: Any) -> list[Any]:
    """The tensors that the model would compute with, copied."""
    modules = [each for each in model.pipeline.components.values() if hasattr(each, "parameters")]
    return [p.detach().clone() for module in modules for p in module.parameters()]


def same(one: list[Any], other: list[Any]) -> bool:
    import torch

    return len(one) == len(other) and all(map(torch.equal, one, other))


@pytest.fixture
def half_filled(worker: Any, load: Load, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The weights of "shapes", which is on the card and only in part in the pool."""
    model = load()
    worker.fill_pool(Gate(monkeypatch).after(2))
    assert worker.fills_pool
    return weights(model)


def test_a_model_that_left_before_it_was_in_the_pool_comes_again_and_the_fill_goes_on(
    worker: Any, load: Load, pool: FakePool, half_filled: list[Any]
) -> None:
    worker.evict("shapes")
    worker.let_linger_go()
    assert same(weights(load()), half_filled), "it came from its files"
    assert worker.fills_pool
    worker.fill_pool(never)
    assert not worker.fills_pool
    assert pool.filling == {}
    worker.evict("shapes")
    worker.let_linger_go()
    assert same(weights(load()), half_filled), "it came from the pool"
    assert not worker.fills_pool


def test_the_fill_goes_on_while_the_model_is_away(
    worker: Any, load: Load, pool: FakePool, half_filled: list[Any]
) -> None:
    worker.evict("shapes")
    worker.let_linger_go()
    worker.fill_pool(never)
    assert pool.filling == {}
    assert same(weights(load()), half_filled)


def test_another_model_that_has_a_twin_of_a_block_is_loaded_in_between(
    worker: Any, load: Load, pool: FakePool, half_filled: list[Any]
) -> None:
    other = load("shapes-dit")
    others = weights(other)
    worker.fill_pool(never)
    assert pool.filling == {}
    for name in ("shapes", "shapes-dit"):
        worker.evict(name)
    worker.let_linger_go()
    assert same(weights(load()), half_filled)
    again = load("shapes-dit")
    assert same(weights(again), others)
    parts = {name: worker.resident(name).components for name in ("shapes", "shapes-dit")}
    mine, theirs = ({each.part for each in components} for components in parts.values())
    assert len(mine & theirs) == 1, "both have the same VAE, once"


def test_a_placement_that_needs_the_pool_fills_it_at_once(
    worker: Any, load: Load, pool: FakePool, half_filled: list[Any]
) -> None:
    staged = Placement(staged=(ENCODERS, VAE))
    load(placement=staged)
    worker.fill_pool(never)
    assert not worker.fills_pool
    assert pool.filling == {}
    assert same(weights(load()), half_filled)


def test_a_model_that_is_closed_leaves_nothing_half_in_the_pool(
    worker: Any, load: Load, pool: FakePool, half_filled: list[Any]
) -> None:
    worker.evict("shapes")
    worker.let_linger_go()
    worker.close("shapes")
    assert not worker.fills_pool
    assert pool.filling == {}
    assert same(weights(load()), half_filled)
