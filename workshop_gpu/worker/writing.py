"""Pictures become files beside the drawing: the device does not wait for that.

A file of a megapixel takes as long as half a step of a large model, and a good part of a picture of
a model that needs few steps.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from workshop_gpu.conductor.errors import GenerationFailed
from workshop_gpu.worker import protocol
from workshop_gpu.worker.failures import Broken, Success, attempt
from workshop_gpu.worker.link import Link

_THREADS = 4


class Writer:
    """Makes files, several beside each other, and tells the host when those of a job are there."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._making = ThreadPoolExecutor(_THREADS, "files")
        self._telling = ThreadPoolExecutor(1, "done")

    def begin(self, make: Callable[[], bytes]) -> Future[bytes]:
        """Begins with a file."""
        return self._making.submit(make)

    def tell(self, model: str, drawn: protocol.Drawn, files: Sequence[Future[bytes]]) -> None:
        """Tells the host that the job is done, or has failed, as soon as all its files are there:
        in the order in which this is called."""
        self._telling.submit(self._tell, model, drawn, files)

    def _tell(self, model: str, drawn: protocol.Drawn, files: Sequence[Future[bytes]]) -> None:
        made = attempt(lambda: [file.result() for file in files])
        if isinstance(made, Success):
            self._link.send(protocol.Done(drawn.job, made.value, drawn))
        else:
            problem = made.problem if isinstance(made, Broken) else "the memory is full"
            error = GenerationFailed(model, f"its file could not be made ({problem})")
            self._link.send(protocol.Failed(drawn.job, error.report(), drawn.memory))
