"""Blocks are compiled when nobody waits; jobs with them are faster, and told apart."""

import msgspec
import pytest

from tests.conductor.staging import GB, MEGAPIXEL, Stage, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.rungs import RESIDENT


def compiling_stage(*models: events.ModelFacts, compiles: bool = True) -> Stage:
    made = stage(*models)
    made.tell(events.DeviceReady("gpu0", 80 * GB, compiles=compiles))
    return made


def finish(made: Stage, seconds_s: float = 5.0, peak_bytes: int = 0, **what: bool) -> None:
    """The job that runs is done."""
    order = made.take_order(which="run")
    assert isinstance(order, effects.RunJob)
    made.finish(order.job, seconds_s, peak_bytes, **what)


def drawn(made: Stage, name: str = "a", **what: bool) -> None:
    """A job of the model, which is there already or is loaded for it."""
    made.submit(name)
    while not made.order().startswith("run"):
        made.answer()
    finish(made, **what)


def compilations(made: Stage) -> list[str]:
    return [each.model for each in made.said if isinstance(each, effects.CompileModel)]


def notices(made: Stage) -> list[str]:
    return [each.text for each in made.said if isinstance(each, effects.Notice)]


def test_a_models_blocks_are_compiled_once_its_job_is_done_and_nobody_waits() -> None:
    made = compiling_stage()
    made.submit("a")
    made.submit("a", "bob")
    made.answer()
    finish(made, to_compile=True)
    assert compilations(made) == [], "somebody waits"
    finish(made, to_compile=True)
    assert compilations(made) == ["a"]
    made.later(60)
    assert compilations(made) == ["a"], "it is told once"


def test_one_model_after_the_other_is_compiled_and_first_the_one_most_used() -> None:
    made = compiling_stage(model("a", 10), model("b", 10))
    made.tell(events.PolicyChanged(Policy()))
    for name in ("a", "b", "b"):
        made.submit(name, who=name)
    made.submit("a", "cyd")
    while made.order():
        if made.order().startswith("run"):
            finish(made, to_compile=True)
        else:
            made.answer()
    assert len(compilations(made)) == 1
    first = compilations(made)[0]
    made.tell(events.SlotCompiled("gpu0", first, ready=True))
    assert sorted(compilations(made)) == ["a", "b"]


def test_while_blocks_are_compiled_jobs_run_and_models_come() -> None:
    made = compiling_stage(model("a", 10), model("b", 10))
    drawn(made, to_compile=True)
    drawn(made, "b")
    drawn(made, "a")
    assert made.conductor.snapshot(made.now).jobs == ()
    assert compilations(made) == ["a"]


@pytest.mark.parametrize("why", ["device", "model", "room", "nothing to compile"])
def test_nothing_is_compiled_without_need_or_means(why: str) -> None:
    facts = model("a", 30, compiles=why != "model")
    made = compiling_stage(facts, compiles=why != "device")
    made.submit("a")
    made.answer()
    if why == "room":
        made.foreign(48.0)
    finish(made, to_compile=why != "nothing to compile")
    assert compilations(made) == []
    runs = [each for each in made.said if isinstance(each, effects.RunJob)]
    assert [each.compiles for each in runs] == [why in ("room", "nothing to compile")]


def test_what_cannot_be_compiled_is_told_once_and_drawn_without() -> None:
    made = compiling_stage()
    drawn(made, to_compile=True)
    made.tell(events.SlotCompiled("gpu0", "a", ready=False, problem="no compiler answers."))
    assert [each for each in notices(made) if "compiled" in each] == [
        "a is drawn without compiled blocks: no compiler answers."
    ]
    drawn(made)
    assert compilations(made) == ["a"]
    assert not made.slot("a").compiled


def test_another_size_that_nothing_holds_for_is_compiled_too() -> None:
    made = compiling_stage()
    drawn(made, to_compile=True)
    made.tell(events.SlotCompiled("gpu0", "a", ready=True))
    assert made.slot("a").compiled
    drawn(made, to_compile=True)
    assert compilations(made) == ["a", "a"]


def test_a_worker_that_dies_forgets_what_it_compiled() -> None:
    made = compiling_stage()
    drawn(made, to_compile=True)
    made.die()
    made.tell(events.DeviceReady("gpu0", 80 * GB, compiles=True))
    drawn(made, to_compile=True)
    assert compilations(made) == ["a", "a"]
    made.tell(events.SlotCompiled("gpu0", "b", ready=True))  # stale: it is not there


def test_jobs_with_compiled_blocks_are_expected_to_take_what_they_took() -> None:
    made = compiling_stage()

    def waits_s() -> float | None:
        """What a job behind one that runs is expected to wait."""
        made.submit("a")
        behind = made.submit("a", "bob")
        wait_s = made.job(behind).expected_wait_s
        compiled = made.slot("a").compiled
        for _ in range(2):
            finish(made, 4.0 if compiled else 10.0, compiled=compiled)
        return wait_s

    drawn(made, to_compile=True)
    waits_s(), waits_s(), waits_s(), waits_s()
    assert waits_s() == pytest.approx(10, abs=1)
    made.tell(events.SlotCompiled("gpu0", "a", ready=True))
    waits_s()
    assert waits_s() == pytest.approx(4, abs=1)
    made.tell(events.SlotCompiled("gpu0", "a", ready=False))
    assert waits_s() == pytest.approx(10, abs=1), "one was not taken for the other"
    learned = made.conductor.learned()
    assert list(learned.compiled_s) == [f"{RESIDENT.name}/28/a"]
    assert (list(learned.steps_s), learned.placed_s) == (["a"], {})


def test_room_is_kept_for_jobs_without_compiled_blocks() -> None:
    made = compiling_stage()
    drawn(made, to_compile=True)
    made.submit("a")
    finish(made, peak_bytes=5 * GB)
    expected = made.conductor.learned().peaks
    made.submit("a")
    finish(made, peak_bytes=2 * GB, compiled=True)
    assert made.conductor.learned().peaks == expected
    made.submit("a")
    finish(made, peak_bytes=9 * GB, compiled=True)
    assert made.conductor.learned().peaks != expected


def repeat(compiled: bool) -> events.JobSubmitted:
    request = events.JobSubmitted("again", "ada", "k-ada", "a", 28, MEGAPIXEL)
    return msgspec.structs.replace(request, compiled=compiled)


def test_a_picture_that_was_drawn_compiled_is_repeated_so_or_told_that_it_was_not() -> None:
    made = compiling_stage()
    made.tell(repeat(compiled=True))
    made.answer()
    finish(made, to_compile=True)
    assert "without compiled blocks" in made.job("again").went_on
    made.tell(msgspec.structs.replace(repeat(compiled=True), job="once-more"))
    finish(made, compiled=True)
    assert made.job("once-more").went_on == ""
    made.tell(msgspec.structs.replace(repeat(compiled=False), job="plain"))
    finish(made)
    assert made.job("plain").went_on == ""


@pytest.mark.parametrize("why", ["device", "model"])
def test_where_nothing_can_be_compiled_it_is_refused_with_the_reason(why: str) -> None:
    made = compiling_stage(model("a", compiles=why != "model"), compiles=why != "device")
    report = made.refused(repeat(compiled=True))
    assert report.kind == "not_repeatable"
    assert "with compiled blocks" in report.message
    assert ("doctor" if why == "device" else 'compile = "off"') in report.message
    made.tell(repeat(compiled=False))
    made.settle()
    assert made.state("again") == "done"


def test_loras_that_are_ready_for_a_model_are_told_until_it_leaves() -> None:
    made = compiling_stage()
    made.submit("a")
    made.answer()
    order = made.take_order(which="run")
    assert isinstance(order, effects.RunJob)
    made.finish(order.job, 5.0, loras=("ink", "retro"))
    assert made.slot("a").loras == ("ink", "retro")
    announced = [each for each in made.said if isinstance(each, effects.AnnounceSlot)]
    assert announced[-1].slot.loras == ("ink", "retro")
    drawn(made)
    assert made.slot("a").loras == (), "others were used since"
