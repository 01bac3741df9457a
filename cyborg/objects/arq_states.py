# SPDX-License-Identifier: Apache-2.0
"""The states of an accelerator request: one table, read by code, SQL and docs."""

from enum import StrEnum

from cyborg import errors


class State(StrEnum):
    INITIAL = 'Initial'
    BIND_STARTED = 'BindStarted'
    BOUND = 'Bound'
    BIND_FAILED = 'BindFailed'
    UNBOUND = 'Unbound'
    UNBIND_FAILED = 'UnbindFailed'
    DELETING = 'Deleting'
    PROVISIONING = 'Provisioning'


class Event(StrEnum):
    CREATE = 'create'
    BIND = 'bind'
    PROGRAM = 'program'
    ATTACHED = 'attached'
    FAILED = 'failed'
    PROVISION = 'provision'
    UNBIND = 'unbind'
    DELETE = 'delete'
    UNHEARD = 'unheard'
    HANDED_BACK = 'handed back'
    REFUSED = 'refused'


#: Shown instead of the stored state while the agent that prepares the handle is down.
UNKNOWN = 'Unknown'

#: Nova calls these resolved: the state does not change by itself.
RESOLVED = frozenset({State.BOUND, State.BIND_FAILED, State.DELETING})

#: Nova gets an event when a request reaches one of these.
ANNOUNCED = frozenset({State.BOUND, State.BIND_FAILED})

#: The host may have prepared a device for the request.
HOLDING = frozenset({State.BIND_STARTED, State.BOUND, State.PROVISIONING})

#: A server has the unit of the request: usage counts the time in these states.
IN_USE = frozenset({State.BOUND, State.PROVISIONING})

#: The host still has tasks for the request.
UNFINISHED = frozenset({State.BIND_STARTED, State.PROVISIONING})

#: event: {from: to}
TRANSITIONS: dict[Event, dict[State, State]] = {
    Event.CREATE: {},  # a new request has no state before
    Event.BIND: dict.fromkeys(
        (State.INITIAL, State.UNBOUND, State.BIND_FAILED), State.BIND_STARTED
    ),
    Event.PROGRAM: {},  # a step in the history only: the result of loading its image
    Event.ATTACHED: dict.fromkeys((State.BIND_STARTED, State.PROVISIONING), State.BOUND),
    Event.FAILED: {State.BIND_STARTED: State.BIND_FAILED},
    Event.PROVISION: {State.BOUND: State.PROVISIONING},
    Event.UNBIND: dict.fromkeys(set(State) - {State.DELETING}, State.UNBOUND),
    Event.DELETE: dict.fromkeys(State, State.DELETING),
    Event.HANDED_BACK: {},  # a step in the history only: its handle was cleaned
    Event.REFUSED: {},  # a step in the history only: a bind was refused
    Event.UNHEARD: {},  # a step in the history only: Nova refused the event about it
}


def after(state: str, event: Event, uuid: str) -> State:
    """Returns the state that follows; raises a conflict if the event is impossible."""
    try:
        return TRANSITIONS[event][State(state)]
    except KeyError:
        raise errors.BadArqState(uuid=uuid, state=state, event=event) from None
