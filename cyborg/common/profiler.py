# SPDX-License-Identifier: Apache-2.0
"""The filter ``osprofiler`` of the paste files that kolla-ansible and OpenStack-Helm write."""

from collections.abc import Callable
from typing import Any

from oslo_config import cfg
from oslo_log import log

from cyborg import tracing

LOG = log.getLogger(__name__)


class WsgiMiddleware:
    """osprofiler's own filter, set up by [profiler]."""

    @classmethod
    def factory(cls, global_conf: dict[str, Any], **local_conf: Any) -> Callable[[Any], Any]:
        """Build the filter for paste.deploy."""
        if not tracing.is_installed():
            LOG.warning(
                'The paste file has the filter osprofiler, and osprofiler is not installed: '
                'requests are not traced. Install osprofiler, or take the filter out of the '
                'pipeline.'
            )
            return lambda application: application
        from osprofiler import web

        tracing.set_up(cfg.CONF, 'api')
        build: Callable[[Any], Any] = web.WsgiMiddleware.factory(global_conf, **local_conf)
        return build
