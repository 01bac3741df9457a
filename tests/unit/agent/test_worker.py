# SPDX-License-Identifier: Apache-2.0
"""Which tasks become one job, and the state of the handles that a worker changes."""

import contextlib
import uuid

import oslo_messaging as messaging
import pytest

from cyborg import errors, objects
from cyborg.agent.bitstreams import Fetched
from cyborg.agent.worker import Worker

SERVER, OTHER = str(uuid.uuid4()), str(uuid.uuid4())


class Jobs:
    """Keeps jobs until they are run."""

    def __init__(self):
        self.waiting = []

    def submit(self, card, delay, job, *arguments):
        self.waiting.append((card[1], delay, job, arguments))

    def shown(self):
        """(card, delay, handles) of each."""
        return [
            (card, delay, [work.handle.key for work in works])
            for card, delay, _, (works,) in self.waiting
        ]

    def run(self):
        while self.waiting:
            _, _, job, arguments = self.waiting.pop(0)
            job(*arguments)


class Driver:
    name = 'driver'

    def __init__(self):
        self.gone = set()

    def attach(self, work):
        pass

    def detach(self, work):
        pass

    def lost(self, works):
        return [work for work in works if work.handle.key in self.gone]


class Conductor:
    def finish_tasks(self, context, hostname, results):
        return []


def work(key, kind='release', card='card', delay=0.0, turn=1, server=None):
    handle = objects.AttachHandle(
        uuid=str(uuid.uuid5(uuid.NAMESPACE_DNS, key)),
        key=key,
        type='MDEV',
        info={},
        is_host_prepared=True,
    )
    return objects.Task(
        uuid=str(uuid.uuid4()),
        deployable_uuid=str(uuid.uuid4()),
        kind=kind,
        handle=handle,
        generation=turn,
        driver_name='driver',
        device_key=card,
        deployable_name='part',
        delay=delay,
        instance_uuid=server,
        arq_uuid=server,
    )


@pytest.fixture
def jobs():
    return Jobs()


@pytest.fixture
def driver():
    return Driver()


@pytest.fixture
def worker(jobs, driver):
    return Worker('compute1', [driver], Conductor(), jobs, None, None)


def test_a_clean_up_waits_for_its_own_delay_only(worker, jobs):
    worker.perform([work('stuck', delay=256.0), work('fresh'), work('another')])
    assert jobs.shown() == [
        ('card', 256.0, ['stuck']),
        ('card', 0.0, ['fresh']),
        ('card', 0.0, ['another']),
    ]


def test_what_a_server_gets_on_a_card_is_one_job_unless_a_part_of_it_must_wait(worker, jobs):
    worker.perform(
        [
            work('a', 'prepare', server=SERVER),
            work('b', 'prepare', server=OTHER),
            work('c', 'prepare', server=SERVER),
            work('d', 'prepare', 'far', server=SERVER),
            work('e', 'prepare', delay=8.0, server=SERVER),
        ]
    )
    assert jobs.shown() == [
        ('card', 0.0, ['a', 'c']),
        ('card', 0.0, ['b']),
        ('far', 0.0, ['d']),
        ('card', 8.0, ['e']),
    ]


def test_handles_are_in_flux_from_the_order_until_a_look_that_began_after_its_end(worker, jobs):
    one = work('one')
    before = worker.count
    assert worker.in_flux(before) == set()
    worker.perform([one])
    assert worker.in_flux(before) == {one.handle.uuid}
    jobs.run()
    assert worker.in_flux(before) == {one.handle.uuid}
    assert worker.in_flux(worker.count) == set()


def test_what_is_no_longer_as_it_was_left_is_lost_until_it_is_cleaned(worker, jobs, driver):
    one, two = (work(key, 'prepare', turn=3, server=SERVER) for key in ('one', 'two'))
    worker.perform([one, two])
    jobs.run()
    assert worker.lost(['driver']) == {}
    driver.gone = {'two'}
    assert worker.lost(['driver']) == {two.handle.uuid: 3}
    assert worker.lost([]) == {}
    worker.perform([work('two', turn=3)])
    jobs.run()
    assert worker.lost(['driver']) == {}


def test_a_task_that_was_done_and_told_is_not_done_again(worker, jobs):
    """A plan that was asked for before may still name it."""
    one = work('one')
    worker.perform([one])
    jobs.run()
    worker.perform([one])
    assert jobs.waiting == []


class TestLostResults:
    """The conductor has a result although no answer came, and may have given the handle away."""

    @pytest.fixture
    def cleaned(self):
        return []

    @pytest.fixture
    def conductor(self):
        return SilentConductor()

    @pytest.fixture
    def worker(self, jobs, driver, cleaned, conductor):
        worker = Worker('compute1', [driver], conductor, jobs, None, Cleaner(cleaned))
        worker._pause = lambda attempt: None
        return worker

    def test_results_are_sent_again_after_growing_pauses(self, worker, jobs):
        pauses = []
        worker._pause = pauses.append
        worker.perform([work('one', 'clean')], worker.count)
        jobs.run()
        assert pauses == [0, 1, 2]

    def test_a_clean_up_is_told_again_and_not_repeated(self, worker, jobs, cleaned, conductor):
        task = work('one', 'clean')
        worker.perform([task], worker.count)
        jobs.run()
        conductor.is_silent = False
        worker.perform([task], worker.count)
        jobs.run()
        assert cleaned == [task]
        assert [result.task_uuid for result in conductor.results] == [task.uuid]

    def test_a_plan_from_before_it_repeats_nothing(self, worker, jobs, cleaned):
        task, asked_at = work('one', 'clean'), worker.count
        worker.perform([task], asked_at)
        jobs.run()
        worker.perform([task], asked_at)
        assert jobs.waiting == []

    def test_a_clean_up_that_failed_is_repeated(self, worker, jobs, cleaned):
        task = work('one', 'clean')
        worker._cleaner.error = errors.CleaningFailed(step='reset', why='It burns.')
        for _ in range(2):
            worker.perform([task], worker.count)
            jobs.run()
        assert cleaned == [task, task]

    def test_a_card_is_not_being_programmed_after_the_result_was_told_again(
        self, jobs, driver, conductor
    ):
        worker = Worker('compute1', [driver], conductor, jobs, LoadedImage(), None)
        worker._pause = lambda attempt: None
        task = loading('card')
        for conductor.is_silent in (True, False):
            worker.perform([task], worker.count)
            assert worker.cards_being_programmed == {'card'}
            jobs.run()
            assert worker.cards_being_programmed == set()
        [result] = conductor.results
        assert (result.task_uuid, result.error) == (task.uuid, None)


def loading(card):
    task = work('any', 'program', card)
    task.handle, task.image = None, {'bitstream_id': OTHER}
    return task


class LoadedImage:
    """Images of which a device has the wanted one already."""

    @contextlib.contextmanager
    def fetched(self, wanted, progress, loaded):
        yield Fetched(OTHER, None, {})


def test_only_the_cards_of_programmings_are_being_programmed(worker, jobs):
    worker.perform([loading('one'), loading('two'), work('part', card='three')])
    assert worker.cards_being_programmed == {'one', 'two'}
    jobs.run()
    assert worker.cards_being_programmed == set()


def test_a_card_is_programmed_until_a_look_that_began_after_the_end_of_the_task(worker, jobs):
    before = worker.count
    assert worker.cards_programmed(before) == set()
    worker.perform([loading('one'), work('part', card='two')])
    assert worker.cards_programmed(before) == {'one'}
    jobs.run()
    assert worker.cards_programmed(before) == {'one'}
    assert worker.cards_programmed(worker.count) == set()


class SilentConductor:
    def __init__(self):
        self.is_silent = True
        self.results = []

    def is_task_wanted(self, context, hostname, task_uuid):
        return True

    def finish_tasks(self, context, hostname, results):
        if self.is_silent:
            raise messaging.MessagingTimeout
        self.results += results
        return []


class Cleaner:
    error = None

    def __init__(self, cleaned):
        self._cleaned = cleaned

    def versions(self, guard, task):
        return {}

    def clean(self, guard, task):
        self._cleaned.append(task)
        if self.error:
            raise self.error
        return []


def test_a_task_of_a_later_release_fails_and_the_others_are_performed(jobs, driver):
    class Listener(Conductor):
        told = []

        def finish_tasks(self, context, hostname, results):
            self.told += [(result.kind, result.error) for result in results]
            return []

    worker = Worker('compute1', [driver], Listener(), jobs, None, None)
    unknown = work('one')
    unknown._obj_kind = 'teleport'  # as it comes by RPC: without validation
    whole = work('whole')
    whole._obj_kind, whole._obj_handle = 'teleport', None
    worker.perform([unknown, whole, work('other')])
    jobs.run()
    assert [kind for kind, _ in Listener.told] == ['teleport', 'teleport', 'release']
    assert 'does not know the task teleport: upgrade it' in Listener.told[0][1]
    assert Listener.told[2] == ('release', None)


class AskedConductor(Conductor):
    """Gives these answers when it is asked whether a task is wanted; errors are raised."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.results = []

    def is_task_wanted(self, context, hostname, task_uuid):
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def note_progress(self, context, hostname, task_uuid, progress):
        pass

    def finish_tasks(self, context, hostname, results):
        self.results += results
        return []


class Region(Driver):
    on_loaded = staticmethod(lambda: None)

    def __init__(self):
        self.loaded = []

    def program(self, card, deployable, path, properties):
        self.loaded.append(deployable)
        self.on_loaded()

    def discover(self):
        return []


class Images:
    def __init__(self, path):
        self._path = path
        self.fetched_images = 0

    @contextlib.contextmanager
    def fetched(self, wanted, progress, loaded):
        self.fetched_images += 1
        yield Fetched(str(uuid.uuid4()), self._path, {})


def program(conductor, jobs, path):
    """Perform a task that loads an image; returns the result, what was fetched and loaded."""
    region, images = Region(), Images(path)
    task = work('one', 'program', server=SERVER)
    task.handle, task.image = None, {'function_name': 'gzip'}
    Worker('compute1', [region], conductor, jobs, images, None).perform([task])
    jobs.run()
    [result] = conductor.results
    return result, images.fetched_images, region.loaded


@pytest.mark.parametrize(
    'answer',
    [True, errors.IncompatibleRelease(why='it is older.'), messaging.MessagingTimeout()],
    ids=['wanted', 'older release', 'no answer'],
)
def test_an_image_is_loaded_unless_the_conductor_says_that_nobody_wants_it(jobs, tmp_path, answer):
    result, fetched, loaded = program(AskedConductor(answer, answer), jobs, tmp_path)
    assert (result.error, fetched, loaded) == (None, 1, ['part'])


@pytest.mark.parametrize(
    ('answers', 'times'), [((False,), 0), ((True, False), 1)], ids=['at first', 'after fetching']
)
def test_an_image_that_nobody_wants_ends_without_a_change(jobs, tmp_path, answers, times):
    result, fetched, loaded = program(AskedConductor(*answers), jobs, tmp_path)
    assert 'nothing was loaded' in result.error
    assert (result.is_touched, result.can_retry) == (False, False)
    assert (fetched, loaded) == (times, [])


class TestRemovedCards:
    """A card that was removed has lost what tasks loaded into it, also if it is back."""

    @pytest.fixture
    def conductor(self):
        return AskedConductor(*[True] * 8)

    @pytest.fixture
    def region(self):
        return Region()

    @pytest.fixture
    def images(self, tmp_path):
        return FoundImages(tmp_path)

    @pytest.fixture
    def worker(self, jobs, region, images, conductor):
        worker = Worker('compute1', [region], conductor, jobs, images, Cleaner([]))
        worker._pause = lambda attempt: None
        return worker

    @pytest.mark.parametrize(('card', 'times'), [('card', 2), ('other', 1)])
    def test_a_kept_result_of_a_removed_card_is_dropped(
        self, worker, jobs, region, conductor, card, times, monkeypatch
    ):
        task = loading('card')
        with monkeypatch.context() as patch:
            patch.setattr(conductor, 'finish_tasks', silence)
            worker.perform([task])
            jobs.run()
        worker.note_removed({card})
        worker.perform([task])
        jobs.run()
        assert len(region.loaded) == times
        assert [result.error for result in conductor.results] == [None]

    def test_a_kept_clean_up_of_a_removed_card_is_repeated(
        self, worker, jobs, conductor, monkeypatch
    ):
        task = work('one', 'clean')
        with monkeypatch.context() as patch:
            patch.setattr(conductor, 'finish_tasks', silence)
            worker.perform([task])
            jobs.run()
        worker.note_removed({'card'})
        worker.perform([task])
        jobs.run()
        assert worker._cleaner._cleaned == [task, task]

    def test_a_queued_task_does_not_rely_on_an_image_of_a_removed_card(self, worker, jobs, region):
        tasks = [loading(card) for card in ('card', 'other')]
        for task in tasks:
            task.loaded_image = OTHER
        worker.perform(tasks)
        worker.note_removed({'card'})
        jobs.run()
        assert region.loaded == ['part']

    @pytest.mark.parametrize('loaded', [None, OTHER], ids=['loaded', 'there already'])
    def test_an_image_of_a_card_that_was_removed_meanwhile_is_not_reported_as_loaded(
        self, worker, jobs, images, region, conductor, loaded
    ):
        images.on_found = region.on_loaded = lambda: worker.note_removed({'card'})
        task = loading('card')
        task.loaded_image = loaded
        worker.perform([task])
        jobs.run()
        [result] = conductor.results
        assert 'removed' in result.error
        assert (result.can_retry, result.is_touched) == (True, True)

    def test_a_removal_before_the_driver_is_called_does_not_matter(
        self, worker, jobs, images, region, conductor
    ):
        images.on_found = lambda: worker.note_removed({'card'})
        worker.perform([loading('card')])
        jobs.run()
        assert (len(region.loaded), conductor.results[0].error) == (1, None)

    def test_a_removal_between_two_attempts_to_send_a_result_makes_it_an_error(
        self, worker, jobs, conductor, monkeypatch
    ):
        finish = conductor.finish_tasks

        def finish_tasks(*arguments):
            worker.note_removed({'card'})
            monkeypatch.setattr(conductor, 'finish_tasks', finish)
            raise messaging.MessagingTimeout

        monkeypatch.setattr(conductor, 'finish_tasks', finish_tasks)
        worker.perform([loading('card')])
        jobs.run()
        assert ['removed' in result.error for result in conductor.results] == [True]

    def test_a_result_is_not_kept_if_the_card_is_removed_while_it_is_sent(
        self, worker, jobs, region, conductor, monkeypatch
    ):
        def finish_tasks(*arguments):
            worker.note_removed({'card'})
            raise messaging.MessagingTimeout

        task = work('one', 'clean')
        with monkeypatch.context() as patch:
            patch.setattr(conductor, 'finish_tasks', finish_tasks)
            worker.perform([task])
            jobs.run()
        worker.perform([task])
        jobs.run()
        assert worker._cleaner._cleaned == [task, task]


def silence(*arguments):
    raise messaging.MessagingTimeout


class FoundImages:
    """Images of which the loaded one is found, and not fetched."""

    on_found = staticmethod(lambda: None)

    def __init__(self, path):
        self._path = path

    @contextlib.contextmanager
    def fetched(self, wanted, progress, loaded):
        self.on_found()
        yield Fetched(OTHER, None if loaded == OTHER else self._path, {})


def test_a_task_that_the_conductor_returns_with_its_result_is_repeated(jobs, tmp_path):
    task, region = loading('card'), Region()

    class Repeating(AskedConductor):
        def finish_tasks(self, context, hostname, results):
            super().finish_tasks(context, hostname, results)
            return [task] if len(self.results) == 1 else []

    conductor = Repeating(*[True] * 4)
    Worker('compute1', [region], conductor, jobs, FoundImages(tmp_path), None).perform([task])
    jobs.run()
    assert len(region.loaded) == len(conductor.results) == 2


def test_a_newer_copy_of_a_queued_task_says_which_image_is_loaded(jobs, tmp_path):
    region, conductor = Region(), AskedConductor(True, True)
    worker = Worker('compute1', [region], conductor, jobs, FoundImages(tmp_path), None)
    task = loading('card')
    task.loaded_image = OTHER
    worker.perform([task])
    newer = task.obj_clone()
    newer.loaded_image = None
    worker.perform([newer])
    jobs.run()
    assert region.loaded == ['part']
