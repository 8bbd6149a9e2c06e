"""The rungs of the placement ladder: where a model's weights live and how they get to the GPU.

A model is a set of parts, each of one role: its `encoders` (of text), its `denoiser` (one or
more networks that run at each step) and its `vae`. A placement says for each role what of it stays
on the device. Everything else is in host memory and comes to the device for as long as it is used.
"""

from collections.abc import Iterable
from enum import Enum
from functools import lru_cache

import msgspec

ENCODERS = "encoders"
DENOISER = "denoiser"
VAE = "vae"
ROLES = (ENCODERS, DENOISER, VAE)

HOST = ("", "cpu")
"""Names for the memory of the host as a source of weights."""

EXACT = "exact"
TILED, SLICED = "tiled", "sliced"
MANNERS = {
    TILED: "VAE tiling",
    SLICED: "attention slicing",
    "cpu-encoders": "text encoders on the CPU",
}
"""What a placement may do beside moving weights, in words for people."""

TILE_SIDE = 512
"""Pixels of a tile's side, at most: a VAE's own are often as large as the pictures that its model
was trained with, and would change nothing for these."""

MOST_IN_LISTS = 0.85
"""A block of which lists hold so much is streamed by their elements: the up and down blocks of a
UNet, whose sizes differ by a hundred times. A transformer's block is one piece: of its weights
three quarters at most are in lists."""

_ENCODERS = ("text_encoder", "image_encoder")
_MAIN_DENOISERS = ("transformer", "unet")
_VAES = ("vae", "vqvae", "movq", "vqgan")


def role_of(component: str) -> str:
    """The role of a pipeline's component; one that nobody knows counts to the denoiser, which
    never leaves as a whole unless all do."""
    if component.startswith(_ENCODERS):
        return ENCODERS
    return VAE if component.startswith(_VAES) else DENOISER


def main_denoiser(components: Iterable[str]) -> str:
    """The component that a quantized file stands for; "" where there is none."""
    there = {*components}
    return next((name for name in _MAIN_DENOISERS if name in there), "")


def is_manner(text: str) -> bool:
    """Whether a placement can have this manner."""
    words = text.split("+")
    return text == EXACT or words == [word for word in MANNERS if word in words]


def manner_in_words(manner: str) -> str:
    """As people read it."""
    if manner == EXACT:
        return f"without {', '.join(MANNERS.values())}"
    return f"with {' and '.join(MANNERS[word] for word in manner.split('+'))}"


class Placement(msgspec.Struct, frozen=True):
    """Where a model's weights live. Without anything set, all of them stay on the device.

    `staged`: roles that are on the device only while they are used. `streamed`: the same, and of
    their repeated blocks only those are there that compute or come next. `on_cpu`: roles that
    compute on the CPU. `streamed_bytes`: so many bytes of the denoiser's repeated blocks, rounded
    up to whole blocks, come to the device anew at each step. All streamed blocks come through the
    same `buffers` buffers, each as large as the largest of them; with `buffer_bytes` (above 0)
    smaller blocks come together, as many as that holds, and larger ones layer by layer. `tiled`:
    the VAE works tile by tile and picture by picture. `sliced`: attention is computed slice by
    slice.
    `source`: another device, whose memory the denoiser's streamed blocks come from ("": host
    memory), and where the roles `elsewhere` live and compute.
    """

    staged: tuple[str, ...] = ()
    on_cpu: tuple[str, ...] = ()
    streamed_bytes: int = 0
    buffers: int = 2
    tiled: bool = False
    sliced: bool = False
    source: str = ""
    streamed: tuple[str, ...] = ()
    buffer_bytes: int = 0
    elsewhere: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A short name, such as "resident" or "encoders staged, 7.70 GB streamed, VAE tiled"."""
        return _named(self, f"{self.streamed_bytes / 1e9:.2f} GB streamed")

    @property
    def kind(self) -> str:
        """The name without how many bytes are streamed: placements of one kind need equal
        working memory."""
        return _named(self, "streamed")

    @property
    def manner(self) -> str:
        """What of it changes a picture's last bits: a picture is repeated bit for bit in the same
        manner only. It is some of `MANNERS` joined by "+"; "exact": it only moves weights."""
        here = (self.tiled, self.sliced, bool(self.on_cpu))
        return "+".join(word for word, is_so in zip(MANNERS, here, strict=True) if is_so) or EXACT

    @property
    def exact(self) -> bool:
        """Whether it only moves weights, so that a picture is the same to the last bit."""
        return self.manner == EXACT

    @property
    def away(self) -> tuple[str, ...]:
        """The roles of which nothing is on the device between jobs."""
        return (*self.staged, *self.streamed, *self.on_cpu, *self.elsewhere)


@lru_cache(maxsize=256)
def _named(placement: Placement, streamed: str) -> str:
    words = [f"{role} staged" for role in placement.staged]
    words += [f"{role} streamed" for role in placement.streamed]
    words += [f"{role} on the CPU" for role in placement.on_cpu]
    words += [f"{role} on {placement.source}" for role in placement.elsewhere]
    if placement.streamed_bytes:
        words.append(f"{streamed} from {placement.source}" if placement.source else streamed)
    if placement.tiled:
        words.append("VAE tiled")
    if placement.sliced:
        words.append("attention sliced")
    return ", ".join(words) or "resident"


RESIDENT = Placement()


class Streams(Enum):
    """How much of the denoiser's blocks a rung streams."""

    NOTHING = "nothing"
    SOME = "some"
    """As few bytes as needed."""
    ALL = "all"


class Rung(msgspec.Struct, frozen=True):
    """A way to place a model. `placement` is without the streamed bytes: those depend on the
    room. `by_name_only`: it is never better than another one, so the planner leaves it out.
    `swaps`: it takes memory of another GPU, which the model's settings must name."""

    name: str
    words: str
    placement: Placement = RESIDENT
    streams: Streams = Streams.NOTHING
    by_name_only: bool = False
    swaps: bool = False

    @property
    def streamed_roles(self) -> tuple[str, ...]:
        """The roles whose blocks come through the buffers."""
        some = self.streams is not Streams.NOTHING
        return (*self.placement.streamed, DENOISER) if some else self.placement.streamed


class RoleBytes(msgspec.Struct, frozen=True):
    """What one role's weights take on the device.

    `blocks_bytes` are the sizes of its repeated blocks, in the order in which they run, where it
    has any; only these can be streamed. `layer_bytes` is the largest layer in them (0: not known),
    and `loose_bytes` what of them is in no layer and stays where blocks come layer by layer.
    """

    role: str
    size_bytes: int
    blocks_bytes: tuple[int, ...] = ()
    layer_bytes: int = 0
    loose_bytes: int = 0

    def unit_bytes(self, buffer_bytes: int) -> int:
        """The most that comes in one piece through buffers of this size (0: whole blocks)."""
        largest = max(self.blocks_bytes, default=0)
        if buffer_bytes <= 0:
            return largest
        if largest <= buffer_bytes:
            return min(buffer_bytes, sum(self.blocks_bytes))
        return max(buffer_bytes, self.layer_bytes) if self.layer_bytes else largest

    def streamable_bytes(self, buffer_bytes: int) -> int:
        """What of the blocks can come and go through buffers of this size."""
        divided = 0 < buffer_bytes < max(self.blocks_bytes, default=0)
        return sum(self.blocks_bytes) - (self.loose_bytes if divided else 0)
