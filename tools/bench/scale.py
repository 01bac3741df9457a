# SPDX-License-Identifier: Apache-2.0
"""How much is measured: all of it, what a minute allows, or what a test needs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    #: requests that are stored already
    stored: tuple[int, ...]
    clients: tuple[int, ...]
    devices: tuple[int, ...]
    hosts: tuple[int, ...]
    #: of each measurement, in each round
    seconds: float
    rounds: int
    #: of each of the two intervals for which a fleet is watched
    fleet_seconds: float
    #: how often a card is plugged in and pulled out
    plugs: int


FULL = Scale(stored=(0, 1_000, 10_000, 100_000), clients=(1, 4, 16),
             devices=(10, 1_000, 10_000), hosts=(100, 1_000, 10_000), seconds=2, rounds=3,
             fleet_seconds=60, plugs=20)
QUICK = Scale(stored=(0, 1_000), clients=(1, 16), devices=(10, 1_000), hosts=(100,),
              seconds=1, rounds=2, fleet_seconds=10, plugs=3)
TINY = Scale(stored=(0, 20), clients=(1, 2), devices=(3,), hosts=(3,), seconds=0.05, rounds=1,
             fleet_seconds=2, plugs=1)
