# SPDX-License-Identifier: Apache-2.0
"""The RPC client of agents. All methods are casts: a conductor never waits for a host."""

from collections.abc import Callable
from typing import Any

from cyborg import objects, rpc
from cyborg.context import RequestContext
from cyborg.objects import manifests


class AgentAPI:
    """Version history:

    2.0: first version
    2.1: see cyborg/objects/manifests.py

    :param lowest: returns the oldest version that agents have, for [upgrade_levels] agent = auto
    """

    VERSION = manifests.NEWEST

    def __init__(
        self, transport: Any, lowest: Callable[[], str] = lambda: manifests.NEWEST
    ) -> None:
        pin = rpc.pinned(transport.conf, rpc.AGENT)
        self._client = rpc.Client(transport, rpc.AGENT, newest=lambda: pin or lowest())

    def perform(self, context: RequestContext, hostname: str, tasks: list[objects.Task]) -> None:
        """Make the agent perform tasks. It returns the results with finish_tasks."""
        self._client.cast(context, 'perform', hostname, tasks=tasks)

    def wake(self, context: RequestContext, hostname: str) -> None:
        """Make the agent look at its devices and report now."""
        self._client.cast(context, 'wake', hostname)
