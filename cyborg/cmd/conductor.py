# SPDX-License-Identifier: Apache-2.0
"""cyborg-conductor: the owner of the database."""

from typing import NoReturn

from oslo_config import cfg

from cyborg import rpc
from cyborg.clients import keystone
from cyborg.clients.nova import Nova
from cyborg.cmd import startup
from cyborg.conductor.service import Conductor
from cyborg.db.sqlalchemy import engine, migration


def build(conf: cfg.ConfigOpts) -> Conductor:
    """A conductor on the configured database, whose schema must be the one we know."""
    db = engine.Database(conf.database.connection)
    migration.require_head(db)
    nova = Nova(keystone.connect(conf, 'nova'))
    return Conductor(conf, rpc.transport(conf), db, nova, conf.host)


def main() -> NoReturn:
    startup.serve(build, workers=lambda conf: conf.conductor.workers)
