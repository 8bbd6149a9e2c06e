"""A notebook's next kernel takes the place of the last one: what was that one's is its own now."""

import msgspec
import pytest

from tests.conductor.staging import GB, Stage, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.accounts import Accounts
from workshop_gpu.conductor.conductor import Conductor, Settings
from workshop_gpu.conductor.effects import Effect, JobView
from workshop_gpu.conductor.fairness import FORGIVEN_S, Shares
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.states import Priority, ReservationState


def replace(room: Stage, who: str = "old", heir: str = "new") -> list[Effect]:
    return room.tell(events.ParticipantReplaced(who, heir, f"kernel-{heir}"))


def told(said: list[Effect]) -> dict[str, JobView]:
    return {each.job.job: each.job for each in said if isinstance(each, effects.AnnounceJob)}


def under(room: Stage, **rules: object) -> list[Effect]:
    return room.tell(events.PolicyChanged(Policy(**rules)))  # type: ignore[arg-type]


def order(room: Stage) -> list[str]:
    return room.conductor.waiting()


def busy(settings: Settings | None = None) -> Stage:
    """A stage whose GPU draws for somebody else."""
    room = stage(settings=settings)
    room.load("a")
    room.submit("a", "eve", job="drawn")
    return room


# jobs


def test_what_waits_and_what_runs_is_announced_as_the_heirs_at_the_place_where_it_was() -> None:
    room = stage()
    room.load("a")
    runs = room.submit("a", "old")
    waits = [room.submit("a", who) for who in ("old", "bob", "old")]
    before, places = {job: room.job(job) for job in (runs, *waits)}, order(room)
    said = told(replace(room))
    assert said.keys() == {runs, waits[0], waits[2]}
    for job, view in said.items():
        assert (view.participant, view.kernel) == ("new", "kernel-new")
        expected = msgspec.structs.replace(before[job], participant="new", kernel="kernel-new")
        assert view == expected == room.job(job)
    assert order(room) == places


def test_all_who_wait_are_announced_also_those_far_back() -> None:
    room = busy(Settings(queue_limit=100))
    jobs = {room.submit("a", "old") for _ in range(60)}
    assert told(replace(room)).keys() == jobs
    seen = room.conductor.snapshot(room.now).jobs
    assert {view.participant for view in seen} == {"eve", "new"}


def test_waiting_jobs_count_in_the_heirs_limit_and_none_is_lost_though_there_are_more() -> None:
    room = busy(Settings(queue_limit=2))
    jobs = [room.submit("a", who) for who in ("old", "new", "old", "new")]
    replace(room)
    full = room.refused(room.job_submitted("a", "new"))
    assert (full.kind, full.facts["waiting"], full.facts["limit"]) == ("queue_full", 4, 2)
    assert {*order(room)} == {*jobs}
    for _ in range(3):
        room.refused(room.job_submitted("a", "new"))
        room.answer()
    jobs.append(room.submit("a", "new"))
    room.settle()
    assert {room.state(job) for job in jobs} == {"done"}


def test_whoever_went_has_nothing_left_and_may_ask_as_somebody_new() -> None:
    room = busy(Settings(queue_limit=1))
    job = room.submit("a", "old")
    replace(room)
    assert told(room.tell(events.KernelGone("kernel-old"))) == {}
    own = room.submit("a", "old")
    gone = told(room.tell(events.KernelGone("kernel-new")))
    assert gone[job].state.value == "cancelled"
    assert order(room) == [own]


def test_of_a_batch_that_is_drawn_one_job_moves_and_the_other_does_not() -> None:
    room = stage()
    room.load("a")
    room.submit("a", "eve")
    asked = [room.job_submitted("a", who) for who in ("bob", "old")]
    for each in asked:
        room.tell(msgspec.structs.replace(each, group="alike"))
    room.answer()
    other, job = (each.job for each in asked)
    said = told(replace(room))
    assert said.keys() == {job}
    assert (said[job].participant, said[job].state.value, said[job].batch) == ("new", "running", 2)
    room.now += 8.0
    room.finish(other, batch=2)
    used_s = room.conductor.accounts().used_s
    assert used_s["bob"] == pytest.approx(used_s["new"] + 4.0)
    room.die()
    assert room.state(other) == "done"
    assert told(replace(room, "new", "newer"))[job].state.value == "queued"
    room.ready()
    room.settle()
    assert (room.job(job).participant, room.state(job)) == ("newer", "done")


def test_a_picture_that_is_being_made_into_a_file_moves_too() -> None:
    room = stage()
    room.load("a")
    job = room.submit("a", "old")
    room.now += 5.0
    room.take_order()
    room.tell(events.JobDrawn(job, 5.0))
    assert told(replace(room))[job].participant == "new"
    done = told(room.tell(events.JobFinished(job)))[job]
    assert (done.participant, done.state.value) == ("new", "done")


def test_whoever_takes_the_place_of_nobody_or_of_himself_changes_nothing() -> None:
    room = busy()
    room.submit("a", "ada")
    under(room, limits={"ada": 2}, priorities={"ada": Priority.HIGH})
    before, accounts = room.conductor.snapshot(room.now), room.conductor.accounts()
    for who, heir in (("ada", "ada"), ("unknown", "ada"), ("unknown", "unheard of")):
        assert replace(room, who, heir) == []
    assert room.conductor.snapshot(room.now) == before
    assert room.conductor.accounts() == accounts


@pytest.mark.parametrize(("drawn_s", "follows"), [(10, "run"), (25, "evict a")])
def test_the_patience_of_one_who_is_overtaken_goes_on(drawn_s: int, follows: str) -> None:
    """Overtaken once, 20 s are enough, whoever the job belongs to meanwhile."""
    room = stage(gb=40, settings=Settings(patience_s=20.0, min_residency_s=0.0))
    room.load("a")
    room.submit("a", "eve")
    cold, _, late = (room.submit(*asked) for asked in (("b", "old"), ("a", "bob"), ("a", "cleo")))
    room.answer()  # and bob's, which has its model, begins
    for second in range(drawn_s):
        if second == 5:
            replace(room)
        room.later(1.0)
    replace(room, "new", "newer")
    room.answer()
    assert room.order().startswith(follows)
    room.settle()
    assert (room.state(cold), room.state(late)) == ("done", "done")


def test_the_limit_of_the_time_of_waiting_goes_on() -> None:
    room = busy(Settings(wait_limit_s=40.0))
    job = room.submit("a", "old")
    room.later(30.0)
    replace(room)
    room.later(11.0)
    failed = room.job(job)
    assert failed.error is not None
    assert (failed.participant, failed.error.kind) == ("new", "time_limit")


def test_a_model_that_left_for_the_participant_left_for_the_heir() -> None:
    room = stage(gb=40)
    room.load("a")
    room.now += 100.0
    room.submit("b", "old")
    assert room.order() == "evict a"
    replace(room)
    gone = next(each for each in room.answer() if isinstance(each, effects.AnnounceSlot))
    assert (gone.slot.model, gone.participant) == ("a", "new")


def test_holds_and_reservations_stay_with_their_kernel() -> None:
    room = busy()
    room.hold("a", "old")
    for name, size_bytes in (("granted", GB), ("waits", None)):
        room.tell(events.ReservationAsked(name, "old", "kernel-old", size_bytes, None, 60.0))
    room.submit("a", "old")
    replace(room)
    seen = room.conductor.snapshot(room.now)
    assert [view.participant for view in (*seen.holds, *seen.reservations)] == ["old"] * 3
    waits = room.conductor.reservation("waits", room.now)
    assert waits.state is ReservationState.WAITING
    room.tell(events.KernelGone("kernel-old"))
    seen = room.conductor.snapshot(room.now)
    assert (seen.holds, seen.reservations) == ((), ())
    room.settle()


# rules


def test_what_the_instructor_set_is_the_heirs_and_nothing_begins_meanwhile() -> None:
    room = stage()
    room.load("a")
    rules = {"limits": {"old": 1}, "priorities": {"old": Priority.LOW}}
    under(room, **rules, notebooks={"old": "/faces.ipynb"}, paused="a moment")
    low, normal = room.submit("a", "old"), room.submit("a", "bob")
    under(room, **rules, notebooks={"old": "/faces.ipynb"})
    assert room.order() == f"run {normal}"
    said = replace(room)
    expected = Policy(
        limits={"new": 1}, priorities={"new": Priority.LOW}, notebooks={"new": "/faces.ipynb"}
    )
    assert [each.policy for each in said if isinstance(each, effects.AnnouncePolicy)] == [expected]
    assert room.conductor.snapshot(room.now).policy == expected
    assert room.job(low).priority is Priority.LOW
    assert room.refused(room.job_submitted("a", "new")).facts["limit"] == 1


def test_an_heir_keeps_its_own_rules_which_hold_for_what_it_inherits() -> None:
    room = busy()
    under(
        room,
        limits={"old": 1, "new": 2},
        priorities={"old": Priority.LOW, "new": Priority.HIGH},
    )
    low, bobs = room.submit("a", "old"), room.submit("a", "bob")
    assert order(room) == [bobs, low]
    said = told(replace(room))
    assert (said[low].priority, said[low].position) == (Priority.HIGH, 1)
    assert said[bobs].position == 2
    assert order(room) == [low, bobs]
    policy = room.conductor.snapshot(room.now).policy
    assert (policy.limits, policy.priorities) == ({"new": 2}, {"new": Priority.HIGH})


def test_without_rules_no_policy_is_announced() -> None:
    room = busy()
    room.submit("a", "old")
    assert not [each for each in replace(room) if isinstance(each, effects.AnnouncePolicy)]


def test_of_the_notebooks_the_heirs_is_the_last_to_be_forgotten() -> None:
    policy = Policy(notebooks={"old": "/a.ipynb", "other": "/b.ipynb"})
    assert [*policy.handed_over("old", "new").notebooks] == ["other", "new"]
    assert policy.handed_over("unknown", "new") == policy


# shares


LEVEL_S = 100.0


def shares_of(**used_s: float) -> Shares:
    """Active participants with these accounts; the level is that of one who has just begun."""
    shares = Shares()
    shares.restore(Accounts(LEVEL_S, dict(used_s)))
    for participant in used_s:
        shares.enter_again(participant, None)
    return shares


@pytest.mark.parametrize(
    ("old_s", "new_s", "both_s"),
    [
        (130.0, 120.0, 150.0),
        (130.0, 90.0, 120.0),
        (90.0, 130.0, 120.0),
        (90.0, 70.0, 70.0),
        (130.0, None, 130.0),
        (70.0, None, 70.0),
    ],
    ids=["both ahead", "one ahead", "the other", "both behind", "unknown", "unknown, behind"],
)
def test_gpu_seconds_above_the_level_add_up_and_nobody_is_owed_anything_twice(
    old_s: float, new_s: float | None, both_s: float
) -> None:
    shares = shares_of(old=old_s) if new_s is None else shares_of(old=old_s, new=new_s)
    shares.hand_over("old", "new", 1)
    assert shares.used_s("new") == shares.starts_s("new") == both_s
    assert shares.used_s("old") == 0.0  # unknown: it would start at the level
    for _ in range(1 if new_s is None else 2):
        shares.leave("new")
    assert shares.accounts([]).used_s == {"new": both_s}


def test_the_heir_is_there_as_long_as_one_of_all_its_jobs_is() -> None:
    shares = shares_of(old=150.0, new=LEVEL_S)
    shares.hand_over("old", "new", 1)
    shares.leave("new")
    shares.enter("new")  # from no pause, after which something would be forgiven
    assert shares.starts_s("new") == 150.0


def test_a_pause_of_either_is_not_saved_up() -> None:
    shares = shares_of(old=60.0, new=130.0)
    shares.leave("old")
    shares.hand_over("old", "new", 0)
    assert shares.used_s("new") == 130.0
    shares = shares_of(old=130.0, new=60.0)
    shares.leave("new")
    shares.hand_over("old", "new", 1)
    assert shares.used_s("new") == 130.0


def test_an_account_follows_though_no_job_does() -> None:
    """Else a new kernel would be the way to a new account."""
    shares = shares_of(old=150.0)
    shares.leave("old")
    shares.hand_over("old", "new", 0)
    shares.enter("new")
    assert shares.used_s("new") == 150.0
    assert shares.starts_s("new") == 150.0 - FORGIVEN_S


def test_what_is_forgiven_to_who_comes_back_is_forgiven_to_the_heir() -> None:
    shares = shares_of(old=150.0)
    shares.leave("old")
    shares.enter("old")
    shares.hand_over("old", "new", 1)
    assert (shares.used_s("new"), shares.starts_s("new")) == (150.0, 150.0 - FORGIVEN_S)
    shares.begin("new", 5.0)
    assert shares.starts_s("new") == 155.0


def test_what_runs_is_paid_and_corrected_on_the_heirs_account() -> None:
    room = stage()
    room.load("a")
    job = room.submit("a", "old")
    advance_s = room.conductor.accounts().used_s["old"]
    replace(room)
    assert room.conductor.accounts().used_s["new"] == advance_s
    assert "old" not in room.conductor.accounts().used_s
    room.now += 7.0
    room.answer()
    assert room.state(job) == "done"
    assert room.conductor.accounts().used_s["new"] == pytest.approx(advance_s + 7.0)


# the server's next life


def test_what_was_inherited_comes_back_as_the_heirs_in_the_same_order() -> None:
    room = busy(Settings(queue_limit=5))
    asked = [room.job_submitted("a", who) for who in ("old", "bob", "old", "new")]
    for each in asked:
        room.tell(each)
    replace(room)
    given = [
        msgspec.structs.replace(each, participant="new", kernel="kernel-new")
        if each.participant == "old"
        else each
        for each in asked
    ]
    again = Stage(Conductor(Settings(queue_limit=5), ("gpu0",), room.conductor.learned()))
    again.tell(events.CatalogueChanged((model("a"),)))
    restored = tuple(events.RestoredJob(each, 1.0) for each in given)
    again.tell(events.JobsRestored(restored, room.conductor.accounts()))
    assert order(again) == order(room)
