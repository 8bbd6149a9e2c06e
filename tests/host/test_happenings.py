"""What happened: from announcements to facts, to words."""

import pytest
from msgspec.structs import replace

from tests.conductor.laddered import laddered, loaded, ordered
from tests.conductor.staging import GB, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.states import DeviceState, JobState, ReservationState
from workshop_gpu.conductor.stepping import words_of
from workshop_gpu.host.happenings import (
    DeviceChanged,
    Evicted,
    Happenings,
    JobEnded,
    Loaded,
    LoadFailed,
    Offered,
    QueuePaused,
    Reserved,
)
from workshop_gpu.host.news import News, duration, in_words

NAMES = {"ann": "faces"}


class Watched:
    """A conductor on a stage, and what its announcements say that happened."""

    def __init__(self, room):
        self.room, self.seen = room, 0
        self.happenings = Happenings(Policy.of(room.conductor._state.settings))

    def news(self):
        """What happened since it was asked last."""
        said, self.seen = self.room.said[self.seen :], len(self.room.said)
        return [fact for effect in said for fact in self.happenings.see(effect, self.room.now)]


def words(happening):
    return in_words(happening, lambda participant: NAMES.get(participant, "somebody"))


def test_a_load_is_told_with_its_size_and_time():
    watched = Watched(stage())
    watched.room.submit("a")
    assert watched.news() == []
    watched.room.later(3.0)
    watched.room.answer()
    (told,) = [each for each in watched.news() if isinstance(each, Loaded)]
    assert (told.device, told.model, told.size_bytes) == ("gpu0", "a", 30 * GB)
    assert told.seconds_s == 3.0
    assert words(told) == "a was loaded on gpu0 in 3.0 s (30.0 GB)"


def test_a_model_on_a_lower_rung_and_one_that_is_placed_anew_say_where_their_weights_are():
    watched = Watched(stage(laddered(), gb=48))
    room = watched.room
    room.foreign(36)
    job = room.submit("large")
    streamed = words_of(ordered(room))
    while room.order().startswith("load"):
        loaded(room)
    room.take_order("gpu0", "run")
    room.finish(job, 24.0)
    *_, first = [each for each in watched.news() if isinstance(each, Loaded)]
    assert first.before == ""
    assert words(first).endswith(f", {streamed})")
    room.foreign(0)
    room.later(10.0)
    assert room.order() == "load large"
    assert not [each for each in watched.news() if isinstance(each, Loaded)]
    loaded(room)
    (climbed,) = [each for each in watched.news() if isinstance(each, Loaded)]
    assert (climbed.before, climbed.placement) == (streamed, "everything on the GPU")
    assert words(climbed) == (
        "large was placed anew on gpu0 in 1.0 s: everything on the GPU (27.4 GB)"
    )


def test_a_model_that_left_and_came_again_was_loaded():
    watched = Watched(stage(model("a", keep_warm_s=60.0)))
    watched.room.load("a")
    watched.room.later(60.0)
    watched.room.answer()
    watched.room.load("a")
    told = [words(each) for each in watched.news() if isinstance(each, Loaded)]
    assert [text.startswith("a was loaded on gpu0") for text in told] == [True, True]


def test_an_eviction_says_how_much_for_whom_and_how_long_nobody_used_it():
    watched = Watched(stage(model("sd35-large"), model("turbo"), gb=40))
    room = watched.room
    room.load("sd35-large")
    room.later(720.0)
    room.submit("turbo", who="ann")
    room.answer()
    (gone,) = [each for each in watched.news() if isinstance(each, Evicted)]
    assert gone.freed_bytes == 30 * GB
    assert (gone.model, gone.participant, gone.idle_s) == ("sd35-large", "ann", 720.0)
    assert words(gone) == (
        "30.0 GB of sd35-large evicted to make room for turbo, for faces; "
        "it had been idle for 12 min"
    )


def test_an_eviction_for_nobody_names_nobody():
    watched = Watched(stage(model("a", keep_warm_s=60.0)))
    watched.room.load("a")
    watched.room.later(60.0)
    watched.room.answer()
    (gone,) = [each for each in watched.news() if isinstance(each, Evicted)]
    assert words(gone) == "30.0 GB of a evicted (not used for 60 s)"


def test_the_end_of_a_job_is_a_fact_with_its_times_and_no_news():
    watched = Watched(stage())
    room = watched.room
    room.load("a")
    job = room.submit("a", who="ann")
    room.later(5.0)
    room.answer()
    *_, ended = [each for each in watched.news() if isinstance(each, JobEnded)]
    assert (ended.job, ended.participant, ended.outcome) == (job, "ann", JobState.DONE)
    assert (ended.wait_s, ended.gpu_s) == (0.0, 5.0)
    assert words(ended) == ""


def test_a_job_that_never_began_has_no_wait():
    watched = Watched(stage())
    job = watched.room.submit("a")
    watched.room.tell(events.JobCancelled(job))
    (ended,) = [each for each in watched.news() if isinstance(each, JobEnded)]
    assert (ended.outcome, ended.wait_s, ended.gpu_s) == (JobState.CANCELLED, None, 0.0)


def test_a_load_that_fails_is_told_with_its_reason_once():
    watched = Watched(stage())
    watched.room.submit("a")
    error = ErrorReport("load_failed", "The file is damaged.")
    watched.room.tell(events.LoadFailed("gpu0", "a", error))
    (failed,) = [each for each in watched.news() if isinstance(each, LoadFailed)]
    assert words(failed) == "a could not be loaded on gpu0: The file is damaged."


def test_a_worker_that_ends_and_comes_back_is_told_and_its_first_start_is_not():
    watched = Watched(stage())
    assert watched.news() == []
    watched.room.die()
    changes = [each for each in watched.news() if isinstance(each, DeviceChanged)]
    assert [each.state for each in changes] == [DeviceState.STARTING]
    assert words(changes[0]) == "The worker of gpu0 is being started again (killed)"
    watched.room.tell(events.DeviceReady("gpu0", 80 * GB, 0))
    changes = [each for each in watched.news() if isinstance(each, DeviceChanged)]
    assert [words(each) for each in changes] == ["gpu0 works again"]


def test_a_device_that_is_given_up_is_told_with_the_reason_and_whether_it_is_tried_again():
    watched = Watched(stage(devices=("gpu0", "gpu1")))
    watched.room.tell(events.DeviceGone("gpu0", "the driver reported Xid 79", 60.0))
    watched.room.tell(events.DeviceGone("gpu1", "it is no longer there"))
    changes = [each for each in watched.news() if isinstance(each, DeviceChanged)]
    assert [words(each) for each in changes] == [
        "gpu0 cannot be used (the driver reported Xid 79); it is tried again every 60 s",
        "gpu1 cannot be used (it is no longer there)",
    ]


def test_rules_are_told_as_they_change():
    happenings, policy = Happenings(Policy()), Policy()
    paused = replace(policy, paused="lunch", withdrawn={"a": "slow"})
    happened = happenings.see(effects.AnnouncePolicy(paused), 0.0)
    assert happened == [QueuePaused("lunch"), Offered("a", "slow")]
    assert [words(each) for each in happened] == [
        "The queue is paused: lunch",
        "a is no longer offered: slow",
    ]
    happened = happenings.see(effects.AnnouncePolicy(policy), 0.0)
    assert [words(each) for each in happened] == ["The queue goes on", "a is offered again"]
    assert happenings.see(effects.AnnouncePolicy(policy), 0.0) == []


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (events.GIVEN_BACK, "faces gave back 8.0 GB of gpu0"),
        (events.TAKEN_AWAY, "The instructor took 8.0 GB of gpu0 away from faces"),
        ("its time was over", "faces no longer has 8.0 GB of gpu0 (its time was over)"),
    ],
)
def test_a_reservation_is_told_when_it_is_granted_and_over_not_when_renewed(why, said):
    happenings = Happenings(Policy())
    view = effects.ReservationView(
        "r", "ann", "k", None, 8 * GB, ReservationState.WAITING, 1, None, 60.0
    )
    granted = replace(view, state=ReservationState.GRANTED, device="gpu0")
    assert happenings.see(effects.AnnounceReservation(view), 0.0) == []
    (first,) = happenings.see(effects.AnnounceReservation(granted), 0.0)
    assert words(first) == "faces has 8.0 GB of gpu0 for code of their own"
    assert happenings.see(effects.AnnounceReservation(granted), 0.0) == []
    (last,) = happenings.see(effects.AnnounceReservation(granted, why), 0.0)
    assert words(last) == said
    assert happenings.see(effects.AnnounceReservation(view, "given up"), 0.0) == []


def test_only_the_last_news_are_kept_newest_first():
    news = News(lambda participant: "", now=lambda: 5.0)
    for number in range(70):
        news.note(QueuePaused(f"break {number}"))
    assert len(news.items) == 50
    assert news.items[0].text == "The queue is paused: break 69"
    assert news.note(Reserved("r", "", "gpu0", None, "")).text.startswith(" has all of gpu0")


def test_durations_are_said_as_people_say_them():
    said = [duration(each) for each in (0.44, 12.4, 119, 720, 7300)]
    assert said == ["0.4 s", "12 s", "119 s", "12 min", "2 h"]
