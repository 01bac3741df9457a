# SPDX-License-Identifier: Apache-2.0
"""A simulated host as a fixture, for the tests of other OpenStack projects."""

from pathlib import Path
from typing import Any

import fixtures

from cyborg.sim.host import Host


class SimulatedHost(fixtures.Fixture):
    """``useFixture(SimulatedHost('host.yaml')).host`` exists until the test ends."""

    def __init__(self, description: Path | str | dict[str, Any] | None = None) -> None:
        """``description`` is a file or a mapping; an empty mapping is a host without cards."""
        super().__init__()
        self._description = description
        self.host: Host

    def _setUp(self) -> None:
        directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.host = Host.described(directory / 'sys', self._description)
