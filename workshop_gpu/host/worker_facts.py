"""A worker's report as facts for the conductor."""

from workshop_gpu.conductor import events
from workshop_gpu.worker import protocol


def facts(
    device: str,
    report: protocol.FromWorker,
    processes: tuple[events.ForeignProcess, ...] | None = None,
    most_bytes: int = 0,
) -> list[events.Event]:
    """The events that a report means, in order. `processes` are those of others that the driver
    named last; None: it has not said. `most_bytes`: what of the device may be used (0: all).

    A memory reading comes behind the change that it was taken after, so that the ledger never
    goes by a reading that is older than its own last change. `Done` is not in here: its images
    must be on disk first.
    """
    found: list[events.Event] = []
    match report:
        case protocol.Ready():
            foreign = report.memory.used_bytes - report.memory.ours_bytes
            bus = report.bus_bytes_per_s
            total_bytes = min(report.total_bytes, most_bytes or report.total_bytes)
            found.append(
                events.DeviceReady(
                    device, total_bytes, max(0, foreign), bus, report.compiles, report.neighbours
                )
            )
        case protocol.Loading(model, done_bytes, total_bytes, bytes_per_s):
            found.append(events.SlotProgressed(device, model, done_bytes, total_bytes, bytes_per_s))
        case protocol.Loaded(model, weights_bytes, seconds_s):
            parts, encoders = _named(report.parts), _named(report.encoders)
            found.append(
                events.SlotLoaded(
                    device, model, weights_bytes, seconds_s, parts,
                    report.placement, report.roles, report.transient_bytes, report.lacks,
                    encoders,
                )
            )  # fmt: skip
        case protocol.Compiled(model, ready, problem):
            found.append(events.SlotCompiled(device, model, ready, problem))
        case protocol.LoadFailed(model, error):
            found.append(events.LoadFailed(device, model, error))
        case protocol.Evicted(model, freed_bytes):
            found.append(events.SlotEvicted(device, model, freed_bytes))
        case protocol.Drifted(device_bytes, host_bytes):
            found.append(events.WorkerDrifted(device, device_bytes, host_bytes))
        case _:
            found += _of_job(report)
    memory: protocol.Memory | None = getattr(report, "memory", None)
    if memory is not None:
        found.append(
            events.MemoryRead(
                device, memory.used_bytes, memory.ours_bytes, processes, elsewhere=memory.elsewhere
            )
        )
    return found


def _of_job(report: protocol.FromWorker) -> list[events.Event]:
    match report:
        case protocol.Started(job):
            return [events.JobStarted(job)]
        case protocol.Progress(job, step, steps):
            return [events.JobProgressed(job, step, steps)]
        case protocol.Drawn():
            return [
                events.JobDrawn(
                    report.job, report.seconds_s, report.peak_bytes, report.batch,
                    report.compiled, report.to_compile, report.loras, report.steps_s,
                    report.encoded,
                )
            ]  # fmt: skip
        case protocol.Failed(job, error):
            return [events.JobFailed(job, error)]
        case protocol.Stopped(job):
            return [events.JobStopped(job)]
    return []


def _named(parts: tuple[protocol.PartBytes, ...]) -> tuple[events.PartBytes, ...]:
    return tuple(events.PartBytes(part.part, part.device_bytes) for part in parts)
