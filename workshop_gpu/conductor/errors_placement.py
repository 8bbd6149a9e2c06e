"""What cannot be because of how a model is placed, or would have to be."""

from workshop_gpu.conductor.errors import Fact, WorkshopError, rounded_down, rounded_up


class InvalidPlacement(WorkshopError):
    """A model's memory settings, or the placement that was asked for, cannot work here."""

    kind = "invalid_placement"

    def __init__(self, model: str, field: str, problem: str, **facts: Fact) -> None:
        super().__init__(f'{field} of "{model}": {problem}.', model=model, field=field, **facts)


class NotRepeatable(WorkshopError):
    """A picture is to be drawn in the manner of an earlier one, and cannot be here."""

    kind = "not_repeatable"

    def __init__(self, model: str, manner: str, problem: str, **facts: Fact) -> None:
        super().__init__(
            f'This picture of "{model}" was drawn {manner}, and {problem}. Otherwise its last bits '
            "would differ. Use wg.again(image, exactly=False) to draw it all the same.",
            model=model,
            manner=manner,
            **facts,
        )


class NoRungLeft(WorkshopError):
    """The device ran out of memory on every rung of the ladder that the model could take.

    `room_bytes`: what could be had at most after that, clearly less than what was too much already;
    `largest_bytes`: what the whole device could give, as far as its account says.
    """

    kind = "out_of_memory"

    def __init__(
        self,
        model: str,
        what: str,
        rungs: list[str],
        needed_bytes: int,
        room_bytes: int,
        largest_bytes: int,
        phase: str,
    ) -> None:
        super().__init__(
            f'"{model}" ran out of GPU memory while {what}, also with {", ".join(rungs)}. It would '
            f"need at least {rounded_up(needed_bytes)}, and no more than "
            f"{rounded_down(room_bytes)} can be had. "
            "Try a smaller picture, fewer images at once, or another model.",
            model=model,
            rungs=rungs,
            needed_bytes=needed_bytes,
            room_bytes=room_bytes,
            largest_bytes=largest_bytes,
            missing_bytes=needed_bytes - room_bytes,
            phase=phase,
        )
