# SPDX-License-Identifier: Apache-2.0
"""/v2/usage"""

from typing import Any

from cyborg import errors
from cyborg.api.controllers import base
from cyborg.api.expose import expose, policy, since
from cyborg.api.request import Request
from cyborg.api.types import rendering, usage

SEES_ALL_PROJECTS = 'cyborg:usage:get_all_projects'


class Usage(base.Collection):
    path = key = 'usage'
    item = usage.ProjectUsage

    @expose(usage.Usage, query=usage.UsageQuery)
    @policy('cyborg:usage:get_all')
    @since(2, 12)
    def get_all(self, request: Request, query: usage.UsageQuery) -> dict[str, Any]:
        """List accelerator-hours by project, device profile and resource class: those of the
        caller's project, or of all projects for those who may see them."""
        given = query.given()
        if not request.allows(SEES_ALL_PROJECTS):
            own = request.context.project_id
            if given.setdefault('project_id', own) != own:
                raise errors.PolicyForbids(rule=SEES_ALL_PROJECTS)
        found = self.conductor.get_usage(request.context, **given)
        return rendering.render(found, usage.Usage, request)
