# SPDX-License-Identifier: Apache-2.0
"""The versions of the API, and the header by which a request selects one."""

import microversion_parse
from oslo_log import log

from cyborg import errors

LOG = log.getLogger(__name__)

SERVICE_TYPE = 'accelerator'
HEADER = 'OpenStack-API-Version'

Version = microversion_parse.Version

#: Every version and its changes. To add a version, add a line, and declare it with ``since``.
HISTORY: dict[Version, str] = {
    Version(2, 0): 'The first version.',
    Version(2, 1): 'PATCH accelerator_requests takes /project_id, from administrators.',
    Version(2, 2): 'GET device_profiles/{name}, by name besides uuid.',
    Version(2, 3): 'Devices show their status.',
    Version(2, 4): 'Agents, GET agents and agents/{uuid or hostname}. Deployables and attributes '
    'refer to others by uuids besides numbers. Attributes can be nested. Devices '
    'show whether they are missing or at fault. POST device_profiles refuses '
    'keys that it does not know.',
    Version(2, 5): 'PATCH device_profiles/{uuid or name}. Device profiles can be disabled, and '
    'be visible to chosen projects only.',
    Version(2, 6): 'GET accelerator_requests/{uuid}/history.',
    Version(2, 7): 'Deployables show whether they can be programmed, which image is being loaded '
    'into them, and why that failed last.',
    Version(2, 8): 'Deployables show how far the loading of an image has got, and why a part of '
    'them could not be cleaned.',
    Version(2, 9): 'GET devices/{uuid}/handbacks, and POST devices/{uuid}/handles/{handle}/clean '
    'and release, which decide about handles that could not be cleaned.',
    Version(2, 10): 'GET device_profiles/{uuid or name}/availability: how often a profile fits '
    'now, and why not more often.',
    Version(2, 11): 'GET capacity, the units of the cloud by model, and GET topology, the tree of '
    'a host down to its units: free, held by whom, withheld why.',
    Version(2, 12): 'GET usage: accelerator-hours by project, device profile and resource class.',
}
LOWEST, HIGHEST = min(HISTORY), max(HISTORY)
KNOWN = {str(version): version for version in HISTORY}


def requested(header: str | None) -> Version:
    """Returns the version that the header asks for. Raises NotAcceptable if it does not exist."""
    wanted = _wanted(header or '')
    if wanted is None:
        return LOWEST
    if wanted.lower() == 'latest':
        return HIGHEST
    version = KNOWN.get(wanted)
    if version is None:
        raise errors.NotAcceptable(
            f'There is no version {wanted[:32]} of this API; ask for one from {LOWEST} to '
            f'{HIGHEST} as "{HEADER}: {SERVICE_TYPE} {HIGHEST}", or for "latest".'
        )
    return version


def _wanted(header: str) -> str | None:
    """Returns our part of a header that may name versions of several services."""
    wanted = microversion_parse.get_version({HEADER: header}, SERVICE_TYPE)
    if wanted:
        return wanted
    for part in header.split(','):
        match part.split():
            case [bare]:
                LOG.debug('A client names no service in %s; that is deprecated.', HEADER)
                return bare
    return None


def headers(version: Version | None) -> dict[str, str]:
    """Returns the version headers of an answer. ``version`` is None if none was selected."""
    said = {
        'Vary': HEADER,
        'OpenStack-API-Minimum-Version': str(LOWEST),
        'OpenStack-API-Maximum-Version': str(HIGHEST),
    }
    if version is not None:
        said[HEADER] = f'{SERVICE_TYPE} {version}'
    return said
