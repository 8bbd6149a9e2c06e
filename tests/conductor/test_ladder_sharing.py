"""Models on the ladder that share components: moving one of them wins nothing of what is shared."""

import msgspec

from tests.conductor.laddered import SIZES, laddered, loaded
from tests.conductor.staging import GB, Stage, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.rungs import ROLES

SHARED = events.PartBytes("the same encoders", 10 * GB)
LARGE_GB = sum(role.size_bytes for role in SIZES["large"]) / GB


def siblings() -> Stage:
    """Both are there as a whole, and share."""
    made = stage(laddered(), laddered("middle"), gb=60)
    for name in ("large", "middle"):
        weights = sum(role.size_bytes for role in SIZES[name])
        made.submit(name)
        made.take_order("gpu0", "load")
        made.tell(events.SlotLoaded("gpu0", name, weights, 1.0, parts=(SHARED,), roles=SIZES[name]))
        made.answer()
    return made


def work(made: Stage) -> None:
    """The worker does what it was told, and not once more is given than there is."""
    while made.orders:
        if made.order().startswith("load"):
            loaded(made)
        else:
            made.answer()
        assert made.free_gb() >= 0


def test_what_two_models_share_is_not_won_back_by_placing_one_of_them_otherwise() -> None:
    made = siblings()
    made.foreign(22)
    job = msgspec.structs.replace(made.job_submitted("large"), placement="streamed")
    made.tell(job)
    work(made)
    made.foreign(0)
    made.settle()
    assert made.state(job.job) == "done"


def test_what_a_sibling_has_is_not_there_for_a_model_that_moves_up_from_nothing() -> None:
    made = siblings()
    made.tell(msgspec.structs.replace(made.job_submitted("large"), placement="staged-all"))
    load = made.take_order("gpu0", "load")
    assert isinstance(load, effects.LoadModel)
    assert load.placement.staged == ROLES
    made.tell(
        events.SlotLoaded("gpu0", "large", 0, 1.0, placement=load.placement, roles=SIZES["large"])
    )
    work(made)
    made.foreign(made.free_gb() - LARGE_GB + 3)  # enough for what is not shared, and no more
    job = msgspec.structs.replace(made.job_submitted("large"), placement="resident")
    made.tell(job)
    assert not made.orders
    made.foreign(0)
    assert made.order() == "load large"
    work(made)
    assert made.state(job.job) == "done"
