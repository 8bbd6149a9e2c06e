"""Models come to the device and leave it, on a thread of its own beside the one that draws."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch

from workshop_gpu.conductor import errors
from workshop_gpu.conductor.rungs import HOST, RESIDENT, Placement
from workshop_gpu.worker.ahead import Ahead
from workshop_gpu.worker.carrying import Carrier, Trip
from workshop_gpu.worker.components import Component, OpenModel, streaming_of
from workshop_gpu.worker.devices import CudaDevice, Device
from workshop_gpu.worker.filling import BlockReader
from workshop_gpu.worker.host_copy import OwnCopy
from workshop_gpu.worker.journeys import Journey, UnderWay
from workshop_gpu.worker.late_fills import LateFills
from workshop_gpu.worker.neighbours import Neighbours
from workshop_gpu.worker.opening import Opener
from workshop_gpu.worker.pipelines import Plan, modules, plan_model
from workshop_gpu.worker.placements import (
    Home,
    apply,
    check_placement,
    home_in,
    withdraw,
)
from workshop_gpu.worker.pool import Part, Parts, PoolClient
from workshop_gpu.worker.progress import LoadProgress, OnProgress
from workshop_gpu.worker.protocol import ModelSource
from workshop_gpu.worker.staging import Stager
from workshop_gpu.worker.stored import OpenFiles
from workshop_gpu.worker.streaming import CardLane, Lane, PlainLane, Rotation
from workshop_gpu.worker.turns import Turns


class Loader:
    """The models of one device, on one thread. `on_close` hears of each that is forgotten."""

    def __init__(
        self,
        device: Device,
        turns: Turns,
        client: PoolClient,
        ahead: Ahead | None = None,
        neighbours: Neighbours | None = None,
        on_close: Callable[[OpenModel], None] = lambda model: None,
    ) -> None:
        self._device = device
        self._on_close = on_close
        self._ahead = ahead or Ahead(turns)
        self._card = device if isinstance(device, CudaDevice) else None
        self._turns = turns
        self._carrier = Carrier(device, drawing=lambda: turns.taken)
        self._parts = Parts(client, on_cpu=self._card is None, make_room=self._close_one_idle)
        self._opener = Opener(device, turns, self._parts, self._ahead)
        pin = partial(self._begin_to_pin, at_once=False)
        self._late = LateFills(self._parts, self._carrier, pin)
        self._models: dict[str, OpenModel] = {}
        self._lingering: list[Part] = []
        self._departures = 0
        self._lane: Lane = CardLane(self._card.streaming) if self._card else PlainLane()
        self._neighbours = neighbours or Neighbours()
        self.stager = Stager(device, self._carrier, lambda: self.resident_bytes)

    # What stands on the device

    def resident(self, model: str) -> OpenModel | None:
        """The model if it stands ready. Any thread may ask."""
        found = self._models.get(model)
        return found if found is not None and found.resident else None

    @property
    def resident_bytes(self) -> int:
        """What all models take on the device together."""
        return self._parts.resident_bytes + sum(each.own_bytes for each in self._standing)

    @property
    def embeddings_bytes(self) -> int:
        """What they keep on the host of prompts that were read."""
        return sum(each.embeddings.size_bytes for each in self._standing)

    @property
    def _standing(self) -> list[OpenModel]:
        return [each for each in list(self._models.values()) if each.resident]

    @property
    def elsewhere_bytes(self) -> dict[str, int]:
        """What its models take of other devices, by the server's names."""
        taken = self._neighbours.whole_bytes
        for model in self._standing:
            if size_bytes := model.elsewhere_bytes:
                taken[model.placement.source] = taken.get(model.placement.source, 0) + size_bytes
        return taken

    @property
    def lingering_bytes(self) -> int:
        """What lies on the device that no model there has any more; on the CPU it costs nothing."""
        if self._card is None:
            return 0
        return sum(part.size_bytes for part in self._lingering if not part.residents)

    @property
    def no_pool_because(self) -> str:
        """Why weights are not in the pool or not registered with the card; "" where they are."""
        return self._parts.refusal or self._carrier.problem

    # Coming

    def prepare(self) -> None:
        """Set up what the first load would wait for."""
        if self._card is not None:
            self._carrier.prepare()

    def load(
        self,
        source: ModelSource,
        on_progress: OnProgress,
        placement: Placement = RESIDENT,
        most_bytes: int = 0,
    ) -> OpenModel:
        """Bring a model into a placement, opening it if it is not open, from wherever it is.

        Its weights and buffers may take `most_bytes` (0: no limit). Raises InvalidRequest,
        BadCheckpoint, NoRoom, OutOfMemory, torch's errors and the libraries' own; then nothing of
        what this load brought is left, nor of the model in another placement.
        """
        check_placement(placement)
        if placement.source not in HOST:
            self._neighbours.named(placement.source)  # or it is refused before anything moves
        name = source.model
        there = self._models.get(name)
        if there is not None and (there.source != source or _is_outdated(there)):
            self.evict(name)
            self.close(name)
        elif there is not None and there.resident:
            if there.ordered == placement:
                return there
            self.evict(name)  # in place: what stays whole on the device lingers there
        there = self._models.get(name)
        if there is None:
            plan = plan_model(source, self._device.default_dtype)
            return self._open(plan, on_progress, placement, most_bytes)
        self._bring_back(there, on_progress, placement, most_bytes)
        return there

    def _bring_back(
        self, model: OpenModel, on_progress: OnProgress, placement: Placement, most_bytes: int
    ) -> None:
        size_bytes = sum(component.size_bytes for component in model.components)
        progress = LoadProgress(size_bytes, on_progress)
        load = UnderWay(model.source.model, progress, placement, most_bytes)
        load.components.extend(model.components)
        for component in model.components:
            component.home = home_in(placement, component.name)
        try:
            self.let_linger_go(keep=[c for c in model.components if c.home is Home.DEVICE])
            for component in model.components:
                load.progress.expect(component, component.size_bytes)
                self._send(load, component)
            self._arrive(load)
        except BaseException:
            self._undo(load)
            for component in model.components:
                component.leave()
            raise
        self._stands(model, load)

    def _stands(self, model: OpenModel, load: UnderWay) -> None:
        """The model is where it was to be."""
        model.rotation = load.rotation
        model.ordered = load.placement
        model.placement = apply(load.placement, model.pipeline, load.streaming)
        model.stands()

    def _open(
        self, plan: Plan, on_progress: OnProgress, placement: Placement, most_bytes: int
    ) -> OpenModel:
        name = plan.source.model
        load = UnderWay(name, LoadProgress(plan.size_bytes, on_progress), placement, most_bytes)
        try:
            pipeline = self._opener.open(plan, placement, load.files, partial(self._set_out, load))
            self._arrive(load)
        except BaseException:
            self._undo(load)
            for component in load.components:
                self._parts.let_go(component.part, name)
            self._late.forget_closed()
            raise
        dtypes = {part: module.dtype for part, module in modules(pipeline).items()}
        model = OpenModel(plan.source, pipeline, tuple(load.components), dtypes)
        self._models[name] = model
        self._stands(model, load)
        return model

    def _set_out(
        self, load: UnderWay, component: Component, size_bytes: int, files: OpenFiles
    ) -> None:
        load.components.append(component)
        load.progress.expect(component, size_bytes)
        self._send(load, component, files)

    def _send(self, load: UnderWay, component: Component, files: OpenFiles | None = None) -> None:
        """Let a block set out to the device, or to host memory where it lives there.

        Not if it is there already or on its way for another component.
        """
        part, whole = component.part, component.home is Home.DEVICE
        there = part.device is not None if whole else part.complete
        self._check_limit(load, part.size_bytes if whole else 0)
        if there or id(part) in load.journeys:
            load.progress.arrived(component, part.size_bytes)
            return
        self.let_linger_go(keep=[c for c in load.components if c.home is Home.DEVICE])
        if part.host is None and not whole:
            part.host = OwnCopy(part.size_bytes)  # there is no pool: it must be somewhere
        if whole:
            self._check_room(load, part.size_bytes)
        onto = self._room_for(part) if whole else None
        fills = not part.complete
        on_bytes = partial(load.progress.arrived, component)
        on_card = onto if self._card else None
        late = False
        if fills:
            if files is None:
                files = OpenFiles(component.files)
                load.files.append(files)
            late = self._late.suits(component, files) and on_card is not None
            if not late:
                self._late.forget_part(part)
            reader = BlockReader(
                component.weights, files, check_numbers=on_card is None, read_again=late
            )
            named = part.key.startswith("sha256:")  # by the hub cache: no need to compute it
            trip = self._carrier.carry(
                reader, part.size_bytes,
                into=None if late else part.host, onto=on_card,
                digest=part.in_pool and not named and not late,
                on_bytes=on_bytes,
            )  # fmt: skip
        elif on_card is not None and part.host is not None:
            trip = self._carrier.upload(part.host, part.pinned, on_card, on_bytes)
        else:
            trip = Trip()
            on_bytes(part.size_bytes)
        load.journeys[id(part)] = Journey(component, onto, trip, files, fills, late)

    def _check_limit(self, load: UnderWay, size_bytes: int) -> None:
        """Refuse what is more than the order lets the model take, before it comes."""
        load.taken_bytes += size_bytes
        if load.most_bytes and load.taken_bytes > load.most_bytes:
            what = f'loading "{load.model}"'
            raise errors.OutOfMemory(what, load.taken_bytes, load.most_bytes, "load")

    def _check_room(self, load: UnderWay, size_bytes: int) -> None:
        """A pretended device is as strict as a real one."""
        if self._card is not None:
            return
        coming = (each for each in load.journeys.values() if each.component.part.device is None)
        needed_bytes = size_bytes + sum(len(each.onto) for each in coming if each.onto is not None)
        free_bytes = self._device.free_bytes(self.resident_bytes)
        if needed_bytes > free_bytes:
            raise errors.OutOfMemory(f'loading "{load.model}"', needed_bytes, free_bytes, "load")

    def _room_for(self, part: Part) -> torch.Tensor:
        if self._card is not None:
            return self._card.room_for_weights(part.size_bytes)
        assert part.host is not None
        return part.host.tensor()

    def _arrive(self, load: UnderWay) -> None:
        """Wait for everything, and let the modules show it."""
        for journey in load.journeys.values():
            self._finish(load, journey)
        for journey in load.journeys.values():
            part = journey.component.part
            part.device = part.device if part.device is not None else journey.onto
        for component in load.components:  # while the last bytes are still on the bus
            if component.home is Home.DEVICE:
                component.part.residents.add(load.model)
                component.bind_to_device()
            else:
                component.bind_to_host()
        self._stream(load)
        self._carrier.settle()
        for component in load.components:
            self._begin_to_pin(
                component.part, at_once=component.home in (Home.STREAMED, Home.PASSING)
            )
        self._send_elsewhere(load)
        self._end(load)
        load.progress.finish()

    def _finish(self, load: UnderWay, journey: Journey) -> None:
        digest = journey.trip.finish()
        if not journey.fills:
            return
        if journey.onto is not None:
            self._carrier.check_numbers(journey.component.weights, journey.onto)
        if journey.files is not None:
            journey.files.check_unchanged()
        if journey.late and journey.files is not None:
            load.files.remove(journey.files)
            self._late.owe(load.model, journey.component, journey.files)
            return
        journey.component.forget_sources()
        before = journey.component.part
        now = self._parts.filled(before, digest)
        for component in load.components:
            if component.part is before:
                component.part = now
        if self._card is None and now.host is not None and journey.onto is not None:
            journey.onto = now.host.tensor()

    def _stream(self, load: UnderWay) -> None:
        """Bring what stays of the streamed components, and set up the buffers for the rest."""
        plan = streaming_of(load.components, load.placement)
        if plan is None:
            return
        staying = [c for c in load.components if c.home is Home.STREAMED]
        size_bytes = plan.buffers * plan.buffer_bytes
        size_bytes += sum(each.size_bytes for c in staying for each in c.beside)
        self._check_limit(load, size_bytes)
        self.let_linger_go()  # no block had to set out for the device, where all is in the pool
        self._check_room(load, size_bytes)
        trips = []
        for component in staying:
            part = component.part
            assert part.host is not None
            memory = self._room(sum(each.size_bytes for each in component.beside))
            sizes = [each.size_bytes for each in component.beside]
            component.kept = tuple(zip(component.beside, memory.split(sizes), strict=True))
            for each, onto in component.kept:
                trips.append(self._carrier.upload(
                    part.host, part.pinned, onto, lambda _: None, each.start
                ))  # fmt: skip
            component.bind_to_device()
        for trip in trips:
            trip.finish()
        memories = [self._room(plan.buffer_bytes) for _ in range(plan.buffers)]
        load.streaming = plan
        if plan.all_units:
            load.rotation = Rotation(plan.all_units, memories, self._lane)

    def _send_elsewhere(self, load: UnderWay) -> None:
        """Bring to another device what lives there, and what is streamed from there."""
        if load.placement.source in HOST:
            return
        neighbour = self._neighbours.named(load.placement.source)
        for component in load.components:
            if component.home is Home.ELSEWHERE:
                component.live_on(neighbour)
        for unit in load.streaming.units if load.streaming else ():
            assert unit.part.host is not None
            unit.elsewhere = neighbour.copy_of(unit.part.host.tensor(), unit.start, unit.size_bytes)

    def _room(self, size_bytes: int) -> torch.Tensor:
        if self._card is not None:
            return self._card.room_for_weights(size_bytes)
        return torch.empty(size_bytes, dtype=torch.uint8)

    def _begin_to_pin(self, part: Part, *, at_once: bool) -> None:
        """`at_once`: its first use would be slower by more than that takes."""
        if part.host is not None and part.complete:
            part.pinned = self._carrier.pin(part.host, part.pinned, at_once=at_once)

    def _undo(self, load: UnderWay) -> None:
        """Nothing is under way any more, and the device has nothing of this load."""
        for journey in load.journeys.values():
            journey.trip.give_up()
        self._carrier.settle()
        self._late.forget(load.model)
        if load.rotation is not None:
            load.rotation.end()
        for component in load.components:
            component.abroad = None
            component.part.residents.discard(load.model)
            if not component.part.residents:
                component.part.device = None
        self._end(load)

    def _end(self, load: UnderWay) -> None:
        load.journeys.clear()
        for files in load.files:
            files.close()

    def fill_pool(self, wanted: Callable[[], bool]) -> None:
        """Bring into the pool what went straight to the card, until one is `wanted` elsewhere."""
        self._late.fill(wanted)

    @property
    def fills_pool(self) -> bool:
        """Whether there is something to bring."""
        return self._late.owes

    # Leaving

    def evict(self, name: str) -> int:
        """Take a model off the device, once no job draws with it. Returns the bytes freed."""
        model = self._models.get(name)
        if model is None or not model.resident:
            return 0
        before_bytes = self.resident_bytes
        with model.in_use:
            self._departures += 1
            model.leaves(self._departures)
            withdraw(model.placement, model.pipeline)
            with self._weights_go():
                if model.rotation is not None:
                    model.rotation.end()
                    model.rotation = None
                for component in model.components:
                    self._leave(component, name)
        freed_bytes = before_bytes - self.resident_bytes
        if not model.keeps:
            self.close(name)
        return freed_bytes

    def _leave(self, component: Component, model: str) -> None:
        component.leave()
        component.part.residents.discard(model)
        if component.home is Home.DEVICE and not component.part.residents:
            self._lingering.append(component.part)

    def let_linger_go(self, keep: Sequence[Component] = ()) -> bool:
        """Free the blocks that no model on the device has any more; whether there were any.

        They wait for this so that the next model finds there what it shares with the last.
        """
        kept = {id(component.part) for component in keep}
        going = [p for p in self._lingering if not p.residents and id(p) not in kept]
        self._lingering = [part for part in self._lingering if id(part) in kept]
        if going:
            with self._weights_go():
                for part in going:
                    part.device = None
        return bool(going)

    def _weights_go(self) -> AbstractContextManager[None]:
        return self._card.weights_go() if self._card else nullcontext()

    def close(self, name: str) -> None:
        """Forget a model that is not on the device."""
        model = self._models.pop(name, None)
        if model is None:
            return
        self._on_close(model)
        for component in model.components:
            self._parts.let_go(component.part, name)
        self._late.forget_closed()
        self._ahead.closed(model.source)

    def free(self, size_bytes: int) -> None:
        """Let go of so many bytes of the pool, as far as models that are not on the device can."""
        while size_bytes > 0 and (there := self._parts.pool_bytes) and self._close_one_idle():
            size_bytes -= there - self._parts.pool_bytes

    def _close_one_idle(self) -> bool:
        """Make room in the pool: the model that left first is forgotten."""
        idle = [
            model
            for model in self._models.values()
            if not model.resident and any(component.part.in_pool for component in model.components)
        ]
        if not idle:
            return False
        self.close(min(idle, key=lambda model: model.departure).source.model)
        return True


def _is_outdated(model: OpenModel) -> bool:
    """A model on the device stays what it is; one that comes back comes from the newest files."""
    return not model.resident and any(component.is_outdated for component in model.components)
