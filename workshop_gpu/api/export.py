"""export: finished pictures with their metadata, as a zip that is made while it is sent."""

import time
from collections.abc import Iterator
from typing import Any

import anyio
import msgspec
from jupyter_server.auth.decorator import authorized
from tornado.iostream import StreamClosedError
from tornado.web import authenticated

from workshop_gpu.api.errors import NoPictures, NotAllowed
from workshop_gpu.api.handler import WorkshopHandler
from workshop_gpu.conductor.states import JobState
from workshop_gpu.host.export import Picture, archive, safe_name
from workshop_gpu.host.records import JobRecord


class ExportHandler(WorkshopHandler):
    """Everybody's pictures, a folder for each participant; `?participant=ID` takes one's, and
    `?mine=1` one's own, which needs no right."""

    _gone = False

    @authenticated
    @authorized
    async def get(self) -> None:
        mine = self.get_query_argument("mine", "") not in ("", "0")
        whose = self.participant.id if mine else self.get_query_argument("participant", "")
        if not mine and not await self.is_admin():
            raise NotAllowed("Only the instructor takes everybody's pictures. ?mine=1 gives yours.")
        await self.runtime.settled()
        records = [record for record in self.runtime.jobs if _counts(record, whose)]
        if not records:
            raise NoPictures(whose)
        if not mine:
            await self.note("exported pictures", whose, {"jobs": len(records)})
        name = safe_name(records[-1].participant.name) if whose else "workshop"
        day = time.strftime("%Y-%m-%d")
        self.set_header("Content-Type", "application/zip")
        self.set_header("Content-Disposition", f'attachment; filename="{_ascii(name)}-{day}.zip"')
        self.set_header("Cache-Control", "no-store")
        await self._send(archive(self._pictures(records)))

    def on_connection_close(self) -> None:
        self._gone = True

    async def _send(self, pieces: Iterator[bytes]) -> None:
        """One piece after the other, each when the reader has taken the one before."""
        while not self._gone and not self.runtime.events.closed:
            piece = await anyio.to_thread.run_sync(next, pieces, None)
            if piece is None:
                return
            self.write(piece)
            try:
                await self.flush()
            except StreamClosedError:
                return

    def _pictures(self, records: list[JobRecord]) -> Iterator[Picture]:
        """In a thread: only of records that will not change any more."""
        for record in records:
            made = record.params
            for index in range(record.saved_images):
                metadata = msgspec.structs.asdict(made) | {
                    "model": record.model,
                    "seed": made.seed + index,
                    "participant": record.participant.name,
                    "job": record.id,
                    "made_at": time.strftime(
                        "%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.ended_at or record.submitted_at)
                    ),
                }
                yield Picture(
                    participant=record.participant.id,
                    name=record.participant.name,
                    model=record.model,
                    seed=made.seed + index,
                    at=record.ended_at or record.submitted_at,
                    path=self.runtime.images.file(record.id, index),
                    metadata=_telling(metadata),
                )


def _telling(made: dict[str, Any]) -> dict[str, Any]:
    """Without what says nothing: how many the job was for, and inputs and LoRAs that it had none
    of."""
    if_any = ("start_image", "mask", "loras")
    left_out = {"images", *(name for name in if_any if not made.get(name))}
    if not made.get("start_image"):
        left_out.add("strength")
    return {name: value for name, value in made.items() if name not in left_out}


def _counts(record: JobRecord, whose: str) -> bool:
    done = record.view is not None and record.view.state is JobState.DONE
    return done and record.saved_images > 0 and whose in ("", record.participant.id)


def _ascii(name: str) -> str:
    """For a header, which knows no other letters."""
    return name.encode("ascii", "ignore").decode("ascii") or "workshop"
