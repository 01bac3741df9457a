# SPDX-License-Identifier: Apache-2.0
"""The state table: every state has a way out, and what is impossible says so."""

import pytest

from cyborg import errors
from cyborg.objects import arq_states
from cyborg.objects.arq_states import Event, State


@pytest.mark.parametrize('state', State)
def test_every_state_can_be_deleted(state):
    assert arq_states.after(state, Event.DELETE, 'u') == State.DELETING


@pytest.mark.parametrize('state', sorted(set(State) - {State.DELETING}))
def test_every_state_but_the_last_can_be_unbound(state):
    assert arq_states.after(state, Event.UNBIND, 'u') == State.UNBOUND


@pytest.mark.parametrize('state', State)
@pytest.mark.parametrize('event', Event)
def test_every_event_in_every_state_has_an_answer(state, event):
    try:
        assert arq_states.after(state, event, 'u') in State
    except errors.BadArqState as error:
        assert error.code == 409
        assert f'is {state}: "{event}" is not possible in this state.' in error.faultstring


@pytest.mark.parametrize('state', sorted(set(State) - {State.INITIAL}))
def test_every_state_can_be_reached(state):
    assert any(state in moves.values() for moves in arq_states.TRANSITIONS.values()) or (
        state == State.UNBIND_FAILED
    )


def test_a_bind_can_be_tried_again_after_it_failed():
    failed = arq_states.after(State.BIND_STARTED, Event.FAILED, 'u')
    assert arq_states.after(failed, Event.BIND, 'u') == State.BIND_STARTED
