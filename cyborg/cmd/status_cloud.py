# SPDX-License-Identifier: Apache-2.0
"""Checks whether the services that Cyborg calls answer, and allow what it needs."""

from collections.abc import Callable
from typing import Any

from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code, Result

from cyborg import errors
from cyborg.clients.nova import Nova
from cyborg.clients.placement import understood
from cyborg.clients.placement_api import Forbidden, PlacementApi
from cyborg.db.sqlalchemy import device_profiles, engine

MAX_SHOWN = 3


def placement(conf: cfg.ConfigOpts) -> Any:
    """Check that Placement answers, and that our user may write to it."""

    def check(service: Any) -> Any:
        try:
            with understood():
                PlacementApi(service).find(name='cyborg-status')  # which the same role allows
        except Forbidden:
            return Result(
                Code.FAILURE,
                'Placement refuses the user of [placement]: give it the role service in its '
                'project, and run the check again.',
            )
        except errors.Unavailable as error:
            return Result(
                Code.WARNING,
                f'{error.faultstring} Correct [placement], or run the check again when Placement '
                'answers.',
            )
        return Result(Code.SUCCESS, 'Placement answers.')

    return _if_configured(conf, 'placement', check)


def nova(conf: cfg.ConfigOpts) -> Any:
    """Check that Nova answers, and that our user may send events and see all servers."""

    def check(service: Any) -> Any:
        client = Nova(service)
        try:
            if not client.accepts_events():
                return Result(
                    Code.FAILURE,
                    'Nova refuses events from the user of [nova], so it does not receive the '
                    'results of binds: give the user the role service in its project, and run '
                    'the check again.',
                )
            sees_all = client.sees_all()
        except errors.Unavailable as error:
            return Result(
                Code.WARNING,
                f'{error.faultstring} Correct [nova], or run the check again when Nova answers.',
            )
        if not sees_all:
            return Result(
                Code.WARNING,
                'Nova accepts events, but does not show the servers of all projects to the user of '
                '[nova]. So requests of servers that are deleted while they are built keep their '
                'devices, and cyborg-manage audit does not find them. Give the user the role admin '
                'in its project.',
            )
        return Result(Code.SUCCESS, 'Nova accepts events, and shows the servers of all projects.')

    return _if_configured(conf, 'nova', check)


def profile_names(conf: cfg.ConfigOpts, db: engine.Database) -> Any:
    """Check that Placement knows the traits and resource classes in device profiles."""
    with db.reader() as session:
        asked = device_profiles.names_asked_for(session)

    def check(service: Any) -> Any:
        wanted = set().union(*asked.values())
        try:
            with understood():
                unknown = PlacementApi(service).unknown_names(wanted)
        except errors.Unavailable as error:
            return Result(
                Code.WARNING,
                f'Not compared with Placement: {error.faultstring} Run the check again when '
                'Placement answers.',
            )
        wrong = [
            f'{profile}: {", ".join(sorted(names & unknown))}.'
            for profile, names in sorted(asked.items())
            if names & unknown
        ]
        if wrong:
            return Result(
                Code.WARNING,
                f'{len(wrong)} device profiles name traits or resource classes that Placement '
                'does not know, so that no server can be built with them. Start the agents of the '
                'hosts that have them, or correct the profiles, for instance with cyborg-manage '
                f'profiles migrate: {" ".join(wrong[:MAX_SHOWN])}',
            )
        return Result(Code.SUCCESS, 'Placement knows all names in device profiles.')

    if not asked:
        return Result(Code.SUCCESS, 'There are no device profiles.')
    return _if_configured(conf, 'placement', check)


def _if_configured(conf: cfg.ConfigOpts, section: str, check: Callable[[Any], Any]) -> Any:
    """Return the result of a check, if this host has credentials for the service."""
    from cyborg.clients import keystone  # slow to import, and other commands do not need it

    try:
        service = keystone.connect(conf, section)
    except errors.ConfigError as error:
        if conf[section].auth_type or conf[section].auth_section:
            return Result(Code.FAILURE, error.faultstring)
        return Result(Code.SUCCESS, f'Not checked, since [{section}] auth_type is not set here.')
    return check(service)
