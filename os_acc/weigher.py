# SPDX-License-Identifier: Apache-2.0
"""A weigher for nova-scheduler: weighs hosts by their free accelerators.

It reads the allocation candidates of each host, which the scheduler has already, and makes no
call. So it counts the providers that could serve the request, not the units that are free on
each: a candidate has the units that the request would get, and Nova's HostState has neither
inventories nor usages of providers. Name it in ``nova.conf`` of nova-scheduler, after Nova's own::

    [filter_scheduler]
    weight_classes = nova.scheduler.weights.all_weighers, os_acc.weigher.AcceleratorWeigher

    [os_acc]
    weight_multiplier = 1.0

This module can be imported, and its functions used, where Nova is not installed.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from oslo_config import cfg

from os_acc import conf as options

#: The prefix of the request groups of device profiles, also of those of ports.
REQUESTER = 'device_profile_'
#: The key in the metadata of a host aggregate that overrides the option.
AGGREGATE_KEY = 'accelerator_weight_multiplier'

Candidate = Mapping[str, Any]


class HostState(Protocol):
    """The part of Nova's HostState that is used here."""

    allocation_candidates: list[dict[str, Any]]


if TYPE_CHECKING:

    class BaseHostWeigher:
        """The part of Nova's class that is used here."""

    def get_weight_multiplier(host_state: HostState, name: str, default: float) -> float:
        """Nova's function: returns the value of the aggregates of a host, or the default."""

else:
    try:
        from nova.scheduler.utils import get_weight_multiplier
        from nova.scheduler.weights import BaseHostWeigher
    except ImportError:

        class BaseHostWeigher:
            """Replaces Nova's class where Nova is not installed."""

        def get_weight_multiplier(host_state, name, default):  # noqa: ANN001, ANN201
            """Replaces Nova's function, which reads aggregates."""
            return default


def free_providers(candidates: Iterable[Candidate]) -> int:
    """Returns how many accelerators of a host could serve the scarcest group of a request.

    Returns 0 if the request asks for no accelerator.

    :param candidates: the host's allocation candidates, as Placement returns them.

    >>> free_providers([{'mappings': {'': ['node'], 'device_profile_0': ['card1']}},
    ...                 {'mappings': {'': ['node'], 'device_profile_0': ['card2']}}])
    2
    >>> free_providers([{'mappings': {'': ['node']}}])
    0
    """
    providers: dict[str, set[str]] = {}
    for candidate in candidates:
        for group, chosen in (candidate.get('mappings') or {}).items():
            if group.startswith(REQUESTER):
                providers.setdefault(group, set()).update(chosen)
    return min(map(len, providers.values()), default=0)


class AcceleratorWeigher(BaseHostWeigher):
    """Prefers hosts with many free accelerators, or with few if the multiplier is negative.

    The weight of a host is the number of providers that could serve the request. It is 0 for
    requests without a device profile, for releases of Nova that do not pass the candidates,
    and for a rebuild on the same host, which has none.

    >>> class Host:
    ...     allocation_candidates = [{'mappings': {'device_profile_0': ['card1']}}]
    >>> AcceleratorWeigher()._weigh_object(Host(), None)
    1.0
    """

    minval = 0
    maxval: float | None = None

    def __init__(self) -> None:
        options.register_opts(cfg.CONF)

    def weight_multiplier(self, host_state: HostState) -> float:
        """Returns ``[os_acc] weight_multiplier``, unless an aggregate of the host overrides it.

        >>> class Host:
        ...     aggregates = []
        >>> AcceleratorWeigher().weight_multiplier(Host())
        1.0
        """
        return get_weight_multiplier(host_state, AGGREGATE_KEY, cfg.CONF.os_acc.weight_multiplier)

    def _weigh_object(self, host_state: HostState, weight_properties: object) -> float:
        return float(free_providers(getattr(host_state, 'allocation_candidates', None) or ()))
