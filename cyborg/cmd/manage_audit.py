# SPDX-License-Identifier: Apache-2.0
"""cyborg-manage audit: does everybody tell the same story?"""

import uuid
from typing import Any

from oslo_config import cfg

from cyborg import errors
from cyborg.clients import keystone
from cyborg.clients.nova import Nova
from cyborg.clients.placement import Allocations
from cyborg.conductor.audit import Audit
from cyborg.db.sqlalchemy import engine, migration


def add_commands(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        'audit', help='compare requests, handles, allocations and servers')
    parser.add_argument('--fix', action='store_true', help='mend what can be mended')
    parser.set_defaults(function=audit)


def audit(conf: cfg.ConfigOpts, options: Any) -> int:
    """Print every disagreement with its remedy; 1 if some are left."""
    db = engine.Database(conf.database.connection)
    migration.require_head(db)
    allocations, servers = _allocations(conf), _servers(conf)
    auditor = Audit(db, allocations, servers)
    findings = auditor.look()
    for finding in findings:
        print(f'{finding.what}\n    remedy: {finding.remedy}')
    if not findings:
        print('Everything agrees.' if allocations and servers else 'What was compared agrees.')
        return 0
    fixable = sum(1 for finding in findings if finding.fix)
    if not options.fix:
        print(f'{len(findings)} disagreements, of which --fix mends {fixable}.')
        return 1
    fixed = auditor.mend(findings)
    print(f'{fixed} of {len(findings)} mended.')
    return 0 if fixed == len(findings) else 1


def _allocations(conf: cfg.ConfigOpts) -> Allocations | None:
    """Placement, if it answers us: as long as there are no servers nobody else would ask it."""
    allocations: Allocations | None = _if_configured(conf, 'placement', Allocations)
    if allocations is None:
        return None
    try:
        allocations.providers_of(str(uuid.uuid4()))
    except errors.Unavailable as error:
        print(f'Not compared with placement: {error.faultstring}')
        return None
    return allocations


def _servers(conf: cfg.ConfigOpts) -> Nova | None:
    """Nova, if it shows us everybody's servers: to a user of one project those of others do not
    exist, and their requests would look as if they could go."""
    nova: Nova | None = _if_configured(conf, 'nova', Nova)
    if nova is None:
        return None
    try:
        if nova.sees_all():
            return nova
        why = 'the user of [nova] is not shown the servers of all projects; an administrator is.'
    except errors.Unavailable as error:
        why = error.faultstring
    print(f'Not compared with nova: {why}')
    return None


def _if_configured(conf: cfg.ConfigOpts, section: str, client: Any) -> Any:
    """A neighbour that we have credentials for; without, its part of the audit is left out."""
    try:
        return client(keystone.connect(conf, section))
    except errors.ConfigError as error:
        print(f'Not compared with {section}: {error.faultstring}')
        return None
