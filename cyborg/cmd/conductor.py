# SPDX-License-Identifier: Apache-2.0
"""cyborg-conductor: the only service that uses the database."""

from typing import NoReturn

from oslo_config import cfg

from cyborg import rpc, tracing
from cyborg.clients import keystone
from cyborg.clients.nova import Nova
from cyborg.cmd import startup
from cyborg.conductor.service import Conductor
from cyborg.db.sqlalchemy import revisions


def build(conf: cfg.ConfigOpts) -> Conductor:
    """Return a conductor. Raises ConfigError if the schema of the database is not current."""
    db = revisions.open_current(conf.database.connection)
    tracing.set_up(conf, 'conductor')
    db.trace(conf)
    nova = Nova(keystone.connect(conf, 'nova'))
    is_known = conf.placement.auth_type or conf.placement.auth_section
    placement = keystone.connect(conf, 'placement') if is_known else None
    return Conductor(conf, rpc.transport(conf), db, nova, conf.host, placement)


def main() -> NoReturn:
    startup.serve(build, workers=lambda conf: conf.conductor.workers)
