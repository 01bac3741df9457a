# SPDX-License-Identifier: Apache-2.0
"""cyborg-agent: runs on each compute host."""

from typing import NoReturn

from oslo_config import cfg

from cyborg import rpc, tracing
from cyborg.accelerator.sysfs import Sysfs
from cyborg.agent.service import Agent
from cyborg.clients import keystone
from cyborg.clients.glance import Glance
from cyborg.clients.placement import Placement
from cyborg.cmd import startup
from os_acc import hosts


def build(conf: cfg.ConfigOpts) -> Agent:
    """Return the agent of this host."""
    tracing.set_up(conf, 'agent')
    placement = Placement(keystone.connect(conf, 'placement'))
    name = conf.agent.resource_provider_name or hosts.node_name()
    return Agent(
        conf,
        rpc.transport(conf),
        name,
        placement,
        Glance.connect(conf),
        Sysfs(conf.agent.sysfs_root),
    )


def main() -> NoReturn:
    startup.serve(build)
