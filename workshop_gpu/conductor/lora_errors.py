"""What can be wrong with a LoRA that somebody asks for."""

from workshop_gpu.conductor.errors import WorkshopError


class LoraUnknown(WorkshopError):
    """The instructor offers no such LoRA for this model."""

    kind = "lora_unknown"

    def __init__(self, lora: str, model: str, fitting: list[str]) -> None:
        offered = ", ".join(fitting) or "none"
        super().__init__(
            f'There is no LoRA "{lora}" for "{model}". Offered for it: {offered}. Pick one of '
            "these, or none.",
            lora=lora,
            model=model,
            fitting=fitting,
        )


class LoraUnusable(WorkshopError):
    """A LoRA's file is missing, damaged, or does not fit the model."""

    kind = "lora_unusable"

    def __init__(self, lora: str, model: str, problem: str) -> None:
        super().__init__(
            f'The LoRA "{lora}" cannot be used with "{model}": {problem}. Leave it out, or tell '
            "the instructor.",
            lora=lora,
            model=model,
        )
