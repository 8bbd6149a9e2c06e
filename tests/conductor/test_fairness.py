"""Whose job is next."""

from dataclasses import dataclass

import pytest

from workshop_gpu.conductor.fairness import Shares, Turn, rank


@dataclass
class Waiting:
    participant: str
    sequence: int
    priority: int = 2
    submitted_s: float = 0.0


def order(shares: Shares, *jobs: Waiting, turns: dict[int, Turn] | None = None) -> list[int]:
    ordered = shares.order(
        jobs,
        lambda job: job.priority,
        lambda job: 5.0,
        lambda job: (turns or {}).get(job.sequence, Turn()),
    )
    return [job.sequence for job in ordered]


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
    assert order(shares, Waiting("bob", 1), Waiting("ada", 2, priority=1)) == [2, 1]


def test_jobs_of_one_person_keep_their_order() -> None:
    assert order(Shares(), *[Waiting("ada", number) for number in (3, 1, 2)]) == [1, 2, 3]


def test_a_job_that_was_put_back_is_first_of_its_class() -> None:
    jobs = [Waiting("ada", 1), Waiting("bob", 2), Waiting("cleo", 3, priority=0)]
    turns = {1: Turn(), 2: Turn(0), 3: Turn()}
    assert order(Shares(), *jobs, turns=turns) == [3, 2, 1]


def test_those_who_were_overtaken_for_too_long_go_first_the_longest_first() -> None:
    shares = Shares()
    shares.charge("bob", 100.0)
    jobs = [Waiting("ada", 1), Waiting("bob", 2), Waiting("bob", 3), Waiting("cleo", 4)]
    turns = {2: Turn(2, since_s=8.0), 3: Turn(2, since_s=5.0), 4: Turn(1)}
    assert order(shares, *jobs, turns=turns) == [4, 3, 2, 1]


def test_who_comes_back_starts_at_the_level_of_those_who_are_active() -> None:
    shares = Shares()
    shares.enter("ada")
    shares.charge("ada", 500.0)
    shares.enter("bob")
    assert shares.used_s("bob") == 500.0
    shares.leave("ada")
    shares.charge("bob", 100.0)
    shares.enter("ada")
    assert shares.used_s("ada") == 600.0


def test_who_comes_while_a_job_of_another_runs_is_next_after_it() -> None:
    shares = Shares()
    shares.enter("ada")
    shares.enter("ada")
    shares.begin("ada", 5.0)
    shares.enter("bob")
    assert order(shares, Waiting("ada", 2), Waiting("bob", 3)) == [3, 2]
    shares.finish("ada", 5.0, 7.0)
    assert (shares.used_s("ada"), shares.used_s("bob")) == (7.0, 0.0)


def test_a_pause_does_not_clear_what_was_used_beyond_the_level() -> None:
    shares = Shares()
    shares.enter("bob")
    shares.enter("ada")
    shares.charge("ada", 50.0)
    shares.leave("ada")
    shares.enter("ada")
    assert shares.used_s("ada") == 50.0


def test_accounts_of_those_who_left_are_forgotten_once_they_do_not_matter() -> None:
    shares = Shares()
    for number in range(100):
        shares.enter(f"p{number}")
        shares.charge(f"p{number}", 1.0)
        shares.leave(f"p{number}")
    shares.enter("ada")
    shares.charge("ada", 1000.0)
    shares.forget_idle()
    assert shares._used_s.keys() == {"ada"}


def test_people_who_always_wait_get_equal_seconds() -> None:
    shares = Shares()
    used = {"ada": 0.0, "bob": 0.0, "cleo": 0.0}
    cost = {"ada": 1.0, "bob": 5.0, "cleo": 12.0}
    for name in used:
        shares.enter(name)
    for sequence in range(600):
        jobs = [Waiting(name, sequence) for name in used]
        name = shares.order(jobs, lambda job: 2, lambda job: cost[job.participant])[0].participant
        shares.charge(name, cost[name])
        used[name] += cost[name]
    assert max(used.values()) - min(used.values()) <= max(cost.values())


@pytest.mark.parametrize(("waited_s", "expected"), [(0, 4), (599, 4), (600, 3), (99_999, 0)])
def test_a_waiting_job_rises_a_class_from_time_to_time(waited_s: float, expected: int) -> None:
    assert rank(Waiting("ada", 1, priority=4), waited_s, rise_s=600.0) == expected
    assert rank(Waiting("ada", 1, priority=4), waited_s, rise_s=0.0) == 4
