# SPDX-License-Identifier: Apache-2.0
"""Simulates thousands of agents in a few processes: ``python -m tools.fleet``.

Each host has the agent's own inventory and worker, with cards in memory. The hosts of a process
share its connections to the broker, its threads and its timer.
"""
