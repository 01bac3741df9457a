# SPDX-License-Identifier: Apache-2.0
"""The options of nova-compute's ``[os_acc]`` section."""

from oslo_config import cfg

GROUP = cfg.OptGroup('os_acc', title='How nova-compute reaches the Cyborg agent of its host')

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        'transport_url',
        secret=True,
        help='Message broker that the Cyborg agent listens on. Unset: [DEFAULT] transport_url.',
    ),
    cfg.StrOpt(
        'host',
        help='Name under which the Cyborg agent of this host reports its compute node. '
        'Unset: what libvirt calls this host, its fully qualified name if it has one.',
    ),
    cfg.StrOpt(
        'exchange',
        default='cyborg',
        help='Exchange that the Cyborg services use: their [DEFAULT] control_exchange.',
    ),
    cfg.IntOpt(
        'ready_timeout',
        default=60,
        min=1,
        help='Seconds that initialize() waits for the agent to have found its devices '
        'and published their traits.',
    ),
    cfg.IntOpt(
        'call_timeout',
        default=300,
        min=1,
        help='Seconds that plug() and unplug() wait for their answer. A plug may have to '
        'program a device; this should be longer than [conductor] bind_timeout of Cyborg, '
        'after which it has failed.',
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Options for the sample file generator."""
    return [(GROUP, OPTS)]
