"""`%load_ext workshop_gpu`: pictures, models and the GPU's state without writing Python."""

# IPython's magics carry no types.
# mypy: disable-error-code="no-untyped-call, untyped-decorator"

import re
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from workshop_gpu.api.schemas import PRIORITIES
from workshop_gpu.client.holds import HeldModel
from workshop_gpu.client.images import GeneratedImage
from workshop_gpu.client.magic_words import Completion, filled_in, options_of
from workshop_gpu.client.queue_table import QueueTable
from workshop_gpu.client.reservations import Reserved
from workshop_gpu.client.session import current
from workshop_gpu.client.tables import ModelTable, StatusView
from workshop_gpu.client.words import amount

_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(GB|MB|)", re.IGNORECASE)


def register(shell: InteractiveShell) -> None:
    """Add the magics to a shell, with the completion of their options and models."""
    shell.register_magics(WorkshopMagics)
    completion = Completion(shell, lambda: current().models().ids)
    completion.offer(WorkshopMagics.generate, ("%generate", "%%generate"))
    completion.offer(WorkshopMagics.hold, ("%hold",), ["MODEL"])
    completion.offer(WorkshopMagics.release, ("%release",), ["MODEL"])
    completion.offer(WorkshopMagics.workshop, ("%workshop",), ["name"])
    for magic in (WorkshopMagics.reserve, WorkshopMagics.cancel, WorkshopMagics.again):
        completion.offer(magic, (f"%{magic.__name__}",))
    for magic in (WorkshopMagics.models, WorkshopMagics.gpu, WorkshopMagics.queue):
        completion.offer(magic, (f"%{magic.__name__}",))


@magics_class
class WorkshopMagics(Magics):
    """%%generate, %again, %models, %gpu, %queue, %cancel, %hold, %release, %reserve, %workshop."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._shell = shell
        self._held: dict[str, HeldModel] = {}
        self._reserved: list[Reserved] = []
        self._last: GeneratedImage | None = None

    # pictures

    @no_var_expand
    @magic_arguments()
    @argument("prompt", nargs="*", help="what to draw, where no cell follows")
    @argument("-m", "--model", help="the model's id (see %%models); default: one that is ready")
    @argument("-s", "--seed", type=int, help="the same seed gives the same picture; default: any")
    @argument("--steps", type=int, help="more steps take longer and draw finer")
    @argument("--size", help="pixels: 512 or 768x512")
    @argument("-g", "--guidance", type=float, help="how closely the picture follows the prompt")
    @argument("--negative", default="", help="what the picture should not show, in quotes")
    @argument("-n", "--n", "--images", type=int, default=1, help="how many pictures")
    @argument("--start", help="a picture to begin with: its name in this notebook, or its file")
    @argument("--strength", type=float, help="how much of it is drawn anew, up to 1")
    @argument("--mask", help="a picture of the same size, white where it is drawn anew")
    @argument("--lora", action="append", default=[], help="NAME:SCALE or NAME; may be repeated")
    @argument("--priority", choices=PRIORITIES, default="normal", help="low: others go first")
    @argument("--into", help="a name for the picture (a list, if several), for later cells")
    @line_cell_magic
    def generate(self, line: str, cell: str | None = None) -> GeneratedImage | None:
        """Make a picture; the cell is the prompt.

        {colour} in the prompt stands for what the name (or expression) is worth in the notebook;
        {{ and }} are braces.
        """
        sign = "%" if cell is None else "%%"
        options = options_of(self.generate, sign, filled_in(line, self._shell, "the line"))
        if options is None:
            return None
        prompt = self._prompt(cell, options.prompt)
        into = options.into
        if into is not None and not into.isidentifier():
            raise UsageError(f"--into {into:.80}: that cannot be a name in Python. Take a word.")
        made = current().generate(
            prompt,
            options.model,
            seed=options.seed,
            steps=options.steps,
            size=options.size,
            guidance=options.guidance,
            negative_prompt=options.negative,
            images=options.n,
            start_image=self._picture("--start", options.start),
            strength=options.strength,
            mask=self._picture("--mask", options.mask),
            loras=options.lora,
            priority=options.priority,
        )
        self._last = made[-1] if isinstance(made, list) else made
        if into is not None:
            self._shell.user_ns[into] = made
        return self._shown(made)

    def _prompt(self, cell: str | None, words: list[str]) -> str:
        if cell is not None and words:
            raise UsageError(
                f"%%generate does not know what to do with {words[0]!r:.80}. The prompt goes below "
                "the line; %%generate --help shows all options."
            )
        text = " ".join(words if cell is None else map(str.strip, cell.splitlines())).strip()
        if not text:
            raise UsageError(
                "there is nothing to draw yet. Write what the picture should show below the line "
                "with %%generate."
            )
        # A line is filled in as a whole, with its options.
        return " ".join((text if cell is None else filled_in(text, self._shell, "prompt")).split())

    def _picture(self, option: str, name: str | None) -> Any:
        """The picture of this name in the notebook, or in this file."""
        if name is None:
            return None
        if name.isidentifier() and name in self._shell.user_ns:
            return self._shell.user_ns[name]
        if Path(name).expanduser().is_file():
            return Path(name).expanduser()
        raise UsageError(
            f"{option} {name:.80}: this notebook has no picture of that name, and no such file. "
            "Make one with %%generate --into NAME, or give a file's path."
        )

    @staticmethod
    def _shown(made: GeneratedImage | list[GeneratedImage]) -> GeneratedImage | None:
        if not isinstance(made, list):
            return made
        for image in made:
            display(image)
        return None

    @magic_arguments()
    @argument("picture", nargs="?", help="its name here, or its file; default: the last one")
    @argument("--into", help="a name for the picture, for later cells")
    @line_magic
    def again(self, line: str) -> GeneratedImage | None:
        """Make a picture again, bit for bit: the last one of %%generate, or one by its name."""
        options = options_of(self.again, "%", line)
        if options is None:
            return None
        source = self._picture("%again", options.picture) or self._last
        if source is None:
            raise UsageError(
                "nothing was made with %%generate here yet. Name a picture: %again NAME."
            )
        self._last = current().again(source)
        if options.into:
            self._shell.user_ns[options.into] = self._last
        return self._last

    # looking

    @magic_arguments()
    @line_magic
    def models(self, line: str) -> ModelTable | None:
        """Show the models that the instructor offers."""
        return None if options_of(self.models, "%", line) is None else current().models()

    @magic_arguments()
    @line_magic
    def gpu(self, line: str) -> StatusView | None:
        """Show the GPUs, who holds their memory, who runs and who waits."""
        return None if options_of(self.gpu, "%", line) is None else current().status()

    @magic_arguments()
    @line_magic
    def queue(self, line: str) -> QueueTable | None:
        """Show who runs and who waits, with what is mine marked."""
        if options_of(self.queue, "%", line) is None:
            return None
        status = current().status()
        return QueueTable([*status.running, *status.waiting, *status.status.reservations])

    @magic_arguments()
    @argument("job", nargs="?", help="the beginning of a job's id (see %%queue); default: all mine")
    @line_magic
    def cancel(self, line: str) -> None:
        """Cancel my jobs that wait or run, or one of them."""
        options = options_of(self.cancel, "%", line)
        if options is None:
            return
        mine = [each for each in current().jobs() if not each.job.state.ended]
        chosen = [each for each in mine if each.id.startswith(options.job or "")]
        if options.job and not chosen:
            there = ", ".join(each.id[:8] for each in mine) or "none"
            raise UsageError(
                f"no job of yours that waits or runs begins with {options.job:.40}. There is: "
                f"{there}."
            )
        for handle in chosen:
            handle.cancel()
        count = len(chosen)
        print(
            f"Cancelled {count} job{'' if count == 1 else 's'}." if count else "Nothing to cancel."
        )

    # holding

    @magic_arguments()
    @argument("model", nargs="?", help="the model's id (see %%models)")
    @argument("--drop", action="store_true", help="give the hold back (all, without a model)")
    @line_magic
    def hold(self, line: str) -> None:
        """Keep a model on its GPU until this kernel ends, or until %release."""
        options = options_of(self.hold, "%", line)
        if options is None:
            return
        if options.drop:
            self._drop(options.model)
        elif options.model is None:
            print(self._held_words())
        else:
            self._take(options.model)

    @magic_arguments()
    @argument("model", nargs="?", help="a model that is held; default: all, and all GPU memory")
    @line_magic
    def release(self, line: str) -> None:
        """Give back what I hold and what I reserved."""
        options = options_of(self.release, "%", line)
        if options is None:
            return
        if options.model is None and not self._held and not self._reserved:
            print("You hold nothing and have reserved nothing.")
        if self._held or options.model is not None:
            self._drop(options.model)
        if self._reserved and options.model is None:
            self._give_back()
            print("All reserved GPU memory is given back.")

    @magic_arguments()
    @argument("size", nargs="?", help="how much: 8GB, 500MB, or a number of GB")
    @argument("--gpu", help="the GPU, by its number or id; default: whichever is best")
    @argument("--all", action="store_true", help="a whole GPU")
    @argument("--drop", action="store_true", help="give back all that is reserved")
    @line_magic
    def reserve(self, line: str) -> None:
        """Set GPU memory aside for this kernel's own code, until %release."""
        options = options_of(self.reserve, "%", line)
        if options is None:
            return
        size, gpu = options.size, _gpu(options.gpu)
        if (size is not None) + options.all + options.drop > 1:
            raise UsageError("%reserve: give one of these: a size, --all, --drop.")
        if options.drop:
            self._give_back()
        elif options.all:
            self._reserved.append(current().reserve_all(gpu))
        elif size is not None:
            self._reserved.append(current().reserve(_gigabytes(size), gpu))
        print(self._reserved_words())

    @magic_arguments()
    @argument("what", nargs="?", choices=["name"], help="name: take another name")
    @argument("words", nargs="*", help="the name that others see")
    @line_magic
    def workshop(self, line: str) -> None:
        """Show which server this is and who I am there; `%workshop name NAME` takes a name."""
        options = options_of(self.workshop, "%", line)
        if options is None:
            return
        client = current()
        if options.what == "name":
            if not options.words:
                raise UsageError("%workshop name: write the name too, such as %workshop name Ada.")
            print(f"You are {client.rename(' '.join(options.words)).name}.")
        else:
            me = client.me()
            print(f"You are {me.name} on {client.server.url} ({client.server.found_by}).")

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
            return f"Reserved: {', '.join(parts)}. Give it back with: %release"
        return "You have reserved nothing. Reserve GPU memory with: %reserve 8GB"

    def _take(self, model: str) -> None:
        held = self._held.get(model)
        if held is None or held.state != "held":
            self._held[model] = current().hold(model)
        print(f"{model} stays on its GPU for you. Give it back with: %release")

    def _drop(self, model: str | None) -> None:
        if model is not None and model not in self._held:
            raise UsageError(
                f"You have no hold on {model:.80}: look with %hold. {self._held_words()}"
            )
        for name in [model] if model is not None else list(self._held):
            held = self._held.pop(name)
            held.drop()
            print(f"{name}: {held.state}.")

    def _held_words(self) -> str:
        names = ", ".join(f"{name} ({held.state})" for name, held in self._held.items())
        return f"Held: {names}." if names else "You hold no model. Take one with: %hold MODEL"


def _gigabytes(size: str) -> float:
    """GB of "8GB", "500MB" or "0.5"."""
    match = _SIZE.fullmatch(size)
    if match is None:
        raise UsageError(f"%reserve {size:.40}: write how much, such as 8GB or 500MB.")
    return float(match[1]) / (1000 if match[2].upper() == "MB" else 1)


def _gpu(gpu: str | None) -> int | str | None:
    return int(gpu) if gpu is not None and gpu.isdecimal() else gpu
