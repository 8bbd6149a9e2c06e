"""Models that can be placed with memory of another GPU only, or their jobs: they wait for what may
come, and for nothing else."""

import msgspec
import pytest

from tests.conductor.laddered import laddered, loaded, ordered
from tests.conductor.staging import GB, MEGAPIXEL, Stage, model
from workshop_gpu.conductor import events
from workshop_gpu.conductor.conductor import Conductor, Settings
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, RESIDENT, VAE, RoleBytes

SWAPS = MemorySettings(swap_device="gpu1")
BY_NAME = MemorySettings(swap_device="gpu1", placement="swap-encoders")
TWO = ("gpu0", "gpu1")


def two(*models: events.ModelFacts, gb: float = 24.0, other_gb: float = 24.0) -> Stage:
    made = Stage(Conductor(Settings(), TWO))
    made.tell(events.CatalogueChanged(models))
    made.ready("gpu0", gb)
    made.ready("gpu1", other_gb)
    return made


def fill_the_other(made: Stage) -> None:
    """The model "full", which no time sends away, is ready on gpu1."""
    made.tell(events.DeviceGone("gpu0", "not there yet", 60.0))
    made.load("full", device="gpu1")
    made.ready("gpu0", 24.0)
    made.later(60.0)


FULL = model("full", 20.0, keep_warm_s=-1.0)


def test_a_model_that_fits_on_no_gpu_but_its_swap_device_is_refused() -> None:
    made = two(laddered(memory=BY_NAME), gb=12.0, other_gb=80.0)
    report = made.refused(made.job_submitted("large"))
    assert (report.kind, report.facts["largest_bytes"]) == ("model_too_large", 11.4 * GB)


def test_a_job_fails_once_only_the_swap_device_of_its_model_is_left() -> None:
    made = two(laddered(memory=BY_NAME), other_gb=80.0)
    made.foreign(70.0, "gpu1")
    waits = made.submit("large")
    assert not made.orders
    made.tell(events.DeviceGone("gpu0", "it ended too often", None))
    error = made.job(waits).error
    assert error is not None
    assert (error.kind, error.facts["field"]) == ("invalid_placement", "swap_device")
    assert 'it needs memory of "gpu1" beside its own, and no other GPU here works' in error.message


def test_a_job_fails_once_the_swap_device_that_its_model_must_have_is_gone() -> None:
    made = two(laddered(memory=BY_NAME), other_gb=80.0)
    made.foreign(70.0, "gpu1")
    waits = made.submit("large")
    made.tell(events.DeviceGone("gpu1", "it ended too often", None))
    error = made.job(waits).error
    assert error is not None
    assert '"gpu1" does not work: it ended too often' in error.message


def test_two_models_may_each_need_memory_of_the_others_gpu() -> None:
    """Neither waits for the other: both are pinned, and each is in the other's way."""
    names = {"large": "gpu1", "twin": "gpu0"}
    memory = {name: msgspec.structs.replace(BY_NAME, swap_device=at) for name, at in names.items()}
    pinned = [msgspec.structs.replace(laddered(name, memory[name]), pinned=True) for name in names]
    made = two(*pinned, gb=60.0, other_gb=60.0)
    loaded(made, "gpu0")
    loaded(made, "gpu1")
    assert (made.models("gpu0"), made.models("gpu1")) == (["large"], ["twin"])


@pytest.mark.parametrize("careful", TWO)
def test_safe_mode_of_either_gpu_keeps_out_no_model_that_needs_both(careful: str) -> None:
    """Else the picture that ends it would never be drawn."""
    made = two(laddered(memory=BY_NAME))
    for _ in range(2):
        made.die(careful)
        made.ready(careful, 24.0)
    made.submit("large")
    assert ordered(made).source == "gpu1"


def test_idle_models_leave_the_other_gpu_for_a_job_that_names_a_rung_there() -> None:
    """Its own model is ready, but not so."""
    made = two(laddered("middle", SWAPS), FULL)
    fill_the_other(made)
    made.submit("middle")
    assert ordered(made) == RESIDENT
    loaded(made)
    made.answer()
    made.later(60.0)
    named = msgspec.structs.replace(made.job_submitted("middle"), placement="swap-encoders")
    made.tell(named)
    assert made.order("gpu1") == "evict full"
    made.answer("gpu1")
    assert ordered(made).elsewhere == (ENCODERS,)
    loaded(made)
    assert made.order() == f"run {named.job}"


def test_idle_models_leave_it_for_a_picture_that_cannot_be_repeated_without() -> None:
    """Its text encoders are too large for the model's own GPU, and may not compute on the CPU."""
    roles = (
        RoleBytes(ENCODERS, 26 * GB),
        RoleBytes(DENOISER, 10 * GB, (GB,) * 10),
        RoleBytes(VAE, GB),
    )
    parted = model("parted", 37.0, roles=roles, memory=SWAPS)
    made = two(parted, FULL, other_gb=27.1)
    fill_the_other(made)
    request = made.job_submitted("parted", pixels=MEGAPIXEL // 4)
    made.tell(msgspec.structs.replace(request, manner="exact"))
    assert made.order("gpu1") == "evict full"
    made.answer("gpu1")
    assert ordered(made).elsewhere == (ENCODERS,)


def asked_for_room(made: Stage, gb: int) -> str:
    """Bob's reservation, and whether it waits."""
    made.tell(events.ReservationAsked("room", "bob", "kernel-bob", gb * GB, "gpu1", 600.0))
    return made.conductor.reservation("room", made.now).state.value


def test_a_reservation_of_the_other_gpu_does_not_wait_behind_a_job_that_has_no_room() -> None:
    made = two(laddered(memory=BY_NAME), other_gb=48.0)
    made.foreign(22.0, "gpu0")
    assert made.job(made.submit("large")).waiting_for == "foreign"
    assert asked_for_room(made, 30) == "granted"


def test_a_reservation_of_the_other_gpu_waits_for_a_job_that_soon_needs_a_part_of_it() -> None:
    made = two(laddered(memory=BY_NAME), model("long", 15.0), other_gb=48.0)
    made.tell(events.DeviceGone("gpu1", "not there yet", 60.0))
    made.submit("long", "cleo")
    made.answer("gpu0")
    made.ready("gpu1", 48.0)
    waits = made.submit("large")
    assert asked_for_room(made, 40) == "waiting"
    made.answer("gpu0", which="run")
    made.answer("gpu0", which="evict")
    loaded(made)
    assert made.order() == f"run {waits}"
