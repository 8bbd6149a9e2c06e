"""Plans are made with the seconds of compiled blocks where those are used, and say so."""

import msgspec
import pytest

from tests.conductor.laddered import laddered, loaded
from tests.conductor.staging import GB, MEGAPIXEL, Stage, stage
from tests.conductor.test_compiled import finish
from workshop_gpu.client.plans import PlanTable
from workshop_gpu.conductor import events
from workshop_gpu.conductor.estimates import Estimates
from workshop_gpu.conductor.explaining import PlanView, RungView
from workshop_gpu.conductor.ladder import RUNGS
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.planner import Question, Speeds, plan_all
from workshop_gpu.conductor.planning import Size
from workshop_gpu.conductor.rungs import DENOISER, RoleBytes
from workshop_gpu.conductor.working_memory import Activations

BUS = 20 * GB
PLAIN_S, COMPILED_S = 28.0, 14.0


def compiling_stage(compiles: bool = True, memory: MemorySettings | None = None) -> Stage:
    made = stage(laddered(memory=memory))
    made.tell(events.WorkerDied("gpu0", "killed"))
    made.tell(events.DeviceReady("gpu0", 80 * GB, 0, BUS, compiles))
    return made


def drawn(made: Stage, seconds_s: float, **what: bool) -> None:
    """A job in whatever placement the model has; it is loaded first where it is not there."""
    made.submit("large")
    if made.order().startswith("load"):
        loaded(made)
    finish(made, seconds_s, **what)


def compiled_and_drawn() -> Stage:
    made = compiling_stage()
    drawn(made, PLAIN_S, to_compile=True)
    made.tell(events.SlotCompiled("gpu0", "large", ready=True))
    drawn(made, COMPILED_S, compiled=True)
    return made


def explained(made: Stage) -> PlanView:
    return made.conductor.plan("large", Size(MEGAPIXEL, 1, 28), made.now)


def rungs(view: PlanView) -> dict[str, RungView]:
    return {rung.rung: rung for rung in view.rungs}


def test_it_says_whether_blocks_are_compiled_and_reckons_so() -> None:
    made = compiling_stage()
    drawn(made, PLAIN_S, to_compile=True)
    before = explained(made)
    assert before.blocks == "not compiled yet"
    assert (before.rungs[0].expected_s, before.rungs[0].compiled) == (PLAIN_S, False)
    assert "not compiled yet" in repr(PlanTable(before))

    made.tell(events.SlotCompiled("gpu0", "large", ready=True))
    between = explained(made)
    assert between.blocks == "compiled"
    assert between.rungs[0].expected_s == PLAIN_S, "no slower than without, as far as is known"
    assert between.rungs[0].basis == "guess"
    assert any("its blocks compiled" in note for note in between.notes)

    drawn(made, COMPILED_S, compiled=True)
    after = explained(made)
    assert (after.rungs[0].expected_s, after.rungs[0].basis) == (COMPILED_S, "measured")
    assert after.rungs[0].compiled
    assert "Its blocks are compiled." in repr(PlanTable(after))


def test_with_a_lora_a_job_is_reckoned_as_it_is_drawn_without_compiled_blocks() -> None:
    made = compiled_and_drawn()
    lora = Size(MEGAPIXEL, 1, 28, beside_bytes=GB // 10)
    resident = made.conductor.plan("large", lora, made.now).rungs[0]
    assert (resident.expected_s, resident.compiled) == (PLAIN_S, False)
    for beside_bytes, run_s in ((0, COMPILED_S), (GB // 10, PLAIN_S)):
        made = compiled_and_drawn()
        asked = made.job_submitted("large")
        made.tell(msgspec.structs.replace(asked, beside_bytes=beside_bytes))
        behind = made.submit("large")
        (wait_s,) = (
            view.expected_wait_s
            for view in made.conductor.snapshot(made.now).jobs
            if view.job == behind
        )
        assert wait_s == pytest.approx(run_s, abs=2.0)


def test_what_streams_is_as_fast_as_a_compiled_step_or_the_bus_allow() -> None:
    plain, compiled = compiling_stage(), compiled_and_drawn()
    drawn(plain, PLAIN_S)
    before, after = (
        rungs(explained(plain))["all-streamed"],
        rungs(explained(compiled))["all-streamed"],
    )
    assert before.streamed_bytes == after.streamed_bytes > 0.5 * BUS
    saved_s = before.expected_s - after.expected_s
    assert saved_s == pytest.approx(PLAIN_S - 28 * after.streamed_bytes / BUS)
    assert after.basis == "reckoned"


def test_sliced_attention_is_reckoned_without() -> None:
    view = explained(compiled_and_drawn())
    sliced = rungs(view)["sliced"]
    assert not sliced.compiled
    assert sliced.expected_s > PLAIN_S
    said = [line for line in repr(PlanTable(view)).splitlines() if "(not compiled)" in line]
    assert len(said) == sum("sliced" in rung for rung in rungs(view)) == 2


def test_blocks_that_come_layer_by_layer_are_reckoned_without() -> None:
    roles = (RoleBytes(DENOISER, 20 * GB, (GB,) * 20, GB // 4, GB // 100),)
    fast, slow = Speeds(0.1, 10.0**12, (), True), Speeds(0.2, 10.0**12)
    asked = Question(roles, 80 * GB, Activations(0, 1), 10, fast, plain=slow)
    whole = {plan.rung.name: plan.job_s for plan in plan_all(asked, RUNGS)}
    in_layers = msgspec.structs.replace(asked, buffer_bytes=GB // 2)
    layers = {plan.rung.name: plan.job_s for plan in plan_all(in_layers, RUNGS)}
    assert whole["all-streamed"] == pytest.approx(1.0, rel=0.1)
    assert layers["all-streamed"] == pytest.approx(2.0, rel=0.1)
    assert layers["resident"] == whole["resident"] == pytest.approx(1.0)


def test_a_model_that_left_is_taken_to_come_back_as_it_was() -> None:
    made = compiled_and_drawn()
    made.die()
    made.tell(events.DeviceReady("gpu0", 80 * GB, 0, BUS, compiles=True))
    assert explained(made).blocks == "compiled"
    assert explained(made).rungs[0].expected_s == COMPILED_S
    made.tell(events.DeviceReady("gpu0", 80 * GB, 0, BUS, compiles=False))
    assert explained(made).blocks == "not compiled"
    assert explained(made).rungs[0].expected_s == PLAIN_S
    assert "compiled" not in repr(PlanTable(explained(made)))


def test_seconds_with_compiled_blocks_are_kept_apart_and_outlive_the_server() -> None:
    estimates = Estimates()
    estimates.learn_run("m", 100, 10, 2.0)
    estimates.learn_run("m", 100, 10, 5.0, placement="staged")
    estimates.learn_run("m", 100, 10, 1.0, compiled=True)
    estimates.learn_run("m", 100, 10, 4.0, placement="staged", compiled=True)
    for each in (estimates, Estimates(estimates.learned())):
        assert each.run_s("m", 100, 10) == 2.0
        assert each.run_s("m", 100, 10, compiled=True) == 1.0
        assert each.measured_run_s("m", 100, 10, 1) == {"staged": 5.0}
        assert each.measured_run_s("m", 100, 10, 1, compiled=True)["staged"] == 4.0
        assert (each.drew_compiled("m"), each.drew_compiled("n")) == (True, False)


def test_compiled_steps_that_waited_for_the_bus_do_not_make_a_resident_model_slow() -> None:
    estimates = Estimates()
    estimates.learn_run("m", 100, 10, 2.0)
    estimates.learn_run("m", 100, 10, 9.0, placement="streamed", compiled=True)
    assert estimates.run_s("m", 100, 10, compiled=True) == 2.0
