# SPDX-License-Identifier: Apache-2.0
"""cyborg-status: checks whether this deployment can run and be upgraded."""

import datetime
import importlib.metadata
import sys
from collections.abc import Callable
from typing import Any

from oslo_config import cfg
from oslo_upgradecheck import common_checks, upgradecheck
from packaging import version

from cyborg import errors, library_internals
from cyborg.cmd import startup, status_cloud, status_configuration
from cyborg.conductor.audit import Audit
from cyborg.conf import upgrade_levels
from cyborg.db.sqlalchemy import agents, audit, clock, engine, online_migrations, revisions
from cyborg.objects import manifests
from cyborg.objects.arq_states import State

RESULT = upgradecheck.Result
CODE = upgradecheck.Code
MAX_SHOWN = 3
#: a request is in one of these states for seconds, or until its host is back
STEADILY_CHANGING = (State.PROVISIONING, State.DELETING, State.UNBIND_FAILED)
LONG = datetime.timedelta(hours=1)


class Checks(upgradecheck.UpgradeCommands):
    """Each check returns what it found, and what the operator should do."""

    def _schema(self) -> Any:
        try:
            db = engine.Database(startup.CONF.database.connection)
        except errors.ConfigError as error:
            return RESULT(CODE.FAILURE, error.faultstring)
        if why := revisions.obstacle(db):
            return RESULT(CODE.FAILURE, why)
        return RESULT(CODE.SUCCESS, f'The schema is at {revisions.version(db)}.')

    def _libraries(self) -> Any:
        present = version.Version(importlib.metadata.version('oslo.messaging'))
        costs = [
            cost
            for is_so, cost in (
                (
                    present < version.Version('18.2'),
                    'its callers poll for an answer every 0.5 s, so that each request to the API '
                    'takes longer than that; upgrade to 18.2 or later',
                ),
                (
                    _uses_queue_manager() and not _has_unique_reply_queues(present),
                    'with [oslo_messaging_rabbit] use_queue_manager, a process can receive the '
                    'answers to another one; upgrade to 17.3.2, 18.3.1 or later, or unset the '
                    'option',
                ),
            )
            if is_so
        ]
        if costs:
            return RESULT(CODE.WARNING, f'oslo.messaging {present}: {"; ".join(costs)}.')
        return RESULT(CODE.SUCCESS, f'oslo.messaging {present}.')

    def _configuration(self) -> Any:
        try:
            unread = status_configuration.unread_options(startup.CONF)
        except cfg.Error as error:
            return RESULT(CODE.FAILURE, str(error))
        poor = status_configuration.poor_choices(startup.CONF)
        if unread:
            poor.append(
                f'Remove these options, or correct their names: {" ".join(unread)}',
            )
        if poor:
            return RESULT(CODE.WARNING, ' '.join(poor))
        return RESULT(CODE.SUCCESS, 'Every option in the configuration files is read.')

    def _placement(self) -> Any:
        return status_cloud.placement(startup.CONF)

    def _nova(self) -> Any:
        return status_cloud.nova(startup.CONF)

    def _profiles(self) -> Any:
        return _of_database(lambda db: status_cloud.profile_names(startup.CONF, db))

    def _agents(self) -> Any:
        return _of_database(_silent_agents)

    def _versions(self) -> Any:
        return _of_database(_versions_in_use)

    def _last_upgrade(self) -> Any:
        return _of_database(_unfinished_upgrade)

    def _unfinished(self) -> Any:
        return _of_database(_stuck_requests)

    def _agreement(self) -> Any:
        return _of_database(_disagreements)

    def _ownership(self) -> Any:
        return _of_database(_claimed_devices)

    _upgrade_checks = (
        ('Libraries', _libraries),
        ('Configuration files', _configuration),
        ('Database schema', _schema),
        ('Placement', _placement),
        ('Nova', _nova),
        ('Agents', _agents),
        ('Versions in use', _versions),
        ('Last upgrade', _last_upgrade),
        ('Unfinished requests', _unfinished),
        ('Requests and handles', _agreement),
        ('Ownership of devices', _ownership),
        ('Device profiles', _profiles),
        ('Policy file', (common_checks.check_policy_json, {'conf': startup.CONF})),
    )


def _of_database(check: Callable[[engine.Database], Any]) -> Any:
    """Return the result of a check, if the schema is the one of this release."""
    try:
        db = revisions.open_current(startup.CONF.database.connection)
    except errors.ConfigError as error:
        return RESULT(CODE.SUCCESS, f'Not checked: {error.faultstring}')
    return check(db)


def _silent_agents(db: engine.Database) -> Any:
    timeout = datetime.timedelta(seconds=startup.CONF.conductor.heartbeat_timeout)
    with db.reader() as session:
        silent = agents.silent(session, clock.now() - timeout)
    if silent:
        return RESULT(
            CODE.WARNING,
            f'{len(silent)} agents are silent, and their hosts are not upgraded. Start them, or '
            f'run cyborg-manage host forget for hosts that do not come back: '
            f'{_first(silent)}.',
        )
    return RESULT(CODE.SUCCESS, 'All agents are alive.')


def _versions_in_use(db: engine.Database) -> Any:
    """Check that this release and the agents that are alive understand each other."""
    timeout = datetime.timedelta(seconds=startup.CONF.conductor.heartbeat_timeout)
    with db.reader() as session:
        found = agents.rpc_versions(session, clock.now() - timeout)
    counts: dict[str, int] = {}
    for (reported, _), count in found.items():
        # an agent that reports none is of the first release that had one
        name = reported or manifests.OLDEST
        counts[name] = counts.get(name, 0) + count
    in_use = sorted(counts, key=manifests.parsed)
    listed = ', '.join(f'{name} ({counts[name]} agents)' for name in in_use)
    if in_use and manifests.parsed(in_use[0]) < manifests.parsed(manifests.OLDEST):
        return RESULT(
            CODE.FAILURE,
            f'This release understands RPC versions from {manifests.OLDEST} on. Upgrade the '
            f'agents to the release before this one first: {listed}.',
        )
    if in_use and manifests.parsed(in_use[-1]) > manifests.parsed(manifests.NEWEST):
        return RESULT(
            CODE.WARNING,
            f'Agents are of a later release than this one, whose RPC version is '
            f'{manifests.NEWEST}. Upgrade the conductors: {listed}.',
        )
    if pins := _needless_pins(in_use):
        return RESULT(
            CODE.WARNING,
            f'All agents have RPC version {manifests.NEWEST}. Unset {" and ".join(pins)}, so that '
            f'it is used.',
        )
    return RESULT(CODE.SUCCESS, f'RPC versions of agents: {listed or "none is alive"}.')


def _needless_pins(in_use: list[str]) -> list[str]:
    """Return the options that pin messages to an older version which no agent needs."""
    if in_use != [manifests.NEWEST]:
        return []
    pins = startup.CONF.upgrade_levels
    return [
        f'[upgrade_levels] {name} = {pins[name]}'
        for name in ('agent', 'conductor')
        if pins[name] not in (upgrade_levels.AUTO, manifests.NEWEST)
    ]


def _unfinished_upgrade(db: engine.Database) -> Any:
    """Check that the last upgrade is finished."""
    timeout = datetime.timedelta(seconds=startup.CONF.conductor.heartbeat_timeout)
    with db.reader() as session:
        hosts = agents.stored_by_earlier_release(session, clock.now() - timeout)
    todo = []
    if hosts:
        todo.append(
            'A conductor of an earlier release has stored the last report of '
            f'{_first(hosts)}: upgrade all conductors. The reports are then repeated.'
        )
    if left := online_migrations.left(db):
        todo.append(f'Run cyborg-dbsync online_data_migrations for {_first(list(left))}.')
    if revisions.pending(revisions.version(db)):
        todo.append('Run cyborg-dbsync upgrade --contract when all services are upgraded.')
    if todo:
        return RESULT(CODE.WARNING, ' '.join(todo))
    return RESULT(CODE.SUCCESS, 'Nothing is left to do.')


def _stuck_requests(db: engine.Database) -> Any:
    now = clock.now()
    sweeps = datetime.timedelta(seconds=2 * startup.CONF.conductor.sweep_interval)
    with db.reader() as session:
        overdue = audit.overdue_binds(session, now - sweeps)
        waiting = [row[0] for row in audit.unchanged(session, STEADILY_CHANGING, now - LONG)]
    told = []
    if overdue:
        told.append(
            f'{len(overdue)} binds are past their deadline, and no conductor ends them. Start a '
            f'conductor: {_first(overdue)}.'
        )
    if waiting:
        told.append(
            f'{len(waiting)} requests have not changed for an hour in a state that should not '
            f'last. Repair the agents of their hosts, then run cyborg-manage audit: '
            f'{_first(waiting)}.'
        )
    if told:
        return RESULT(CODE.WARNING, ' '.join(told))
    return RESULT(CODE.SUCCESS, 'No request is stuck.')


def _disagreements(db: engine.Database) -> Any:
    if findings := Audit(db).look():
        shown = ' '.join(finding.what for finding in findings[:MAX_SHOWN])
        return RESULT(
            CODE.WARNING, f'{len(findings)} disagreements, run cyborg-manage audit: {shown}'
        )
    return RESULT(CODE.SUCCESS, 'Requests and handles agree.')


def _claimed_devices(db: engine.Database) -> Any:
    with db.reader() as session:
        found = agents.conflicts(session)
    if claims := [f'{name}: {owner}.' for name, owner in sorted(found.items())]:
        return RESULT(
            CODE.WARNING,
            f'{len(claims)} devices are not offered because another service claims them in '
            'Placement; remove them from the configuration of one of the two services: '
            f'{" ".join(claims[:MAX_SHOWN])}',
        )
    return RESULT(CODE.SUCCESS, 'No other service claims a device of Cyborg.')


def _first(names: list[str]) -> str:
    return ', '.join(names[:MAX_SHOWN]) + (', ...' if len(names) > MAX_SHOWN else '')


def _uses_queue_manager() -> bool:
    library_internals.register_rabbit_options(startup.CONF)
    return bool(startup.CONF.oslo_messaging_rabbit.use_queue_manager)


def _has_unique_reply_queues(messaging: version.Version) -> bool:
    """Return whether each worker has its own reply queue (Launchpad bug 2110957)."""
    return messaging >= version.Version('18.3.1') or (
        version.Version('17.3.2') <= messaging < version.Version('18')
    )


def main() -> None:
    with startup.exit_with_message():
        checks = Checks()
        parser_conf = startup.CONF
        upgradecheck.register_cli_options(parser_conf, checks)
        startup.configure()
        upgradecheck.CONF = parser_conf  # main() of the library sets it; check() reads --json there
        sys.exit(upgradecheck.run(parser_conf))
