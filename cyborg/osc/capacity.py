# SPDX-License-Identifier: Apache-2.0
"""``openstack accelerator capacity`` and ``topology``: what there is, and who has it."""

import argparse
from collections.abc import Iterator
from typing import Any

from osc_lib.cli import format_columns

from cyborg.osc import command
from cyborg.osc.resources import ModelCapacity, TopologyHost

BRANCH, LAST, PAST, BESIDE = '├─ ', '└─ ', '   ', '│  '


class ListCapacity(command.Lister):
    """List the units of the cloud by model: in use, free, and withheld with the reason."""

    def take_action(self, parsed_args: argparse.Namespace) -> command.Table:
        headings = ('Type', 'Vendor', 'Model', 'Class', 'Hosts', 'Units', 'In Use', 'Free')
        return (*headings, 'Withheld'), [
            (
                each.type,
                each.vendor,
                each.model,
                each.resource_class,
                each.hosts,
                each.units,
                each.in_use,
                each.free,
                format_columns.DictColumn(each.withheld),
            )
            for each in ModelCapacity.found(self.client)
        ]


class ShowTopology(command.Lister):
    """Show a host as a tree of its devices, their deployables and units, with who holds them."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument('host', metavar='<hostname>', help='The host')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> command.Table:
        [host] = TopologyHost.found(self.client, hostname=parsed_args.host)
        is_drawn = parsed_args.formatter == 'table'
        return ('Name', 'Kind', 'State', 'Server', 'ARQ'), [
            ((lead if is_drawn else '') + name, *facts) for lead, name, *facts in _rows(host)
        ]


def _rows(host: TopologyHost) -> Iterator[tuple[Any, ...]]:
    """Yields a row for the host, each device, deployable and unit, with the branch before it."""
    state = 'alive' if host.is_alive else 'silent'
    yield '', host.hostname, 'host', state, None, None
    for device, lead, below in _branches(host.devices, ''):
        state = device['fault'] or ('missing' if device['is_missing'] else device['status'])
        name = f'{device["type"]} {device["vendor"]} {device["model"] or ""}'.strip()
        yield lead, name, 'device', state, None, None
        yield from _parts(device['deployables'], None, below)


def _parts(
    parts: list[dict[str, Any]], parent: str | None, indent: str
) -> Iterator[tuple[Any, ...]]:
    uuids = {part['uuid'] for part in parts}
    here = [
        part
        for part in parts
        if (part['parent_uuid'] if part['parent_uuid'] in uuids else None) == parent
    ]
    for part, lead, below in _branches(here, indent):
        yield lead, part['name'], 'deployable', part['resource_class'], None, None
        has_more = any(each['parent_uuid'] == part['uuid'] for each in parts)
        for unit, beginning, _ in _branches(part['units'], below, has_more=has_more):
            state = unit['withheld'] or unit['arq_state'] or 'free'
            yield beginning, _address(unit), 'unit', state, unit['instance_uuid'], unit['arq_uuid']
        yield from _parts(parts, part['uuid'], below)


def _branches(
    items: list[dict[str, Any]], indent: str, has_more: bool = False
) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yields each item with the branch before it, and with the indent of what is below it.
    ``has_more``: others follow on the same level."""
    for number, item in enumerate(items, 1):
        is_last = number == len(items) and not has_more
        yield item, indent + (LAST if is_last else BRANCH), indent + (PAST if is_last else BESIDE)


def _address(unit: dict[str, Any]) -> str:
    info = unit['attach_handle_info']
    address = '{domain}:{bus}:{device}.{function}'.format(**info)
    return (
        address
        if unit['attach_handle_type'] == 'PCI'
        else f'{unit["attach_handle_type"]} {address}'
    )
