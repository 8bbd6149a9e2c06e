"""Where the Hugging Face cache keeps what it has: folders only, no network.

The layout is documented at https://huggingface.co/docs/huggingface_hub/guides/manage-cache:
`models--ORG--NAME/refs/REVISION` holds a commit, `snapshots/COMMIT/` its files (links to blobs).
Reading these few names takes milliseconds, where `scan_cache_dir` measures every file of every
data set too.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from huggingface_hub import constants

_COMMIT = re.compile(r"[0-9a-f]{40}")


def cache_folder() -> Path:
    """The cache in use, by the hub's own rules (HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME)."""
    return Path(constants.HF_HUB_CACHE)


def snapshot(cache: Path, hub_id: str, revision: str = "") -> Path | None:
    """The folder with a revision's files as far as they are there; None where nothing is."""
    return _snapshot(cache / f"models--{hub_id.replace('/', '--')}", revision or "main")


def snapshots(cache: Path) -> Iterator[tuple[str, Path]]:
    """All models of the cache at their main revision: (hub id, folder), sorted by id."""
    try:
        repositories = sorted(cache.glob("models--*--*"))
    except OSError:
        return
    for repository in repositories:
        folder = _snapshot(repository, "main") or _newest(repository)
        if folder is not None:
            yield repository.name.removeprefix("models--").replace("--", "/", 1), folder


def component_folders(cache: Path, hub_id: str = "*/*") -> list[Path]:
    """The folders whose time of change tells that a file of a model arrived, with the cache's."""
    pattern = f"models--{hub_id.replace('/', '--')}/snapshots/*/*/"
    return [cache, *sorted(cache.glob(pattern))]


def _snapshot(repository: Path, revision: str) -> Path | None:
    commit = revision
    if not _COMMIT.fullmatch(revision):
        try:
            commit = (repository / "refs" / revision).read_text().strip()
        except (OSError, ValueError):
            return None
    folder = repository / "snapshots" / commit
    return folder if commit and folder.is_dir() else None


def _newest(repository: Path) -> Path | None:
    folders = [path for path in (repository / "snapshots").glob("*") if path.is_dir()]
    return max(folders, key=lambda path: path.stat().st_mtime, default=None)
