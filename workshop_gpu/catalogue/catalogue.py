"""The catalogue: the models on offer, what of them is on this disk, and what is wrong.

With a `models.toml` it is what the file says. Without one it is the shipped models and the
pipelines that lie in the Hugging Face cache. Everything here blocks for milliseconds (a few
`stat` calls and headers of files); nothing here imports torch or opens weights.
"""

from collections.abc import Iterable
from pathlib import Path

from jupyter_core.paths import jupyter_config_dir

from workshop_gpu.catalogue import hub_cache
from workshop_gpu.catalogue.discovery import discovered_specs
from workshop_gpu.catalogue.files import DTYPE_BYTES, LocalModel, LocalState, inspect, resolve
from workshop_gpu.catalogue.loras import LoraSpec, OfferedLora, inspect_lora, shipped_loras
from workshop_gpu.catalogue.roles import lacks_of, roles_of
from workshop_gpu.catalogue.shape import shape_of
from workshop_gpu.catalogue.shipped import ASSETS, shipped_specs
from workshop_gpu.catalogue.sizes import sized
from workshop_gpu.catalogue.spec import ModelSpec
from workshop_gpu.catalogue.toml_file import read_models
from workshop_gpu.conductor.errors import ModelUnavailable, ModelUnknown
from workshop_gpu.conductor.events import ModelFacts
from workshop_gpu.conductor.ladder import AUTO
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.worker.protocol import ModelSource

Signature = tuple[tuple[int, int, int] | None, ...]


def default_models_file() -> Path:
    """Where models.toml is looked for when the configuration names no other place."""
    return Path(jupyter_config_dir()) / "workshop_gpu" / "models.toml"


class Catalogue:
    """The models on offer. Call `load` first, and again whenever `changed` says so.

    `path` is the models.toml (None, or the default place with nothing there: no file).
    `default_dtype` is what models without a dtype are loaded in, for the bytes in `facts`:
    "float32" unless every device is a GPU that uses half precision. `default_placement` counts
    for models of which models.toml does not say a placement. `hub` is the Hugging Face
    cache (None: the one in use). `roots` are the folders in which models must lie, beside the
    shipped ones and that cache; () for anywhere.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        default_dtype: str = "float32",
        default_placement: str = AUTO,
        hub: Path | None = None,
        roots: tuple[Path, ...] = (),
    ) -> None:
        self._path = path
        self._base = path.parent if path else Path.cwd()
        self._default_dtype = default_dtype
        self._default_placement = default_placement
        self._hub = hub
        self._roots = (*roots, ASSETS) if roots else ()
        self._specs: dict[str, ModelSpec] = {}
        self._local: dict[str, LocalModel] = {}
        self._loras: dict[str, LoraSpec] = {}
        self._found_loras: dict[str, OfferedLora] = {}
        self._problems: tuple[str, ...] = ()
        self._seen: Signature | None = None

    def load(self) -> None:
        """Read everything anew. A mistake in the file keeps the catalogue as it was.

        At the very first reading there is nothing to keep: then the entries without a mistake
        are offered.
        """
        first = self._seen is None
        # Taken before the reading: a change while we read is then seen as a change afterwards.
        file = _stat(self._path) if self._path else None
        self._read(first)
        self._local, self._found_loras = {}, {}
        self._seen = (file, *self._signature()[1:])

    def changed(self) -> bool:
        """Whether the file, or a model's folder, is not what it was at the last `load`.

        Cheap enough to be asked every second.
        """
        return self._seen != self._signature()

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """All models in the order of the file, disabled ones too; see `get`."""
        return tuple(self.get(model) for model in self._specs)

    @property
    def problems(self) -> tuple[str, ...]:
        """The mistakes of models.toml, each with line and reason; empty when all is well."""
        return self._problems

    def get(self, model: str) -> ModelSpec:
        """One model's entry, with the sizes that it draws as far as its files say them. Raises
        ModelUnknown."""
        return sized(self._written(model), self.local(model).sizes)

    def local(self, model: str) -> LocalModel:
        """What of a model is on this disk, as found at the last look. Raises ModelUnknown."""
        if model not in self._local:
            self._local[model] = inspect(
                self._written(model),
                self._base,
                default_dtype=self._default_dtype,
                hub=self._hub,
                roots=self._roots,
            )
        return self._local[model]

    def lora(self, lora: str) -> OfferedLora | None:
        """A LoRA on offer, as found at the last look; None: it is not on offer."""
        spec = self._loras.get(lora)
        if spec is not None and lora not in self._found_loras:
            float_bytes = DTYPE_BYTES[self._default_dtype]
            self._found_loras[lora] = inspect_lora(spec, self._base, float_bytes, self._roots)
        return self._found_loras.get(lora)

    @property
    def loras(self) -> tuple[OfferedLora, ...]:
        """All LoRAs in the order of the file."""
        found = (self.lora(name) for name in self._loras)
        return tuple(lora for lora in found if lora is not None)

    def lora_bytes(self, loras: Iterable[str]) -> int:
        """What these take once loaded, as far as they are on offer."""
        found = (self.lora(name) for name in loras)
        return sum(lora.file_bytes for lora in found if lora is not None)

    def loras_for(self, model: str) -> tuple[OfferedLora, ...]:
        """Those that fit a model."""
        return tuple(lora for lora in self.loras if model in lora.spec.models)

    def look_again(self, model: str) -> LocalModel:
        """Look at a model's files anew, as after a download. Raises ModelUnknown."""
        self._local.pop(model, None)
        return self.local(model)

    def facts(self) -> tuple[ModelFacts, ...]:
        """What the conductor must know of each model. A model to be downloaded has no problem."""
        return tuple(self._facts(spec) for spec in self.specs)

    def source(self, model: str) -> ModelSource:
        """Where the worker finds the weights. Raises ModelUnknown, and ModelUnavailable where
        the files cannot be used or are not there yet."""
        spec, local = self.get(model), self.local(model)
        if local.state is LocalState.TO_DOWNLOAD:
            raise ModelUnavailable(model, "it is not downloaded yet.")
        if local.state is LocalState.UNUSABLE:
            raise ModelUnavailable(model, local.problem)
        return ModelSource(
            model=model,
            kind=spec.kind,
            path=local.path,
            dtype=spec.dtype,
            variant=spec.source.variant,
            gguf=local.gguf,
        )

    def _written(self, model: str) -> ModelSpec:
        """The entry as it was read. Raises ModelUnknown."""
        if model not in self._specs:
            known = [spec.id for spec in self._specs.values() if spec.enabled]
            raise ModelUnknown(model, known)
        return self._specs[model]

    def _read(self, first: bool) -> None:
        path = self._path
        if path is not None and (path.exists() or not first):
            read = read_models(path)
            self._problems = tuple(mistake.text(path.name) for mistake in read.mistakes)
            if not read.mistakes or first:
                self._specs = {spec.id: spec for spec in read.specs}
                self._loras = {lora.id: lora for lora in read.loras}
            return
        missing = path is not None and path != default_models_file()
        self._problems = (f"{path} does not exist; the shipped models are offered",) * missing
        shipped = shipped_specs()
        found = discovered_specs(
            self._hub or hub_cache.cache_folder(), [spec.id for spec in shipped]
        )
        self._specs = {spec.id: spec for spec in (*shipped, *found)}
        self._loras = {lora.id: lora for lora in shipped_loras()}

    def _facts(self, spec: ModelSpec) -> ModelFacts:
        local = self.local(spec.id)
        return ModelFacts(
            model=spec.id,
            enabled=spec.enabled,
            disabled_reason=spec.reason,
            problem=local.problem,
            pinned=spec.pin,
            keep_warm_s=spec.keep_warm_s,
            explicit_bytes=round(spec.vram_gb * 1e9),
            file_bytes=local.file_bytes,
            on_disk=local.state is not LocalState.TO_DOWNLOAD,
            denoiser=shape_of(spec, local),
            roles=roles_of(local.components),
            lacks=lacks_of(local.components),
            memory=self.memory(spec),
            compiles=spec.compile != "off",
        )

    def memory(self, spec: ModelSpec) -> MemorySettings:
        """How the model may use a GPU's memory, here."""
        return spec.memory.settings(self._default_placement)

    def _signature(self) -> Signature:
        cache = self._hub or hub_cache.cache_folder()
        watched: list[Path] = []
        if self._path is None or not self._path.exists():
            watched += hub_cache.component_folders(cache)
        for spec in self._specs.values():
            if spec.source.file:
                watched.append(resolve(spec.source.file, self._base))
            elif spec.source.hub:
                watched += hub_cache.component_folders(cache, spec.source.hub)
            else:
                folder = resolve(spec.source.folder, self._base)
                watched += [folder, folder / "model_index.json"]
            if spec.source.gguf:
                watched.append(resolve(spec.source.gguf, self._base))
        watched += [resolve(lora.file, self._base) for lora in self._loras.values()]
        return (_stat(self._path) if self._path else None, *map(_stat, watched))


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
