"""Whose job is next."""

from dataclasses import dataclass

import pytest

from workshop_gpu.conductor.fairness import (
    FORGIVEN_S,
    Reason,
    Shares,
    Tolls,
    rank,
    start_times,
)


@dataclass
class Waiting:
    participant: str
    sequence: int
    rank: int = 2
    reason: Reason = Reason.SHARE
    cost_s: float = 5.0


def order(shares: Shares, *jobs: Waiting) -> list[int]:
    """The sequence numbers in the order of classes, reasons and start times."""
    keys = [
        (job.rank, job.reason, start_s, job.sequence)
        for name in {job.participant for job in jobs}
        for job, start_s in start_times(
            [job for job in jobs if job.participant == name], shares.starts_s(name)
        )
    ]
    return [sequence for _, _, _, sequence in sorted(keys)]


def test_equal_accounts_go_by_arrival() -> None:
    assert order(Shares(), Waiting("bob", 2), Waiting("ada", 1)) == [1, 2]


def test_people_take_turns_however_many_jobs_one_has() -> None:
    jobs = [Waiting("ada", 1), Waiting("ada", 2), Waiting("ada", 3), Waiting("bob", 4)]
    assert order(Shares(), *jobs) == [1, 4, 2, 3]


def test_who_has_used_least_goes_first() -> None:
    shares = Shares()
    shares.charge("ada", 100.0)
    shares.charge("bob", 7.0)
    jobs = [Waiting("ada", 1), Waiting("bob", 2), Waiting("cleo", 3), Waiting("cleo", 4)]
    assert order(shares, *jobs) == [3, 4, 2, 1]


def test_a_better_class_goes_before_a_smaller_account() -> None:
    shares = Shares()
    shares.charge("ada", 100.0)
    assert order(shares, Waiting("bob", 1), Waiting("ada", 2, rank=1)) == [2, 1]


def test_jobs_of_one_person_keep_their_order() -> None:
    assert order(Shares(), *[Waiting("ada", number) for number in (3, 1, 2)]) == [1, 2, 3]


def test_a_job_that_was_put_back_is_first_of_its_class() -> None:
    shares = Shares()
    shares.charge("bob", 100.0)
    jobs = [
        Waiting("ada", 1),
        Waiting("bob", 2),
        Waiting("bob", 3, reason=Reason.PUT_BACK),
        Waiting("cleo", 4, rank=0),
    ]
    assert order(shares, *jobs) == [4, 3, 1, 2]


def test_who_goes_first_for_another_reason_does_not_make_the_next_of_the_same_person_wait() -> None:
    jobs = [Waiting("ada", 1, reason=Reason.PUT_BACK), Waiting("ada", 2), Waiting("bob", 3)]
    assert order(Shares(), *jobs) == [1, 2, 3]


def test_who_comes_back_starts_at_the_level_of_the_job_that_began_last() -> None:
    shares = Shares()
    shares.enter("blocked")
    shares.enter("ada")
    shares.charge("ada", 500.0)
    shares.begin("ada", 5.0)
    shares.enter("bob")
    assert shares.used_s("bob") == shares.starts_s("bob") == 500.0
    assert shares.used_s("blocked") == 0.0


def test_who_comes_while_a_job_of_another_runs_is_next_after_it() -> None:
    shares = Shares()
    shares.enter("ada")
    shares.enter("ada")
    shares.begin("ada", 5.0)
    shares.enter("bob")
    assert order(shares, Waiting("ada", 2), Waiting("bob", 3)) == [3, 2]
    shares.finish("ada", 5.0, 7.0)
    assert (shares.used_s("ada"), shares.used_s("bob")) == (7.0, 0.0)


def test_a_pause_clears_little_of_what_was_used_beyond_the_level() -> None:
    shares = Shares()
    shares.enter("bob")
    shares.enter("ada")
    shares.charge("ada", 50.0)
    shares.leave("ada")
    shares.enter("ada")
    assert shares.starts_s("ada") == 50.0 - FORGIVEN_S
    assert shares.used_s("ada") == 50.0


def test_people_who_ask_for_one_picture_at_a_time_come_in_the_order_in_which_they_ask() -> None:
    shares = Shares()
    for name in ("ada", "bob", "ada"):
        shares.enter(name)
        shares.begin(name, 5.0)
        shares.finish(name, 5.0, 5.0)
        shares.leave(name)
    shares.enter("bob")
    shares.enter("ada")
    assert order(shares, Waiting("bob", 4), Waiting("ada", 5)) == [4, 5]
    assert order(shares, Waiting("ada", 4), Waiting("bob", 5)) == [4, 5]


def test_who_always_waits_falls_behind_nobody_who_comes_back_again_and_again() -> None:
    shares = Shares()
    used = {"ada": 0.0, "bob": 0.0, "always": 0.0}
    shares.enter("always")
    line = ["ada", "bob", "always"]
    for name in ("ada", "bob"):
        shares.enter(name)
    for _ in range(300):
        name = min(line, key=lambda each: (shares.starts_s(each), line.index(each)))
        line.remove(name)
        shares.begin(name, 5.0)
        used[name] += 5.0
        shares.finish(name, 5.0, 5.0)
        if name != "always":
            shares.leave(name)
            shares.enter(name)
        line.append(name)
    assert max(used.values()) - used["always"] <= 10.0


def test_accounts_of_those_who_left_are_forgotten_once_they_do_not_matter() -> None:
    shares = Shares()
    for number in range(100):
        shares.enter(f"p{number}")
        shares.charge(f"p{number}", 1.0)
        shares.leave(f"p{number}")
    shares.enter("ada")
    shares.charge("ada", 1000.0)
    shares.begin("ada", 1.0)
    shares.forget_idle()
    assert shares._used_s.keys() == {"ada"}


def test_people_who_always_wait_get_equal_seconds() -> None:
    shares = Shares()
    used = {"ada": 0.0, "bob": 0.0, "cleo": 0.0}
    cost = {"ada": 1.0, "bob": 5.0, "cleo": 12.0}
    for name in used:
        shares.enter(name)
    for _ in range(600):
        name = min(used, key=shares.used_s)
        shares.begin(name, cost[name])
        used[name] += cost[name]
    assert max(used.values()) - min(used.values()) <= max(cost.values())


def test_a_load_is_paid_in_equal_parts_by_those_who_waited_for_it() -> None:
    tolls = Tolls()
    tolls.add("a", 6.0, 2)
    came_s = tolls.sum_s("a")
    tolls.add("a", 9.0, 3)
    tolls.add("b", 9.0, 0)
    assert (came_s, tolls.sum_s("a") - came_s, tolls.sum_s("b")) == (3.0, 3.0, 0.0)


@pytest.mark.parametrize(("waited_s", "expected"), [(0, 4), (599, 4), (600, 3), (99_999, 0)])
def test_a_waiting_job_rises_a_class_from_time_to_time(waited_s: float, expected: int) -> None:
    assert rank(4, waited_s, rise_s=600.0) == expected
    assert rank(4, waited_s, rise_s=0.0) == 4
