# SPDX-License-Identifier: Apache-2.0
"""Which versions of the API there are, and which one a request asks for."""

import microversion_parse
from oslo_log import log

from cyborg import errors

LOG = log.getLogger(__name__)

SERVICE_TYPE = 'accelerator'
HEADER = 'OpenStack-API-Version'

Version = microversion_parse.Version

#: Every version and what it brought; to add one, add a line and ask for it where it matters.
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
}
LOWEST, HIGHEST = min(HISTORY), max(HISTORY)
KNOWN = {str(version): version for version in HISTORY}


def requested(header: str | None) -> Version:
    """The version that the header asks for; NotAcceptable if there is none such."""
    wanted = _wanted(header or '')
    if wanted is None:
        return LOWEST
    if wanted.lower() == 'latest':
        return HIGHEST
    version = KNOWN.get(wanted)
    if version is None:
        raise errors.NotAcceptable(
            f'There is no version {wanted[:32]} of this API; ask for one from {LOWEST} to '
            f'{HIGHEST} as "{HEADER}: {SERVICE_TYPE} {HIGHEST}", or for "latest".')
    return version


def _wanted(header: str) -> str | None:
    """Our part of a header that may speak to several services."""
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
    """What every versioned answer says about versions; None when none was agreed upon."""
    said = {
        'Vary': HEADER,
        'OpenStack-API-Minimum-Version': str(LOWEST),
        'OpenStack-API-Maximum-Version': str(HIGHEST),
    }
    if version is not None:
        said[HEADER] = f'{SERVICE_TYPE} {version}'
    return said
