"""The spare worker: with fakes, and with the weight pool and real processes."""

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest

from tests.host.test_runtime import runtime_with
from workshop_gpu.api.views import Viewer, Views
from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.conductor import effects
from workshop_gpu.conductor.effects import Notice
from workshop_gpu.conductor.states import JobState, Priority, ReservationState, SlotState
from workshop_gpu.host import gpu_readings, spare
from workshop_gpu.host.devices import DeviceConfig, find_devices
from workshop_gpu.host.log_entries import ProblemsChanged
from workshop_gpu.host.records import Participant
from workshop_gpu.host.runtime import Runtime, RuntimeSettings
from workshop_gpu.host.spare import SpareWorker
from workshop_gpu.worker.protocol import Memory, ModelSource, Prepare, Ready
from workshop_gpu.worker.protocol_spare import StandingBy

DEVICE = DeviceConfig("cpu:0", "CPU", "", 10**9)
CARD = DeviceConfig("cuda:0", "H100", "GPU-1", 0)
READY = Ready(1, "CPU", 10**9, Memory(0, 0), {})
LOG = logging.getLogger("spare")


class FakeProcess:
    """Stands by, if it is good, until it dies."""

    def __init__(self, pid, *, good=True):
        self.pid = pid
        self.reports = [StandingBy(pid)] if good else []
        self.dies, self.ended = asyncio.Event(), asyncio.Event()
        self.device = None
        self.opens = False
        self.begun = False
        self.readers = 0
        self.orders = []
        if not good:
            self.dies.set()

    async def receive(self):
        if self.reports:
            return self.reports.pop()
        self.readers += 1
        try:
            await self.dies.wait()
        finally:
            self.readers -= 1

    async def end(self):
        self.ended.set()
        return "exit code 1"

    def send(self, order):
        self.orders.append(order)

    def take_over(self, device, log_folder, context_bytes):
        assert self.readers == 0, "two would read from one socket"
        assert not self.opens, "it has a device"
        self.opens = True
        self.device = device
        self.context_bytes = context_bytes

    def begin(self):
        assert self.device is not None
        self.begun = True


class FakeProcesses:
    """In the place of WorkerProcess. `coming` says what becomes of the next that stand by."""

    def __init__(self):
        self.coming = []
        self.made = []

    async def stand_by(self, log_folder, threads, cards, compilation):
        process = FakeProcess(len(self.made) + 1)
        if self.coming and (process := self.coming.pop(0)()) and isinstance(process, OSError):
            raise process
        self.made.append(process)
        return process

    async def start(self, device, log_folder, threads, compilation):
        return "a fresh one"


@pytest.fixture
def processes(monkeypatch):
    fakes = FakeProcesses()
    monkeypatch.setattr(spare, "WorkerProcess", fakes)
    return fakes


def with_spare(scenario, tmp_path, devices=(DEVICE,), **options):
    async def run():
        keeper = SpareWorker(tmp_path, 0, devices, LOG, pauses_s=(0.0, 0.0), rest_s=0.0, **options)
        keeping = asyncio.ensure_future(keeper.run())
        try:
            return await asyncio.wait_for(scenario(keeper, keeping), 240)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    return asyncio.run(run())


def test_without_a_spare_a_worker_is_started_as_ever(processes, tmp_path):
    async def scenario(keeper, keeping):
        return await keeper.start(DEVICE, tmp_path, 0)

    assert with_spare(scenario, tmp_path) == "a fresh one"
    assert processes.made == []


def test_the_spare_is_taken_once_and_the_next_waits_for_the_new_worker(processes, tmp_path):
    async def scenario(keeper, keeping):
        keeper.worker_is_ready(DEVICE, READY)
        await keeper.stands_by()
        taken = await keeper.start(DEVICE, tmp_path, 0)
        assert await keeper.start(DEVICE, tmp_path, 0) == "a fresh one"
        assert len(processes.made) == 1
        keeper.worker_is_ready(DEVICE, READY)
        assert await keeper.stands_by() == 2
        return taken

    taken = with_spare(scenario, tmp_path)
    assert (taken.pid, taken.device, taken.begun, taken.ended.is_set()) == (1, DEVICE, True, False)
    assert processes.made[1].ended.is_set(), "the server's end ends the spare"


def test_a_spare_that_is_taken_early_opens_the_device_and_waits(processes, tmp_path):
    async def scenario(keeper, keeping):
        assert await keeper.take(DEVICE, tmp_path, 5) is None, "there is none yet"
        keeper.worker_is_ready(DEVICE, READY)
        await keeper.stands_by()
        return await keeper.take(DEVICE, tmp_path, 5)

    taken = with_spare(scenario, tmp_path)
    assert (taken.device, taken.context_bytes, taken.begun) == (DEVICE, 5, False)
    assert not taken.ended.is_set(), "it is its taker's"


def ready(total_gb, ours_bytes):
    return Ready(1, "H100", total_gb * 10**9, Memory(ours_bytes, ours_bytes), {})


def test_on_a_large_card_that_is_alone_the_spare_opens_it_while_it_stands_by(processes, tmp_path):
    holders = []

    async def scenario(keeper, keeping):
        keeper.worker_is_ready(CARD, ready(80, 500))
        await keeper.stands_by()
        (standing,) = processes.made
        assert (standing.device, standing.context_bytes, standing.begun) == (CARD, 500, False)
        assert holders == [1]
        taken = await keeper.take(CARD, tmp_path, 500)
        assert taken is standing
        assert holders == [1, None], "now it is a worker"
        keeper.worker_is_ready(CARD, ready(80, 700))  # it counts what it was told
        await keeper.stands_by()
        return processes.made[1].context_bytes

    assert with_spare(scenario, tmp_path, (CARD,), holds=holders.append) == 500


@pytest.mark.parametrize(
    ("devices", "total_gb"),
    [((CARD,), 24), ((CARD, DeviceConfig("cuda:1", "H100", "GPU-2", 0)), 80), ((DEVICE,), 80)],
    ids=["a small card", "two cards", "no card"],
)
def test_elsewhere_the_spare_touches_no_device_before_it_takes_one_over(
    devices, total_gb, processes, tmp_path
):
    """Half a gigabyte of a small card is much; of several cards nobody knows which it will be."""
    holders = []

    async def scenario(keeper, keeping):
        keeper.worker_is_ready(devices[0], ready(total_gb, 500))
        await keeper.stands_by()
        (standing,) = processes.made
        assert standing.device is None
        await keeper.take(devices[0], tmp_path, 500)
        return standing.device

    assert with_spare(scenario, tmp_path, devices, holds=holders.append) == devices[0]
    assert set(holders) <= {None}


def test_a_spare_that_dies_with_the_card_open_is_replaced_by_one_that_opens_it(processes, tmp_path):
    holders = []

    async def scenario(keeper, keeping):
        keeper.worker_is_ready(CARD, ready(80, 500))
        await keeper.stands_by()
        processes.made[0].dies.set()
        await processes.made[0].ended.wait()
        assert await keeper.stands_by() == 2
        return processes.made[1].device

    assert with_spare(scenario, tmp_path, (CARD,), holds=holders.append) == CARD
    assert holders[:3] == [1, None, 2]


@pytest.mark.parametrize("waits", ["a job", "a notebook", "the whole card"])
def test_the_spare_gives_its_memory_of_the_card_to_those_who_wait_for_it(
    waits, processes, tmp_path
):
    holders = []

    async def scenario(keeper, keeping):
        keeper.worker_is_ready(CARD, ready(80, 500))
        await keeper.stands_by()
        keeper.look(room(job="load"))
        assert holders == [1], "nobody waits for it"
        keeper.look(WAITING[waits])
        await processes.made[0].ended.wait()
        assert await keeper.stands_by() == 2
        keeper.look(WAITING[waits])
        keeper.worker_is_ready(CARD, ready(80, 500))
        assert processes.made[1].device is None, "they would have to wait again"
        await keeper.take(CARD, tmp_path, 500)
        return processes.made[1]

    taken = with_spare(scenario, tmp_path, (CARD,), holds=holders.append)
    assert (taken.device, taken.ended.is_set()) == (CARD, False)
    assert holders == [1, None, None]


def test_a_spare_that_is_taken_while_it_is_to_give_way_is_not_ended(processes, tmp_path):
    async def scenario(keeper, keeping):
        keeper.worker_is_ready(CARD, ready(80, 500))
        await keeper.stands_by()
        keeper.look(WAITING["a job"])
        taken = await keeper.take(CARD, tmp_path, 500)
        return taken.device, taken.ended.is_set()

    assert with_spare(scenario, tmp_path, (CARD,)) == (CARD, False)


def room(job="", reservations=()):
    view = effects.JobView(
        "one", "ann", None, "shapes", Priority.NORMAL, JobState.QUEUED, None, 1, None, job, 0, 4,
        0.0, -1.0, -1.0, None,
    )  # fmt: skip
    return effects.Snapshot((), (), (view,), (), reservations)


def reserved(size_bytes, state):
    return effects.ReservationView(
        "room", "ann", "kernel", "cuda:0", size_bytes, state, 0, None, None
    )


WAITING = {
    "a job": room(job="foreign"),
    "a notebook": room(reservations=(reserved(10**9, ReservationState.WAITING),)),
    "the whole card": room(reservations=(reserved(None, ReservationState.GRANTED),)),
}


def test_while_it_stands_by_the_spare_builds_what_is_likely_by_then(processes, tmp_path):
    first = ModelSource("first", "diffusers", "/models/first")
    likely = [Prepare("cuda", (first,)), Prepare("cuda", ())]
    told = list(likely)

    async def scenario(keeper, keeping):
        for number in (1, 2):
            keeper.worker_is_ready(DEVICE, READY)
            assert await keeper.stands_by() == number
            await keeper.start(DEVICE, tmp_path, 0)

    with_spare(scenario, tmp_path, prepare=lambda: told.pop(0))
    assert [process.orders for process in processes.made[:2]] == [[order] for order in likely]


def test_a_spare_that_dies_while_it_stands_by_is_replaced(processes, tmp_path):
    async def scenario(keeper, keeping):
        keeper.worker_is_ready(DEVICE, READY)
        await keeper.stands_by()
        processes.made[0].dies.set()
        await processes.made[0].ended.wait()
        assert await keeper.stands_by() == 2
        return await keeper.start(DEVICE, tmp_path, 0)

    assert with_spare(scenario, tmp_path).pid == 2


def test_spares_that_are_of_no_use_are_told_once_and_tried_again_later(processes, tmp_path):
    def useless():
        return FakeProcess(1, good=False)

    processes.coming = [useless, lambda: OSError(28, "No space left"), useless]
    told, problems = [], []

    async def scenario(keeper, keeping):
        def tell(text):
            told.append(text)
            problems.append(keeper.problem)

        keeper._tell = tell
        keeper.worker_is_ready(DEVICE, READY)
        await keeper.stands_by()
        return await keeper.start(DEVICE, tmp_path, 0)

    assert with_spare(scenario, tmp_path, retry_s=0.0).begun
    assert len(told) == 2
    assert "No space left" in told[0]
    assert "stands by again" in told[1]
    assert problems == [told[0], ""]


def test_that_there_is_no_spare_is_told_to_people_and_stands_among_the_problems(tmp_path):
    runtime = runtime_with(tmp_path, Catalogue(None))
    runtime.spare._miss("exit code 1")
    (problem,) = runtime.problems.now
    assert "restarts of GPU workers take longer" in problem
    entries = [entry for _, entry in runtime.events.after(0)]
    assert Notice(problem) in entries
    assert entries[-1] == ProblemsChanged(), "which brings them to the panel"
    viewer = Viewer(Participant("user:zoe", "Zoe"), True, "/")
    assert Views(runtime, viewer).status().problems == [problem]


async def until_ready(runtime, model, ready=True):
    """Waits until the model stands ready, or does so no longer."""
    while True:
        position = runtime.events.position
        slots = [slot for slot in runtime.snapshot().slots if slot.model == model]
        if any(slot.state is SlotState.READY for slot in slots) is ready:
            return
        await runtime.events.grown(position)


@pytest.fixture
def runtime(tmp_path):
    settings = RuntimeSettings((DEVICE,), tmp_path, threads=1, spare_worker=True)
    return Runtime(settings, Catalogue(tmp_path / "models.toml", default_dtype="float32"))


def test_the_spare_takes_the_place_of_a_worker_that_died_and_weights_outlive_it(runtime, tmp_path):
    async def scenario():
        async with runtime.running():
            supervisor = runtime._supervisors["cpu:0"]
            await runtime.catalogue_read()
            runtime.load("shapes")
            await until_ready(runtime, "shapes")
            standing_by, first, parts = (
                await runtime.spare.stands_by(),
                supervisor.pid,
                runtime.pool.state().parts,
            )
            assert {(part.models, part.workers) for part in parts} == {(("shapes",), 1)}
            os.kill(first, signal.SIGKILL)
            await until_ready(runtime, "shapes", ready=False)
            runtime.load("shapes")
            await until_ready(runtime, "shapes")
            assert supervisor.pid == standing_by
            assert runtime.pool.state().parts == parts
            return first, standing_by

    pids = asyncio.run(scenario())
    assert len(set(pids)) == 2
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    assert (tmp_path / "logs" / "worker-cpu-0.previous.log").exists()


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_readings.gpus(), reason="this machine has no NVIDIA GPU")
@pytest.mark.parametrize("alone", [True, False])
def test_the_spare_takes_a_card_over_and_touches_none_before_where_there_is_another_device(
    alone, tmp_path
):
    (card, *_) = find_devices(["auto"])
    devices = (card,) if alone else (card, DEVICE)
    settings = RuntimeSettings(devices, tmp_path, spare_worker=True)
    runtime = Runtime(settings, Catalogue(tmp_path / "models.toml", default_dtype="bfloat16"))

    async def until_the_card_is_ready(supervisor, ended=None):
        """Whose model it is that loads where there is another device nobody promises."""
        while supervisor.pid in (None, ended) or any(
            view.state != "ready" for view in runtime.snapshot().devices
        ):
            await asyncio.wait_for(runtime.events.grown(runtime.events.position), 120)

    async def scenario():
        async with runtime.running():
            supervisor = runtime._supervisors[card.id]
            await runtime.catalogue_read()
            await until_the_card_is_ready(supervisor)
            first, standing_by = supervisor.pid, await runtime.spare.stands_by()
            assert has_context(first)
            assert alone or not has_context(standing_by)
            os.kill(first, signal.SIGKILL)
            await until_the_card_is_ready(supervisor, first)
            assert supervisor.pid == standing_by
            assert has_context(standing_by)
            runtime.load("shapes")
            await until_ready(runtime, "shapes")
            assert runtime.pool.state().problem == ""

    asyncio.run(scenario())


def has_context(pid):
    """A CUDA context has a thread of that name. What is open says nothing, nor do other threads
    called cuda: NVML alone opens the same and starts one."""
    folder = f"/proc/{pid}/task"
    names = (Path(folder, thread, "comm").read_text() for thread in os.listdir(folder))
    return any(name.startswith("cuda-EvtHandlr") for name in names)
