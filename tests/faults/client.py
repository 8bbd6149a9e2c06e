"""`python -m tests.faults.client NOTES NAME SEED`: one person in the room, as a process.

Whatever the server accepted is written down at once, before anything else is done: the campaign
compares that with what became of it. Trouble with the connection is expected, and tried again.
"""

import json
import os
import sys
import time
from pathlib import Path
from random import Random

import httpx

from tests.faults.pictures import WISHES

TIMEOUT_S = 30.0
_PAUSE_S = 0.2


class Client:
    """Asks for pictures, takes holds, cancels, listens, at random."""

    def __init__(self, notes: Path, name: str, seed: int) -> None:
        self._notes = notes
        self._name = name
        self._random = Random(seed)
        self._mine: list[str] = []

    def live(self) -> None:
        """Until it is killed."""
        asks = (self._ask,) * 3
        deeds = (*asks, self._cancel, self._hold, self._listen, self._look)
        while True:
            try:
                with self._connection() as http:
                    while True:
                        self._random.choice(deeds)(http)
                        time.sleep(_PAUSE_S * self._random.random())
            except (httpx.HTTPError, OSError, ValueError, KeyError):
                time.sleep(_PAUSE_S)  # the server is away; another address may be there soon

    def _connection(self) -> httpx.Client:
        address = json.loads((self._notes / "address").read_text())
        headers = {
            "Authorization": f"token {address['token']}",
            "X-Workshop-GPU-Participant": self._name,
        }
        return httpx.Client(
            base_url=address["url"], headers=headers, timeout=TIMEOUT_S, trust_env=False
        )

    def _ask(self, http: httpx.Client) -> None:
        number = self._random.randrange(len(WISHES))
        answer = http.post("api/jobs", json=WISHES[number].body())
        if answer.status_code == 201:
            job = answer.json()["id"]
            self._write(job=job, wish=number)
            self._mine = [*self._mine[-5:], job]
        elif answer.status_code == 429:
            time.sleep(_PAUSE_S)

    def _cancel(self, http: httpx.Client) -> None:
        if self._mine and self._random.random() < 0.3:
            job = self._random.choice(self._mine)
            self._write(job=job, cancel=True)
            http.delete(f"api/jobs/{job}")

    def _hold(self, http: httpx.Client) -> None:
        model = self._random.choice(WISHES).model
        answer = http.post("api/holds", json={"model": model, "ttl_s": 2.0})
        if answer.status_code == 201 and self._random.random() < 0.5:
            http.delete(f"api/holds/{answer.json()['id']}")

    def _listen(self, http: httpx.Client) -> None:
        most = self._random.randrange(20)
        with http.stream("GET", "api/events", timeout=2.0) as stream:
            for number, _ in enumerate(stream.iter_lines()):
                if number >= most:
                    return

    def _look(self, http: httpx.Client) -> None:
        http.get(self._random.choice(("api/status", "api/models", "api/jobs", "api/me")))

    def _write(self, **line: object) -> None:
        """One whole line at once, so that a kill leaves no half of one."""
        where = self._notes / f"accepted-{self._name}.jsonl"
        file = os.open(where, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, json.dumps(line).encode() + b"\n")
        os.close(file)


if __name__ == "__main__":
    Client(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])).live()
