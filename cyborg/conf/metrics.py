# SPDX-License-Identifier: Apache-2.0
"""The options for metrics, which each service has in its own group."""

from oslo_config import cfg


def options(what: str, processes: str = '') -> list[cfg.Opt]:
    """Returns the port and the address at which a service serves metrics.

    :param what: which metrics they are
    :param processes: what is different if the service has several processes
    """
    return [
        cfg.PortOpt(
            'metrics_port',
            help=f'Port that serves metrics in the Prometheus format: {what}.{processes} Unset: '
            'no metrics are served.',
        ),
        cfg.HostAddressOpt('metrics_host', default='127.0.0.1', help='Address of metrics_port.'),
    ]
