"""What the server's options become."""

import pytest
from traitlets import TraitError

from workshop_gpu.app import WorkshopGPU
from workshop_gpu.host.devices import DeviceConfig

CPU = DeviceConfig("cpu:0", "CPU", "", 10**9)
CARD = DeviceConfig("cuda:0", "H100", "GPU-1", 80 * 10**9)


@pytest.mark.parametrize("amount", [-1, float("nan"), float("inf"), "much"])
def test_a_pool_of_no_sensible_size_is_refused(amount):
    with pytest.raises(TraitError, match="pool_gb"):
        WorkshopGPU(pool_gb=amount)


@pytest.mark.parametrize(
    ("choice", "for_cards", "for_the_cpu"),
    [("auto", True, False), ("on", True, True), ("off", False, False)],
)
def test_a_spare_worker_stands_by_for_cards_or_as_it_is_said(choice, for_cards, for_the_cpu):
    app = WorkshopGPU(spare_worker=choice)
    assert app._keeps_spare((CPU, CARD)) is for_cards
    assert app._keeps_spare((CPU,)) is for_the_cpu


def test_no_rung_that_takes_another_gpu_is_for_all_models() -> None:
    """Each model's settings would have to name that GPU, and all jobs would be refused."""
    for name in ("swap-encoders", "swap-streamed", "swap-both"):
        with pytest.raises(TraitError, match="default_placement"):
            WorkshopGPU(default_placement=name)
    for name in ("auto", "resident", "aggressive", "staged-streamed"):
        assert WorkshopGPU(default_placement=name).default_placement == name
