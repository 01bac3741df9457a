# SPDX-License-Identifier: Apache-2.0
"""Who asks: the request context that travels with every message."""

from typing import Any, Self

from oslo_context import context


class RequestContext(context.RequestContext):
    """oslo.context's, plus whether a service vouches for the caller."""

    def __init__(self, *, is_service: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        #: a valid service token came along (X-Service-Token)
        self.is_service = is_service

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {'is_service': self.is_service}

    @classmethod
    def from_dict(cls, values: dict[str, Any], **kwargs: Any) -> Self:
        return super().from_dict(
            values, is_service=bool(values.get('is_service')), **kwargs)

    @property
    def sees_all_projects(self) -> bool:
        """Administrators, and services acting for whomever, are not held to one project."""
        return self.is_admin or self.is_service


def internal(cause: str | None = None) -> RequestContext:
    """The context of what Cyborg does on its own account, or because of a request."""
    return RequestContext(is_admin=True, overwrite=False, global_request_id=cause)
