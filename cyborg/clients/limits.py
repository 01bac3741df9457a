# SPDX-License-Identifier: Apache-2.0
"""Limits of projects, by oslo.limit from Keystone.

oslo.limit registers the options of [oslo_limit] in the global configuration when it is imported,
and has one connection to Keystone for the process. Import this module only if limits are used.
"""

from oslo_config import cfg
from oslo_limit import limit
from oslo_log import log

from cyborg import errors

LOG = log.getLogger(__name__)

GROUP = 'oslo_limit'
#: of the limit in Keystone
NAME = 'accelerator_requests'
#: seconds without a byte before a call fails: by default keystoneauth would wait for ever
TIMEOUT = 5


class KeystoneLimits:
    """How many requests projects may have. Keystone is asked each time, so that a new limit holds
    at once. Threads may share it."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        conf.set_default('timeout', TIMEOUT, GROUP)
        conf.set_default('endpoint_service_type', 'accelerator', GROUP)
        self._enforcer: limit.Enforcer | None = None

    def of(self, project_id: str | None) -> int | None:
        """Returns the limit of a project, or None if it has none. The limit is 0 if it is not
        registered. Raises LimitUnavailable."""
        try:
            [(_, found)] = self._connected().get_project_limits(project_id, [NAME])
        except Exception as error:
            # oslo.limit passes on what its libraries raise, and KeyError for an answer that it
            # did not expect; whatever it is, there must be no request without a limit
            LOG.exception('The limit of project %s cannot be read from Keystone.', project_id)
            raise errors.LimitUnavailable(why=_sentence(error)) from error
        # Keystone says -1 for a resource without a limit
        return found if found >= 0 else None

    def _connected(self) -> limit.Enforcer:
        """Returns the enforcer, made at the first call that reaches Keystone: it looks up the
        service and the endpoint that limits belong to."""
        # two threads may both make it; a lock would let all wait for a Keystone that is away
        if self._enforcer is None:
            self._enforcer = limit.Enforcer(_no_usage, cache=False)
        return self._enforcer


def _no_usage(project_id: str | None, names: object) -> dict[str, int]:
    """Takes the place of the function by which oslo.limit counts. It is never called: requests are
    counted in the transaction that creates them."""
    raise NotImplementedError


def _sentence(error: Exception) -> str:
    first = str(error).partition('\n')[0].rstrip('. ')
    return f'{first or type(error).__name__}.'
