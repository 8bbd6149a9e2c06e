"""Fetch a model from the Hugging Face hub into its cache: only what is needed, with progress.

`download` blocks, so the host runs it in a thread. It can be stopped and started again: the hub's
client goes on where it was. The hub is behind the small `Hub` protocol, so that tests need none.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from workshop_gpu.catalogue import hub_cache
from workshop_gpu.catalogue.files import LocalState, inspect
from workshop_gpu.catalogue.hub_files import needed_files
from workshop_gpu.catalogue.pipeline_folder import Incomplete, Refused, read_index
from workshop_gpu.catalogue.spec import ModelSpec
from workshop_gpu.conductor.errors import ModelUnavailable, gigabytes

Progress = Callable[[int, int], None]
"""Called with (done_bytes, total_bytes), from whatever thread the bytes arrive in."""


class HubProblem(Exception):
    """The hub cannot be used for this; the message says why, in words for the instructor."""


class Listing(msgspec.Struct, frozen=True):
    """A revision's commit, and the size in bytes of each of its files."""

    commit: str
    files: dict[str, int]


class Hub(Protocol):
    """What is needed of the hub's client. Both methods raise HubProblem."""

    def listing(self, hub_id: str, revision: str) -> Listing:
        """The files of a revision ("": the main one)."""

    def fetch(
        self, hub_id: str, revision: str, paths: tuple[str, ...], arrived: Callable[[int], None]
    ) -> Path:
        """Bring these files into the cache and return the folder they are in.

        `arrived` is told how many bytes have arrived in all, those of an earlier try included.
        """


def download(
    spec: ModelSpec, progress: Progress, *, hub: Hub | None = None, cache: Path | None = None
) -> Path:
    """Fetch what a model of the hub needs, and return its folder, checked as any other.

    Raises ModelUnavailable where the hub is not reached, does not give the model, or has no
    safetensors of it, and where the disk is too small.
    """
    cache = cache or hub_cache.cache_folder()
    client = hub or HuggingFaceHub(cache)
    try:
        return _download(spec, progress, client, cache)
    except (HubProblem, Incomplete, Refused) as problem:
        raise ModelUnavailable(spec.id, f"{problem}.") from None


def _download(spec: ModelSpec, progress: Progress, hub: Hub, cache: Path) -> Path:
    source = spec.source
    listing = hub.listing(source.hub, source.revision)
    if "model_index.json" not in listing.files:
        raise Refused(f"{source.hub} has no model_index.json, so it is no diffusers pipeline")
    index = read_index(
        hub.fetch(source.hub, source.revision, ("model_index.json",), lambda arrived: None)
    )
    paths = needed_files(index, listing.files, source.variant)
    total = sum(listing.files[path] for path in paths)
    _check_room(cache, total)
    progress(0, total)
    most = 0

    def report(arrived: int) -> None:
        """Counters of the network and of the disk both report; people see the larger."""
        nonlocal most
        most = max(most, min(arrived, total))
        progress(most, total)

    folder = hub.fetch(source.hub, source.revision, paths, report)
    found = inspect(spec, folder, hub=cache)
    if found.state is not LocalState.READY:
        raise Incomplete(found.problem or "the download ended, but files are missing; try again")
    progress(total, total)
    return folder


def _check_room(cache: Path, total_bytes: int) -> None:
    """Raise where the disk cannot take the files; what an earlier try left there is not known."""
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes < total_bytes:
        raise HubProblem(
            f"it needs {gigabytes(total_bytes)} on the disk of {cache}, where "
            f"{gigabytes(free_bytes)} are free"
        )


class HuggingFaceHub:
    """The real hub, through `huggingface_hub`, which is imported on first use (it takes 0.5 s)."""

    def __init__(self, cache: Path, endpoint: str | None = None) -> None:
        self._cache = cache
        self._endpoint = endpoint

    def listing(self, hub_id: str, revision: str) -> Listing:
        from huggingface_hub import HfApi

        try:
            info = HfApi(endpoint=self._endpoint).model_info(
                hub_id, revision=revision or None, files_metadata=True
            )
        except Exception as error:
            raise HubProblem(hub_words(hub_id, error)) from error
        files = {file.rfilename: file.size or 0 for file in info.siblings or []}
        return Listing(info.sha or "", files)

    def fetch(
        self, hub_id: str, revision: str, paths: tuple[str, ...], arrived: Callable[[int], None]
    ) -> Path:
        from huggingface_hub import snapshot_download

        try:
            folder = snapshot_download(
                hub_id,
                revision=revision or None,
                cache_dir=self._cache,
                allow_patterns=list(paths),
                tqdm_class=_bar_class(arrived),
                endpoint=self._endpoint,
            )
        except Exception as error:
            raise HubProblem(hub_words(hub_id, error)) from error
        return Path(folder)


def _bar_class(arrived: Callable[[int], None]) -> Any:
    """A progress bar that draws nothing and reports what its byte counters say."""
    from tqdm.auto import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            self._counts_bytes = kwargs.get("unit") == "B"
            super().__init__(*args, **{**kwargs, "disable": True})
            self._report(kwargs.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            self._report(n or 0)

        def _report(self, more: float) -> None:
            self._seen = getattr(self, "_seen", 0) + int(more)
            if self._counts_bytes:
                arrived(self._seen)

    return Bar


def hub_words(hub_id: str, error: Exception) -> str:
    """What an error of the hub's client means, and what can be done about it."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return (
            f"{hub_id} is gated: accept its terms on the hub, then log in on this server with "
            "`hf auth login`"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{hub_id} has no such revision"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"the hub has no model {hub_id}, or it is private and this server is not logged in"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return (
            f"{hub_id} is not on this disk, and HF_HUB_OFFLINE forbids downloads (unset it, or "
            "copy the model into the cache)"
        )
    if isinstance(error, errors.HfHubHTTPError):
        return f"the hub refused {hub_id}: {_first_line(error)}"
    if isinstance(error, OSError) and error.errno is not None:
        return f"{hub_id} cannot be written to the cache: {error.strerror}"
    return f"the hub was not reached for {hub_id} ({type(error).__name__}: {_first_line(error)})"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no reason given").splitlines()[0][:200]
