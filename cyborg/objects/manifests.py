# SPDX-License-Identifier: Apache-2.0
"""The versions of the RPC interfaces, and the versions of objects that belong to each.

Conductors and agents have the same version. A release raises the minor version once if it changes
a method, an argument or an object. To change an object: raise its VERSION, name the new fields in
its ``added``, and enter the new version under NEWEST here. A service sends an older version of an
object to a peer that has an older RPC version.
"""

import functools
from collections.abc import Mapping

from oslo_versionedobjects import base

#: RPC version -> the versions of its objects: all of them for the first, then what has changed
CHANGES: dict[str, dict[str, str]] = {
    '2.0': {
        'Agent': '1.0',
        'Arq': '1.0',
        'AttachHandle': '1.2',
        'Attribute': '1.0',
        'Binding': '1.0',
        'ControlPath': '1.0',
        'Deployable': '1.5',
        'Device': '1.1',
        'DeviceProfile': '1.1',
        'Driver': '1.0',
        'HandBack': '1.0',
        'Plan': '2.0',
        'Provider': '1.0',
        'Report': '1.3',
        'Step': '1.0',
        'Task': '1.0',
        'TaskResult': '1.0',
        'Transition': '1.0',
    },
    # messages say which version their sender reads; its readers also read lists as tables
    '2.1': {
        'Availability': '1.0',
        'DeployableUnits': '1.0',
        'Device': '1.2',
        'DeviceUnits': '1.0',
        'GroupAvailability': '1.0',
        'HandBack': '1.1',
        'HostAvailability': '1.0',
        'HostUnits': '1.0',
        'ModelCapacity': '1.0',
        'Plan': '2.1',
        'ProjectUsage': '1.0',
        'Report': '1.6',
        'Unit': '1.0',
        'Usage': '1.0',
    },
}


def parsed(version: str) -> tuple[int, ...]:
    """Returns a version in a form that can be compared.

    >>> parsed('1.10') > parsed('1.9')
    True
    """
    return tuple(map(int, version.split('.')))


OLDEST, NEWEST = min(CHANGES, key=parsed), max(CHANGES, key=parsed)


def known(version: str | None) -> str:
    """Returns the newest version that we have and a reader of ``version`` understands. None: the
    reader is of a release that does not say what it reads.

    >>> known(None), known('2.999') == NEWEST
    ('2.0', True)
    """
    if version is None:
        return OLDEST
    return max(
        (each for each in CHANGES if parsed(each) <= parsed(version)), key=parsed, default=OLDEST
    )


@functools.cache
def manifest(version: str) -> Mapping[str, str]:
    """Returns the version of each object in an RPC version of CHANGES.

    >>> manifest('2.0')['Report']
    '1.3'
    """
    collected: dict[str, str] = {}
    for each in sorted(CHANGES, key=parsed):
        if parsed(each) <= parsed(version):
            collected |= CHANGES[each]
    return collected


@functools.cache
def needed(name: str) -> str:
    """Returns the oldest RPC version that has the present version of an object and of all objects
    that it consists of: older versions lose something."""
    tree = base.obj_tree_get_versions(name)
    return next(
        version
        for version in sorted(CHANGES, key=parsed)
        if all(manifest(version).get(each) == manifest(NEWEST)[each] for each in tree)
    )
