# SPDX-License-Identifier: Apache-2.0
"""Which other web sites may call us from a browser."""

from collections.abc import Callable
from typing import Any

from oslo_middleware import cors


class CorsMiddleware(cors.CORS):
    """oslo.middleware's, with [cors] read from the process's own configuration.

    Left to itself, it would read configuration files again, in default places only.
    """

    @classmethod
    def factory(cls, global_conf: dict[str, str], **local_conf: str) -> Callable[[Any], Any]:
        """What paste calls."""
        return lambda app: cls(app, {**global_conf, **local_conf})
