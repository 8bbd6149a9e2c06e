"""A small picture of each shipped model, for those who have made none with it yet."""

from base64 import b64encode
from pathlib import Path

_FOLDER = Path(__file__).parent / "samples"


def samples(models: list[str]) -> dict[str, str]:
    """As data: URLs, for those of the models that have one. Nothing is fetched for that."""
    files = {path.stem: path for path in _FOLDER.glob("*.jpg")}
    return {
        model: "data:image/jpeg;base64," + b64encode(files[model].read_bytes()).decode("ascii")
        for model in models
        if model in files
    }
