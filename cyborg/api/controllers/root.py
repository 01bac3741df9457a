# SPDX-License-Identifier: Apache-2.0
"""The root of all paths: the documents by which clients discover the API, then the nouns."""

from typing import Any

from cyborg.api import microversions, openapi
from cyborg.api.controllers import base
from cyborg.api.controllers.v2 import (
    agents,
    arqs,
    attributes,
    capacity,
    deployables,
    device_profiles,
    devices,
    topology,
    usage,
)
from cyborg.api.expose import action, expose
from cyborg.api.request import Request
from cyborg.api.types import versions
from cyborg.api.types.rendering import render

COLLECTIONS: tuple[type[base.Collection], ...] = (
    device_profiles.DeviceProfiles,
    arqs.Arqs,
    devices.Devices,
    deployables.Deployables,
    attributes.Attributes,
    agents.Agents,
    capacity.Capacity,
    topology.Topology,
    usage.Usage,
)

#: Anybody may ask for them, so they are made once.
DESCRIPTIONS = {
    version: openapi.describe(COLLECTIONS, version) for version in microversions.HISTORY
}


class V2(base.RestController):
    def __init__(self, *collaborators: Any) -> None:
        super().__init__(*collaborators)
        for noun in COLLECTIONS:
            setattr(self, noun.path, noun(*collaborators))

    @expose(versions.ApiVersion)
    def get(self, request: Request) -> dict[str, Any]:
        """Show version 2. Clients follow the self link, so it must lead back here."""
        shown = versions.current('v2.0', request.link('v2', ''))
        return render(shown, versions.ApiVersion, request)

    @expose()
    @action('GET', 'openapi')
    def openapi(self, request: Request) -> dict[str, Any]:
        """Describe the version that is asked for, in OpenAPI."""
        return DESCRIPTIONS[request.negotiated] | {'servers': [{'url': request.root_url}]}


class Root(base.RestController):
    def __init__(self, *collaborators: Any) -> None:
        super().__init__(*collaborators)
        self.v2 = V2(*collaborators)

    @expose(versions.Versions)
    def get(self, request: Request) -> dict[str, Any]:
        """List the versions. There is one."""
        version = versions.current('v2', request.link('v2'))
        shown = versions.Versions(
            name='OpenStack Accelerator API',
            description='Cyborg manages accelerators: GPUs, FPGAs, crypto and compression '
            'engines, NICs, SSDs.',
            versions=[version],
            default_version=version,
        )
        return render(shown, versions.Versions, request)
