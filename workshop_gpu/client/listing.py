"""The instructor's lists, which show themselves as tables."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Generic, TypeVar

from workshop_gpu.api import schemas, schemas_room
from workshop_gpu.api import schemas_instructor as instructor
from workshop_gpu.client.tables import Row, html_table, text_table
from workshop_gpu.client.words import amount

T = TypeVar("T")


class Listing(list[T], ABC, Generic[T]):
    """A list whose items are rows of a table."""

    head: ClassVar[Row] = ()
    nothing: ClassVar[str] = "Nothing."

    @abstractmethod
    def row(self, item: T) -> Row:
        """The item's cells, as many as `head` has."""

    def _repr_html_(self) -> str:
        if not self:
            return f"<p>{self.nothing}</p>"
        return html_table(self.head, [self.row(item) for item in self])

    def __repr__(self) -> str:
        if not self:
            return self.nothing
        return text_table(self.head, [self.row(item) for item in self])


class JobTable(Listing[schemas.Job]):
    """Everybody's jobs."""

    head = ("Job", "Who", "Model", "State", "Prompt")
    nothing = "No jobs yet."

    def row(self, item: schemas.Job) -> Row:
        prompt = str((item.params or {}).get("prompt", ""))
        return (item.id, item.participant, item.model, item.state.value, prompt[:60])


class ParticipantTable(Listing[instructor.Participant]):
    """Who is in the room."""

    head = ("Who", "Id", "Waiting", "Running", "Limit", "Priority", "Models")
    nothing = "Nobody is here yet."

    def row(self, item: instructor.Participant) -> Row:
        numbers = (item.waiting, item.running, item.queue_limit)
        models = ", ".join(item.models)
        return (item.name, item.id, *map(str, numbers), item.priority, models)


class HelpTable(Listing[schemas_room.HelpCall]):
    """Raised hands."""

    head = ("Who", "Notebook", "Since", "What about")
    nothing = "Nobody asks for help."

    def row(self, item: schemas_room.HelpCall) -> Row:
        since = datetime.fromtimestamp(item.at).strftime("%H:%M:%S")
        return (item.name, item.notebook, since, item.text)


class KernelTable(Listing[instructor.Kernel]):
    """Kernels, and what they have of a GPU."""

    head = ("Who", "Notebook", "State", "Own memory", "Reserved", "Holds", "A restart loses")
    nothing = "No notebook runs."

    def row(self, item: instructor.Kernel) -> Row:
        own, reserved = (
            amount(size) if size else "" for size in (item.own_bytes, item.reserved_bytes)
        )
        holds, losses = ", ".join(item.holds), ", ".join(item.restart_loses)
        return (item.name, item.notebook, item.state, own, reserved, holds, losses)


class AuditTrail(Listing[instructor.AuditEntry]):
    """What instructors did."""

    head = ("When", "Who", "What", "To", "")
    nothing = "No instructor has done anything yet."

    def row(self, item: instructor.AuditEntry) -> Row:
        when = datetime.fromtimestamp(item.at).strftime("%Y-%m-%d %H:%M:%S")
        details = ", ".join(f"{name}={value}" for name, value in item.details.items())
        return (when, item.who, item.action, item.subject, details)


class PolicyView:
    """The rules for the room; `policy` is the answer itself."""

    def __init__(self, policy: instructor.Policy) -> None:
        self.policy = policy

    def _rows(self) -> Sequence[Row]:
        policy = self.policy
        return [
            ("queue", f"paused: {policy.paused}" if policy.paused else "runs"),
            ("patience", f"{policy.patience_s:g} s"),
            ("waiting jobs of one participant", f"at most {policy.queue_limit}"),
            ("a loaded model is protected for", f"{policy.min_residency_s:g} s"),
            *((model, _model_words(rule)) for model, rule in policy.models.items()),
            *((who, _participant_words(rule)) for who, rule in policy.participants.items()),
        ]

    def _repr_html_(self) -> str:
        return html_table(("Rule", ""), self._rows())

    def __repr__(self) -> str:
        return text_table(("Rule", ""), self._rows())


def _model_words(rule: instructor.ModelPolicy) -> str:
    words = []
    if rule.withdrawn is not None:
        words.append(f"not offered: {rule.withdrawn}")
    if rule.pinned is not None:
        words.append("pinned" if rule.pinned else "not pinned")
    if rule.keep_warm_s is not None:
        words.append(f"stays {rule.keep_warm_s:g} s")
    if rule.placement is not None:
        words.append(f"placed {rule.placement}")
    return ", ".join(words)


def _participant_words(rule: instructor.ParticipantPolicy) -> str:
    words = []
    if rule.queue_limit is not None:
        words.append(f"at most {rule.queue_limit} waiting")
    if rule.priority is not None:
        words.append(f"priority {rule.priority}")
    return ", ".join(words)
