# SPDX-License-Identifier: Apache-2.0
"""Whether a bind gives what a request's group asks for."""

from collections.abc import Mapping

from cyborg import errors

#: keys of profile groups, and of flavors that os_acc is given, which ask for work at bind
WORK = ('accel:', 'bitstream:', 'function:')
#: the one such entry that always holds: a guest is what Nova attaches a handle to
ALWAYS_DONE = ('accel:attach_target', 'VM')


def require_honoured(what: str, asked: Mapping[str, str]) -> None:
    """GroupNotHonoured for keys on which nothing acts; what: who asks, for the message."""
    ignored = [f'{key}={value}' for key, value in asked.items()
               if key.startswith(WORK) and (key, value) != ALWAYS_DONE]
    if ignored:
        raise errors.GroupNotHonoured(what=what, keys=', '.join(ignored))
