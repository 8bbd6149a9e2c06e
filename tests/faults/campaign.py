"""A room of people, a hand that breaks things, and an observer who looks for what is lost."""

import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx

from tests.faults.auditor import Auditor
from tests.faults.hand import Hand
from tests.serverprocess import ROOT, ServerProcess

_log = logging.getLogger(__name__)

POINTS = Path(__file__).parent / "points"
SILENCE_LIMIT_S = 5.0
DISK_MB = 400
_SETTLE_S = 240.0


@dataclass(frozen=True)
class Plan:
    """What is done for how long. `weights` says how often each kind of fault comes; kinds that
    are not in it do not."""

    seconds_s: float
    seed: int
    clients: int
    pause_s: float
    weights: dict[str, float]
    devices: tuple[str, ...] = ("cpu:45MB", "cpu:60MB")
    spare_worker: str = "on"


@dataclass
class Report:
    """What happened, and what was wrong (nothing, if all is well)."""

    plan: Plan
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    accepted: int = 0
    checked_images: int = 0
    wrong: list[str] = field(default_factory=list)
    log: str = ""

    def text(self) -> str:
        rows = [f"seed {self.plan.seed}, {self.plan.seconds_s:.0f} s, {self.plan.clients} clients"]
        rows += ["", "faults", *_rows(self.faults)]
        rows += ["", f"jobs accepted {self.accepted}, outcomes", *_rows(self.outcomes)]
        rows += ["", f"pictures compared with their seed's: {self.checked_images}"]
        rows += ["", f"wrong: {len(self.wrong)}", *self.wrong]
        return "\n".join(rows)


def _rows(counts: Counter[str]) -> list[str]:
    return [f"  {count:6}  {name}" for name, count in sorted(counts.items())] + [
        f"  {counts.total():6}  in all"
    ]


class Campaign:
    """Runs a plan once. All that is the server's lies in `folder`; in `notes`, on a disk that no
    fault fills, what its clients and the observer write down."""

    def __init__(self, plan: Plan, folder: Path, notes: Path) -> None:
        self._plan = plan
        self._notes = notes
        self._random = Random(plan.seed)
        self._clients: list[subprocess.Popen[bytes]] = []
        self._started_clients = 0
        self._server = ServerProcess(
            plan.devices,
            (
                f"--WorkshopGPU.silence_limit_s={SILENCE_LIMIT_S}",
                f"--WorkshopGPU.spare_worker={plan.spare_worker}",
                "--WorkshopGPU.worker_threads=1",
                "--WorkshopGPU.patience_s=2",
                "--WorkshopGPU.min_residency_s=1",
            ),
            folder=folder,
            env={"PYTHONPATH": _path(POINTS, ROOT)},
        )
        self._hand = Hand(
            self._server, self._random, self._start_server, self._new_client, self._a_client
        )
        self._auditor = Auditor(folder, notes)
        self._over = threading.Event()

    def run(self) -> Report:
        self._start_server()
        try:
            self._auditor.draw_references()
            for _ in range(self._plan.clients):
                self._start_client()
            watching = threading.Thread(target=self._watch, daemon=True)
            watching.start()
            self._auditor.wait_for_work(_SETTLE_S)
            self._break_things()
            self._over.set()
            watching.join()
            self._stop_clients()
            self._settle()
        finally:
            self._over.set()
            self._stop_clients()
            self._stop_server()
        self._auditor.check_processes()
        return Report(
            self._plan,
            self._hand.done,
            self._auditor.counts(),
            len(self._auditor.accepted),
            self._auditor.checked_images,
            self._auditor.wrong,
            self._server.log_text(),
        )

    def _break_things(self) -> None:
        kinds, weights = list(self._plan.weights), list(self._plan.weights.values())
        end = time.monotonic() + self._plan.seconds_s
        while time.monotonic() < end:
            time.sleep(self._plan.pause_s * 2 * self._random.random())
            kind = self._random.choices(kinds, weights)[0]
            self._hand.act(kind)
            done, accepted = self._hand.done.total(), len(self._auditor.accepted)
            wrong = self._auditor.wrong[-1:] or "nothing"
            _log.info("%d faults, the last: %s; %d jobs; wrong: %s", done, kind, accepted, wrong)

    def _watch(self) -> None:
        """Settles jobs while they are remembered."""
        while not self._over.wait(1.0):
            try:
                with self._auditor.connection() as http:
                    self._auditor.look(http)
            except (httpx.HTTPError, OSError):
                continue  # the server is away
            except Exception as problem:
                self._auditor.wrong.append(f"the observer broke: {problem!r}")
                raise

    def _settle(self) -> None:
        try:
            self._auditor.wait_for_all(_SETTLE_S)
            self._auditor.check_memory(120.0)
        except httpx.HTTPError as problem:
            self._auditor.wrong.append(f"the server does not answer at the end: {problem!r}")

    # the server

    def _start_server(self) -> None:
        self._server.start()
        self._hand.data_folder.mkdir(parents=True, exist_ok=True)
        address = {"url": f"{self._server.url}workshop-gpu/", "token": self._server.token}
        new = self._notes / "address.new"
        new.write_text(json.dumps(address))
        new.replace(self._notes / "address")

    def _stop_server(self) -> None:
        started = time.monotonic()
        self._server.end()
        if (took_s := time.monotonic() - started) > 20.0:
            self._auditor.wrong.append(f"the server took {took_s:.0f} s to end")

    # clients

    def _start_client(self) -> None:
        self._started_clients += 1
        number = self._started_clients
        seed = str(self._plan.seed * 10_000 + number)
        command = [sys.executable, "-m", "tests.faults.client", str(self._notes)]
        self._clients.append(
            subprocess.Popen(
                [*command, f"client-{number}", seed],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": _path(ROOT)},
            )
        )

    def _new_client(self) -> None:
        """One is killed; another person comes."""
        client = self._random.choice(self._clients)
        self._clients.remove(client)
        client.kill()
        client.wait()
        self._start_client()

    def _a_client(self) -> int:
        return self._random.choice(self._clients).pid

    def _stop_clients(self) -> None:
        while self._clients:
            client = self._clients.pop()
            client.kill()
            client.wait()


def _path(*first: Path) -> str:
    """For PYTHONPATH."""
    return os.pathsep.join([*map(str, first), *filter(None, [os.environ.get("PYTHONPATH")])])


@contextlib.contextmanager
def small_disk() -> Iterator[Path]:
    """A folder on a file system of its own that can really be full; where that takes more rights
    than we have, just a folder."""
    with tempfile.TemporaryDirectory(prefix="workshop-gpu-faults-") as name:
        size = f"size={DISK_MB}m"
        mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", name]
        try:
            mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            mounted = False
        try:
            yield Path(name)
        finally:
            if mounted:
                subprocess.run(["umount", "--lazy", name], check=False)
