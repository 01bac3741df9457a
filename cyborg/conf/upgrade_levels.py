# SPDX-License-Identifier: Apache-2.0
"""Versions of RPC, for the time in which services of two releases run side by side."""

from oslo_config import cfg

AUTO = 'auto'
GROUP = cfg.OptGroup('upgrade_levels', title='Versions of RPC while services are upgraded')
OPTS = [
    cfg.StrOpt(
        'conductor',
        default=AUTO,
        help='Newest RPC version that this service uses in messages to conductors, for instance '
        '2.0. auto: the newest that the conductors understand. If one of them refuses a message, '
        'it is sent again in an older version, and for a minute further messages use that version.',
    ),
    cfg.StrOpt(
        'agent',
        default=AUTO,
        help='Newest RPC version that conductors use in messages to agents, for instance 2.0. '
        'auto: the oldest one that an agent which is alive has reported.',
    ),
]
