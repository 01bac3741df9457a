# SPDX-License-Identifier: Apache-2.0
"""What a conductor may tell an agent. All of it is a cast: no conductor ever waits for a host."""

from typing import Any

from cyborg import objects, rpc
from cyborg.context import RequestContext


class AgentAPI:
    """Version history:

    1.0: first version
    """

    VERSION = '1.0'

    def __init__(self, transport: Any) -> None:
        self._client = rpc.Client(transport, rpc.AGENT, self.VERSION)

    def do(self, context: RequestContext, hostname: str, works: list[objects.Work]) -> None:
        """Attach and detach; how it ended comes back as finish_work."""
        self._client.cast(context, 'do', hostname, works=works)

    def wake(self, context: RequestContext, hostname: str) -> None:
        """Look at the host and report, now."""
        self._client.cast(context, 'wake', hostname)
