"""All cores for the thread that draws; one for each of the threads beside it.

Each thread that calls torch gets a team of OpenMP threads of its own. As soon as there are more
such threads than cores, OpenMP no longer spins while it waits for the next piece of work, but
sleeps: a model whose steps are made of many short pieces then draws a fifth slower on the CPU, and
stays slow for as long as the other teams live, whether or not they ever work again.
"""

import threading

import torch


def share_out(drawing_threads: int) -> None:
    """Give the calling thread so many cores (0: as many as torch finds), all later ones one."""
    found = torch.get_num_threads()  # from now on torch leaves this thread's number alone
    torch.set_num_threads(drawing_threads or found)
    # torch keeps the number twice: once for the thread that sets it and once for threads that
    # are still to come. So another thread has to set what those get.
    other = threading.Thread(target=torch.set_num_threads, args=(1,), name="cores")
    other.start()
    other.join()
