"""The independent observer: what was accepted, what became of it, and what is left at the end."""

import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.faults.pictures import WISHES, Pixels, alike, drawn
from workshop_gpu.client.images import read_metadata

ENDED = ("done", "failed", "cancelled")


@dataclass
class Auditor:
    """Reads what the clients wrote down in `notes`, and asks the server, whose folder is `folder`,
    as an admin. `wrong` are sentences."""

    folder: Path
    notes: Path
    references: dict[int, list[Pixels]] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    outcomes: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    checked_images: int = 0

    def connection(self) -> httpx.Client:
        address = json.loads((self.notes / "address").read_text())
        headers = {"Authorization": f"token {address['token']}"}
        return httpx.Client(base_url=address["url"], headers=headers, timeout=60.0, trust_env=False)

    def draw_references(self) -> None:
        """Every wish, drawn once before anything happens."""
        with self.connection() as http:
            for number, wish in enumerate(WISHES):
                job = http.post("api/jobs", json=wish.body()).raise_for_status().json()["id"]
                while (found := self._job(http, job))["state"] not in ENDED:
                    time.sleep(0.1)
                self.references[number] = drawn(wish, found, lambda path: _bytes(http, path))

    def wait_for_work(self, timeout_s: float) -> None:
        """Until the first job was accepted: on a busy machine people need a while to come."""
        deadline = time.monotonic() + timeout_s
        while not self.accepted and time.monotonic() < deadline:
            time.sleep(0.1)
            self._read_ledgers()

    # while it goes on

    def look(self, http: httpx.Client) -> None:
        """Takes in what was accepted, and settles what has ended. Raises httpx.HTTPError while
        the server is away."""
        self._read_ledgers()
        for job in self.unsettled():
            found = self._job(http, job)
            if not found:
                self._settle(job, "lost")
                self.wrong.append(f"job {job} was accepted and is unknown")
            elif found["state"] in ENDED:
                self._judge(http, job, found)

    def unsettled(self) -> list[str]:
        return [job for job in self.accepted if job not in self.outcomes]

    def look_again(self, http: httpx.Client) -> None:
        """No outcome may change once it is there."""
        for found in http.get("api/jobs?all=1").raise_for_status().json()["jobs"]:
            told = self.outcomes.get(found["id"])
            now = _outcome(found)
            if told is not None and told != now and told != "lost":
                self.wrong.append(f"job {found['id']} was {told} and is now {now}")

    def _read_ledgers(self) -> None:
        for ledger in self.notes.glob("accepted-*.jsonl"):
            whole, _, _ = ledger.read_text().rpartition("\n")
            for line in whole.splitlines():
                entry = json.loads(line)
                if "wish" in entry:
                    self.accepted.setdefault(entry["job"], entry["wish"])
                else:
                    self.cancelled.add(entry["job"])

    def _job(self, http: httpx.Client, job: str) -> dict[str, Any]:
        answer = http.get(f"api/jobs/{job}")
        if answer.status_code == 404:
            return {}
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    def _judge(self, http: httpx.Client, job: str, found: dict[str, Any]) -> None:
        if found["state"] == "cancelled":
            self._read_ledgers()  # it may have been asked for since
        if found["state"] == "cancelled" and job not in self.cancelled:
            self.wrong.append(f"job {job} was cancelled by nobody")
        if found["state"] == "failed" and not found["error"]["message"]:
            self.wrong.append(f"job {job} failed without a reason")
        if found["state"] == "done":
            self._check_images(http, job, found)
        self._settle(job, _outcome(found))

    def _check_images(self, http: httpx.Client, job: str, found: dict[str, Any]) -> None:
        wish = WISHES[self.accepted[job]]
        files: list[bytes] = []

        def fetch(path: str) -> bytes:
            files.append(_bytes(http, path))
            return files[-1]

        try:
            images = drawn(wish, found, fetch)
        except (ValueError, OSError, SyntaxError) as problem:
            self.wrong.append(f"job {job} is done, but its pictures are not: {problem}")
            return
        for number, (image, reference) in enumerate(
            zip(images, self.references[self.accepted[job]], strict=True)
        ):
            record = read_metadata(files[number])
            if int(str(record.get("seed", -1))) != wish.seed + number:
                self.wrong.append(f"picture {number} of job {job} names another seed: {record}")
            if not alike(image, reference, exactly=record.get("batch", 1) == 1):
                self.wrong.append(f"picture {number} of job {job} is another one ({wish.model})")
            self.checked_images += 1

    def _settle(self, job: str, outcome: str) -> None:
        self.outcomes[job] = outcome

    # at the end

    def wait_for_all(self, timeout_s: float) -> None:
        """Until every accepted job has its outcome."""
        deadline = time.monotonic() + timeout_s
        with self.connection() as http:
            self.look(http)
            while self.unsettled() and time.monotonic() < deadline:
                time.sleep(0.5)
                self.look(http)
            for job in self.unsettled():
                self.wrong.append(f"job {job} has no outcome: {self._job(http, job)}")
            self.look_again(http)

    def check_memory(self, timeout_s: float) -> None:
        """Everything can leave, and then all bytes are free but for the margin."""
        deadline = time.monotonic() + timeout_s
        with self.connection() as http:
            while time.monotonic() < deadline:
                if any(each["state"] != "ready" for each in self._devices(http)):
                    time.sleep(0.5)
                    continue
                for model in {slot["model"] for slot in self._slots(http)}:
                    http.post(f"api/models/{model}/evict")
                if not self._slots(http):
                    break
                time.sleep(0.5)
            for slot in self._slots(http):
                self.wrong.append(f"{slot['model']} did not leave: {slot}")
            for device in self._devices(http):
                others = [each for each in device["holders"] if each["kind"] != "margin"]
                if device["state"] != "ready" or others:
                    self.wrong.append(f"{device['id']} is {device['state']}, held by {others}")

    def _devices(self, http: httpx.Client) -> list[dict[str, Any]]:
        devices: list[dict[str, Any]] = http.get("api/status").raise_for_status().json()["devices"]
        return devices

    def _slots(self, http: httpx.Client) -> list[dict[str, Any]]:
        return [
            slot
            for device in self._devices(http)
            for slot in device["slots"]
            if slot["state"] != "failed"
        ]

    def check_processes(self, timeout_s: float = 60.0) -> None:
        """Of the server nothing is left, nor of its workers and kernels."""
        deadline = time.monotonic() + timeout_s
        while (left := _processes_of(self.folder)) and time.monotonic() < deadline:
            time.sleep(0.2)
        for process in left:
            self.wrong.append(f"a process is left: {process.pid} {' '.join(process.cmdline())}")

    def counts(self) -> Counter[str]:
        return Counter(self.outcomes.values())


def _outcome(found: dict[str, Any]) -> str:
    kind = f" ({found['error']['kind']})" if found["state"] == "failed" else ""
    return f"{found['state']}{kind}"


def _bytes(http: httpx.Client, path: str) -> bytes:
    answer = http.get(path)
    if answer.status_code in (404, 500):
        raise ValueError(f"{path}: {answer.text[:200]}")
    return answer.raise_for_status().content


def _processes_of(folder: Path) -> list[psutil.Process]:
    """Those whose environment names the campaign's folder, this one and its helpers aside."""
    found = []
    for process in psutil.process_iter():
        try:
            mine = process.pid == os.getpid() or "tests.faults.client" in process.cmdline()
            theirs = process.environ().get("JUPYTER_DATA_DIR", "").startswith(str(folder))
            if theirs and not mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found
