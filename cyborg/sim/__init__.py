# SPDX-License-Identifier: Apache-2.0
"""Simulated hardware: hosts whose cards exist as a directory tree only."""

from cyborg.sim.host import Host

__all__ = ['Host']
