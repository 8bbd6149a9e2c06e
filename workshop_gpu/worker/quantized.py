"""Denoisers in GGUF files: layers stay quantized, and are unpacked one by one as they compute.

diffusers reads the file and builds the module; from then on its bytes are moved like all others.
"""

from pathlib import Path
from typing import Any

import torch

from workshop_gpu.worker.checkpoints import BadCheckpoint
from workshop_gpu.worker.pipelines import diffusers
from workshop_gpu.worker.skeletons import Skeleton, captured


def open_gguf(cls: Any, folder: Path, file: Path, dtype: torch.dtype) -> Skeleton:
    """The component with the file's weights, configured as the folder says; it computes in `dtype`.

    Raises BadCheckpoint and the library's own errors. Sets the libraries' global state.
    """
    if not hasattr(cls, "from_single_file"):
        raise BadCheckpoint(f"diffusers cannot open a {cls.__name__} from a GGUF file")
    try:
        module = cls.from_single_file(
            str(file),
            config=str(folder.parent),
            subfolder=folder.name,
            quantization_config=diffusers.GGUFQuantizationConfig(compute_dtype=dtype),
            torch_dtype=dtype,
            local_files_only=True,
        )
    except (LookupError, ValueError) as problem:  # a name that it looks for, or a shape
        raise BadCheckpoint(
            f"{file.name} does not hold a {cls.__name__} of the shape that {folder} describes: "
            f"{problem}"
        ) from None
    return captured(module.eval())
