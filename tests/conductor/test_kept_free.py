"""What stays free beside a model: also when others come after it, to the same GPU."""

from tests.conductor.laddered import laddered, loaded, ordered, work
from tests.conductor.staging import GB, MEGAPIXEL, Stage, model, stage
from workshop_gpu.conductor import events
from workshop_gpu.conductor.ledger import Ledger
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.rungs import RESIDENT


def careful(name: str = "small", gb: int = 10, placement: str = "auto") -> events.ModelFacts:
    """A model beside which so much stays free."""
    return laddered(name, MemorySettings(placement, min_free_bytes=gb * GB))


def kept(made: Stage) -> dict[str, float]:
    """What stays free, in GB, by the model for whose sake."""
    held = made.conductor.snapshot(made.now).devices[0].holders
    return {each.name: each.bytes / GB for each in held if each.kind == "kept_free"}


def draw(made: Stage, name: str, who: str = "ada", pixels: int = MEGAPIXEL) -> None:
    """The model comes, if it is not there, and draws a picture; never is anything taken that
    should stay free."""
    job = made.submit(name, who, pixels)
    while made.order() != f"run {job}":
        assert made.order(), made.job(job).reason
        assert made.free_gb() >= 0
        work(made, "gpu0")
    assert made.free_gb() >= 0
    made.answer()


def test_a_model_that_comes_later_leaves_free_what_is_to_stay_so_beside_one_that_is_held() -> None:
    made = stage(careful(), laddered("large"), gb=40)
    made.hold("small")
    loaded(made)
    assert kept(made) == {"small": 10}
    made.submit("large", "bob")
    assert ordered(made) != RESIDENT, "4 + 27.5 GB and a picture would leave less than 10 of 39"
    assert made.free_gb() >= 0
    draw(made, "large", "bob")
    assert made.models() == ["small", "large"]
    assert kept(made) == {"small": 10}


def test_a_model_as_a_whole_waits_for_what_stays_free_beside_one_that_is_held() -> None:
    made = stage(careful(), model("a", 27), gb=40)
    made.hold("small")
    loaded(made)
    job = made.submit("a", "bob")
    assert made.order() == ""
    said = "small is held by 1 notebook(s); 10.0 GB stay free beside small (min_free_gb)."
    assert made.job(job).reason == said
    made.tell(events.HoldDropped("hold"))
    assert made.order() == "evict small"


def test_pictures_of_another_model_leave_it_free_too() -> None:
    made = stage(careful(), laddered("middle"), gb=28)
    made.hold("small")
    loaded(made)
    for megapixels in (1, 9, 4):
        draw(made, "middle", "bob", megapixels * MEGAPIXEL)


def test_an_idle_model_leaves_with_what_stayed_free_beside_it() -> None:
    """Its weights alone would not make the room."""
    made = stage(careful("small", 30), laddered("large", MemorySettings("resident")), gb=40)
    draw(made, "small")
    made.later(60)
    made.submit("large", "bob")
    assert made.order() == "evict small"
    made.answer()
    assert kept(made) == {}
    assert ordered(made) == RESIDENT


def test_what_two_models_want_to_stay_free_does_not_add_up() -> None:
    made = stage(careful("small", 10), careful("middle", 12), gb=32)
    made.hold("small")
    loaded(made)
    made.submit("middle", "bob")
    assert ordered(made) == RESIDENT, "4 + 11 + 12 GB and a picture are less than 32; 10 more not"
    loaded(made)
    made.answer()
    assert kept(made) == {"middle": 12}
    draw(made, "small", "cleo")
    made.tell(events.EvictionAsked("middle"))
    assert kept(made) == {"small": 10}


def test_the_one_that_wants_less_comes_beside_the_other_without_more() -> None:
    made = stage(careful("middle", 12), careful("small", 10), gb=32)
    made.hold("middle")
    loaded(made)
    made.submit("small", "bob")
    assert ordered(made) == RESIDENT
    loaded(made)
    made.answer()
    assert made.models() == ["middle", "small"]
    assert kept(made) == {"middle": 12}


def test_it_makes_room_for_what_it_wants_where_the_idle_one_that_leaves_wanted_it_as_well() -> None:
    """What stays free beside both does not come free when one of them leaves: else that one would
    leave for nothing."""
    resident = laddered("large", MemorySettings("resident", min_free_bytes=6 * GB))
    made = stage(careful("small", 10), careful("middle", 12), resident, gb=40)
    draw(made, "small")
    draw(made, "middle")
    made.later(60)
    draw(made, "large", "bob")
    assert made.models() == ["large"]


def test_a_change_of_what_stays_free_counts_at_once_for_others() -> None:
    made = stage(careful("small", 10), laddered("large"), gb=40)
    draw(made, "small")
    made.tell(events.CatalogueChanged((careful("small", 4), laddered("large"))))
    assert kept(made) == {"small": 4}
    made.tell(events.CatalogueChanged((laddered("small"), laddered("large"))))
    assert kept(made) == {}


def test_a_model_whose_load_failed_keeps_nothing_free() -> None:
    made = stage(careful())
    made.submit("small")
    assert kept(made) == {"small": 10}
    made.fail()
    assert kept(made) == {}


def test_a_worker_that_ends_leaves_nothing_that_stays_free() -> None:
    made = stage(careful())
    draw(made, "small")
    made.die()
    assert kept(made) == {}


def test_a_reservation_waits_for_what_stays_free_and_takes_it_with_an_idle_model() -> None:
    made = stage(careful("small", 10), gb=40)
    made.hold("small")
    loaded(made)
    made.tell(events.ReservationAsked("room", "bob", "k-bob", 30 * GB, "gpu0"))
    view = made.conductor.snapshot(made.now).reservations[0]
    assert "10.0 GB stay free beside small (min_free_gb)" in view.reason
    made.tell(events.HoldDropped("hold"))
    made.later(60)
    assert made.order() == "evict small"


def test_the_account_names_who_wants_the_most_and_counts_nobody_else() -> None:
    account = Ledger(margin_fraction=0.05, margin_max_bytes=GB)
    account.open(80 * GB, 0)
    for name, weights, free in (("a", 30, 4), ("b", 20, 6), ("c", 10, 0)):
        account.set_weights(name, weights * GB)
        account.keep_free(name, free * GB)
    named = [(each.name, each.bytes) for each in account.holders() if each.kind == "kept_free"]
    assert named == [("b", 6 * GB)]
    assert account.free_bytes == (80 - 1 - 60 - 6) * GB
    assert account.freed_bytes(["b"]) == 22 * GB
    assert account.freed_bytes(["a"]) == 30 * GB
    assert account.freed_bytes(["a", "b"]) == 56 * GB
    assert account.free_for("d", 5 * GB) == (80 - 1 - 60 - 6 + 5) * GB
    assert account.freed_bytes(["b"], (), "d", 5 * GB) == 21 * GB
    account.start_freeing("b")
    assert account.free_bytes == (80 - 1 - 60 - 4) * GB
