"""`%load_ext workshop_gpu`: pictures, models and the GPU's state without writing Python."""

# IPython's magics carry no types.
# mypy: disable-error-code="no-untyped-call, untyped-decorator"

import re
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from workshop_gpu.client.errors import ClientError
from workshop_gpu.client.holds import HeldModel
from workshop_gpu.client.images import GeneratedImage
from workshop_gpu.client.reservations import Reserved
from workshop_gpu.client.session import current
from workshop_gpu.client.tables import ModelTable, StatusView
from workshop_gpu.client.words import amount

_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(GB|MB|)", re.IGNORECASE)


def register(shell: InteractiveShell) -> None:
    """Add the magics to a shell."""
    shell.register_magics(WorkshopMagics)


@magics_class
class WorkshopMagics(Magics):
    """%%generate, %models, %gpu, %hold, %reserve."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._held: dict[str, HeldModel] = {}
        self._reserved: list[Reserved] = []

    @magic_arguments()
    @argument("-m", "--model", help="the model's id (see %%models); default: one that is ready")
    @argument("-s", "--seed", type=int, help="the same seed gives the same picture; default: any")
    @argument("-n", "--steps", type=int, help="more steps take longer and draw finer")
    @argument("--size", help="pixels: 512 or 768x512")
    @argument("-g", "--guidance", type=float, help="how closely the picture follows the prompt")
    @argument("--negative", default="", help="what the picture should not show, in quotes")
    @argument("-k", "--images", type=int, default=1, help="how many pictures")
    @argument("--into", help="a name for the picture (a list, if several), for later cells")
    @cell_magic
    def generate(self, line: str, cell: str) -> GeneratedImage | None:
        """Make a picture; the cell is the prompt."""
        options = parse_argstring(self.generate, line)
        prompt = " ".join(part.strip() for part in cell.splitlines() if part.strip())
        if not prompt:
            raise UsageError("Write what the picture should show below the line with %%generate.")
        into = _unquoted(options.into)
        if into is not None and not into.isidentifier():
            raise UsageError(f"--into {into}: that cannot be a name in Python.")
        made = current().generate(
            prompt,
            _unquoted(options.model),
            seed=options.seed,
            steps=options.steps,
            size=_unquoted(options.size),
            guidance=options.guidance,
            negative_prompt=_unquoted(options.negative) or "",
            images=options.images,
        )
        if into is not None:
            self._user_names()[into] = made
        if isinstance(made, list):
            for image in made:
                display(image)
            return None
        return made

    @line_magic
    def models(self, line: str) -> ModelTable:
        """Show the models that the instructor offers."""
        _no_arguments("models", line)
        return current().models()

    @line_magic
    def gpu(self, line: str) -> StatusView:
        """Show the GPUs, who holds their memory, who runs and who waits."""
        _no_arguments("gpu", line)
        return current().status()

    @magic_arguments()
    @argument("model", nargs="?", help="the model's id (see %%models)")
    @argument("--drop", action="store_true", help="give the hold back (all, without a model)")
    @line_magic
    def hold(self, line: str) -> None:
        """Keep a model on its GPU until this kernel ends, or until `%hold --drop`."""
        options = parse_argstring(self.hold, line)
        model = _unquoted(options.model)
        if options.drop:
            self._drop(model)
        elif model is None:
            print(self._held_words())
        else:
            self._take(model)

    @magic_arguments()
    @argument("size", nargs="?", help="how much: 8GB, 500MB, or a number of GB")
    @argument("--gpu", help="the GPU, by its number or id; default: whichever is best")
    @argument("--all", action="store_true", help="a whole GPU")
    @argument("--drop", action="store_true", help="give back all that is reserved")
    @line_magic
    def reserve(self, line: str) -> None:
        """Set GPU memory aside for this kernel's own code, until `%reserve --drop`."""
        options = parse_argstring(self.reserve, line)
        size, gpu = _unquoted(options.size), _gpu(_unquoted(options.gpu))
        if (size is not None) + options.all + options.drop > 1:
            raise UsageError("Give one of: a size, --all, --drop.")
        if options.drop:
            self._give_back()
        elif options.all:
            self._reserved.append(current().reserve_all(gpu))
        elif size is not None:
            self._reserved.append(current().reserve(_gigabytes(size), gpu))
        print(self._reserved_words())

    def _give_back(self) -> None:
        while self._reserved:
            self._reserved.pop().drop()

    def _reserved_words(self) -> str:
        parts = [
            f"{amount(each.size_bytes) if each.size_bytes else 'all'} of {each.device} "
            f"({each.state})"
            for each in self._reserved
        ]
        if parts:
            return f"Reserved: {', '.join(parts)}. Give it back with: %reserve --drop"
        return "You have reserved nothing. Reserve GPU memory with: %reserve 8GB"

    def _take(self, model: str) -> None:
        held = self._held.get(model)
        if held is None or held.state != "held":
            self._held[model] = current().hold(model)
        print(f"{model} stays on its GPU for you. Give it back with: %hold --drop")

    def _drop(self, model: str | None) -> None:
        if model is not None and model not in self._held:
            raise UsageError(f"You have no hold on {model}. {self._held_words()}")
        for name in [model] if model is not None else list(self._held):
            held = self._held.pop(name)
            held.drop()
            print(f"{name}: {held.state}.")

    def _held_words(self) -> str:
        names = ", ".join(f"{name} ({held.state})" for name, held in self._held.items())
        return f"Held: {names}." if names else "You hold no model. Take one with: %hold MODEL"

    def _user_names(self) -> dict[str, Any]:
        if self.shell is None:
            raise ClientError("the magics need a running IPython shell.")
        names: dict[str, Any] = self.shell.user_ns
        return names


def _unquoted(value: str | None) -> str | None:
    """IPython keeps the quotes of an argument."""
    if value is not None and len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


def _gigabytes(size: str) -> float:
    """GB of "8GB", "500MB" or "0.5"."""
    match = _SIZE.fullmatch(size)
    if match is None:
        raise UsageError(f"%reserve {size}: write how much, such as 8GB or 500MB.")
    return float(match[1]) / (1000 if match[2].upper() == "MB" else 1)


def _gpu(gpu: str | None) -> int | str | None:
    return int(gpu) if gpu is not None and gpu.isdecimal() else gpu


def _no_arguments(name: str, line: str) -> None:
    if line.strip():
        raise UsageError(f"%{name} takes no arguments.")
