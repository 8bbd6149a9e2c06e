"""`python -m tests.faults --minutes 30 --seed 7`: break everything at random, lose nothing.

Ends with 0 if every accepted job had exactly one outcome, every picture is its seed's, nothing is
held by the dead and no process is left.
"""

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from tests.faults.campaign import Campaign, Plan, small_disk

WEIGHTS = {
    "worker killed": 3.0,
    "worker crashed": 2.0,
    "worker's driver fails": 3.0,
    "worker stopped for good": 1.0,
    "worker late": 4.0,
    "worker out of memory": 3.0,
    "worker out of memory in a phase": 3.0,
    "worker killed as it loads": 1.0,
    "worker and heir killed": 1.0,
    "device lost": 0.1,
    "server's task broken": 1.0,
    "server late": 3.0,
    "connections cut": 4.0,
    "half a request": 4.0,
    "client killed": 2.0,
    "client late": 2.0,
    "kernel killed": 0.5,
    "kernel stopped and killed": 0.3,
    "disk full": 1.5,
    "file cut": 2.0,
    "server killed": 0.5,
    "server ended": 0.3,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--pause", type=float, default=1.5, help="seconds between two faults")
    parser.add_argument("--without", action="append", default=[], help="leave out this kind")
    parser.add_argument("--log", type=Path, help="where the server's log goes")
    options = parser.parse_args()
    weights = {kind: each for kind, each in WEIGHTS.items() if kind not in options.without}
    plan = Plan(options.minutes * 60, options.seed, options.clients, options.pause, weights)
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("tests.faults").setLevel(logging.INFO)
    with small_disk() as folder, tempfile.TemporaryDirectory() as notes:
        report = Campaign(plan, folder, Path(notes)).run()
    if options.log:
        options.log.write_text(report.log)
    print(report.text())
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
