# SPDX-License-Identifier: Apache-2.0
"""cyborg-status: is this deployment fit to run, and to be upgraded?"""

import importlib.metadata
import sys
from typing import Any

from oslo_messaging import opts as messaging_opts
from oslo_upgradecheck import common_checks, upgradecheck
from packaging import version

from cyborg import errors
from cyborg.cmd import startup
from cyborg.conductor.audit import Audit
from cyborg.db.sqlalchemy import agents, engine, migration

RESULT = upgradecheck.Result
CODE = upgradecheck.Code
MOST_TOLD = 3


class Checks(upgradecheck.UpgradeCommands):
    """Each says what it found, and what to do about it."""

    def _schema(self) -> Any:
        try:
            db = engine.Database(startup.CONF.database.connection)
        except errors.ConfigError as error:
            return RESULT(CODE.FAILURE, error.faultstring)
        present, head = migration.version(db), migration.head()
        if present != head:
            return RESULT(CODE.FAILURE, f'The schema is at {present or "nothing"}, this release '
                          f'needs {head}: run cyborg-dbsync upgrade.')
        return RESULT(CODE.SUCCESS, f'The schema is at {head}.')

    def _agreement(self) -> Any:
        try:
            db = engine.Database(startup.CONF.database.connection)
            findings = Audit(db).look() if migration.version(db) == migration.head() else []
        except errors.ConfigError as error:
            return RESULT(CODE.FAILURE, error.faultstring)
        if findings:
            told = ' '.join(finding.what for finding in findings[:MOST_TOLD])
            return RESULT(CODE.WARNING, f'{len(findings)} disagreements, run cyborg-manage '
                          f'audit: {told}')
        return RESULT(CODE.SUCCESS, 'Requests and handles agree.')

    def _ownership(self) -> Any:
        try:
            db = engine.Database(startup.CONF.database.connection)
            claims = _claims(db) if migration.version(db) == migration.head() else []
        except errors.ConfigError as error:
            return RESULT(CODE.FAILURE, error.faultstring)
        if claims:
            return RESULT(CODE.WARNING, f'{len(claims)} devices are not offered because somebody '
                          'else claims them in Placement; take them out of the configuration of '
                          f'one of both: {" ".join(claims[:MOST_TOLD])}')
        return RESULT(CODE.SUCCESS, 'Nobody else claims a device of ours.')

    def _libraries(self) -> Any:
        present = version.Version(importlib.metadata.version('oslo.messaging'))
        costs = [cost for is_so, cost in (
            (present < version.Version('18.2'),
             'its callers look for an answer every 0.5 s, so that each request to the API takes '
             'longer than that; 18.2 or later does not'),
            (_manages_queues() and not _tells_queues_apart(present),
             "with [oslo_messaging_rabbit] use_queue_manager, processes can take one another's "
             'answers; 17.3.2, 18.3.1 or later do not, or unset the option')) if is_so]
        if costs:
            return RESULT(CODE.WARNING, f'oslo.messaging {present}: {"; ".join(costs)}.')
        return RESULT(CODE.SUCCESS, f'oslo.messaging {present}.')

    _upgrade_checks = (
        ('Libraries', _libraries),
        ('Database schema', _schema),
        ('Requests and handles', _agreement),
        ('Ownership of devices', _ownership),
        ('Policy file', (common_checks.check_policy_json, {'conf': startup.CONF})),
    )


def _manages_queues() -> bool:
    for group, opts in messaging_opts.list_opts():
        startup.CONF.register_opts(opts, group=group)
    return bool(startup.CONF.oslo_messaging_rabbit.use_queue_manager)


def _tells_queues_apart(messaging: version.Version) -> bool:
    """Are the names of reply queues unique to each worker? (Launchpad bug 2110957)"""
    return messaging >= version.Version('18.3.1') or (
        version.Version('17.3.2') <= messaging < version.Version('18'))


def _claims(db: engine.Database) -> list[str]:
    with db.reader() as session:
        return [f'{name}: {owner}.' for name, owner in sorted(agents.conflicts(session).items())]


def main() -> None:
    with startup.one_sentence():
        checks = Checks()
        parser_conf = startup.CONF
        upgradecheck.register_cli_options(parser_conf, checks)
        startup.configure()
        sys.exit(upgradecheck.run(parser_conf))
