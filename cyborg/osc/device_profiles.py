# SPDX-License-Identifier: Apache-2.0
"""``openstack accelerator device profile``."""

import argparse
from typing import Any

from cliff.columns import FormattableColumn
from osc_lib import exceptions
from osc_lib.cli import format_columns, parseractions

from cyborg.osc import command
from cyborg.osc.resources import Availability, DeviceProfile


class _Change(command.ShowOne):
    """A command that changes a device profile and shows it."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            'device_profile', metavar='<device-profile>', help='Name or UUID of the device profile'
        )
        return parser

    def change(self, profile: DeviceProfile, changes: dict[str, Any]) -> command.Row:
        if not changes:
            raise exceptions.CommandError('Nothing to change: name at least one option.')
        changed = DeviceProfile.new(id=profile.uuid, **changes)
        changed.commit(self.client, prepend_key=False, microversion=DeviceProfile.version)
        return _shown(changed)


class SetDeviceProfile(_Change):
    """Change a device profile. Existing requests do not change."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--name', metavar='<name>', help='New name')
        parser.add_argument('--description', metavar='<description>', help='New description')
        parser.add_argument(
            '--group',
            metavar='<key>=<value>[,<key>=<value>...]',
            action=parseractions.MultiKeyValueAction,
            dest='groups',
            help='New group; repeat the option for several. They replace the present groups',
        )
        enabled = parser.add_mutually_exclusive_group()
        enabled.add_argument(
            '--enable',
            action='store_const',
            const=True,
            dest='enabled',
            help='Allow new requests with it',
        )
        enabled.add_argument(
            '--disable',
            action='store_const',
            const=False,
            dest='enabled',
            help='Refuse new requests with it',
        )
        parser.add_argument(
            '--project',
            metavar='<project-id>',
            action='append',
            dest='projects',
            help='Add a project that may use it; repeat the option for several. A profile without '
            'projects is for all',
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> command.Row:
        profile = DeviceProfile.one(self.client, parsed_args.device_profile)
        changes = {
            'name': parsed_args.name,
            'description': parsed_args.description,
            'groups': parsed_args.groups,
            'is_enabled': parsed_args.enabled,
        }
        changes = {name: value for name, value in changes.items() if value is not None}
        if parsed_args.projects:
            changes['projects'] = list(
                dict.fromkeys([*(profile.projects or []), *parsed_args.projects])
            )
        return self.change(profile, changes)


class UnsetDeviceProfile(_Change):
    """Remove the description of a device profile, or projects that may use it."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--description', action='store_true', help='Remove the description')
        projects = parser.add_mutually_exclusive_group()
        projects.add_argument(
            '--project',
            metavar='<project-id>',
            action='append',
            dest='projects',
            help='Remove a project that may use it; repeat the option for several',
        )
        projects.add_argument(
            '--all-projects',
            action='store_true',
            help='Remove the list of projects, so that the profile is for all',
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> command.Row:
        profile = DeviceProfile.one(self.client, parsed_args.device_profile)
        changes: dict[str, Any] = {}
        if parsed_args.description:
            changes['description'] = None
        if parsed_args.all_projects:
            changes['projects'] = None
        if parsed_args.projects:
            changes['projects'] = _without(profile, parsed_args.projects)
        return self.change(profile, changes)


class ExplainDeviceProfile(command.ShowOne):
    """Show how often a device profile fits now, and why not more often."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            'device_profile', metavar='<device-profile>', help='Name or UUID of the device profile'
        )
        parser.add_argument('--host', metavar='<hostname>', help='Consider this host only')
        parser.add_argument('--check', action='store_true', help='Fail if it fits nowhere')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> command.Row:
        query = {'hostname': parsed_args.host} if parsed_args.host else {}
        found = Availability.new(profile=parsed_args.device_profile).fetch(
            self.client, requires_id=False, microversion=Availability.version, **query
        )
        if parsed_args.check and not found.fits:
            why = ', '.join(f'{reason} on {count}' for reason, count in found.reasons.items())
            raise exceptions.CommandError(
                f'Device profile {found.device_profile_name} fits on none of '
                f'{found.hosts_considered} hosts{f": {why}" if why else ""}.'
            )
        names = ('name', 'enabled', 'fits', 'at_most', 'hosts_considered', 'hosts_fitting')
        return (*names, 'reasons', 'groups', 'hosts'), (
            found.device_profile_name,
            found.is_enabled,
            found.fits,
            found.is_at_most,
            found.hosts_considered,
            found.hosts_fitting,
            format_columns.DictColumn(found.reasons),
            format_columns.ListDictColumn(found.groups),
            None if found.hosts is None else Sentences(found.hosts),
        )


class Sentences(FormattableColumn[list[dict[str, Any]]]):
    """Hosts, shown to people by one sentence for each host and group."""

    def human_readable(self) -> str:
        return '\n'.join(
            f'{host["hostname"]}: {group["sentence"]}'
            for host in self._value
            for group in host['groups']
        )


def _without(profile: DeviceProfile, removed: list[str]) -> list[str]:
    """Return the projects of a profile without some; raises CommandError if one is not there, or
    if none would be left."""
    present = profile.projects or []
    if unknown := [each for each in removed if each not in present]:
        raise exceptions.CommandError(
            f'Device profile {profile.name} is not limited to project {unknown[0]}.'
        )
    left = [each for each in present if each not in removed]
    if not left:
        raise exceptions.CommandError(
            f'No project would be left that may use {profile.name}. Use --all-projects to make it '
            'available to all, or disable it.'
        )
    return left


def _shown(profile: DeviceProfile) -> command.Row:
    names = ('uuid', 'name', 'description', 'groups', 'enabled', 'projects', 'updated_at')
    return names, (
        profile.uuid,
        profile.name,
        profile.description,
        format_columns.ListDictColumn(profile.groups),
        profile.is_enabled,
        format_columns.ListColumn(profile.projects) if profile.projects is not None else None,
        profile.updated_at,
    )
