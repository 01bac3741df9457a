# SPDX-License-Identifier: Apache-2.0
"""The version is that of openstack-cyborg, which pbr reads from git; all else is in pyproject."""

import setuptools
from pbr import packaging

setuptools.setup(version=packaging.get_version('os-acc'))
