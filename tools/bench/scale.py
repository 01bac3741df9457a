# SPDX-License-Identifier: Apache-2.0
"""The extent of a run: full, about a minute, or as short as a test needs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    #: numbers of requests that are stored already
    stored: tuple[int, ...]
    clients: tuple[int, ...]
    devices: tuple[int, ...]
    hosts: tuple[int, ...]
    #: duration of each measurement in each round
    seconds: float
    rounds: int
    #: duration of each of the two intervals of a fleet
    fleet_seconds: float
    #: repetitions of plugging a card in and pulling it out
    plugs: int
    #: requests of the load after which memory is measured
    requests: int


FULL = Scale(
    stored=(0, 1_000, 10_000, 100_000),
    clients=(1, 4, 16),
    devices=(10, 1_000, 10_000),
    hosts=(100, 1_000, 10_000),
    seconds=2,
    rounds=3,
    fleet_seconds=60,
    plugs=20,
    requests=10_000,
)
QUICK = Scale(
    stored=(0, 1_000),
    clients=(1, 16),
    devices=(10, 1_000),
    hosts=(100,),
    seconds=1,
    rounds=2,
    fleet_seconds=10,
    plugs=3,
    requests=1_000,
)
TINY = Scale(
    stored=(0, 20),
    clients=(1, 2),
    devices=(3,),
    hosts=(10,),
    seconds=0.05,
    rounds=1,
    fleet_seconds=2,
    plugs=1,
    requests=20,
)
