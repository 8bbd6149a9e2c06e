"""`python -m tests.worker.fresh_pictures DEVICE DTYPE TARGET FOLDER…`: bare pipelines' pictures.

Each pipeline is opened by the library's own loader, in this fresh process, and draws what
`WANTED` says; the pictures go to TARGET under their folder's name.
"""

import sys
from pathlib import Path

from tests.worker.bare_pipelines import bare_picture
from tests.worker.worker_host import params

WANTED = params(width=64, height=32, steps=3, negative_prompt="a star", seed=2**33)


def main() -> None:
    import diffusers
    import torch

    device, dtype, target, *folders = sys.argv[1:]
    torch.set_num_threads(1)
    for folder in map(Path, folders):
        pipeline = diffusers.DiffusionPipeline.from_pretrained(
            str(folder), torch_dtype=getattr(torch, dtype), local_files_only=True
        ).to(device)
        pipeline.set_progress_bar_config(disable=True)
        bare_picture(pipeline, WANTED).save(Path(target) / f"{folder.name}.png")


if __name__ == "__main__":
    main()
