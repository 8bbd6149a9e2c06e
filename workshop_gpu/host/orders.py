"""The conductor's orders, as messages to the workers and as downloads."""

from collections.abc import Callable, Mapping
from typing import get_args

from workshop_gpu import __version__
from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.errors import WorkshopError
from workshop_gpu.host.input_store import InputStore
from workshop_gpu.host.records import JobRecords
from workshop_gpu.host.supervisor import Supervisor
from workshop_gpu.worker import protocol

Order = (
    effects.LoadModel
    | effects.FetchModel
    | effects.EvictModel
    | effects.RunJob
    | effects.CompileModel
    | effects.CancelJob
    | effects.StopWorker
    | effects.StopFetch
)
ORDERS: tuple[type[Order], ...] = get_args(Order)


class Orders:
    """Gives orders to those who carry them out.

    `tell` hands a fact to the conductor, where an order cannot even be given; `fetch` and
    `stop_fetch` begin and end a model's download.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        jobs: JobRecords,
        inputs: InputStore,
        supervisors: Mapping[str, Supervisor],
        tell: Callable[[events.Event], None],
        fetch: Callable[[str], None],
        stop_fetch: Callable[[str], None],
    ) -> None:
        self._catalogue = catalogue
        self._jobs = jobs
        self._inputs = inputs
        self._supervisors = supervisors
        self._tell = tell
        self._fetch = fetch
        self._stop_fetch = stop_fetch

    def give(self, order: Order) -> None:
        match order:
            case effects.LoadModel():
                self._load(order)
            case effects.FetchModel(model):
                self._fetch(model)
            case effects.EvictModel(device, model, room_for):
                evict = protocol.Evict(model, load_follows=bool(room_for))
                self._supervisors[device].send(evict)
            case effects.RunJob():
                self._supervisors[order.device].send(self._run(order))
            case effects.CompileModel(device, model):
                self._supervisors[device].send(protocol.Compile(model))
            case effects.CancelJob(device, job):
                self._supervisors[device].send(protocol.Cancel(job))
            case effects.StopWorker(device, reason):
                self._supervisors[device].stop_worker(reason)
            case effects.StopFetch(model):
                self._stop_fetch(model)

    def _load(self, order: effects.LoadModel) -> None:
        try:
            source = self._catalogue.source(order.model)
        except WorkshopError as error:
            self._tell(events.LoadFailed(order.device, order.model, error.report()))
        else:
            load = protocol.Load(source, order.placement, order.most_bytes)
            self._supervisors[order.device].send(load)

    def _run(self, order: effects.RunJob) -> protocol.Run:
        first, *others = (self._member(job, order.placement) for job in (order.job, *order.others))
        return protocol.Run(
            order.job,
            order.model,
            first.params,
            first.metadata,
            tuple(others),
            inputs=first.inputs,
            lora_files=first.lora_files,
            compiles=order.compiles,
        )

    def _member(self, job: str, placement: str) -> protocol.BatchMember:
        metadata = {"software": f"workshop-gpu {__version__}", "job": job}
        if placement:
            metadata["placement"] = placement
        params = self._jobs.get(job).params
        loras = {name: self._catalogue.lora(name) for name in params.loras}
        files = {name: lora.path for name, lora in loras.items() if lora is not None}
        return protocol.BatchMember(job, params, metadata, self._inputs.files(params), files)
