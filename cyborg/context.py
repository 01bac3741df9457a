# SPDX-License-Identifier: Apache-2.0
"""Who asks: the request context that travels with every message."""

from typing import Any, Self

from oslo_context import context


class RequestContext(context.RequestContext):
    """oslo.context's, plus whether a service vouches for the caller, or is the caller."""

    def __init__(self, *, is_service: bool = False, is_service_user: bool = False,
                 **kwargs: Any) -> None:
        super().__init__(**kwargs)
        #: a valid service token came along (X-Service-Token)
        self.is_service = is_service
        #: the caller's own token has a role of services
        self.is_service_user = is_service_user

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {'is_service': self.is_service,
                                    'is_service_user': self.is_service_user}

    @classmethod
    def from_dict(cls, values: dict[str, Any], **kwargs: Any) -> Self:
        return super().from_dict(
            values, is_service=bool(values.get('is_service')),
            is_service_user=bool(values.get('is_service_user')), **kwargs)

    @property
    def sees_all_projects(self) -> bool:
        """Administrators, and services on their own account, are not held to one project.

        A service that acts for a user sees what that user sees.
        """
        return self.is_admin or self.is_service_user


def internal(cause: str | None = None) -> RequestContext:
    """The context of what Cyborg does on its own account, or because of a request."""
    return RequestContext(is_admin=True, overwrite=False, global_request_id=cause)
