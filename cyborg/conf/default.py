# SPDX-License-Identifier: Apache-2.0
"""Options that every process shares."""

import socket

from oslo_config import cfg

GROUP = None
OPTS = [
    cfg.StrOpt(
        'host',
        default=socket.gethostname(),
        sample_default='<hostname>',
        help='Name under which a conductor listens for messages. Agents listen under '
        '[agent] resource_provider_name.',
    ),
    cfg.StrOpt(
        'state_path',
        default='/var/lib/cyborg',
        help='Directory for data that must survive a restart: cached bitstreams, and '
        'which images were written to flash memory.',
    ),
]
