# SPDX-License-Identifier: Apache-2.0
"""How long a bind waits for its host, and when it does not."""

import threading

import oslo_messaging as messaging
import pytest

from cyborg import errors, objects
from cyborg.api.waiting import PAUSES, Waiter
from cyborg.context import RequestContext
from tests.fixtures.clock import Clock
from tests.unit.api.conftest import arq, deployable, uuid

CONTEXT = RequestContext(overwrite=False)


class Answers:
    """What the conductor says, one answer after the other; the last one for ever."""

    def __init__(self, *answers):
        self.answers, self.filters = list(answers), []

    def list_arqs(self, context, filters, page):
        return self._next(filters)

    def program_deployable(self, context, uuid, image_uuid):
        return self._next(image_uuid)

    def get_deployable(self, context, uuid):
        return self._next(uuid)

    def is_programmed(self, context, task_uuid):
        return self._next(task_uuid)

    def bind_arqs(self, context, bindings, waited):
        return self._next(bindings)

    def _next(self, asked):
        self.filters.append(asked)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def waiter(conductor, time, at_a_time=1):
    return Waiter(conductor, 20, at_a_time, clock=time)


STARTED = [arq(1, 'BindStarted'), arq(2, 'BindStarted')]
BOUND = [arq(1, 'Bound'), arq(2, 'Bound')]


def test_what_is_bound_at_once_waits_for_nothing():
    conductor, time = Answers([]), Clock()
    waiter(conductor, time).wait_for_bind(CONTEXT, BOUND)
    assert not time.pauses
    assert not conductor.filters


def test_the_wait_ends_when_all_are_bound():
    conductor = Answers(STARTED, [BOUND[0], STARTED[1]], BOUND)
    waiter(conductor, Clock()).wait_for_bind(CONTEXT, STARTED)
    assert conductor.filters == [{'uuid': [uuid(1), uuid(2)]}] * 3


@pytest.mark.parametrize('state', ['BindFailed', 'Unbound', 'Deleting'])
def test_one_that_fails_fails_the_bind_with_its_reason(state):
    conductor = Answers([BOUND[0], arq(2, state, reason='The card is on fire.')])
    with pytest.raises(errors.BindFailed, match='on fire'):
        waiter(conductor, Clock()).wait_for_bind(CONTEXT, STARTED)


def test_a_failure_in_the_first_answer_needs_no_wait():
    with pytest.raises(errors.BindFailed, match=uuid(1)):
        waiter(Answers([]), Clock()).wait_for_bind(CONTEXT, [arq(1, 'BindFailed')])


def test_one_that_vanishes_is_named():
    with pytest.raises(errors.ArqNotFound, match=uuid(2)):
        waiter(Answers([BOUND[0]]), Clock()).wait_for_bind(CONTEXT, STARTED)


def test_time_runs_out_without_an_error():
    conductor, time = Answers(STARTED), Clock()
    waiter(conductor, time).wait_for_bind(CONTEXT, STARTED)
    assert time.now == pytest.approx(20)
    assert time.pauses[0] == PAUSES[0]
    assert max(time.pauses) == PAUSES[1]


def test_the_time_of_the_first_call_counts():
    clock = Clock()

    class Slow(Answers):
        def bind_arqs(self, context, bindings, waited):
            clock.now += 15
            return STARTED

    waiter(Slow(STARTED), clock).bind(CONTEXT, [objects.Binding(arq_uuid=uuid(1))])
    assert clock.now == pytest.approx(20)


def test_a_host_that_went_silent_is_still_waited_for():
    conductor = Answers([arq(1, 'Unknown')], [arq(1, 'Bound')])
    waiter(conductor, Clock()).wait_for_bind(CONTEXT, [arq(1, 'BindStarted')])
    assert len(conductor.filters) == 2


def test_a_conductor_that_goes_away_meanwhile_does_not_fail_the_bind():
    conductor = Answers(STARTED, messaging.MessagingTimeout('away'))
    waiter(conductor, Clock()).wait_for_bind(CONTEXT, STARTED)
    assert len(conductor.filters) == 2


def test_those_who_find_no_place_to_wait_are_answered_at_once():
    time, waits, goes_on = Clock(), threading.Event(), threading.Event()

    class Slow(Answers):
        def list_arqs(self, context, filters, page):
            waits.set()
            goes_on.wait()
            return BOUND

    places = waiter(Slow(), time)
    first = threading.Thread(target=places.wait_for_bind, args=(CONTEXT, STARTED))
    first.start()
    waits.wait()
    pauses = len(time.pauses)
    places.wait_for_bind(CONTEXT, STARTED)
    assert len(time.pauses) == pauses
    goes_on.set()
    first.join()
    # and the place is free again
    places.wait_for_bind(CONTEXT, STARTED)
    assert len(time.pauses) == pauses + 1


def test_a_place_is_free_again_after_a_failure():
    places = waiter(Answers([arq(1, 'BindFailed')]), Clock())
    for _ in range(2):
        with pytest.raises(errors.BindFailed):
            places.wait_for_bind(CONTEXT, [arq(1, 'BindStarted')])


# -- hosts that clean up ---------------------------------------------------------------------

NOT_CLEAN = errors.HandleNotClean(rp='r', host='h', uuid=uuid(1))
BINDINGS = [objects.Binding(arq_uuid=uuid(1))]


def test_a_bind_is_made_when_the_host_has_cleaned_up():
    conductor = Answers(NOT_CLEAN, NOT_CLEAN, BOUND)
    waiter(conductor, Clock()).bind(CONTEXT, BINDINGS)
    assert conductor.filters == [BINDINGS] * 3


def test_a_host_that_goes_on_cleaning_is_told_in_the_end():
    time = Clock()
    with pytest.raises(errors.HandleNotClean):
        waiter(Answers(NOT_CLEAN), time).bind(CONTEXT, BINDINGS)
    assert time.now == pytest.approx(20)


def test_what_was_waited_is_part_of_the_limit_of_a_call():
    """Else a bind that begins at the end of the wait is answered a whole limit later."""
    waits = []

    class Slow(Answers):
        def bind_arqs(self, context, bindings, waited):
            waits.append(waited)
            return super().bind_arqs(context, bindings, waited)

    with pytest.raises(errors.HandleNotClean):
        waiter(Slow(NOT_CLEAN), Clock()).bind(CONTEXT, BINDINGS)
    assert waits[0] == 0
    assert waits[-1] == pytest.approx(20)
    assert waits == sorted(waits)


def test_a_bind_that_gets_no_answer_does_not_say_that_the_handle_is_being_cleaned():
    """A conductor may have bound the requests before it died."""
    conductor = Answers(NOT_CLEAN, NOT_CLEAN, messaging.MessagingTimeout('No answer'))
    with pytest.raises(messaging.MessagingTimeout):
        waiter(conductor, Clock()).bind(CONTEXT, BINDINGS)
    assert len(conductor.filters) == 3


def test_what_fails_for_another_reason_meanwhile_is_told_at_once():
    conductor = Answers(NOT_CLEAN, errors.NoFreeHandle(rp='r', host='h', uuid=uuid(1)))
    with pytest.raises(errors.NoFreeHandle):
        waiter(conductor, Clock()).bind(CONTEXT, BINDINGS)
    assert len(conductor.filters) == 2


# -- programming -----------------------------------------------------------------------------


def part(image=None, task=1, loaded=None, error=None):
    return deployable(
        1,
        program_image=image,
        is_programming=image is not None,
        program_task_uuid=uuid(task),
        program_error=error,
        bitstream_id=loaded,
    )


def program(waits):
    return waits.program(CONTEXT, uuid(1), uuid(9))


def test_the_wait_ends_when_the_image_is_loaded():
    conductor = Answers(part('a'), part('a'), part('a'), part(loaded='a'))
    seen, is_loaded = program(waiter(conductor, Clock()))
    assert (seen.bitstream_id, is_loaded) == ('a', True)
    assert conductor.filters == [uuid(9)] + [uuid(1)] * 3


def test_what_others_had_loaded_since_does_not_hide_the_result():
    conductor = Answers(part('a'), part('a'), part('b', task=2), False, True)
    seen, is_loaded = program(waiter(conductor, Clock()))
    assert (seen.program_image, is_loaded) == ('b', True)
    assert conductor.filters == [uuid(9)] + [uuid(1)] * 4


def test_what_others_load_meanwhile_does_not_look_like_the_result():
    seen, is_loaded = program(waiter(Answers(part('a'), part('b', task=2), False), Clock()))
    assert (seen.program_image, is_loaded) == ('b', False)


@pytest.mark.parametrize(
    ('seen', 'sentence'),
    [
        ([part(error='The card is on fire.')], 'on fire'),
        ([part(error='The card is on fire.', loaded='b')], 'on fire'),
        ([errors.DeployableNotFound(uuid=uuid(1))], 'was removed'),
        ([part('b', task=2), errors.ProgramFailed(uuid=uuid(1), why='A fire.')], 'A fire'),
        ([part('b', task=2), errors.IncompatibleRelease(why='Old.')], 'another image was loaded'),
    ],
)
def test_what_will_not_be_there_is_an_error(seen, sentence):
    with pytest.raises(errors.ProgramFailed, match=sentence):
        program(waiter(Answers(part('a'), *seen), Clock()))


def test_what_takes_longer_is_shown_as_it_is():
    time = Clock()
    seen, is_loaded = program(waiter(Answers(part('a')), time))
    assert (seen.program_image, is_loaded) == ('a', False)
    assert time.now == pytest.approx(20)


def test_the_time_in_which_the_load_is_begun_counts():
    clock = Clock()

    class Slow(Answers):
        def program_deployable(self, context, uuid, image_uuid):
            clock.now += 15
            return super().program_deployable(context, uuid, image_uuid)

    program(waiter(Slow(part('a')), clock))
    assert clock.now == pytest.approx(20)


def test_each_check_is_one_call():
    """Else an answer is late by two limits of a call when conductors are slow."""
    conductor, clock = Answers(part('a'), part('a'), part('b', task=2), False), Clock()
    program(waiter(conductor, clock))
    assert len(conductor.filters) == 1 + len(clock.pauses)


def test_binds_and_programming_wait_in_the_same_places():
    time = Clock()
    places = waiter(Answers(part('a')), time, at_a_time=0)
    seen, is_loaded = program(places)
    assert (seen.program_image, is_loaded) == ('a', False)
    places.wait_for_bind(CONTEXT, STARTED)
    assert time.pauses == []
