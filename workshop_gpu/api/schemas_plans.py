"""GET models/ID/plan: the conductor's own view crosses the wire as it is."""

from workshop_gpu.conductor.compiled import Blocks
from workshop_gpu.conductor.explaining import PlanView, RungView

__all__ = ["Blocks", "PlanView", "RungView"]
