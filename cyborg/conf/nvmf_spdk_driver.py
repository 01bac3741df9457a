# SPDX-License-Identifier: Apache-2.0
"""Where SPDK is found."""

from oslo_config import cfg

GROUP = cfg.OptGroup('nvmf_spdk_driver', title='Where SPDK is found')
OPTS = [
    cfg.StrOpt('socket', default='/var/tmp/spdk.sock',
               help='UNIX socket on which SPDK takes JSON-RPC. The agent must be allowed to '
                    'write to it.'),
    cfg.FloatOpt('timeout', default=5.0, min=0.1,
                 help='Seconds within which SPDK must answer.'),
]
