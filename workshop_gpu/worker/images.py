"""Finished pictures as PNG files that know how they were made. Imports no torch."""

import io
import json
import zlib

import msgspec
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from workshop_gpu.worker.protocol import GenerateParams

RECORD_KEY = "workshop_gpu"
"""The PNG text chunk that holds an ImageRecord as JSON."""
READABLE_KEY = "parameters"
"""The PNG text chunk for people and other programs: prompt first, then the settings."""

_COMPRESS_TYPE, _COMPRESS_LEVEL = zlib.Z_RLE, 3
"""Only runs are looked for: after PNG's filters a picture hardly repeats itself otherwise. At
1024 x 1024 that takes two thirds of the time of zlib's other ways, and the files are no larger."""


class StepProfile(msgspec.Struct, frozen=True):
    """How one step's time was spent.

    Copies run beside the computation: `wait_s` is what the device stood still for them. The rest
    of the step is `compute_s`.
    """

    copy_s: float
    wait_s: float
    compute_s: float


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How one picture was made: with these `params` (its own seed, one image) it is made again.

    Of those drawn in the same call it tells the number, and nothing of what others asked for.
    `lora_sha256`: of the file of each LoRA that it was drawn with. `profile` has the steps of its
    call, where that was asked for.
    """

    model: str
    params: GenerateParams
    metadata: dict[str, str] = {}
    versions: dict[str, str] = {}
    device: str = ""
    lora_sha256: dict[str, str] = {}
    profile: tuple[StepProfile, ...] = ()


def encode_png(image: Image.Image, record: ImageRecord) -> bytes:
    """The picture as a PNG file with its record in it."""
    info = PngInfo()
    info.add_text(RECORD_KEY, json.dumps(msgspec.to_builtins(record)))
    info.add_text(READABLE_KEY, _readable(record))
    file = io.BytesIO()
    image.save(
        file, "PNG", pnginfo=info, compress_level=_COMPRESS_LEVEL, compress_type=_COMPRESS_TYPE
    )
    return file.getvalue()


def read_record(png: bytes) -> ImageRecord:
    """The record in a PNG file of ours. Raises KeyError or msgspec.DecodeError where none is."""
    with Image.open(io.BytesIO(png)) as image:
        image.load()
        return msgspec.json.decode(image.info[RECORD_KEY], type=ImageRecord)


def _readable(record: ImageRecord) -> str:
    params = record.params
    worn = (f"<lora:{name}:{scale:g}>" for name, scale in params.loras.items())
    lines = [" ".join((params.prompt, *worn))]
    if params.negative_prompt:
        lines.append(f"Negative prompt: {params.negative_prompt}")
    lines.append(
        f"Steps: {params.steps}, CFG scale: {params.guidance:g}, Seed: {params.seed}, "
        f"Size: {params.width}x{params.height}, Model: {record.model}"
        + (f", Batch size: {params.batch}, Batch pos: {params.place}" if params.batch > 1 else "")
    )
    return "\n".join(lines).replace("\x00", "")
