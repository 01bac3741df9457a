# SPDX-License-Identifier: Apache-2.0
"""Thousands of simulated hosts in a few processes, which say to conductors what real agents say.

A host is the agent's own inventory and attacher, with cards that exist in memory only. What a
thousand of them share is what would cost a machine each: the process, its connections to the
broker, its threads, its timer.
"""
