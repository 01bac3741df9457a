# SPDX-License-Identifier: Apache-2.0
"""cyborg-agent: one a compute host."""

import socket
from typing import NoReturn

from oslo_config import cfg

from cyborg import rpc
from cyborg.accelerator.sysfs import Sysfs
from cyborg.agent.service import Agent
from cyborg.clients import keystone
from cyborg.clients.glance import Glance
from cyborg.clients.placement import Placement
from cyborg.cmd import startup


def build(conf: cfg.ConfigOpts) -> Agent:
    """An agent of this host."""
    placement = Placement(keystone.connect(conf, 'placement'))
    name = conf.agent.resource_provider_name or socket.getfqdn() or conf.host
    return Agent(conf, rpc.transport(conf), name, placement, Glance.connect(conf),
                 Sysfs(conf.agent.sysfs_root))


def main() -> NoReturn:
    startup.serve(build)
