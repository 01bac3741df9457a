# SPDX-License-Identifier: Apache-2.0
"""How often a device profile fits, on the wire."""

import operator
from collections.abc import Iterable
from typing import Any

from cyborg.api.types import documents
from cyborg.api.types.documents import Field
from cyborg.objects import Obstacle


class Reasons(documents.UserType):
    """Counts by reason; reasons that do not apply are left out."""

    basetype, name = dict, 'reasons'
    schema: documents.Schema = {
        'type': 'object',
        'propertyNames': {'enum': [str(each) for each in Obstacle]},
        'additionalProperties': {'type': 'integer', 'minimum': 1},
    }


REASONS = Reasons()


class Group(documents.Document):
    group = Field(documents.COUNT, 'the index of the group in the profile')
    fits = Field(documents.COUNT, 'how often this group fits if it is alone')
    units = Field(documents.COUNT, 'units of the resource class that the group asks for')
    free = Field(documents.COUNT, 'units that can be used now')
    reasons = Field(
        REASONS,
        'why the other units cannot be used: number of units by reason; a unit with several '
        'reasons is counted under the first one',
        source='obstacles',
    )


class HostGroup(Group):
    sentence = Field(str, 'the same in words')


class HostAvailability(documents.Document):
    hostname = Field(str, source='hostnames')
    fits = Field(documents.COUNT, 'how often the profile fits on this host')
    at_most = Field(bool, 'it may fit less often', source='is_at_most')
    groups = Field([HostGroup])


class Availability(documents.Document):
    device_profile_uuid = Field(documents.UUID, source='profile_uuid')
    device_profile_name = Field(str, source='profile_name')
    enabled = Field(
        bool, 'whether new accelerator requests can be made with the profile', source='is_enabled'
    )
    fits = Field(documents.COUNT, 'for how many servers with this profile Placement has room now')
    at_most = Field(
        bool,
        'there may be room for fewer: several groups compete for the same devices of a host',
        source='is_at_most',
    )
    hosts_considered = Field(
        documents.COUNT, 'hosts with units of a resource class that the profile asks for'
    )
    hosts_fitting = Field(documents.COUNT, 'hosts on which the profile fits')
    reasons = Field(
        REASONS,
        'why the profile does not fit on other hosts: number of hosts by reason; a host with '
        'several reasons is counted under each of them',
        source='obstacles',
    )
    groups = Field([Group], 'each group of the profile, on all hosts')
    hosts = Field(
        [HostAvailability],
        'each host that is considered; for those who may list devices',
        mandatory=False,
    )


class AvailabilityQuery(documents.Body):
    hostname = Field(documents.FILTER, 'only this host; for those who may list devices')


def by_host(alike: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns a document for each host, from one for all hosts that are alike."""
    hosts = [each | {'hostname': name} for each in alike for name in each['hostname']]
    return sorted(hosts, key=operator.itemgetter('hostname'))
