"""A real Jupyter server with the extension, in a process of its own, for tests of all folders."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

import httpx

ROOT = Path(__file__).parent.parent
START_TIMEOUT_S = 180.0
END_TIMEOUT_S = 60.0
WHOLE = ("--WorkshopGPU.default_placement=resident",)
"""For tests of eviction: no model becomes smaller so that another one has room beside it."""


class ServerProcess:
    """Use it in a `with` statement, or call `start` and `stop`.

    `devices` are the server's, `args` go to `jupyter server` (or to `app`, such as "lab"). All
    of Jupyter's folders lie in `folder`, a new temporary one unless given. `port` 0 is any. The
    log is in `log`; where a test failed, `keep_log` prints it.
    """

    def __init__(
        self,
        devices: tuple[str, ...] = ("cpu:2GB",),
        args: tuple[str, ...] = (),
        *,
        app: str = "server",
        folder: Path | None = None,
        env: dict[str, str] | None = None,
        port: int = 0,
    ) -> None:
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="workshop-gpu-"))
        self.token = "a-token-for-tests"
        self.log = self.folder / "server.log"
        self.url = ""
        self._devices = devices
        self._args = args
        self._app = app
        self._env = env or {}
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runtime_dir(self) -> Path:
        return self.folder / "runtime"

    @property
    def root_dir(self) -> Path:
        """Where the server's files (notebooks) lie."""
        return self.folder / "root"

    def environment(self) -> dict[str, str]:
        """What the server runs with: no folder of this machine's user, no network."""
        names = {
            "HOME": "home",
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "IPYTHONDIR": "ipython",
            "XDG_CACHE_HOME": "cache",
            "HF_HOME": "huggingface",
        }
        folders = {name: str(self.folder / place) for name, place in names.items()}
        for folder in folders.values():
            Path(folder).mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        fixed = {
            "PYTHONPATH": path,
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "JUPYTER_PREFER_ENV_PATH": "0",
        }
        rest = {k: v for k, v in os.environ.items() if not k.startswith(("JPY_", "WORKSHOP_GPU_"))}
        return {**rest, **folders, **fixed, **self._env}

    def write_config(self, *lines: str) -> None:
        """What `jupyter_server_config.py` says, from the next start on."""
        folder = self.folder / "config"
        folder.mkdir(exist_ok=True)
        (folder / "jupyter_server_config.py").write_text("\n".join(lines) + "\n")

    def start(self) -> Self:
        self.root_dir.mkdir(parents=True, exist_ok=True)
        command = [
            *(sys.executable, "-m", "jupyter", self._app, "--no-browser", "--allow-root"),
            "--ip=127.0.0.1",
            f"--port={self._port}",
            f"--IdentityProvider.token={self.token}",
            f"--ServerApp.root_dir={self.root_dir}",
            "--ServerApp.jpserver_extensions=workshop_gpu=True",
            *(f"--WorkshopGPU.devices={device}" for device in self._devices),
            *self._args,
        ]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env=self.environment(),
                cwd=self.folder,
                start_new_session=True,
            )
        self._wait_until_it_answers()
        return self

    def end(self) -> None:
        """End the server as the operating system would; after a minute by force."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def stop(self) -> None:
        """End the server, and remove its folder if that is its own."""
        self.end()
        if self._own_folder and not os.environ.get("WORKSHOP_GPU_KEEP_LOGS"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """End the server as a power cut would."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_until_it_answers(self) -> None:
        """Returns once the server says who we are; raises with its log if it ends or is silent."""
        info = self.runtime_dir / f"jpserver-{self.pid}.json"
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                break
            try:
                self.url = json.loads(info.read_text())["url"].replace("localhost", "127.0.0.1")
                headers = {"Authorization": f"token {self.token}"}
                address = self.url + "workshop-gpu/api/me"
                status = httpx.get(
                    address, headers=headers, trust_env=False, timeout=30
                ).status_code
                if status == 200:
                    return
                if status == 404:  # it runs without us: an extension that fails is only logged
                    break
            except (OSError, ValueError, httpx.HTTPError):
                pass
            # The one place that waits by the clock: another process has no event to wait for.
            time.sleep(0.05)
        text = self.log_text()
        self.stop()
        raise RuntimeError(f"The server did not start:\n{text[:12000]}")
