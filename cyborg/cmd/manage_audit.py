# SPDX-License-Identifier: Apache-2.0
"""cyborg-manage audit: compares the database with Placement and Nova."""

import uuid
from typing import Any

from oslo_config import cfg

from cyborg import errors
from cyborg.clients.nova import Nova
from cyborg.clients.placement import Allocations
from cyborg.conductor.audit import Audit
from cyborg.db.sqlalchemy import revisions


def add_commands(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        'audit', help='compare requests, handles, allocations and servers'
    )
    parser.add_argument('--fix', action='store_true', help='repair what can be repaired')
    parser.set_defaults(function=audit)


def audit(conf: cfg.ConfigOpts, options: Any) -> int:
    """Print every disagreement with its remedy; returns 1 if some are left."""
    db = revisions.open_current(conf.database.connection)
    allocations, servers = _allocations(conf), _servers(conf)
    auditor = Audit(db, allocations, servers)
    findings = auditor.look()
    for finding in findings:
        print(f'{finding.what}\n    remedy: {finding.remedy}')
    if not findings:
        print('Everything agrees.' if allocations and servers else 'All that was compared agrees.')
        return 0
    fixable = sum(1 for finding in findings if finding.fix)
    if not options.fix:
        print(f'{len(findings)} disagreements, of which --fix repairs {fixable}.')
        return 1
    fixed = auditor.mend(findings)
    print(f'{fixed} of {len(findings)} repaired.')
    return 0 if fixed == len(findings) else 1


def _allocations(conf: cfg.ConfigOpts) -> Allocations | None:
    """Return the client of Placement, or None if Placement does not answer a first request.

    The audit calls Placement only for servers. Without servers it would not notice that Placement
    is not available.
    """
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
    """Return the client of Nova if our user sees the servers of all projects, else None.

    Servers of other projects would look deleted, and the audit would delete their requests.
    """
    nova: Nova | None = _if_configured(conf, 'nova', Nova)
    if nova is None:
        return None
    try:
        if nova.sees_all():
            return nova
        why = 'the user of [nova] cannot see the servers of all projects; it needs the role admin.'
    except errors.Unavailable as error:
        why = error.faultstring
    print(f'Not compared with nova: {why}')
    return None


def _if_configured(conf: cfg.ConfigOpts, section: str, client: Any) -> Any:
    """Return the client of a service, or None if its section has no credentials."""
    from cyborg.clients import keystone  # slow to import, and other commands do not need it

    try:
        return client(keystone.connect(conf, section))
    except errors.ConfigError as error:
        print(f'Not compared with {section}: {error.faultstring}')
        return None
