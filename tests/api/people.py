"""Participants and kernels as tests need them: plain HTTP, no client of ours."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import httpx

from tests.serverprocess import ServerProcess

TURBO = {"model": "shapes-dit-turbo", "prompt": "a red circle on a blue background"}
"""A quick job."""
WAIT_S = 180.0


class Person:
    """Speaks to one server as one participant. `token` is the server's unless given."""

    def __init__(self, server: ServerProcess, name: str = "", token: str = "") -> None:
        headers = {"Authorization": f"token {token or server.token}"}
        if name:
            headers["X-Workshop-GPU-Participant"] = name
        self.server = server
        self.http = httpx.Client(
            base_url=f"{server.url}workshop-gpu/", headers=headers, timeout=WAIT_S, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def get(self, path: str) -> Any:
        return self.http.get(path).raise_for_status().json()

    def submit(self, **fields: object) -> dict[str, Any]:
        job: dict[str, Any] = (
            self.http.post("api/jobs", json=TURBO | fields).raise_for_status().json()
        )
        return job

    def hold(self, model: str, ttl_s: float = 120.0) -> dict[str, Any]:
        body = {"model": model, "ttl_s": ttl_s}
        hold: dict[str, Any] = self.http.post("api/holds", json=body).raise_for_status().json()
        return hold

    def refused(self, method: str, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
        """The status and the error of a request that must fail."""
        answer = self.http.request(method, path, **options)
        assert answer.status_code >= 400, answer.text
        return answer.status_code, answer.json()["error"]

    def events(self, after: str = "", **query: str | int) -> Iterator[tuple[str, dict[str, Any]]]:
        """(id, data) of each event, from a snapshot on unless `after` is an id."""
        headers = {"Last-Event-ID": after} if after else {}
        with self.http.stream("GET", "api/events", headers=headers, params=query) as stream:
            event_id = ""
            deadline = time.monotonic() + WAIT_S
            for line in stream.iter_lines():
                assert time.monotonic() < deadline, "what was waited for did not happen"
                if line.startswith("id: "):
                    event_id = line[4:]
                elif line.startswith("data: "):
                    yield event_id, json.loads(line[6:])

    def until(self, happened: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Waits on the stream for an event (each is looked at, the snapshot first)."""
        for _, event in self.events():
            if happened(event):
                return event
        raise AssertionError("the stream ended")

    def until_ready(self) -> None:
        """Waits until all devices have their workers."""

        def all_are_ready(_: dict[str, Any]) -> bool:
            return {each["state"] for each in self.get("api/status")["devices"]} == {"ready"}

        self.until(all_are_ready)

    def begun(self, job: str, steps: int = 0) -> None:
        """Waits until one of one's jobs has done more than so many steps. It still runs then."""

        def is_drawn(event: dict[str, Any]) -> bool:
            for each in event.get("mine", [event["job"]] if event["event"] == "job" else []):
                if each["id"] == job and each["step"] > steps:
                    assert each["state"] == "running", each
                    return True
            return False

        self.until(is_drawn)

    @contextmanager
    def paused(self, reason: str = "") -> Iterator[None]:
        """As an instructor: nothing begins meanwhile, however slow the machine is."""
        body = {"reason": reason} if reason else {}
        self.http.post("api/queue/pause", json=body).raise_for_status()
        try:
            yield
        finally:
            self.http.post("api/queue/resume").raise_for_status()

    def ended(self, job: str) -> dict[str, Any]:
        """Waits for the end of one of one's jobs and returns it."""

        def has_ended(event: dict[str, Any]) -> bool:
            found = event.get("mine", [event["job"]] if event["event"] == "job" else [])
            return any(
                each["id"] == job and each["state"] in ("done", "failed", "cancelled")
                for each in found
            )

        self.until(has_ended)
        found: dict[str, Any] = self.get(f"api/jobs/{job}")
        return found

    def evict(self, model: str) -> None:
        """Makes a model leave as soon as nobody uses it any more; nothing where it is absent."""

        def told_to_leave(_: dict[str, Any]) -> bool:
            if model not in self.slots():
                return True
            answer = self.http.post(f"api/models/{model}/evict")
            return answer.status_code != 409 or answer.json()["error"]["kind"] != "model_in_use"

        self.until(told_to_leave)
        self.until(lambda _: model not in self.slots())

    def slots(self, device: str = "") -> dict[str, str]:
        """State of each model that is on a device (or on any)."""
        return {
            slot["model"]: slot["state"]
            for found in self.get("api/status")["devices"]
            if device in ("", found["id"])
            for slot in found["slots"]
        }
