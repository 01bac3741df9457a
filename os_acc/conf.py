# SPDX-License-Identifier: Apache-2.0
"""The options of the ``[os_acc]`` section of nova-compute and nova-scheduler."""

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
        'Unset: the name that libvirt has for this host, fully qualified if it has such a name.',
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
    cfg.FloatOpt(
        'weight_multiplier',
        default=1.0,
        help='Multiplier of os_acc.weigher.AcceleratorWeigher in nova-scheduler. Positive: '
        'servers with accelerators go to hosts with many free ones (spread); negative: to hosts '
        'with few free ones (pack); 0: no effect. accelerator_weight_multiplier in the metadata '
        'of a host aggregate overrides it.',
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register ``[os_acc]``; a repeated call does no harm.

    >>> conf = cfg.ConfigOpts()
    >>> register_opts(conf)
    >>> conf.os_acc.exchange
    'cyborg'
    """
    # a group of its own: a group keeps the values, also those of other configurations
    conf.register_group(cfg.OptGroup(GROUP.name, title=GROUP.title))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Options for the sample file generator.

    >>> [(group, opts)] = list_opts()
    >>> group.name, opts[0].name
    ('os_acc', 'transport_url')
    """
    return [(GROUP, OPTS)]
