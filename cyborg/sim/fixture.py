# SPDX-License-Identifier: Apache-2.0
"""A simulated host for the tests of other projects, as the fixtures that OpenStack uses."""

from pathlib import Path
from typing import Any

import fixtures

from cyborg.sim.host import Host


class SimulatedHost(fixtures.Fixture):
    """``useFixture(SimulatedHost('host.yaml')).host`` lives as long as the test."""

    def __init__(self, description: Path | str | dict[str, Any] | None = None) -> None:
        """As a file or a mapping describes it; an empty mapping is a host without cards."""
        super().__init__()
        self._description = description
        self.host: Host

    def _setUp(self) -> None:
        directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.host = Host.described(directory / 'sys', self._description)
