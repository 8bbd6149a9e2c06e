"""What the instructor changes while the server runs."""

import math

import msgspec
import pytest

from tests.conductor.laddered import laddered, notices, ordered
from tests.conductor.staging import GB, Stage, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Conductor, Settings
from workshop_gpu.conductor.errors import InvalidPolicy
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.offering import class_of
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.rungs import DENOISER, RoleBytes
from workshop_gpu.conductor.states import Priority

SWAPS = MemorySettings(swap_device="gpu1")


def change(room: Stage, **what: object) -> list[effects.Effect]:
    policy = room.conductor.snapshot(room.now).policy
    return room.tell(events.PolicyChanged(msgspec.structs.replace(policy, **what)))


def test_a_change_is_announced_and_seen() -> None:
    room = stage()
    new = change(room, patience_s=30.0)
    policy = room.conductor.snapshot(room.now).policy
    assert policy.patience_s == 30.0
    assert effects.AnnouncePolicy(policy) in new


def test_without_a_policy_the_settings_count() -> None:
    settings = Settings(patience_s=5.0, queue_limit=7, min_residency_s=10.0)
    policy = Conductor(settings).snapshot(0.0).policy
    assert (policy.patience_s, policy.queue_limit) == (5.0, 7)
    policy.check()


def test_a_policy_that_was_kept_counts_again() -> None:
    kept = Policy(queue_limit=1, withdrawn={"a": "too slow"}, paused="lunch")
    decoded = msgspec.json.decode(msgspec.json.encode(kept), type=Policy)
    room = Stage(Conductor(Settings(), ("gpu0",)))
    room.tell(events.CatalogueChanged((model("a"), model("b"))))
    room.tell(events.PolicyChanged(decoded))
    room.ready()
    assert room.refused(room.job_submitted("a")).kind == "model_disabled"
    room.submit("b")
    assert room.refused(room.job_submitted("b")).kind == "queue_full"
    assert room.order() == ""


# the queue


def test_a_paused_queue_finishes_what_runs_and_begins_nothing() -> None:
    room = stage()
    room.load("a")
    running = room.submit("a", "ada")
    change(room, paused="We talk for ten minutes")
    warm, cold = room.submit("a", "bob"), room.submit("b", "cleo")
    room.answer()
    assert room.state(running) == "done"
    assert room.orders == {}
    for job in (warm, cold):
        assert room.job(job).waiting_for == "pause"
        assert room.job(job).reason == "The queue is paused: We talk for ten minutes."
    change(room, paused="")
    assert room.orders_of() == [f"run {warm}", "load b"]


def test_the_limit_of_waiting_jobs_can_differ_for_one_participant() -> None:
    room = stage()
    change(room, limits={"ada": 1, "eve": 0})
    room.submit("a", "ada")
    assert room.refused(room.job_submitted("a", "ada")).kind == "queue_full"
    assert room.refused(room.job_submitted("a", "eve")).facts["limit"] == 0
    for _ in range(3):
        room.submit("a", "bob")


def test_another_class_for_a_participant_counts_for_waiting_jobs_too() -> None:
    room = stage()
    room.load("a")
    room.submit("a", "ada")
    bobs, cleos = room.submit("a", "bob"), room.submit("a", "cleo")
    change(room, priorities={"cleo": Priority.HIGH})
    assert room.job(cleos).priority is Priority.HIGH
    assert room.job(cleos).position == 1
    room.answer()
    assert room.order() == f"run {cleos}"
    change(room, priorities={"bob": Priority.LOW})
    assert room.job(bobs).priority is Priority.LOW
    change(room, priorities={})
    assert room.job(bobs).priority is Priority.NORMAL


@pytest.mark.parametrize(
    ("own", "asked", "counts"),
    [
        (Priority.HIGH, Priority.NORMAL, Priority.HIGH),
        (Priority.HIGH, Priority.BATCH, Priority.BATCH),
        (Priority.BATCH, Priority.NORMAL, Priority.BATCH),
        (Priority.BATCH, Priority.LOW, Priority.BATCH),
        (Priority.LOW, Priority.URGENT, Priority.URGENT),
    ],
)
def test_nobody_gets_a_better_class_by_asking_for_a_worse_one(
    own: Priority, asked: Priority, counts: Priority
) -> None:
    assert class_of(Policy(priorities={"ada": own}), "ada", asked) is counts


@pytest.mark.parametrize(
    ("before_s", "from_now_s", "begins_s"),
    [(600.0, 5.0, 25.0), (5.0, 600.0, 40.0), (600.0, 600.0, 40.0)],
    ids=["shorter", "longer", "the same"],
)
def test_a_new_patience_counts_for_jobs_that_are_overtaken_already(
    before_s: float, from_now_s: float, begins_s: float
) -> None:
    """One is overtaken by warm jobs of five seconds; the patience is never more than six loads,
    which take six seconds each."""
    room = stage(gb=40, settings=Settings(patience_s=max(before_s, 25.0), min_residency_s=0.0))
    room.load("a")
    room.submit("a", "bob")
    room.submit("b", "cleo")
    begun_s = room.now
    while not any(order.startswith(("load", "evict")) for order in room.orders_of()):
        room.submit("a", f"person-{room.now}")
        for _ in range(5):
            room.later(1.0)
        room.answer(which="run")
        if room.now - begun_s == 20.0:
            change(room, patience_s=from_now_s, min_residency_s=0.0)
    assert room.now - begun_s == begins_s


# models


def test_a_withdrawn_model_is_refused_with_the_reason_and_leaves_when_idle() -> None:
    room = stage()
    room.load("a")
    change(room, withdrawn={"a": "one model is enough today"})
    assert room.order() == "evict a"
    report = room.refused(room.job_submitted("a"))
    assert report.kind == "model_disabled"
    assert "one model is enough today" in report.message
    change(room, withdrawn={})
    room.answer()
    room.submit("a")
    assert room.order() == "load a"


def test_jobs_that_wait_for_a_model_are_drawn_though_it_is_withdrawn_meanwhile() -> None:
    room = stage()
    job = room.submit("a")
    change(room, withdrawn={"a": "enough"})
    room.settle()
    assert room.state(job) == "done"


def test_pins_and_keep_warm_times_go_before_the_catalogue_s() -> None:
    room = stage(model("a", pinned=True, keep_warm_s=5.0), model("b", keep_warm_s=5.0))
    room.answer()
    change(room, pinned={"a": False, "b": True}, keep_warm_s={"a": 60.0})
    assert room.order() == "load b"
    room.answer()
    room.later(59.0)
    assert room.order() == ""
    room.later(2.0)
    assert room.order() == "evict a"
    room.answer()
    room.later(1000.0)
    assert room.models() == ["b"]


def test_what_the_policy_says_stays_when_the_catalogue_is_read_again() -> None:
    room = stage()
    change(room, withdrawn={"a": "enough"})
    room.tell(events.CatalogueChanged((model("a", gb=20.0), model("b"))))
    assert room.refused(room.job_submitted("a")).kind == "model_disabled"
    change(room, withdrawn={})
    room.submit("a")
    assert room.order() == "load a"


def test_a_model_that_left_the_catalogue_does_not_spoil_the_policy_that_names_it() -> None:
    room = stage()
    change(room, pinned={"c": True})
    room.tell(events.CatalogueChanged((model("a"), model("b"))))
    change(room, patience_s=15.0)
    new = msgspec.structs.replace(Policy(), keep_warm_s={"typo": 5.0})
    assert room.refused(events.PolicyChanged(new)).kind == "model_unknown"


# contradictions


@pytest.mark.parametrize(
    "policy",
    [
        Policy(patience_s=-1.0),
        Policy(patience_s=math.nan),
        Policy(patience_s=math.inf),
        Policy(min_residency_s=-0.1),
        Policy(patience_s=5.0, min_residency_s=10.0),
        Policy(queue_limit=0),
        Policy(queue_limit=10**9),
        Policy(keep_warm_s={"a": -2.0}),
        Policy(placements={"a": "upstairs"}),
        Policy(limits={"ada": -1}),
        Policy(limits={"x" * 10_000: 1}),
        Policy(priorities={"a\x00b": Priority.HIGH}),
        Policy(withdrawn={"a": "x" * 10_000}),
        Policy(paused="two\nlines"),
        Policy(withdrawn={"a": "enough"}, pinned={"a": True}),
    ],
)
def test_a_policy_that_cannot_be_is_refused_and_nothing_changes(policy: Policy) -> None:
    with pytest.raises(InvalidPolicy):
        policy.check()
    assert stage().refused(events.PolicyChanged(policy)).kind == "invalid_policy"


def test_a_pinned_model_is_not_withdrawn_and_the_answer_says_what_to_do() -> None:
    made = stage()
    change(made, pinned={"a": True})
    report = made.refused(events.PolicyChanged(Policy(pinned={"a": True}, withdrawn={"a": ""})))
    assert "unpin it, or offer it, first" in report.message


def test_a_pin_that_has_no_room_beside_the_others_is_refused_with_the_numbers() -> None:
    made = stage()
    change(made, pinned={"a": True, "b": True})
    new = Policy(pinned={"a": True, "b": True, "c": True})
    report = made.refused(events.PolicyChanged(new))
    assert report.kind == "invalid_policy"
    assert "a (30.0 GB), b (30.0 GB), c (30.0 GB)" in report.message
    assert "79.0 GB" in report.message
    change(made, pinned={"a": True, "c": True})


def test_pins_of_the_catalogue_count_beside_the_instructor_s() -> None:
    made = stage(model("a", 45, pinned=True), model("b", 45))
    assert "a (45.0 GB)" in made.refused(events.PolicyChanged(Policy(pinned={"b": True}))).message
    change(made, pinned={"a": False, "b": True})


def test_a_pin_of_what_no_gpu_can_hold_is_refused() -> None:
    made = stage(model("a", 100), model("b"))
    assert (
        "a needs at least" in made.refused(events.PolicyChanged(Policy(pinned={"a": True}))).message
    )


def test_on_several_gpus_pins_are_refused_only_where_no_way_to_spread_them_is_left() -> None:
    """The largest first, each to the first GPU with room for it, would leave none for the last of
    the first six: 26 and 21 are together then, and so are 21, 14 and 14."""
    sizes = {"p": 26, "q": 21, "r": 21, "s": 14, "t": 14, "u": 12}
    two = ("gpu0", "gpu1")
    made = stage(*(model(name, gb) for name, gb in sizes.items()), devices=two, gb=58)
    change(made, pinned=dict.fromkeys(sizes, True))
    three = stage(devices=two, gb=50)
    policy = Policy(pinned={"a": True, "b": True, "c": True})
    assert "49.0 GB and 49.0 GB" in three.refused(events.PolicyChanged(policy)).message
    change(three, pinned={"a": True, "b": True})


def test_pins_that_share_weights_or_can_be_streamed_are_not_refused() -> None:
    made = stage(laddered("large"), laddered("twin"), gb=40)
    change(made, pinned={"large": True, "twin": True})
    resident = {"large": "resident", "twin": "resident"}
    policy = Policy(pinned={"large": True, "twin": True}, placements=resident)
    assert made.refused(events.PolicyChanged(policy)).facts["field"] == "pinned"


def test_before_gpus_have_told_their_sizes_and_of_unknown_models_nothing_is_refused() -> None:
    early = Stage(Conductor(Settings(), ("gpu0",)))
    early.tell(events.CatalogueChanged((model("a"), model("b"), model("c"))))
    change(early, pinned={"a": True, "b": True, "c": True})
    unknown = stage(events.ModelFacts("flux-a"), events.ModelFacts("flux-b"), gb=24)
    change(unknown, pinned={"flux-a": True, "flux-b": True})


def test_pins_that_became_impossible_are_told_of_once_and_forbid_no_other_change() -> None:
    made = stage(model("a"), model("b"))
    change(made, pinned={"a": True, "b": True})
    assert not notices(made)
    made.tell(events.CatalogueChanged((model("a"), model("b", 60))))
    made.tell(events.CatalogueChanged((model("a"), model("b", 60), model("c"))))
    (told,) = notices(made)
    assert "b (60.0 GB)" in told
    change(made, patience_s=15.0)
    assert notices(made) == [told]
    change(made, pinned={"a": True})
    change(made, keep_warm_s={"a": 5.0})
    assert notices(made) == [told]


def test_a_rung_that_the_model_does_not_have_is_refused_at_once() -> None:
    whole = events.ModelFacts("whole", file_bytes=10 * GB, roles=(RoleBytes(DENOISER, 10 * GB),))
    made = stage(whole, laddered("large"), model("a"))
    for rung in ("staged-streamed", "tiled"):
        report = made.refused(events.PolicyChanged(Policy(placements={"whole": rung})))
        assert (report.kind, report.facts["field"]) == ("invalid_policy", "placements")
        assert "whole" in report.message
    change(made, placements={"large": "staged-streamed", "a": "tiled"})


@pytest.mark.parametrize("rung", ["swap-encoders", "swap-streamed", "swap-both"])
def test_a_rung_that_takes_another_gpu_is_refused_where_the_model_names_none(rung: str) -> None:
    gpus = ("gpu0", "gpu1")
    whole = model("whole")
    made = stage(laddered("large"), laddered("twin", SWAPS), whole, devices=gpus)
    for name in ("large", "whole"):
        report = made.refused(events.PolicyChanged(Policy(placements={name: rung})))
        assert (report.kind, report.facts["field"]) == ("invalid_policy", "placements")
        assert f'swap_device of "{name}"' in report.message
        assert "cuda:1" in report.message
    change(made, placements={"twin": rung})
    made.submit("twin")
    assert ordered(made).source == "gpu1"


@pytest.mark.parametrize(
    ("rung", "memory", "field"),
    [
        ("resident", MemorySettings(max_vram_bytes=16 * GB), "max_vram_gb"),
        ("swap-encoders", MemorySettings(swap_device="gpu7"), "swap_device"),
        ("all-streamed", MemorySettings(prefetch=16, swap_space_bytes=70 * GB), "swap_space_gb"),
    ],
)
def test_a_rung_that_could_draw_no_picture_with_the_model_s_settings_is_refused(
    rung: str, memory: MemorySettings, field: str
) -> None:
    made = stage(laddered("large", memory))
    report = made.refused(events.PolicyChanged(Policy(placements={"large": rung})))
    assert report.facts["field"] == "placements"
    assert field in report.message


def test_a_rung_is_not_refused_for_what_is_wrong_without_it() -> None:
    made = stage(laddered("large", MemorySettings(swap_space_bytes=100 * GB)))
    change(made, placements={"large": "resident"})
