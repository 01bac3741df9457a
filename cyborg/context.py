# SPDX-License-Identifier: Apache-2.0
"""The request context, which every message carries."""

from typing import Any, Self

from oslo_context import context

from cyborg.objects import manifests


class RequestContext(context.RequestContext):
    """The context of oslo.context, and whether the caller is a service or sent a service token."""

    def __init__(
        self,
        *,
        is_service: bool = False,
        is_service_user: bool = False,
        idempotency_key: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        #: the request has a valid service token (X-Service-Token)
        self.is_service = is_service
        #: the token of the caller has the service role
        self.is_service_user = is_service_user
        #: the same if a request that creates something is repeated; None: it is not repeated
        self.idempotency_key = idempotency_key
        #: the newest RPC version that the sender of the message reads, the oldest if it does not
        #: say; None: this did not come with a message
        self.reads: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {
            'is_service': self.is_service,
            'is_service_user': self.is_service_user,
            'idempotency_key': self.idempotency_key,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], **kwargs: Any) -> Self:
        made = super().from_dict(
            values,
            is_service=bool(values.get('is_service')),
            is_service_user=bool(values.get('is_service_user')),
            idempotency_key=values.get('idempotency_key'),
            **kwargs,
        )
        made.reads = values.get('reads') or manifests.OLDEST
        return made

    @property
    def sees_all_projects(self) -> bool:
        """True for administrators, and for services that act on their own behalf.

        A service that acts for a user sees what that user sees.
        """
        return self.is_admin or self.is_service_user


def internal(cause: str | None = None) -> RequestContext:
    """Return an administrator's context for the work of Cyborg itself.

    :param cause: the id of the request that caused the work
    """
    return RequestContext(is_admin=True, overwrite=False, global_request_id=cause)
