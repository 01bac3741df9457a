# SPDX-License-Identifier: Apache-2.0
"""The release of Cyborg that is installed."""

import functools
import importlib.metadata


@functools.cache
def number() -> str:
    """Returns the version of the package."""
    return importlib.metadata.version('openstack-cyborg')
