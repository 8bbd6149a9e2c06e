"""A hold: while it lives, its model is not evicted."""

from workshop_gpu.api import schemas
from workshop_gpu.client.errors import HoldLost, Lost
from workshop_gpu.client.http import Http
from workshop_gpu.client.lease import TTL_S, Lease


class HeldModel(Lease):
    """Keeps a model on its GPU until dropped, or until this kernel ends.

    Use it in a `with` statement, or keep it and call `drop()`. A daemon thread renews it; if
    the hold is lost all the same, `check()` and the end of the `with` block raise HoldLost.
    """

    def __init__(self, http: Http, model: str, ttl_s: float = TTL_S) -> None:
        hold = http.post("holds", schemas.Hold, schemas.HoldRequest(model, ttl_s))
        self.id = hold.id
        self.model = hold.model
        super().__init__(http, f"holds/{hold.id}", ttl_s, f"workshop-gpu-hold-{model}")

    def _living(self) -> str:
        return "held"

    def _ran_out(self, why: str) -> Lost:
        return HoldLost(
            "hold_ended",
            f'{why}, so the hold on "{self.model}" ran out. Take a new one with '
            f'wg.hold("{self.model}").',
        )

    def __repr__(self) -> str:
        return f"<Hold on {self.model!r}: {self.state}>"
