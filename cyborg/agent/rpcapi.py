# SPDX-License-Identifier: Apache-2.0
"""What a conductor may tell an agent. All of it is a cast: no conductor ever waits for a host."""

from typing import Any

from cyborg import objects, rpc
from cyborg.context import RequestContext


class AgentAPI:
    """Version history:

    2.0: first version
    """

    VERSION = '2.0'

    def __init__(self, transport: Any) -> None:
        self._client = rpc.Client(transport, rpc.AGENT, self.VERSION)

    def perform(self, context: RequestContext, hostname: str,
                tasks: list[objects.Task]) -> None:
        """Perform tasks; how they ended comes back as finish_tasks."""
        self._client.cast(context, 'perform', hostname, tasks=tasks)

    def wake(self, context: RequestContext, hostname: str) -> None:
        """Look at the host and report, now."""
        self._client.cast(context, 'wake', hostname)
