"""Who runs and who waits, as `%queue` shows it."""

from workshop_gpu.api import schemas
from workshop_gpu.client.listing import Listing
from workshop_gpu.client.tables import Row, reservation_row
from workshop_gpu.client.words import Progress, describe


class QueueTable(Listing[schemas.Job | schemas.Reservation]):
    """Running jobs, then waiting ones in their order, then reservations; the viewer's own are
    marked."""

    head = ("", "Who", "Model", "Now", "Job")
    nothing = "Nobody waits: the next picture is yours."

    def row(self, item: schemas.Job | schemas.Reservation) -> Row:
        if isinstance(item, schemas.Reservation):
            return (*reservation_row(item), "")
        who = f"{item.participant} (you)" if item.mine else item.participant
        place = "runs" if item.state.value == "running" else str(item.position)
        return (place, who, item.model, describe(Progress(item)).line(), item.id[:8])
