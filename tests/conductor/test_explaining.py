"""The planner's reasons, as people are shown them."""

import msgspec
import pytest

from tests.conductor.laddered import laddered, loaded, notices, ordered
from tests.conductor.staging import GB, MEGAPIXEL, Stage, stage
from workshop_gpu.client.plans import PlanTable
from workshop_gpu.conductor import events
from workshop_gpu.conductor.errors import DeviceUnknown, ModelUnknown, WorkshopError
from workshop_gpu.conductor.explaining import PlanView
from workshop_gpu.conductor.ladder import RUNGS
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.planning import Size
from workshop_gpu.conductor.policy import Policy


def explained(made: Stage, model: str = "large", side: int = 1024) -> PlanView:
    return made.conductor.plan(model, Size(side * side, 1, 28), made.now)


def test_each_rung_has_its_numbers_and_one_is_chosen() -> None:
    view = explained(stage(laddered(), gb=24))
    (chosen,) = [rung for rung in view.rungs if rung.chosen]
    assert chosen.needed_bytes <= view.room_bytes
    assert chosen.exact
    assert all(rung.needed_bytes == rung.weights_bytes + rung.working_bytes for rung in view.rungs)
    whole = view.rungs[0]
    assert whole.rung == "resident"
    assert whole.why.endswith("are missing")
    assert all(rung.why for rung in view.rungs)


@pytest.mark.parametrize(
    ("memory", "because"),
    [
        (MemorySettings(prefetch=16), "17 buffers of 1.0 GB hold all 16.0 GB"),
        (MemorySettings(swap_space_bytes=17 * GB), "2 buffers of 8.5 GB hold all"),
    ],
    ids=["prefetch", "swap space"],
)
def test_buffers_that_leave_nothing_to_be_streamed_are_named(
    memory: MemorySettings, because: str
) -> None:
    view = explained(stage(laddered("blockless", memory=memory), gb=18), "blockless")
    assert not [rung for rung in view.rungs if rung.rung == "streamed"]
    (note,) = [note for note in view.notes if "its denoiser are left out" in note]
    assert because in note
    assert note.endswith("(prefetch, swap_space_gb).")
    usual = explained(stage(laddered("blockless"), gb=18), "blockless")
    assert not [note for note in usual.notes if "left out" in note]


def test_of_rungs_that_come_to_the_same_the_one_that_was_named_is_shown() -> None:
    """With so much virtual memory whatever streams the denoiser streams all of it."""
    whole = MemorySettings(virtual_vram_bytes=16 * GB)
    memory = msgspec.structs.replace(whole, placement="all-streamed")
    view = explained(stage(laddered("blockless", memory)), "blockless")
    (chosen,) = [rung.rung for rung in view.rungs if rung.chosen]
    assert chosen == "all-streamed"
    shown = [rung.rung for rung in view.rungs]
    assert shown == sorted(shown, key=[rung.name for rung in RUNGS].index)
    unnamed = explained(stage(laddered("blockless", whole)), "blockless")
    assert "all-streamed" not in [rung.rung for rung in unnamed.rungs]


def test_the_rung_that_is_chosen_is_the_one_that_is_loaded() -> None:
    made = stage(laddered(), gb=24)
    chosen = next(rung for rung in explained(made).rungs if rung.chosen)
    made.submit("large")
    loaded(made)
    made.answer()
    assert explained(made).placement == chosen.words


@pytest.mark.parametrize("gb", [14, 16, 20, 24, 28, 33])
@pytest.mark.parametrize(
    ("idle", "model"), [("large", "middle"), ("large", "small"), ("middle", "large")]
)
def test_beside_an_idle_model_it_tells_what_is_done_and_who_leaves_for_it(
    idle: str, model: str, gb: float
) -> None:
    made = stage(laddered("large"), laddered("middle"), laddered("small"), gb=gb)
    made.submit(idle)
    loaded(made)
    made.answer()
    made.later(60.0)
    while made.order():
        loaded(made)
    chosen = PlanTable(explained(made, model)).chosen
    assert chosen is not None
    made.submit(model)
    leaves = made.order() == f"evict {idle}"
    assert chosen.why.startswith("chosen: the fastest that fits")
    assert (f"after {idle} leaves" in chosen.why) == leaves
    assert ("s to come back" in chosen.why) == leaves
    if leaves:
        made.answer()
    assert chosen.streamed_bytes == ordered(made).streamed_bytes
    loaded(made)
    assert made.slot(model).bytes == chosen.weights_bytes


@pytest.mark.parametrize("name", ["large", "middle", "small", "blockless"])
def test_on_an_empty_card_it_tells_what_is_loaded(name: str) -> None:
    """Also where another rung would draw faster, and its way there takes longer than that saves."""
    told = 0
    for half_gb in range(8, 64, 3):
        for memory in (MemorySettings(), MemorySettings(prefetch=2, min_free_bytes=GB // 2)):
            made = stage(laddered(name, memory=memory), gb=half_gb / 2)
            try:
                view = explained(made, name)
            except WorkshopError:
                continue
            chosen = PlanTable(view).chosen
            if chosen is None:
                continue
            for rung in view.rungs:
                if rung.why == "fits, and is no faster":
                    assert rung.expected_s >= chosen.expected_s
            made.submit(name)
            assert ordered(made).streamed_bytes == chosen.streamed_bytes
            loaded(made)
            assert made.slot(name).bytes == chosen.weights_bytes
            told += 1
    assert told > 10


def test_its_own_weights_are_not_in_its_way() -> None:
    made = stage(laddered(), gb=32)
    before = explained(made)
    made.submit("large")
    loaded(made)
    made.answer()
    after = explained(made)
    assert (after.room_bytes, after.rungs[0].chosen) == (before.room_bytes, True)


def test_a_rung_that_was_named_is_the_only_one_that_is_taken() -> None:
    memory = MemorySettings(placement="staged")
    view = explained(stage(laddered(memory=memory)))
    assert [rung.rung for rung in view.rungs if rung.chosen] == ["staged"]
    assert view.rungs[0].why == "only where it is asked for by name"


@pytest.mark.parametrize(
    ("catalogue", "policy", "job", "rung", "why"),
    [
        ("auto", "", "", "resident", "chosen: the fastest that fits"),
        ("staged", "", "", "staged", "chosen: named in models.toml or as default_placement"),
        ("staged", "aggressive", "", "staged-all", "chosen: named by the instructor"),
        ("staged", "auto", "", "resident", "chosen: the fastest that fits"),
        ("staged", "aggressive", "tiled", "tiled", "chosen: named with the job"),
        ("staged", "aggressive", "auto", "resident", "chosen: the fastest that fits"),
    ],
)
def test_it_says_who_named_the_rung_that_is_taken(
    catalogue: str, policy: str, job: str, rung: str, why: str
) -> None:
    made = stage(laddered(memory=MemorySettings(placement=catalogue)))
    if policy:
        made.tell(events.PolicyChanged(Policy(placements={"large": policy})))
    view = made.conductor.plan("large", Size(MEGAPIXEL, 1, 28, job), made.now)
    assert [(each.rung, each.why) for each in view.rungs if each.chosen] == [(rung, why)]


def test_it_says_that_a_model_of_unknown_parts_is_placed_as_was_named_later() -> None:
    named = events.ModelFacts("plain", file_bytes=GB, memory=MemorySettings(placement="staged"))
    view = explained(stage(named), "plain")
    why = (
        'chosen until its parts are known; then "staged", named in models.toml or as '
        "default_placement"
    )
    assert [(each.rung, each.why) for each in view.rungs] == [("resident", why)]


def test_it_says_which_numbers_are_measured_and_which_are_guesses() -> None:
    made = stage(laddered())
    before = explained(made)
    assert {rung.basis for rung in before.rungs} == {"guess"}
    assert sum("guess" in note for note in before.notes) == 3
    made.tell(events.WorkerDied("gpu0", "killed"))
    made.tell(events.DeviceReady("gpu0", 80 * GB, 0, 54_000_000_000))
    made.submit("large")
    loaded(made)
    made.answer()
    after = explained(made)
    assert after.bus_bytes_per_s == 54e9
    basis = {rung.rung: rung.basis for rung in after.rungs}
    assert basis["resident"] == "measured"
    assert basis["streamed"] == basis["all-streamed"] == "reckoned"
    assert basis["tiled"] == basis["cpu-encoders"] == "guess"
    made.tell(msgspec.structs.replace(made.job_submitted("large"), placement="tiled"))
    loaded(made)
    made.answer()
    assert {rung.rung: rung.basis for rung in explained(made).rungs}["tiled"] == "measured"
    assert not explained(made).notes


def test_it_says_what_the_model_cannot_do() -> None:
    view = explained(stage(msgspec.structs.replace(laddered(), lacks=("sliced", "tiled"))))
    assert not {"tiled", "tiled-streamed", "sliced"} & {rung.rung for rung in view.rungs}
    assert any("cannot work in tiles" in note for note in view.notes)
    assert any("cannot slice attention" in note for note in view.notes)


def test_who_would_take_nearly_all_of_a_card_is_warned() -> None:
    assert "more than 90 %" in explained(stage(laddered(), gb=31.5)).warning
    assert not explained(stage(laddered(), gb=80)).warning


def test_a_gpu_that_is_not_there_is_said_to_be_so() -> None:
    made = stage(laddered(), gb=80)
    made.tell(events.WorkerDied("gpu0", "exit code 1"))
    assert "gpu0 is starting" in explained(made).warning
    made.ready("gpu0", 80)
    assert not explained(made).warning
    two = stage(laddered(), devices=("gpu0", "gpu1"), gb=80)
    two.tell(events.DeviceGone("gpu1", "it fell off the bus"))
    size = Size(MEGAPIXEL, 1, 28)
    assert "gpu1 is given up" in two.conductor.plan("large", size, two.now, "gpu1").warning
    assert not two.conductor.plan("large", size, two.now, "gpu0").warning


def test_a_model_of_which_nothing_is_known_has_one_rung() -> None:
    view = explained(stage(events.ModelFacts("plain", file_bytes=GB)), "plain")
    assert [rung.rung for rung in view.rungs] == ["resident"]
    assert view.rungs[0].weights_bytes == GB


def test_unknown_models_and_devices_are_refused() -> None:
    made = stage(laddered())
    with pytest.raises(ModelUnknown):
        explained(made, "nothing")
    with pytest.raises(DeviceUnknown):
        made.conductor.plan("large", Size(MEGAPIXEL, 1, 28), made.now, "gpu9")


def test_it_is_a_table_for_people() -> None:
    table = PlanTable(explained(stage(laddered(), gb=24)))
    assert table.chosen is not None
    lines = repr(table).splitlines()
    assert lines[0].startswith("large on gpu0, where ")
    assert len(lines) == 3 + len(table.plan.rungs) + 1
    assert lines[-1] == "≈ reckoned from what was measured otherwise · ? a guess"
    assert sum(line.startswith("→") for line in lines) == 1
    assert "<table" in table._repr_html_()


TUNED = {
    "prefetch": MemorySettings(prefetch=3),
    "swap_space_gb": MemorySettings(swap_space_bytes=GB),
    "swap_device": MemorySettings(swap_device="gpu1"),
    "swap_space_gb and prefetch": MemorySettings(prefetch=3, swap_space_bytes=GB),
}


@pytest.mark.parametrize(("settings", "memory"), TUNED.items())
def test_settings_that_are_of_no_effect_with_a_rung_named_elsewhere_are_told_once_and_noted(
    settings: str, memory: MemorySettings
) -> None:
    """Beside the rung itself they would be mistakes of models.toml."""
    verb, it = ("are", "them") if " and " in settings else ("is", "it")

    def told(by: str) -> str:
        what = f"{settings} of large {verb} of no effect"
        return f'{what}: "staged" is named {by}, and makes no use of {it}. "auto" does.'

    facts, placed = laddered(memory=memory), Policy(placements={"large": "staged"})
    made = stage(facts, devices=("gpu0", "gpu1"))
    assert not notices(made)
    assert not [note for note in explained(made).notes if "no effect" in note]
    made.tell(events.PolicyChanged(placed))
    assert explained(made).notes[0] == told("by the instructor")
    made.tell(events.PolicyChanged(msgspec.structs.replace(placed, patience_s=19.0)))
    made.tell(events.CatalogueChanged((facts, laddered("small"))))
    made.submit("large")
    assert notices(made) == [told("by the instructor")]
    made.tell(events.PolicyChanged(Policy()))
    assert not [note for note in explained(made).notes if "no effect" in note]

    default = msgspec.structs.replace(memory, placement="staged")
    made = stage(laddered(memory=default), devices=("gpu0", "gpu1"))
    assert notices(made) == [told("as default_placement")]

    made = stage(facts, devices=("gpu0", "gpu1"))
    plan = made.conductor.plan("large", Size(MEGAPIXEL, 1, 28, "staged"), made.now)
    assert plan.notes[0] == told("with the job")
    assert not notices(made)


def test_settings_of_which_the_named_rung_makes_use_are_not_told_of() -> None:
    streams = MemorySettings("staged-streamed", prefetch=3, swap_space_bytes=GB)
    swaps = MemorySettings("swap-both", prefetch=3, swap_device="gpu1")
    whole = MemorySettings("resident", max_vram_bytes=60 * GB, min_free_bytes=GB)
    for memory in (streams, swaps, whole):
        assert not notices(stage(laddered(memory=memory), devices=("gpu0", "gpu1")))
