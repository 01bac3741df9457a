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


#: Shown instead of a stored state when the agent that prepares the handle is silent.
UNKNOWN = 'Unknown'

#: What Nova calls resolved: nothing more will happen by itself.
RESOLVED = frozenset({State.BOUND, State.BIND_FAILED, State.DELETING})

#: Nova hears of it when a request gets there.
ANNOUNCED = frozenset({State.BOUND, State.BIND_FAILED})

#: The host has, or may have, something prepared for the request.
HOLDING = frozenset({State.BIND_STARTED, State.BOUND, State.PROVISIONING})

#: Of these, the host has still something to do for the request.
UNFINISHED = frozenset({State.BIND_STARTED, State.PROVISIONING})

#: event: {from: to}
TRANSITIONS: dict[Event, dict[State, State]] = {
    Event.CREATE: {},  # what begins has no state before
    Event.BIND: dict.fromkeys(
        (State.INITIAL, State.UNBOUND, State.BIND_FAILED), State.BIND_STARTED),
    Event.PROGRAM: {},  # tells how its image is loaded, which by itself changes nothing
    Event.ATTACHED: dict.fromkeys((State.BIND_STARTED, State.PROVISIONING), State.BOUND),
    Event.FAILED: {State.BIND_STARTED: State.BIND_FAILED},
    Event.PROVISION: {State.BOUND: State.PROVISIONING},
    Event.UNBIND: dict.fromkeys(set(State) - {State.DELETING}, State.UNBOUND),
    Event.DELETE: dict.fromkeys(State, State.DELETING),
    Event.HANDED_BACK: {},  # its handle was cleaned after it
    Event.UNHEARD: {},  # Nova would not hear of it, which changes nothing here
}


def after(state: str, event: Event, uuid: str) -> State:
    """The state that follows, or a 409 that names what is impossible."""
    try:
        return TRANSITIONS[event][State(state)]
    except KeyError:
        raise errors.BadArqState(uuid=uuid, state=state, event=event) from None
