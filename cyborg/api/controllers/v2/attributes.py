# SPDX-License-Identifier: Apache-2.0
"""/v2/attributes"""

import functools
from http import HTTPStatus
from typing import Any

from cyborg import errors, objects
from cyborg.api import pages
from cyborg.api.expose import expose
from cyborg.api.requests import Request
from cyborg.api.schemas import attributes as schemas
from cyborg.api.schemas import checks, shapes


class Attributes(pages.Collection):
    path = key = 'attributes'
    name, shape = 'Attribute', schemas.SHOWN

    @expose('GET', rule='cyborg:attribute:get_all', query=schemas.LIST,
            shown=shapes.page(key, name))
    def get_all(self, request: Request) -> dict[str, Any]:
        """List attributes, of one deployable or key if asked; nested, those at the top."""
        fetch = functools.partial(self.conductor.list_attributes,
                                  nested=request.query.get('nested', False))
        return self.page(request, fetch, schemas.filters(pages.filters(request)))

    @expose('GET', '{uuid}', rule='cyborg:attribute:get_one', query=schemas.SHOW,
            shown=shapes.ref(name))
    def get_one(self, request: Request, uuid: str) -> dict[str, Any]:
        """Show one, with those below it if asked."""
        found = self.conductor.get_attribute(
            request.context, checks.uuid(uuid, 'The attribute'),
            nested=request.query.get('nested', False))
        return self.show(found, request)

    @expose('POST', rule='cyborg:attribute:create', body=schemas.CREATE, shown=shapes.ref(name),
            status=HTTPStatus.CREATED, fails=(HTTPStatus.NOT_FOUND,))
    def post(self, request: Request) -> dict[str, Any]:
        """Add one to a deployable, or (since 2.4) below one of its attributes."""
        fields = request.document.get('attribute', request.document)
        parent = fields.get('parent_uuid')
        made = self.conductor.create_attribute(
            request.context, schemas.deployable(fields['deployable_id']), fields['key'],
            fields['value'], parent_uuid=parent and parent.lower())
        return self.show(made, request)

    @expose('DELETE', '{uuid}', rule='cyborg:attribute:delete', status=HTTPStatus.NO_CONTENT)
    def delete(self, request: Request, uuid: str) -> None:
        """Delete one, and those below it."""
        uuid = checks.uuid(uuid, 'The attribute')
        self.conductor.delete_attribute(request.context, uuid)

    @expose('DELETE', rule='cyborg:attribute:delete', status=HTTPStatus.BAD_REQUEST)
    def delete_all(self, request: Request) -> None:
        """Never all of them: a forgotten uuid must not be answered as a missing method."""
        raise errors.BadRequest('Say which attribute: DELETE /v2/attributes/{uuid}.')

    def whole(self, attribute: objects.Attribute, request: Request) -> dict[str, Any]:
        shown = {
            'uuid': attribute.uuid,
            'deployable_id': attribute.deployable_id,
            'deployable_uuid': attribute.deployable_uuid,
            'parent_uuid': attribute.parent_uuid,
            'key': attribute.key,
            'value': attribute.value,
            **pages.stamps(attribute),
            'links': [request.link('v2', self.path, attribute.uuid)],
        }
        if request.query.get('nested'):
            shown['children'] = [self.show(child, request) for child in attribute.children]
        return shown
