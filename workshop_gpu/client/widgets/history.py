"""My earlier pictures, as the server's journal keeps them: found again after a kernel's restart.

The list costs one request. A picture, or its thumbnail, is fetched when somebody looks at it.
"""

import threading
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO

from PIL import Image

from workshop_gpu.api import schemas
from workshop_gpu.client.client import Client
from workshop_gpu.client.errors import JobUnknown
from workshop_gpu.client.images import GeneratedImage

LONGEST = 48
"""So many pictures, the latest of all."""
THUMBNAIL_PX = 96


@dataclass(frozen=True)
class Entry:
    """One picture: of which job, which of its pictures, what it shows in words, and how its job
    went on where its GPU had run out of memory ("": it had not)."""

    job: str
    index: int
    model: str
    words: str
    at: float
    went_on: str = ""

    @property
    def key(self) -> str:
        """Names the picture towards the browser."""
        return f"{self.job}:{self.index}"


class History:
    """The latest pictures of one participant, oldest first. May be used from several threads."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._thumbnails: OrderedDict[str, str] = OrderedDict()

    def learn(self, jobs: Iterable[schemas.Job]) -> bool:
        """Takes in those of the jobs that are mine and have pictures; says whether there were any
        new ones."""
        found = [entry for job in jobs if job.mine for entry in _entries(job)]
        with self._lock:
            new = [entry for entry in found if entry.key not in self._entries]
            known = [*self._entries.values(), *new]
            latest = sorted(known, key=lambda entry: (entry.at, entry.job, entry.index))[-LONGEST:]
            before, self._entries = self._entries, {entry.key: entry for entry in latest}
            return before.keys() != self._entries.keys()

    def entries(self) -> list[Entry]:
        """Oldest first."""
        with self._lock:
            return list(self._entries.values())

    def went_on(self, key: str) -> str:
        """How a picture's job went on; "" where nothing is known of it."""
        with self._lock:
            entry = self._entries.get(key)
        return entry.went_on if entry else ""

    def last_of_models(self) -> dict[str, Entry]:
        """Each model's latest picture."""
        return {entry.model: entry for entry in self.entries()}

    def keep(self, job: str, images: list[GeneratedImage]) -> None:
        """Pictures that are at hand need not be fetched for their thumbnails."""
        for index, image in enumerate(images):
            self._keep(f"{job}:{index}", thumbnail(image))

    def thumbnail(self, key: str) -> str:
        """As a data: URL, fetched if need be. Raises ClientError."""
        with self._lock:
            known = self._thumbnails.get(key)
        if known is None:
            known = self._keep(key, thumbnail(self.image(key)))
        return known

    def image(self, key: str) -> GeneratedImage:
        """The picture itself, from the server. Raises ClientError."""
        job, _, index = key.partition(":")
        images = self._client.job(job).images()
        if not (index.isdecimal() and int(index) < len(images)):
            raise JobUnknown("job_unknown", "this picture is no longer kept. Make it anew.")
        self.keep(job, images)
        return images[int(index)]

    def _keep(self, key: str, small: str) -> str:
        with self._lock:
            self._thumbnails[key] = small
            while len(self._thumbnails) > 2 * LONGEST:
                self._thumbnails.popitem(last=False)
        return small


def _entries(job: schemas.Job) -> list[Entry]:
    prompt = str((job.params or {}).get("prompt", ""))
    at = job.ended_at or job.submitted_at
    return [
        Entry(job.id, info.index, job.model, words, at, job.went_on)
        for info in job.images
        for words in [f"{prompt} ({job.model}, seed {info.seed})"]
    ]


def thumbnail(image: Image.Image) -> str:
    """A small JPEG of the picture as a data: URL."""
    small = image.convert("RGB")
    small.thumbnail((THUMBNAIL_PX, THUMBNAIL_PX))
    buffer = BytesIO()
    small.save(buffer, "JPEG", quality=85)
    return "data:image/jpeg;base64," + b64encode(buffer.getvalue()).decode("ascii")
