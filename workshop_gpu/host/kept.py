"""What outlives the server: the instructor's policy, the audit, and what was measured here."""

import asyncio
import logging
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec

from workshop_gpu.conductor.learned import Learned
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.host.audit import AuditLog
from workshop_gpu.host.json_file import JsonFile

V = TypeVar("V")
_MEASURED = "measured.json"


class Measured(msgspec.Struct, frozen=True):
    """What was learned, and on which devices: on others it says nothing."""

    devices: tuple[str, ...]
    learned: Learned


def devices_measured(folder: Path) -> tuple[str, ...]:
    """Blocking. The devices on which that was measured which lies in this folder."""
    stored, _ = JsonFile(folder / _MEASURED, Measured).read()
    return () if stored is None else stored.devices


class Kept:
    """Files in one folder. A disk that fails is told in the log, and costs no more than that.

    `devices` are the names of the machine's, by which it is known again.
    """

    def __init__(
        self, folder: Path, configured: Policy, devices: tuple[str, ...], log: logging.Logger
    ) -> None:
        self.audit = AuditLog(folder / "audit.jsonl", log)
        self._configured = configured
        self._file: JsonFile[dict[str, Any]] = JsonFile(folder / "policy.json", dict[str, Any])
        self._measured = JsonFile(folder / _MEASURED, Measured)
        self._last = Measured(devices, Learned())
        self._written = self._last
        self._tuned = Learned()
        self._log = log
        self._latest = configured
        self._writing = asyncio.Lock()

    def read(self, models: set[str]) -> Policy:
        """Blocking; once, before all else. The policy of the server's last life, without the
        rules for models that are not among these any more, and for kernels without a notebook:
        no kernel comes back, only a notebook does, with another one."""
        self.audit.read()
        stored, problem = self._file.read()
        try:
            policy = self._policy(stored or {})
        except msgspec.ValidationError as error:
            policy, problem = self._configured, self._file.set_aside(str(error))
        if problem:
            self._log.warning("%s. The rules are those of the configuration.", problem)
        lost = [kernel for kernel, notebook in policy.notebooks.items() if not notebook]
        return _only_for(policy.without(lost), models)

    def read_learned(self) -> Learned:
        """Blocking; once, before all else. What was measured in the server's last life."""
        stored, problem = self._measured.read()
        if problem:
            self._log.warning("%s. Sizes and times will be measured again.", problem)
        if stored is not None and stored.devices == self._last.devices:
            self._last = self._written = stored
        return self._last.learned

    async def keep_learned(self, learned: Learned) -> None:
        """Writes what was learned, if it is news. What another process has measured and written
        meanwhile (`workshop-gpu tune`) stays, and counts where both know."""
        news = Measured(self._last.devices, learned)
        if news == self._last:
            return
        self._last = news
        try:
            await anyio.to_thread.run_sync(self._write_learned, news)
        except OSError as error:
            self._log.warning("%s was not written: %s", self._measured.path, error.strerror)

    def _write_learned(self, news: Measured) -> None:
        """Blocking. Raises OSError."""
        stored, _ = self._measured.read()
        if stored is not None and stored.devices == news.devices and stored != self._written:
            found = _changes(self._written.learned, stored.learned)
            self._tuned = self._tuned.with_news(found)
        self._written = Measured(news.devices, news.learned.with_news(self._tuned))
        self._measured.write(self._written)

    def refuse_policy(self, reason: str) -> None:
        """Blocking. The policy that was read makes no sense: it is set aside."""
        problem = self._file.set_aside(reason)
        self._log.warning("%s. The rules are those of the configuration.", problem)

    async def keep_policy(self, policy: Policy) -> bool:
        """Returns once the policy, or a later one, is on disk; False where it cannot be."""
        self._latest = policy
        async with self._writing:
            try:
                await anyio.to_thread.run_sync(self._file.write, self._changes(self._latest))
            except OSError as error:
                self._log.warning("%s was not written: %s", self._file.path, error.strerror)
                return False
        return True

    def _changes(self, policy: Policy) -> dict[str, Any]:
        """What differs from the configuration. Only that is kept, so that a change of the
        configuration counts wherever the instructor changed nothing."""
        configured = msgspec.to_builtins(self._configured)
        changed: dict[str, Any] = msgspec.to_builtins(policy)
        return {name: value for name, value in changed.items() if value != configured[name]}

    def _policy(self, changes: dict[str, Any]) -> Policy:
        configured: dict[str, Any] = msgspec.to_builtins(self._configured)
        return msgspec.convert(configured | changes, Policy)


def _changes(before: Learned, now: Learned) -> Learned:
    """What is in `now` and was not in `before`."""
    found: dict[str, Any] = {}
    for name in Learned.__struct_fields__:
        old, new = getattr(before, name), getattr(now, name)
        if isinstance(new, dict):
            found[name] = {key: value for key, value in new.items() if old.get(key) != value}
        elif new != old:
            found[name] = new
    return Learned(**found)


def _only_for(policy: Policy, models: set[str]) -> Policy:
    def kept(rules: dict[str, V]) -> dict[str, V]:
        return {model: rule for model, rule in rules.items() if model in models}

    return msgspec.structs.replace(
        policy,
        withdrawn=kept(policy.withdrawn),
        pinned=kept(policy.pinned),
        keep_warm_s=kept(policy.keep_warm_s),
        placements=kept(policy.placements),
    )
