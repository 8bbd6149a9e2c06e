"""What a worker and the weight pool tell each other of LoRAs; a part of `protocol.py`."""

import msgspec


class KeptLora(msgspec.Struct, frozen=True):
    """A LoRA as it is made for a model, in the worker's own host memory. `key` names it in this
    worker; `in_use`: a job draws with it."""

    key: str
    lora: str
    model: str
    size_bytes: int
    in_use: bool = False


class LorasKept(msgspec.Struct, frozen=True, tag="loras_kept"):
    """All that the worker keeps now, those used last at the end. Not answered."""

    loras: tuple[KeptLora, ...]


class ForgetLoras(msgspec.Struct, frozen=True, tag="forget_loras"):
    """Others need room: let go of these LoRAs, but of those that are in use. Answered by LorasKept
    where that changes something."""

    keys: tuple[str, ...]
