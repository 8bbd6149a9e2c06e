"""Models that a worker is likely to be asked for: it may build them ahead, without weights."""

from collections.abc import Iterable

from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.conductor.errors import WorkshopError
from workshop_gpu.worker.protocol import ModelSource

_MOST = 4
"""The modules and tokenizers of one take some 100 MB of host memory, in each worker."""


def likely_sources(catalogue: Catalogue, there: Iterable[str]) -> tuple[ModelSource, ...]:
    """Those that are `there`, on some device, then the others in the catalogue's order."""
    offered = [spec.id for spec in catalogue.specs if spec.enabled]
    names = dict.fromkeys([*(model for model in there if model in offered), *offered])
    found = []
    for model in names:
        try:
            found.append(catalogue.source(model))
        except WorkshopError:
            continue  # it is not on this machine, or cannot be used
    return tuple(found[:_MOST])
