"""A picture that knows how it was made."""

import json
import zlib
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import IO, Any

from PIL import Image
from PIL.PngImagePlugin import PngImageFile, PngInfo

from workshop_gpu.client.errors import BadRequest
from workshop_gpu.client.step_profile import StepTable, step_table

Metadata = dict[str, Any]
"""prompt, negative_prompt, seed, steps, guidance, width, height, batch, place, manner, loras,
compiled, model, versions, device, placement (unless all of the model was on the device),
lora_sha256 (of the files of its LoRAs, where it has any), profile (where that was asked for: each
step's copy_s, wait_s and compute_s)."""

TEXT_CHUNK = "workshop_gpu"
READABLE_CHUNK = "parameters"
"""The same for people and for other programs; it goes along and is never read here."""
_EXIF_DESCRIPTION = 0x010E  # ImageDescription: the one text field that JPEG, WebP and TIFF share

_NOT_MADE_SO = ("images", "profile")
"""Parameters of the job that say nothing of how this picture was made."""

Source = Image.Image | bytes | str | PathLike[str]


class GeneratedImage(PngImageFile):
    """A PIL image made by a job. It shows itself in notebooks and keeps its metadata when saved.

    Changed copies (`resize`, `crop`, ...) are plain PIL images and keep it in
    `.info["workshop_gpu"]`.
    """

    def __init__(self, png: bytes) -> None:
        super().__init__(BytesIO(png))
        self.load()
        self._png = png
        self._pixels = zlib.crc32(self.tobytes())

    @property
    def metadata(self) -> Metadata:
        """How the picture was made; empty if the picture does not say."""
        return read_metadata(self)

    @property
    def prompt(self) -> str:
        return str(self.metadata.get("prompt", ""))

    @property
    def seed(self) -> int:
        return int(self.metadata["seed"])

    @property
    def model(self) -> str:
        return str(self.metadata.get("model", ""))

    @property
    def profile(self) -> StepTable:
        """How each step's time was spent, of a picture that was drawn with `profile=True`: a list
        that shows itself as a table."""
        return step_table(self.metadata.get("profile"))

    @property
    def png_bytes(self) -> bytes:
        """The picture as PNG with its metadata: the server's own bytes while it is unchanged."""
        original: bytes | None = getattr(self, "_png", None)  # a pickled copy comes without
        if original is not None and zlib.crc32(self.tobytes()) == self._pixels:
            return original
        buffer = BytesIO()
        self.save(buffer, "PNG")
        return buffer.getvalue()

    def save(
        self,
        fp: str | bytes | PathLike[str] | PathLike[bytes] | IO[bytes],
        format: str | None = None,
        **params: Any,
    ) -> None:
        """As PIL's `save`; the metadata goes along, in PNG as in JPEG, WebP and TIFF."""
        text = _record_text(self)
        if text and "pnginfo" not in params:
            info = PngInfo()
            for name in (TEXT_CHUNK, READABLE_CHUNK):
                if name in self.info:
                    info.add_text(name, str(self.info[name]))
            params["pnginfo"] = info
        if text and "exif" not in params and not _is_png(fp, format):
            exif = Image.Exif()
            exif[_EXIF_DESCRIPTION] = text
            params["exif"] = exif
        super().save(fp, format, **params)

    def _repr_png_(self) -> bytes:
        return self.png_bytes

    def _repr_jpeg_(self) -> None:
        """PNG is enough: twice the picture would be twice the notebook."""

    def __repr__(self) -> str:
        made = self.metadata
        if not made:
            return f"<GeneratedImage {self.width}×{self.height}>"
        return (
            f"<GeneratedImage {self.width}×{self.height} model={made.get('model')!r} "
            f"seed={made.get('seed')} prompt={_shortened(self.prompt)!r}>"
        )


def read_metadata(source: Source) -> Metadata:
    """The metadata of an image, of PNG bytes or of a file; empty where there is none."""
    if isinstance(source, Image.Image):
        text = _record_text(source)
    else:
        with opened(source) as image:
            text = _record_text(image)
    try:
        record = json.loads(text)
    except (ValueError, TypeError):
        return {}
    if not isinstance(record, dict):
        return {}
    params = record.get("params")
    if not isinstance(params, dict):
        return record
    about = {name: record[name] for name in ("model", "versions", "device") if name in record}
    beside = record.get("metadata")
    if isinstance(beside, dict) and "placement" in beside:
        about["placement"] = beside["placement"]
    about |= {name: record[name] for name in ("lora_sha256", "profile") if record.get(name)}
    return {**{name: params[name] for name in params if name not in _NOT_MADE_SO}, **about}


def _record_text(image: Image.Image) -> str:
    """The record as the worker wrote it, wherever the format keeps it."""
    return str(image.info.get(TEXT_CHUNK) or image.getexif().get(_EXIF_DESCRIPTION) or "")


def opened(source: object, field: str = "image") -> Image.Image:
    """The picture of a file or of a file's bytes. Raises BadRequest."""
    if not isinstance(source, bytes | str | PathLike):
        raise BadRequest(
            "invalid_request",
            f"{field}: give an image, a file's path or PNG bytes, not {type(source).__name__}.",
            {"field": field},
        )
    try:
        return Image.open(BytesIO(source) if isinstance(source, bytes) else Path(source))
    except FileNotFoundError as problem:
        raise BadRequest(
            "invalid_request",
            f'{field}: there is no file "{source!s:.200}". Look where it is with %ls.',
            {"field": field},
        ) from problem
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as problem:
        name = "these bytes are" if isinstance(source, bytes) else f'"{source!s:.200}" is'
        why = problem.strerror if isinstance(problem, OSError) else ""
        raise BadRequest(
            "invalid_request",
            f"{field}: {name} no picture that can be read{f' ({why})' if why else ''}. Give a PNG, "
            "JPEG or WebP file.",
            {"field": field},
        ) from problem


def _is_png(fp: object, format_name: str | None) -> bool:
    if format_name is not None:
        return format_name.upper() == "PNG"
    return isinstance(fp, str | PathLike) and Path(fp).suffix.lower() == ".png"


def _shortened(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
