# SPDX-License-Identifier: Apache-2.0
"""/v2/attributes"""

import functools
from http import HTTPStatus
from typing import Any

from cyborg import errors
from cyborg.api.controllers import base
from cyborg.api.expose import expose, policy
from cyborg.api.request import Request
from cyborg.api.types import attributes, documents, validation


class Attributes(base.Collection):
    path = key = 'attributes'
    item = attributes.Attribute

    @expose(documents.page(key, item), query=attributes.AttributeQuery)
    @policy('cyborg:attribute:get_all')
    def get_all(self, request: Request, query: attributes.AttributeQuery) -> dict[str, Any]:
        """List attributes, of one deployable or key if asked; nested, those at the top."""
        is_nested = bool(query.nested)
        fetch = functools.partial(self.conductor.list_attributes, nested=is_nested)
        return self.page(request, query, fetch, query.filters(), *['children'] * is_nested)

    @expose(item, query=attributes.ShowQuery)
    @policy('cyborg:attribute:get_one')
    def get_one(self, request: Request, uuid: str, query: attributes.ShowQuery) -> dict[str, Any]:
        """Show one, with those below it if asked."""
        uuid, is_nested = validation.uuid(uuid, 'The attribute'), bool(query.nested)
        found = self.conductor.get_attribute(request.context, uuid, nested=is_nested)
        return self.as_document(found, request, *['children'] * is_nested)

    @expose(
        item,
        body=attributes.Wrapped(),
        status=HTTPStatus.CREATED,
        fails=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY),
    )
    @policy('cyborg:attribute:create')
    def post(self, request: Request, body: attributes.NewAttribute) -> dict[str, Any]:
        """Add one to a deployable, or (since 2.4) below one of its attributes."""
        made = self.conductor.create_attribute(
            request.context,
            body.deployable_id,
            body.key,
            body.value,
            parent_uuid=body.parent_uuid or None,
        )
        return self.as_document(made, request)

    @expose(status=HTTPStatus.NO_CONTENT)
    @policy('cyborg:attribute:delete')
    def delete(self, request: Request, uuid: str) -> None:
        """Delete one, and those below it."""
        self.conductor.delete_attribute(request.context, validation.uuid(uuid, 'The attribute'))

    @expose(status=HTTPStatus.BAD_REQUEST)
    @policy('cyborg:attribute:delete')
    def delete_all(self, request: Request) -> None:
        """Refuse to delete all attributes: a client that forgets the uuid gets a clear error."""
        raise errors.BadRequest('Name the attribute: DELETE /v2/attributes/{uuid}.')
