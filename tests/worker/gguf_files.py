"""Denoisers written as GGUF files, as tools for quantized checkpoints write them."""

from pathlib import Path
from typing import Any


def write_gguf(module: Any, path: Path, quantization: str = "Q8_0") -> dict[str, Any]:
    """The module's weights in a file: matrices quantized where their rows allow it, the rest in
    float32. Returns what the file really says, as numbers."""
    import gguf
    import torch

    kind = gguf.GGMLQuantizationType[quantization]
    row, _ = gguf.GGML_QUANT_SIZES[kind]
    writer = gguf.GGUFWriter(str(path), "flux")
    said: dict[str, Any] = {}
    for name, tensor in module.state_dict().items():
        values = tensor.float().numpy()
        if values.ndim == 2 and values.shape[1] % row == 0:
            packed = gguf.quants.quantize(values, kind)
            writer.add_tensor(name, packed, raw_dtype=kind)
            values = gguf.quants.dequantize(packed, kind)
        else:
            writer.add_tensor(name, values)
        said[name] = torch.from_numpy(values.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return said
