# SPDX-License-Identifier: Apache-2.0
"""Simulates hosts with accelerators: their sysfs is a directory tree."""

from cyborg.sim.host import Host

__all__ = ['Host']
