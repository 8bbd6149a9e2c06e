"""What this machine has, as facts. torch is asked in a process of its own, never imported here."""

import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import psutil
from jupyter_core.paths import jupyter_config_path, jupyter_data_dir
from jupyter_server.config_manager import BaseJSONConfigManager

from workshop_gpu.catalogue import hub_cache
from workshop_gpu.host import gpu_readings, host_memory
from workshop_gpu.host.gpu_readings import GPU
from workshop_gpu.host.image_store import ImageStore
from workshop_gpu.host.weight_pool import usual_budget_bytes, why_no_pool

PACKAGES = (
    "jupyter_server", "jupyterlab", "ipykernel", "ipywidgets", "anywidget", "huggingface_hub",
    "torch", "diffusers", "transformers", "accelerate", "safetensors",
)  # fmt: skip
NEEDED_BY_WORKERS = ("torch", "diffusers", "transformers", "accelerate", "safetensors")

_TORCH_TIMEOUT_S = 120.0
_TORCH_QUESTION = """
import json, torch
cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
problem = ""
for card in range(cards):
    try:
        a = torch.ones(8, 8, device=f"cuda:{card}", dtype=torch.bfloat16)
        assert (a @ a)[0, 0].item() == 8.0
    except Exception as error:
        problem = f"cuda:{card}: {error}".splitlines()[0]
uncompiled = ""
if cards:
    from workshop_gpu.worker.compilers import why_not
    uncompiled = why_not()
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda or "",
                  "cards": cards, "problem": problem, "uncompiled": uncompiled}))
"""


class TorchReport(msgspec.Struct, frozen=True):
    """What torch says of itself. `cuda` is the CUDA it was built for ("": a CPU build); `cards`
    the GPUs it can use; `problem` why it, or one of them, does not work; `uncompiled` why blocks
    cannot be compiled for them."""

    version: str = ""
    cuda: str = ""
    cards: int = 0
    problem: str = ""
    uncompiled: str = ""


class MemoryHolder(msgspec.Struct, frozen=True):
    """A process that has memory on a GPU (0 bytes: the driver does not say how much)."""

    gpu_index: int
    name: str
    pid: int
    used_bytes: int


class Machine(msgspec.Struct, frozen=True):
    """This machine at this moment. All sizes are bytes."""

    system: str
    python: str
    cpus: int
    ram_bytes: int
    ram_free_bytes: int
    pool_bytes: int
    """what a server's weight pool may take if it starts now"""
    pool_problem: str
    """why there would be no weight pool, "" where there would be"""
    driver: str
    gpus: tuple[GPU, ...]
    holders: tuple[MemoryHolder, ...]
    packages: dict[str, str]
    """version by name, "" where a package is not installed"""
    node: str
    """Node.js's version, "" without it"""
    extension_enabled: bool
    cache_folder: str
    cache_free_bytes: int
    data_folder: str
    data_free_bytes: int
    kept_images_bytes: int = 0
    """pictures of jobs, in the data folder"""
    broken_journals: tuple[str, ...] = ()
    """names of journals that were set aside"""
    gpus_apart: tuple[tuple[int, int], ...] = ()
    """pairs of GPUs that cannot read each other's memory"""


def read_machine() -> Machine:
    """Look at everything but torch; takes well under a second."""
    memory = host_memory.read()
    pool_bytes = usual_budget_bytes(memory)
    cache, data = hub_cache.cache_folder(), Path(jupyter_data_dir()) / "workshop_gpu"
    return Machine(
        system=f"{platform.system()} {platform.release()} ({platform.machine()})",
        python=platform.python_version(),
        cpus=len(psutil.Process().cpu_affinity() or []) or psutil.cpu_count() or 1,
        ram_bytes=memory.total_bytes,
        ram_free_bytes=memory.available_bytes,
        pool_bytes=pool_bytes,
        pool_problem=why_no_pool(pool_bytes),
        driver=gpu_readings.driver_version(),
        gpus=tuple(gpu_readings.gpus()),
        holders=_holders(),
        packages={name: _version(name) for name in PACKAGES},
        node=_node_version(),
        extension_enabled=_extension_enabled(),
        cache_folder=str(cache),
        cache_free_bytes=_free_bytes(cache),
        data_folder=str(data),
        data_free_bytes=_free_bytes(data),
        kept_images_bytes=sum(each.bytes for each in ImageStore(data / "images").look().values()),
        broken_journals=tuple(sorted(path.name for path in data.glob("*.broken-*.sqlite3"))),
        gpus_apart=tuple(gpu_readings.gpus_apart()),
    )


def ask_torch() -> TorchReport:
    """Start torch in a process of its own, let it use every GPU once, and hear what it says."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TORCH_QUESTION],
            capture_output=True,
            text=True,
            timeout=_TORCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return TorchReport(problem=f"it did not answer within {_TORCH_TIMEOUT_S:.0f} s")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
        return TorchReport(problem=lines[-1])
    return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=TorchReport)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _node_version() -> str:
    node = shutil.which("node")
    if node is None:
        return ""
    try:
        told = subprocess.run([node, "--version"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout.decode(errors="replace").strip()


def _holders() -> tuple[MemoryHolder, ...]:
    return tuple(
        MemoryHolder(process.gpu_index, _process_name(process.pid), process.pid, process.used_bytes)
        for process in gpu_readings.gpu_processes()
    )


def _process_name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "a process that cannot be seen from here"


def _extension_enabled() -> bool:
    """What the configuration files say, in the server's own order: the first folder wins."""
    enabled: dict[str, bool] = {}
    for folder in reversed(jupyter_config_path()):
        manager = BaseJSONConfigManager(config_dir=folder, read_directory=True)
        server = manager.get("jupyter_server_config").get("ServerApp", {})
        enabled |= server.get("jpserver_extensions", {})
    return bool(enabled.get("workshop_gpu", False))


def _free_bytes(folder: Path) -> int:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(existing).free
