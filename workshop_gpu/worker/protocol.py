"""Messages between the host and a worker, over one Unix socket.

A message is msgpack of one of the tagged structs below, behind its length as four bytes, big
endian. Neither side ever unpickles anything. This file imports no torch: the host uses it too.

With one message, `PartGranted`, file descriptors come over the socket (SCM_RIGHTS, beside the
first bytes of the message): memory of the server's weight pool.
"""

import math
from enum import Enum

import msgspec

from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.rungs import RESIDENT, Placement, RoleBytes
from workshop_gpu.worker.protocol_loras import ForgetLoras, LorasKept
from workshop_gpu.worker.protocol_spare import Begin, StandingBy, TakeOver

MAX_MESSAGE_BYTES = 256 * 1024 * 1024
"""A message longer than this is a broken stream."""
_SEGMENT_STEP_BYTES = 2 * 2**20


def segment_bytes(size_bytes: int, segments: int) -> int:
    """The bytes of each but the last segment of a part."""
    steps = -(-size_bytes // (segments * _SEGMENT_STEP_BYTES))
    return max(1, steps) * _SEGMENT_STEP_BYTES


class ModelSource(msgspec.Struct, frozen=True):
    """Where a model's weights lie and how to open them. All paths are local and checked.

    `kind` names the loader: "diffusers". `path` is a pipeline folder or one .safetensors file.
    `dtype` is "float32", "float16", "bfloat16" or "" for the device's default. `gguf` is a file
    with the denoiser's weights in place of those in the folder.
    """

    model: str
    kind: str
    path: str
    dtype: str = ""
    variant: str = ""
    gguf: str = ""


class GenerateParams(msgspec.Struct, frozen=True, kw_only=True):
    """What to draw, complete: nothing is left to a default. Sizes are pixels.

    Image `i` of the job is drawn with seed `seed + i`, so that each can be made again alone.
    `compiled` asks for compiled blocks, or for none (None: as it suits); a picture's record says
    which it was.
    `batch` above 1 repeats a picture that was drawn in one call with others: as many are drawn,
    all alike, and the one at `place` (from 0) is kept. `manner` repeats one that was drawn in a
    placement of this manner ("": whichever).

    With a `start_image` the picture begins with that one, of which `strength` (above 0, at most 1)
    says how much is drawn anew; with a `mask` too, only where that is white. Both are ids of
    inputs: the SHA-256 of the files. `loras` are put on for it, each with its scale. With `profile`
    it is measured how each step's time is spent, and the pictures' records tell.
    """

    prompt: str
    negative_prompt: str = ""
    seed: int
    steps: int
    guidance: float
    width: int
    height: int
    images: int = 1
    batch: int = 1
    place: int = 0
    manner: str = ""
    start_image: str = ""
    mask: str = ""
    strength: float = 1.0
    loras: dict[str, float] = {}
    compiled: bool | None = None
    profile: bool = False

    @property
    def drawn_steps(self) -> int:
        """The steps that are done for one picture: a start image saves the first of them."""
        if not self.start_image:
            return self.steps
        return max(1, math.ceil(self.steps * self.strength))


class InputFiles(msgspec.Struct, frozen=True):
    """Where the pictures lie that a job begins with; "": none."""

    start_image: str = ""
    mask: str = ""


# host → worker


class Load(msgspec.Struct, frozen=True, tag="load"):
    """Bring a model into this placement; answered by Loading…, then Loaded or LoadFailed.

    One that is there in another placement changes it in place, once no job draws with it. Its
    weights and the buffers that they stream through may take `most_bytes` (0: no limit).
    """

    source: ModelSource
    placement: Placement = RESIDENT
    most_bytes: int = 0


class Evict(msgspec.Struct, frozen=True, tag="evict"):
    """Drop a model; answered by Evicted.

    Where a load follows, the worker keeps the memory for it, for a second at most. The answer then
    counts that memory as free, which it is for that load.
    """

    model: str
    load_follows: bool = False


class BatchMember(msgspec.Struct, frozen=True):
    """A job that is drawn together with others. `metadata` is written into each of its images.

    `lora_files` says where its LoRAs lie, by their names.
    """

    job: str
    params: GenerateParams
    metadata: dict[str, str] = {}
    inputs: InputFiles = InputFiles()
    lora_files: dict[str, str] = {}


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Run a job on a loaded model; answered by Started, Progress…, then Drawn and Done, Failed or
    Stopped.

    `metadata` is written into every image beside the parameters. `others` are further jobs for
    this model, drawn in the same calls where they can be; each is answered for itself. One that
    is cancelled is Stopped within a step, while the rest go on with the batch's memory.
    `compiles`: compiled blocks may be used where they are ready, and made ready later.
    """

    job: str
    model: str
    params: GenerateParams
    metadata: dict[str, str] = {}
    others: tuple[BatchMember, ...] = ()
    inputs: InputFiles = InputFiles()
    lora_files: dict[str, str] = {}
    compiles: bool = False

    @property
    def members(self) -> tuple[BatchMember, ...]:
        """All jobs of this order."""
        first = BatchMember(self.job, self.params, self.metadata, self.inputs, self.lora_files)
        return (first, *self.others)


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Stop the job between two steps. For a job that is not running it does nothing."""

    job: str


class Compile(msgspec.Struct, frozen=True, tag="compile"):
    """Compile the blocks of a model as its jobs have called them; answered by Compiled, much later.
    It runs beside everything else, and is halted while somebody draws."""

    model: str


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """End the process."""


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Build these models ahead, but for their weights, for a device of that kind ("cuda" or
    "cpu"), when there is nothing else to do. Also to a worker that stands by. Not answered."""

    device: str
    sources: tuple[ModelSource, ...]


class PartState(Enum):
    """What the memory of a granted part of the weight pool holds."""

    EMPTY = "empty"
    COMPLETE = "complete"


class PartGranted(msgspec.Struct, frozen=True, tag="part_granted"):
    """Memory for a part, answering PartWanted or PartFilled.

    Its descriptors come with this message and belong to the receiver, one for each of its
    `segments` (see `segment_bytes`). A COMPLETE part is for reading; `digest` is its content's, by
    which a worker finds that it has it under another key. An EMPTY one is this worker's to fill; it
    ends with PartFilled or PartDropped.
    """

    key: str
    state: PartState
    size_bytes: int
    digest: str = ""
    segments: int = 1


class PartRefused(msgspec.Struct, frozen=True, tag="part_refused"):
    """Answers PartWanted: there is no memory for this part in the pool, for this reason."""

    key: str
    reason: str


class FreePool(msgspec.Struct, frozen=True, tag="free_pool"):
    """Others need room: drop parts of models that are not on the device, so many bytes or all."""

    size_bytes: int


PoolAnswer = PartGranted | PartRefused
PoolOrder = FreePool | ForgetLoras
SpareOrder = TakeOver | Begin | Prepare
ToWorker = Load | Evict | Run | Cancel | Compile | Shutdown | SpareOrder | PoolAnswer | PoolOrder


# worker → host


class Memory(msgspec.Struct, frozen=True):
    """The device's memory as the worker sees it.

    `used_bytes` is the driver's figure for the whole device, `ours_bytes` this process's part
    (context and allocator). On a pretended device both are the bytes of loaded weights.
    `elsewhere` is what this process holds of other devices, by the server's names.
    """

    used_bytes: int
    ours_bytes: int
    elsewhere: dict[str, int] = {}


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The process has imported everything and its device answers.

    `bus_bytes_per_s` is how fast registered host memory comes to the device; 0: not measured.
    `compiles`: it can compile blocks. `neighbours`: other devices whose memory it can use.
    """

    pid: int
    device_name: str
    total_bytes: int
    memory: Memory
    versions: dict[str, str]
    bus_bytes_per_s: float = 0.0
    compiles: bool = False
    neighbours: tuple[str, ...] = ()


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    """A load goes on; `bytes_per_s` is its speed of late (0: not known yet)."""

    model: str
    done_bytes: int
    total_bytes: int
    bytes_per_s: float = 0.0


class PartBytes(msgspec.Struct, frozen=True):
    """What one component's weights take on the device. `part` names their content."""

    part: str
    device_bytes: int


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """The model stands ready.

    `weights_bytes` is what it really takes on the device between jobs, with the buffers that
    weights stream through; `transient_bytes` the most that weights which come for a while bring
    in addition at any moment of a job. `parts` are the components that are wholly on the device,
    `encoders` those that encode text, wherever they are; models that share one name it alike.
    `placement` is what was done: its `streamed_bytes` are
    those of whole blocks; `roles` is what each role's weights take in all; `lacks` names what of
    "tiled" and "sliced" the model cannot do. Where weights are not
    in the server's pool, or not registered with the card, `no_pool` says why.
    """

    model: str
    weights_bytes: int
    seconds_s: float
    memory: Memory
    parts: tuple[PartBytes, ...] = ()
    no_pool: str = ""
    placement: Placement = RESIDENT
    roles: tuple[RoleBytes, ...] = ()
    transient_bytes: int = 0
    lacks: tuple[str, ...] = ()
    encoders: tuple[PartBytes, ...] = ()


class LoadFailed(msgspec.Struct, frozen=True, tag="load_failed"):
    """The load ended with an error; nothing of it is left on the device."""

    model: str
    error: ErrorReport
    memory: Memory


class Evicted(msgspec.Struct, frozen=True, tag="evicted"):
    """The model has left."""

    model: str
    freed_bytes: int
    memory: Memory


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The job runs now."""

    job: str


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """`step` of `steps` of the whole job are done; `preview` is a small JPEG, now and then."""

    job: str
    step: int
    steps: int
    image: int = 0
    preview: bytes = b""


class Drawn(msgspec.Struct, frozen=True, tag="drawn"):
    """The device has done its part of the job; its pictures are made into files beside the next.

    `peak_bytes` is the working memory above what was allocated before the job, weights that came
    for a while included; 0: not measured. `batch` jobs were drawn in the same calls; seconds and
    bytes are then those of all together. Their steps took `steps_s` of the seconds (0: not
    measured). `compiled`: with compiled blocks; `to_compile`: some blocks could be compiled for the
    next job. `loras` are ready for the model's next jobs. `encoded`: the text encoders read the
    prompt for each picture.
    """

    job: str
    seconds_s: float
    peak_bytes: int
    memory: Memory
    batch: int = 1
    compiled: bool = False
    to_compile: bool = False
    loras: tuple[str, ...] = ()
    steps_s: float = 0.0
    encoded: bool = True


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The images of a job that was drawn, as PNG files with their metadata, in order."""

    job: str
    images: list[bytes]
    drawn: Drawn


class Compiled(msgspec.Struct, frozen=True, tag="compiled"):
    """Whether jobs of the model are drawn with compiled blocks from now on, as far as their sizes
    go. `problem` says why they are not, where the order was to compile them."""

    model: str
    ready: bool
    problem: str = ""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The job ended with an error; its working memory is free again."""

    job: str
    error: ErrorReport
    memory: Memory


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """The job was cancelled; its working memory is free again, in a batch with the last of it."""

    job: str
    memory: Memory


class MemoryReading(msgspec.Struct, frozen=True, tag="memory"):
    """A reading without an occasion, about every two seconds while the worker is idle."""

    memory: Memory


class PartWanted(msgspec.Struct, frozen=True, tag="part_wanted"):
    """Ask the weight pool for a part; answered by PartGranted or PartRefused, maybe after a while.

    `key` names the content: "sha256:…" where the digest is known, else the file's identity with
    the dtype and the layout. A worker asks for one part at a time.
    """

    key: str
    size_bytes: int


class PartFilled(msgspec.Struct, frozen=True, tag="part_filled"):
    """An EMPTY part has all its bytes, and no writable mapping of it is left.

    `digest` is of its content. Answered by PartGranted: that memory is to be used from now on, and
    the own descriptor closed. It holds the same bytes, and maybe other models use it already.
    """

    key: str
    digest: str


class PartDropped(msgspec.Struct, frozen=True, tag="part_dropped"):
    """The worker uses this part no longer, or could not fill it. Not answered."""

    key: str


class Drifted(msgspec.Struct, frozen=True, tag="drifted"):
    """Job after job memory was not given back: so many bytes by now, on the device and on the
    host."""

    device_bytes: int
    host_bytes: int


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """The process runs: every second or so, from a thread of its own, whatever the lanes do."""


PoolReport = PartWanted | PartFilled | PartDropped | LorasKept

FromWorker = (
    StandingBy
    | Ready
    | Loading
    | Loaded
    | LoadFailed
    | Evicted
    | Started
    | Progress
    | Drawn
    | Done
    | Compiled
    | Failed
    | Stopped
    | MemoryReading
    | Heartbeat
    | Drifted
    | PoolReport
)

_encoder = msgspec.msgpack.Encoder()
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


def frame(message: ToWorker | FromWorker) -> bytes:
    """The bytes of a message as they go over the socket, length first."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


def read_order(body: bytes) -> ToWorker:
    """A message to the worker, from its body. Raises msgspec.DecodeError or ValidationError."""
    return _to_worker.decode(body)


def read_report(body: bytes) -> FromWorker:
    """A message from the worker, from its body. Raises msgspec.DecodeError or ValidationError."""
    return _from_worker.decode(body)
