"""What happens, told to Jupyter's own event system: loads, evictions, jobs, instructors' actions.

The schemas lie beside this file. They are versioned: whoever changes one in a way that breaks its
readers gives it a new `$id`.
"""

from pathlib import Path
from typing import Any

from jupyter_events import EventLogger

from workshop_gpu.host.audit import AuditLine
from workshop_gpu.host.happenings import Evicted, Happening, JobEnded, Loaded, LoadFailed

_ROOT = "https://events.jupyter.org/workshop_gpu"
SCHEMAS = Path(__file__).parent / "event_schemas"


class JupyterEvents:
    """Emits through the server's event logger, which drops what nobody listens to."""

    def __init__(self, logger: EventLogger) -> None:
        self._logger = logger
        known = set(logger.schemas.schema_ids)
        for path in sorted(SCHEMAS.glob("*.yaml")):
            if schema_id(path.stem) not in known:
                logger.register_event_schema(path)

    def note(self, happening: Happening) -> None:
        """Emits an event for what is one."""
        match happening:
            case Loaded(device, model, size_bytes, seconds_s, placement):
                data = {"size_bytes": size_bytes, "seconds_s": seconds_s, "placement": placement}
                self._emit("load", device=device, model=model, outcome="loaded", **data)
            case LoadFailed(device, model, error):
                self._emit("load", device=device, model=model, outcome="failed", error=error.kind)
            case Evicted():
                self._emit(
                    "evict",
                    device=happening.device,
                    model=happening.model,
                    freed_bytes=happening.freed_bytes,
                    why=happening.why,
                    participant=happening.participant or None,
                    idle_s=happening.idle_s,
                )
            case JobEnded():
                self._emit(
                    "job",
                    job=happening.job,
                    participant=happening.participant,
                    model=happening.model,
                    outcome=happening.outcome.value,
                    device=happening.device,
                    wait_s=happening.wait_s,
                    gpu_s=happening.gpu_s,
                    error=happening.error.kind if happening.error else None,
                )

    def audited(self, line: AuditLine) -> None:
        """An instructor did something."""
        self._emit(
            "admin",
            who=line.who,
            participant=line.participant,
            action=line.action,
            subject=line.subject or None,
            details=dict(line.details),
        )

    def _emit(self, name: str, **data: Any) -> None:
        told = {key: value for key, value in data.items() if value is not None}
        try:
            self._logger.emit(schema_id=schema_id(name), data=told)
        except Exception:
            # Somebody else's handler must not stop what is told about.
            self._logger.log.exception("The event %s could not be told", name)


def schema_id(name: str) -> str:
    """The `$id` of the schema in `name.yaml`."""
    return f"{_ROOT}/{name}/v1"
