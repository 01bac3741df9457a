# SPDX-License-Identifier: Apache-2.0
"""Decides about requests, tasks and inventories. Each function gets a unit of work, and calls the
queries in cyborg.db with its session."""
