# SPDX-License-Identifier: Apache-2.0
"""Where every path begins: the documents that clients discover us by, then the nouns."""

from typing import Any

import pecan
import webob.exc

from cyborg.api import microversions, openapi
from cyborg.api.controllers.v2 import (
    agents,
    arqs,
    attributes,
    deployables,
    device_profiles,
    devices,
)
from cyborg.api.expose import Resource, Route, expose
from cyborg.api.requests import Request

COLLECTIONS = (device_profiles.DeviceProfiles, arqs.Arqs, devices.Devices,
               deployables.Deployables, attributes.Attributes, agents.Agents)

#: Anybody may ask for them, so they are made once.
DESCRIPTIONS = {version: openapi.describe(COLLECTIONS, version)
                for version in microversions.HISTORY}

RANGE = {'min_version': str(microversions.LOWEST), 'max_version': str(microversions.HIGHEST)}


class V2(Resource):
    @expose('GET')
    def version(self, request: Request) -> dict[str, Any]:
        """Version 2. Clients follow the self link, so it must lead back here."""
        return {'id': 'v2.0', 'status': 'CURRENT', **RANGE, 'links': [request.link('v2', '')]}

    @expose('GET', 'openapi')
    def openapi(self, request: Request) -> dict[str, Any]:
        """Describe the version that is asked for, in OpenAPI."""
        return DESCRIPTIONS[request.version] | {'servers': [{'url': request.root_url}]}


class Root(Resource):
    def __init__(self, *collaborators: Any) -> None:
        super().__init__(*collaborators)
        self._v2 = V2(*collaborators)
        self._collections = {noun.path: noun(*collaborators) for noun in COLLECTIONS}

    @expose('GET')
    def versions(self, request: Request) -> dict[str, Any]:
        """All versions: the one there is."""
        version = {'id': 'v2', 'status': 'CURRENT', **RANGE, 'links': [request.link('v2')]}
        return {
            'name': 'OpenStack Accelerator API',
            'description': 'Cyborg manages accelerators: GPUs, FPGAs, crypto and compression '
                           'engines, NICs, SSDs.',
            'versions': [version],
            'default_version': version,
        }

    @pecan.expose()
    def _route(self, path: list[str], request: Request) -> Route:
        match request.segments:
            case []:
                return self.route([], request)
            case ['v2', noun, *rest] if noun in self._collections:
                return self._collections[noun].route(rest, request)
            case ['v2', *rest]:
                return self._v2.route(rest, request)
        raise webob.exc.HTTPNotFound('There is nothing at this path.')
