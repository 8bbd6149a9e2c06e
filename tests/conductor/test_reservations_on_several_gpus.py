"""Room for somebody's own code on one of several GPUs: whose jobs it waits behind there."""

from tests.conductor.staging import Stage, model, stage
from tests.conductor.test_reservations import asked, granted, view
from workshop_gpu.conductor import events
from workshop_gpu.conductor.conductor import Conductor, Settings
from workshop_gpu.conductor.states import Priority


def waiting_before(room: Stage, name: str, who: str = "bob") -> str:
    """A job of a participant who goes before everybody else."""
    return room.submit(name, who, priority=Priority.HIGH)


def test_it_does_not_wait_behind_a_job_whose_model_is_ready_on_another_gpu() -> None:
    room = stage(devices=("gpu0", "gpu1"))
    room.load("a")
    running, waiting = waiting_before(room, "a"), waiting_before(room, "a", "cleo")
    assert (room.state(running), room.state(waiting)) == ("running", "queued")
    room.tell(asked(60, device="gpu1"))
    assert granted(room)
    room.settle()
    assert room.state(waiting) == "done"


def test_it_does_not_wait_behind_a_job_whose_model_is_being_loaded_on_another_gpu() -> None:
    room = stage(devices=("gpu0", "gpu1"))
    waiting_before(room, "a")
    assert room.orders_of("gpu0") == ["load a"]
    room.tell(asked(60, device="gpu1"))
    assert granted(room)


def test_it_does_not_wait_behind_a_job_that_fits_on_a_larger_gpu_only() -> None:
    room = Stage(Conductor(Settings(), ("gpu0", "gpu1")))
    room.tell(events.CatalogueChanged((model("a", 50), model("b", 50))))
    room.ready("gpu0", 80)
    room.ready("gpu1", 24)
    room.load("b")
    waiting_before(room, "b", "cleo")
    job = waiting_before(room, "a")
    room.tell(asked(20))
    assert granted(room)
    assert view(room).device == "gpu1"
    room.settle()
    assert room.state(job) == "done"


def test_a_job_before_it_that_could_be_loaded_there_goes_first() -> None:
    room = stage(devices=("gpu0", "gpu1"), gb=40)
    room.hold("c", "eve", ttl_s=1000.0)
    room.answer("gpu0")
    room.submit("b", "dan")
    room.answer("gpu1")
    job = waiting_before(room, "a")
    room.tell(asked(20))
    assert not granted(room)
    assert view(room).position == 2
    room.answer("gpu1")
    assert room.order("gpu1") == "evict b"
    assert not granted(room)
    room.answer("gpu1")
    room.answer("gpu1")
    assert room.state(job) == "running"


def test_a_long_queue_that_is_worth_another_copy_goes_first_there() -> None:
    room = stage(devices=("gpu0", "gpu1"), settings=Settings(queue_limit=30))
    room.load("a")
    waiting_before(room, "a")
    room.tell(events.ModelWanted("b"))
    assert room.orders_of("gpu1") == ["load b"]
    for _ in range(8):
        waiting_before(room, "a")
    room.tell(asked(40, device="gpu1"))
    assert not granted(room)
    room.answer("gpu1")
    assert room.orders_of("gpu1") == ["load a"]
    assert not granted(room)
