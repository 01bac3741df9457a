# SPDX-License-Identifier: Apache-2.0
"""Options and hosts for drivers that offer nothing before they are configured."""

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
    """The options and the host with which a driver is checked by default."""

    options: Path  #: a file for oslo.config
    facts: Facts | None  #: None: the cards of the driver's catalogue


@contextlib.contextmanager
def sample(name: str) -> Iterator[Sample | None]:
    """Provide the sample of a driver; None if it needs none."""
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
