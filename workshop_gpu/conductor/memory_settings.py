"""What an instructor says of a model's memory, in bytes; see `ladder.py` for the rungs."""

import msgspec

from workshop_gpu.conductor.ladder import AUTO


class MemorySettings(msgspec.Struct, frozen=True):
    """`placement` is a rung's name or "auto". `virtual_vram_bytes`: so much of the denoiser is
    streamed (0: the planner decides). `swap_space_bytes`: what the buffers of streaming may take
    (0: as large as whole blocks). `swap_device`: another GPU whose memory it may use ("cpu"
    or "": none). `max_vram_bytes` caps what the model may take with its
    working memory, as on a smaller card (0: the card's own). `prefetch`: how many blocks are copied
    ahead.
    `min_free_bytes`: what stays free beside it.
    """

    placement: str = AUTO
    virtual_vram_bytes: int = 0
    swap_space_bytes: int = 0
    swap_device: str = ""
    max_vram_bytes: int = 0
    prefetch: int = 1
    min_free_bytes: int = 0


AUTOMATIC = MemorySettings()
