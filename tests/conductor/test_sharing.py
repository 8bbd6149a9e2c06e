"""Models that share components: counted once, loaded once, gone when the last has left."""

from tests.conductor.staging import GB, Stage, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.events import PartBytes

ENCODERS, LARGE, TURBO = (
    PartBytes("t5", 11 * GB),
    PartBytes("large", 17 * GB),
    PartBytes("t", 17 * GB),
)


def answer_load(room: Stage, parts: tuple[PartBytes, ...]) -> None:
    order = room.take_order()
    assert isinstance(order, effects.LoadModel)
    size_bytes = sum(part.bytes for part in parts)
    room.tell(events.SlotLoaded("gpu0", order.model, size_bytes, 1.0, parts))


def siblings(gb: float) -> Stage:
    """Both were here once, so that their parts are known."""
    room = stage(gb=gb)
    for name, own in (("a", LARGE), ("b", TURBO)):
        room.tell(events.ModelWanted(name))
        answer_load(room, (ENCODERS, own))
        room.tell(events.EvictionAsked(name))
        room.answer()
    return room


def test_the_second_of_two_siblings_needs_only_what_the_first_has_not() -> None:
    room = siblings(gb=50)
    room.tell(events.ModelWanted("a"))
    answer_load(room, (ENCODERS, LARGE))
    assert room.free_gb() == 49 - 28
    room.tell(events.ModelWanted("b"))
    assert room.order() == "load b"
    assert room.free_gb() == 49 - 28 - 17
    answer_load(room, (ENCODERS, TURBO))
    assert room.free_gb() == 49 - 28 - 17


def test_a_sibling_that_leaves_frees_its_own_part_alone() -> None:
    room = siblings(gb=50)
    for name, own in (("a", LARGE), ("b", TURBO)):
        room.tell(events.ModelWanted(name))
        answer_load(room, (ENCODERS, own))
    room.tell(events.EvictionAsked("a"))
    room.answer()
    assert room.free_gb() == 49 - 28
    assert room.models() == ["b"]


def test_both_leave_where_only_both_together_make_the_room() -> None:
    room = siblings(gb=60)
    for name, own in (("a", LARGE), ("b", TURBO)):
        room.tell(events.ModelWanted(name))
        answer_load(room, (ENCODERS, own))
    room.now += 60.0
    room.tell(events.ReservationAsked("r", "ada", None, 59 * GB, None, 600.0))
    assert room.order() == "evict a"
    room.answer()
    assert room.order() == "evict b"
    room.answer()
    assert room.free_gb() == 0
