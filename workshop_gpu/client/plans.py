"""A plan as a table: the rungs of the ladder with their GB, their seconds, and the reasons."""

from html import escape

from workshop_gpu.api.schemas_plans import Blocks, PlanView, RungView
from workshop_gpu.client.tables import QUIET, Row, html_table, text_table
from workshop_gpu.client.words import amount

SIGNS = {"reckoned": "≈ ", "guess": "? "}
"""Before seconds that were not measured on that very rung."""
SIGNS_MEAN = "≈ reckoned from what was measured otherwise · ? a guess"

_BLOCKS = {
    Blocks.COMPILED: "Its blocks are compiled.",
    Blocks.NOT_YET: "Its blocks are not compiled yet.",
    Blocks.NEVER: "",
}
_ELSEWHERE = "On the other GPU"
_PLAIN = " (not compiled)"
"""Behind the seconds of rungs on which compiled blocks are not used."""


class PlanTable:
    """The answer to `wg.explain`; `plan` is the answer itself."""

    _HEAD = ("", "Rung", "On the GPU", "Working", "In all", _ELSEWHERE, "Expected", "Why")

    def __init__(self, plan: PlanView) -> None:
        self.plan = plan

    @property
    def chosen(self) -> RungView | None:
        """The rung that would be taken now, after idle models have left where its `why` names some;
        None where there is no room even then."""
        return next((rung for rung in self.plan.rungs if rung.chosen), None)

    @property
    def _columns(self) -> list[int]:
        """Without the other GPU's where no rung takes anything of it."""
        all_of_them = range(len(self._HEAD))
        if any(rung.elsewhere_bytes for rung in self.plan.rungs):
            return list(all_of_them)
        return [column for column in all_of_them if self._HEAD[column] != _ELSEWHERE]

    def _table(self) -> tuple[Row, list[Row]]:
        """Its head and its rows."""
        lines: list[Row] = [self._HEAD, *self._rows()]
        head, *rows = (tuple(line[i] for i in self._columns) for line in lines)
        return head, list(rows)

    def _rows(self) -> list[Row]:
        return [
            (
                "→" if rung.chosen else "",
                rung.rung,
                amount(rung.weights_bytes) if rung.weights_bytes else "0",
                amount(rung.working_bytes),
                amount(rung.needed_bytes),
                amount(rung.elsewhere_bytes) if rung.elsewhere_bytes else "",
                f"{SIGNS.get(rung.basis, '')}{rung.expected_s:.2f} s{self._mark(rung)}",
                rung.why,
            )
            for rung in self.plan.rungs
        ]

    def _mark(self, rung: RungView) -> str:
        return _PLAIN if self.plan.blocks is Blocks.COMPILED and not rung.compiled else ""

    def _title(self) -> str:
        plan = self.plan
        blocks = _BLOCKS[plan.blocks]
        room = amount(plan.room_bytes) if plan.room_bytes else "nothing"
        there = f"; it is there now: {plan.placement}" if plan.placement else ""
        text = f"{plan.model} on {plan.device}, where {room} can be had{there}."
        return " ".join(filter(None, (text, blocks, plan.warning, *plan.notes)))

    def _legend(self) -> list[str]:
        """What the signs mean, where there are any."""
        return [SIGNS_MEAN] if any(rung.basis in SIGNS for rung in self.plan.rungs) else []

    def _repr_html_(self) -> str:
        parts = [f"<p>{escape(self._title())}</p>", html_table(*self._table())]
        return "".join([*parts, *(f'<p style="{QUIET}">{line}</p>' for line in self._legend())])

    def __repr__(self) -> str:
        return "\n".join([self._title(), text_table(*self._table()), *self._legend()])
