"""What must leave."""

from workshop_gpu.conductor.eviction import Candidate, Standing, choose


def slot(model: str, size: int, used_s: float, standing: Standing = Standing.IDLE) -> Candidate:
    return Candidate(model, size, used_s, standing)


def chosen(needed: int, *slots: Candidate, worst: Standing = Standing.AWAITED) -> list[str] | None:
    victims = choose(slots, needed, worst)
    return None if victims is None else [victim.model for victim in victims]


def test_nothing_leaves_where_nothing_is_needed() -> None:
    assert chosen(0, slot("a", 10, 0.0)) == []
    assert chosen(-5, slot("a", 10, 0.0)) == []


def test_the_least_recently_used_leaves_first() -> None:
    assert chosen(5, slot("new", 10, 9.0), slot("old", 10, 1.0)) == ["old"]


def test_only_as_many_leave_as_are_needed() -> None:
    slots = [slot("a", 10, 1.0), slot("b", 10, 2.0), slot("c", 10, 3.0)]
    assert chosen(15, *slots) == ["a", "b"]


def test_a_small_slot_stays_where_a_larger_one_alone_is_enough() -> None:
    assert chosen(30, slot("small", 10, 1.0), slot("large", 40, 2.0)) == ["large"]


def test_nothing_leaves_for_nothing() -> None:
    assert chosen(50, slot("a", 10, 1.0), slot("b", 10, 2.0)) is None


def test_what_runs_or_is_held_never_leaves() -> None:
    assert chosen(5, slot("a", 10, 1.0, Standing.NEVER), worst=Standing.NOT_YET) is None


def test_young_and_awaited_slots_leave_last() -> None:
    slots = [
        slot("awaited", 10, 1.0, Standing.AWAITED),
        slot("young", 10, 2.0, Standing.YOUNG),
        slot("idle", 10, 3.0),
    ]
    assert chosen(5, *slots) == ["idle"]
    assert chosen(15, *slots) == ["idle", "young"]
    assert chosen(25, *slots) == ["idle", "young", "awaited"]
    assert chosen(25, *slots, worst=Standing.YOUNG) is None


def test_equal_slots_leave_by_name_so_that_every_run_is_the_same() -> None:
    assert chosen(5, slot("b", 10, 1.0), slot("a", 10, 1.0)) == ["a"]
