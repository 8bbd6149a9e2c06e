"""audit: what instructors did, newest first."""

import msgspec
from tornado.web import authenticated

from workshop_gpu.api.handler import WorkshopHandler, administered
from workshop_gpu.api.schemas_instructor import AuditEntry, AuditList


class AuditHandler(WorkshopHandler):
    """The last actions, as far as they are remembered."""

    @authenticated
    @administered
    async def get(self) -> None:
        lines = self.runtime.kept.audit.lines
        entries = [AuditEntry(**msgspec.structs.asdict(line)) for line in lines]
        self.answer(AuditList(entries))
