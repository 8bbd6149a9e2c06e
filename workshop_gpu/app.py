"""The server extension: configuration, start, stop."""

import math
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_core.paths import jupyter_data_dir
from jupyter_server.extension.application import ExtensionApp
from traitlets import CaselessStrEnum, Float, Int, List, TraitError, Unicode, default, validate

from workshop_gpu.api import provisioner
from workshop_gpu.api.identity import KernelTokens
from workshop_gpu.api.jupyter_events import JupyterEvents
from workshop_gpu.api.kernels import Kernels, is_busy
from workshop_gpu.api.limits import Visitors
from workshop_gpu.api.routes import routes
from workshop_gpu.catalogue.catalogue import Catalogue, default_models_file
from workshop_gpu.conductor.conductor import Settings
from workshop_gpu.conductor.errors import WorkshopError
from workshop_gpu.conductor.ladder import names_for_any_model
from workshop_gpu.host.devices import DeviceConfig, find_devices, with_cap
from workshop_gpu.host.foreign import ForeignProcesses
from workshop_gpu.host.metrics import Metrics
from workshop_gpu.host.retention import Limits
from workshop_gpu.host.runtime import Runtime, RuntimeSettings


class WorkshopGPU(ExtensionApp):
    """Shares this machine's GPUs among all notebooks of the server."""

    name = "workshop_gpu"
    app_name = "Workshop GPU"
    description = "Shares this machine's GPUs among all notebooks of the server."
    load_other_extensions = True

    devices = List(
        Unicode(),
        default_value=["auto"],
        help='The devices to use: "auto" (every GPU, else the CPU), "cuda:0", "cpu:2GB" '
        "(the CPU with a pretended memory of that size).",
    ).tag(config=True)

    models_file = Unicode(
        help="The models.toml of this server. Default: workshop_gpu/models.toml in Jupyter's "
        "configuration folder; without it the shipped models and those in the Hugging Face "
        "cache are offered.",
    ).tag(config=True)

    data_folder = Unicode(help="Where images and logs are kept.").tag(config=True)

    journal_file = Unicode(
        help="The journal of accepted jobs, on a disk of this machine if possible. Default: "
        "journal.sqlite3 in the data folder.",
    ).tag(config=True)

    keep_days = Float(
        30.0,
        min=0.0,
        help="For how many days ended jobs and their images are kept; 0: without limit.",
    ).tag(config=True)

    keep_gb = Float(
        10.0,
        min=0.0,
        help="How many GB of images are kept; then the oldest go. 0: without limit.",
    ).tag(config=True)

    queue_limit = Int(3, min=1, help="How many jobs of one participant may wait.").tag(config=True)

    patience_s = Float(
        20.0,
        min=0.0,
        help="For how many seconds a job whose model is ready may be preferred to others.",
    ).tag(config=True)

    min_residency_s = Float(
        10.0,
        min=0.0,
        help="For how many seconds a model that was loaded just now is protected against "
        "another one; at most the patience.",
    ).tag(config=True)

    batch_limit = Int(
        4, min=1, help="How many jobs of one kind are drawn together at most; 1: never several."
    ).tag(config=True)

    reservation_limit = Int(
        4, min=0, help="How many reservations of GPU memory one participant may have."
    ).tag(config=True)

    download_limit_s = Float(
        3600.0, min=0.0, help="For how many seconds a download may go on; 0: without limit."
    ).tag(config=True)

    load_limit_s = Float(
        600.0, min=0.0, help="For how many seconds a load may go on; 0: without limit."
    ).tag(config=True)

    wait_limit_s = Float(
        0.0,
        min=0.0,
        help="For how many seconds a job may wait, pauses, downloads and loads aside; 0: without "
        "limit.",
    ).tag(config=True)

    run_limit_s = Float(
        3600.0, min=0.0, help="For how many seconds a job may run; 0: without limit."
    ).tag(config=True)

    stall_limit_s = Float(
        300.0,
        min=0.0,
        help="For how many seconds a job may run without a step forward before its worker counts "
        "as hung; longer where its steps were measured to be long; 0: without limit.",
    ).tag(config=True)

    silence_limit_s = Float(
        60.0,
        min=0.0,
        help="For how many seconds a worker may give no sign of life, before it is ended as one "
        "that hangs; 0: without limit.",
    ).tag(config=True)

    requests_per_s = Float(
        100.0, min=0.0, help="Requests a second that one participant may make; 0: without limit."
    ).tag(config=True)

    stream_limit = Int(
        16, min=0, help="Event streams that one participant may have open; 0: without limit."
    ).tag(config=True)

    model_roots = List(
        Unicode(),
        help="Folders in which the models of models.toml must lie, links followed (the shipped "
        "ones and the Hugging Face cache aside); empty: anywhere.",
    ).tag(config=True)

    worker_threads = Int(
        0, min=0, help="CPU threads of each worker; 0 leaves the choice to torch."
    ).tag(config=True)

    pool_gb = Float(
        None,
        min=0.0,
        allow_none=True,
        help="How many GB of this machine's memory the weight pool may take, which keeps models "
        "that have left a GPU, so that they come back in a moment; 0: no pool. Default: half of "
        "the memory that is available at the start.",
    ).tag(config=True)

    default_placement = CaselessStrEnum(
        list(names_for_any_model()),
        "auto",
        help='Where models live of which models.toml does not say it: "auto" (the planner decides) '
        'or the name of a rung; "resident": on the GPU as a whole, or not at all.',
    ).tag(config=True)

    max_vram_gb = Float(
        0.0,
        min=0.0,
        help="How many GB of each GPU this server may use, as if the cards were smaller; 0: all.",
    ).tag(config=True)

    spare_worker = CaselessStrEnum(
        ["auto", "on", "off"],
        "auto",
        help='Whether a process stands by to take the place of a worker that dies: "on", "off", '
        '"auto" (where there is a GPU).',
    ).tag(config=True)

    compile_blocks = CaselessStrEnum(
        ["auto", "off"],
        "auto",
        help="Whether models' blocks are compiled while nothing else goes on, to draw faster: "
        '"auto" (on a GPU, where triton is installed), "off".',
    ).tag(config=True)

    compile_limit_s = Float(
        1200.0,
        min=0.0,
        help="For how many seconds the compiler may work at one kind of blocks before it counts as "
        "hung and is ended; the model's blocks then stay as they are; 0: without limit.",
    ).tag(config=True)

    @default("journal_file")
    def _default_journal_file(self) -> str:
        return str(Path(self.data_folder) / "journal.sqlite3")

    @default("models_file")
    def _default_models_file(self) -> str:
        return str(default_models_file())

    @default("data_folder")
    def _default_data_folder(self) -> str:
        return str(Path(jupyter_data_dir()) / "workshop_gpu")

    @validate("devices")
    def _check_devices(self, proposal: Any) -> list[str]:
        try:
            find_devices(proposal["value"])
        except WorkshopError as error:
            raise TraitError(error.message) from None
        return list(proposal["value"])

    @validate("pool_gb", "keep_gb", "max_vram_gb")
    def _check_gb(self, proposal: Any) -> float | None:
        if proposal["value"] is not None and not math.isfinite(proposal["value"]):
            raise TraitError(f"{proposal['trait'].name} is a number of GB")
        return None if proposal["value"] is None else float(proposal["value"])

    def initialize_settings(self) -> None:
        most_bytes = int(self.max_vram_gb * 10**9)
        devices = tuple(with_cap(device, most_bytes) for device in find_devices(self.devices))
        dtype = "bfloat16" if all(device.gpu_uuid for device in devices) else "float32"
        tokens = KernelTokens()
        server: Any = self.serverapp
        runtime = Runtime(
            RuntimeSettings(
                devices=devices,
                data_folder=Path(self.data_folder),
                journal=Path(self.journal_file),
                keep=Limits(self.keep_days, int(self.keep_gb * 10**9)),
                threads=self.worker_threads,
                pool_bytes=None if self.pool_gb is None else int(self.pool_gb * 10**9),
                spare_worker=self._keeps_spare(devices),
                silence_limit_s=self.silence_limit_s,
                compiler=self.compile_blocks,
                compile_limit_s=self.compile_limit_s,
                conductor=self._conductor_settings(),
            ),
            Catalogue(
                Path(self.models_file),
                default_dtype=dtype,
                default_placement=self.default_placement,
                roots=tuple(Path(root).expanduser() for root in self.model_roots),
            ),
            self.log,
            ForeignProcesses(tokens.name),
            lambda kernel: is_busy(server.kernel_manager, kernel),
        )
        kernels = Kernels(runtime, tokens, lambda: _local_url(self.serverapp), self.log)
        self.settings.update(
            workshop_gpu=runtime,
            workshop_gpu_tokens=tokens,
            workshop_gpu_kernels=kernels,
            workshop_gpu_visitors=Visitors(self.requests_per_s, self.stream_limit),
        )
        self._tell_jupyter(runtime)
        self._use_our_provisioner()

    def _tell_jupyter(self, runtime: Runtime) -> None:
        """Loads, evictions and jobs for Jupyter's `/metrics` and its event system."""
        server: Any = self.serverapp
        events = JupyterEvents(server.event_logger)
        self._metrics = Metrics(runtime.snapshot)
        self._metrics.serve()
        runtime.chronicle.listen(events.note)
        runtime.chronicle.listen(self._metrics.note)
        runtime.kept.audit.listen(events.audited)

    def _keeps_spare(self, devices: tuple[DeviceConfig, ...]) -> bool:
        if self.spare_worker == "auto":
            return any(device.gpu_uuid for device in devices)
        return bool(self.spare_worker == "on")

    def _conductor_settings(self) -> Settings:
        return Settings(
            queue_limit=self.queue_limit,
            patience_s=self.patience_s,
            min_residency_s=self.min_residency_s,
            batch_limit=self.batch_limit,
            reservation_limit=self.reservation_limit,
            download_limit_s=self.download_limit_s,
            load_limit_s=self.load_limit_s,
            wait_limit_s=self.wait_limit_s,
            run_limit_s=self.run_limit_s,
            stall_limit_s=self.stall_limit_s,
        )

    def initialize_handlers(self) -> None:
        self.handlers.extend(routes())

    def _use_our_provisioner(self) -> None:
        """Kernels get their token from our provisioner, unless the instructor chose another.

        Set for this process only: in a configuration file it would outlive the package and
        then break every start of a kernel.
        """
        factory = KernelProvisionerFactory.instance(parent=self.serverapp)
        if provisioner.NAME not in factory.provisioners:
            problem = "its kernel provisioner is not installed (pip install workshop-gpu)"
        elif factory.default_provisioner_name not in ("local-provisioner", provisioner.NAME):
            problem = f"kernels are started by {factory.default_provisioner_name}"
        else:
            factory.default_provisioner_name = provisioner.NAME
            return
        self.log.warning("Kernels get no token from Workshop GPU: %s.", problem)

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        self.settings["workshop_gpu"].start()

    async def stop_extension(self) -> None:
        self._metrics.stop()
        await self.settings["workshop_gpu"].stop()


def _local_url(server: Any) -> str:
    """The base URL for kernels: this machine's own, whatever address the world outside uses.

    Without a token in it: a kernel gets its own, not the server's.
    """
    if server.sock:
        return ""  # A Unix socket has no URL that an HTTP client could use.
    scheme = "https" if server.certfile else "http"
    host = "127.0.0.1" if server.ip in ("", "*", "0.0.0.0", "localhost") else server.ip  # noqa: S104
    host = "[::1]" if host == "::" else f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}:{server.port}{server.base_url}"
