"""What the facts of a machine mean: what will work, what not, and what to do about it.

Pure functions from facts to findings, so that every case can be tested on any machine.
"""

from collections.abc import Iterator
from enum import Enum

import msgspec

from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.catalogue.files import LocalState
from workshop_gpu.cli.machine import NEEDED_BY_WORKERS, Machine, TorchReport
from workshop_gpu.conductor.errors import gigabytes
from workshop_gpu.host.gpu_readings import GPU

_LITTLE_RAM_BYTES = 4_000_000_000
_LITTLE_DISK_BYTES = 5_000_000_000
_FULL_GPU_SHARE = 0.5
_INSTALL = 'pip install "workshop-gpu[gpu]"'


class Level(Enum):
    """How much a finding matters."""

    FINE = "ok"
    NOTE = "note"
    PROBLEM = "problem"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at. `remedy` says what to do, "" where nothing is to be done.

    `stops_images`: without it no picture can be made at all.
    """

    level: Level
    text: str
    remedy: str = ""
    stops_images: bool = False


def of_machine(machine: Machine) -> Iterator[Finding]:
    """The computer: system, Python, memory, disks."""
    if machine.system.startswith("Linux"):
        yield Finding(Level.FINE, machine.system)
    else:
        yield Finding(Level.NOTE, machine.system, "Only Linux is tested; expect rough edges.")
    yield Finding(Level.FINE, f"Python {machine.python}, {machine.cpus} CPU cores")
    ram = f"{gigabytes(machine.ram_bytes)} RAM, {gigabytes(machine.ram_free_bytes)} of it free"
    if machine.ram_free_bytes < _LITTLE_RAM_BYTES:
        yield Finding(
            Level.NOTE, ram, "Large models pass through RAM while they load: close what you can."
        )
    else:
        yield Finding(Level.FINE, ram)
    if machine.pool_problem:
        yield Finding(
            Level.NOTE,
            f"no weight pool: {machine.pool_problem}",
            "Models that come back to a GPU are read from disk each time.",
        )
    else:
        yield Finding(
            Level.FINE,
            f"weight pool: {gigabytes(machine.pool_bytes)} of host memory, unless "
            "WorkshopGPU.pool_gb says otherwise",
        )
    disks = (
        ("models", machine.cache_folder, machine.cache_free_bytes),
        ("pictures", machine.data_folder, machine.data_free_bytes),
    )
    for what, folder, free_bytes in disks:
        text = f"disk for {what} ({folder}): {gigabytes(free_bytes)} free"
        if free_bytes < _LITTLE_DISK_BYTES:
            remedy = "HF_HOME names another folder" if what == "models" else "make room"
            yield Finding(Level.NOTE, text, f"That is little; {remedy}.")
        else:
            yield Finding(Level.FINE, text)


def of_journal(machine: Machine) -> Iterator[Finding]:
    """What is kept of jobs in the data folder."""
    yield Finding(
        Level.FINE,
        f"pictures kept: {gigabytes(machine.kept_images_bytes)}; the server drops the oldest "
        "beyond WorkshopGPU.keep_days and WorkshopGPU.keep_gb",
    )
    for name in machine.broken_journals:
        yield Finding(
            Level.NOTE,
            f"a journal was broken and set aside: {name}",
            "Its jobs were lost; the disk may be failing. Delete the file when it is of no use.",
        )


def of_gpus(machine: Machine) -> Iterator[Finding]:
    """The cards: memory, and who has it."""
    if not machine.gpus:
        yield Finding(
            Level.NOTE,
            "no NVIDIA GPU (no driver answers)",
            "Pictures are made on the CPU: fine for the shipped models, slow for large ones.",
        )
        return
    yield Finding(Level.FINE, f"NVIDIA driver {machine.driver}")
    for gpu in machine.gpus:
        yield _of_gpu(gpu, machine)
    for one, other in machine.gpus_apart:
        yield Finding(
            Level.NOTE,
            f"cuda:{one} and cuda:{other} cannot read each other's memory",
            "As a swap device either works all the same, but no faster than host memory.",
        )


def _of_gpu(gpu: GPU, machine: Machine) -> Finding:
    text = (
        f"cuda:{gpu.index} {gpu.name}: {gigabytes(gpu.total_bytes)}, "
        f"{gigabytes(gpu.total_bytes - gpu.used_bytes)} free"
    )
    holders = [
        f"{holder.name} (pid {holder.pid}"
        + (f", {gigabytes(holder.used_bytes)})" if holder.used_bytes else ")")
        for holder in machine.holders
        if holder.gpu_index == gpu.index
    ]
    if holders:
        text += f"; in use by {', '.join(holders)}"
    if gpu.used_bytes > gpu.total_bytes * _FULL_GPU_SHARE:
        return Finding(
            Level.NOTE, text, "More than half is taken: end what is not needed in the workshop."
        )
    return Finding(Level.FINE, text)


def of_packages(machine: Machine) -> Iterator[Finding]:
    """What is installed, and whether the server will offer it."""
    have = [f"{name} {found}" for name, found in machine.packages.items() if found]
    yield Finding(Level.FINE, ", ".join(have))
    missing = [name for name in NEEDED_BY_WORKERS if not machine.packages.get(name)]
    if missing:
        yield Finding(
            Level.PROBLEM,
            f"not installed: {', '.join(missing)}",
            f"{_INSTALL} installs what the machine with the GPU needs.",
            stops_images=True,
        )
    if not machine.packages.get("jupyterlab"):
        yield Finding(Level.NOTE, "JupyterLab is not installed", 'pip install "workshop-gpu[lab]"')
    node = f"Node.js {machine.node}" if machine.node else "no Node.js"
    yield Finding(Level.FINE, f"{node} (not needed)")
    if machine.extension_enabled:
        yield Finding(Level.FINE, "the Jupyter server extension is enabled")
    else:
        yield Finding(
            Level.PROBLEM,
            "the Jupyter server extension is not enabled",
            "jupyter server extension enable workshop_gpu --sys-prefix",
        )


def of_torch(torch: TorchReport, machine: Machine) -> Iterator[Finding]:
    """Whether torch starts, and whether it can use the GPUs that the driver sees."""
    if not torch.version:
        yield Finding(
            Level.PROBLEM,
            f"torch does not start: {torch.problem}",
            f"Install it anew: {_INSTALL}",
            stops_images=True,
        )
        return
    build = f"for CUDA {torch.cuda}" if torch.cuda else "for the CPU"
    yield Finding(Level.FINE, f"torch {torch.version} starts (built {build})")
    if torch.problem:
        yield Finding(
            Level.PROBLEM,
            f"torch cannot use a GPU: {torch.problem}",
            "The driver may be too old for this torch, or the card too old for its CUDA.",
        )
    elif machine.gpus and torch.cards < len(machine.gpus):
        yield Finding(
            Level.PROBLEM,
            f"the driver sees {len(machine.gpus)} GPU(s), torch {torch.cards}",
            "Install a torch built for CUDA (see pytorch.org), or look at CUDA_VISIBLE_DEVICES."
            if not torch.cuda
            else "Look at CUDA_VISIBLE_DEVICES, and whether the driver is new enough.",
        )

    if torch.cards and torch.uncompiled:
        yield Finding(
            Level.NOTE,
            f"models' blocks are not compiled: {torch.uncompiled}",
            "Models draw all the same, up to a third slower.",
        )
    elif torch.cards:
        yield Finding(Level.FINE, "models' blocks are compiled while nothing else goes on")


def of_models(catalogue: Catalogue, machine: Machine) -> Iterator[Finding]:
    """Which models can be used, and which not."""
    for problem in catalogue.problems:
        yield Finding(Level.PROBLEM, problem, "Until then the models stay as they were.")
    usable = 0
    largest = max((gpu.total_bytes for gpu in machine.gpus), default=machine.ram_bytes // 2)
    for spec in catalogue.specs:
        local = catalogue.local(spec.id)
        if not spec.enabled:
            yield Finding(Level.NOTE, f"{spec.id}: switched off ({spec.reason or 'no reason'})")
        elif local.state is LocalState.UNUSABLE:
            yield Finding(Level.PROBLEM, f"{spec.id}: {local.problem}")
        elif local.state is LocalState.TO_DOWNLOAD:
            usable += 1
            yield Finding(
                Level.NOTE, f"{spec.id}: not on this disk; it is downloaded on its first use"
            )
        elif local.file_bytes > largest:
            yield Finding(
                Level.NOTE,
                f"{spec.id}: {gigabytes(local.file_bytes)} of weights, the largest device has "
                f"{gigabytes(largest)}",
                'Write dtype = "bfloat16" into models.toml, or use a smaller model.',
            )
        else:
            usable += 1
            yield Finding(Level.FINE, f"{spec.id}: {gigabytes(local.file_bytes)} of weights")
    if not usable:
        yield Finding(
            Level.PROBLEM,
            "no model can be used",
            "`workshop-gpu models` shows why each cannot.",
            stops_images=True,
        )


def verdicts(machine: Machine, torch: TorchReport | None, images: bool) -> Iterator[str]:
    """What will work and what not, in plain words."""
    cards = min(len(machine.gpus), torch.cards) if torch else len(machine.gpus)
    if not images:
        yield "Pictures cannot be made here; the problems above say what to do."
    elif cards:
        yield f"Pictures are made on {cards} GPU(s), and a room of notebooks can share them."
    else:
        yield (
            "Pictures are made on the CPU. The shipped models take seconds; large models take "
            "minutes."
        )
    if machine.extension_enabled:
        yield "`jupyter lab` serves Workshop GPU to its notebooks."
    else:
        yield "`jupyter lab` does not serve Workshop GPU until the extension is enabled."
