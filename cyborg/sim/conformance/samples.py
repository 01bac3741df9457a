# SPDX-License-Identifier: Apache-2.0
"""Options and a host for drivers that offer nothing before they are set up."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from cyborg.sim import catalogue
from cyborg.sim.bus import Facts
from cyborg.sim.spdk import Spdk
from cyborg.sim.tree import scratch_directory

NAME = 'samples.yaml'


@dataclasses.dataclass(frozen=True)
class Sample:
    """How a driver is tried when nobody says how."""

    options: Path  #: a file for oslo.config
    facts: Facts | None  #: None: the cards of its catalogue will do


@contextlib.contextmanager
def sample(name: str) -> Iterator[Sample | None]:
    """What comes with the simulator for a driver; None if it needs nothing."""
    known = catalogue.load(NAME).get(name)
    if known is None:
        yield None
        return
    with scratch_directory() as directory, contextlib.ExitStack() as stack:
        path = directory / 'sample.conf'
        path.write_text(known['options'].replace('DIRECTORY', str(directory)))
        if 'daemon' in known:
            daemon = Spdk(directory / known['daemon'])
            daemon.start()
            stack.callback(daemon.stop)
        yield Sample(path, {'cards': known['cards']} if 'cards' in known else None)
