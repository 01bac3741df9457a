# SPDX-License-Identifier: Apache-2.0
"""Performs the tasks of a host, and tells the conductor how they ended."""

import collections
import itertools
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any

import oslo_messaging as messaging
from oslo_log import log

from cyborg import context, errors, objects
from cyborg.agent.bitstreams import Bitstreams, Wanted
from cyborg.agent.cleaning import Cleaner
from cyborg.agent.drivers import Guard
from cyborg.agent.pool import Pool
from cyborg.conductor.rpcapi import ConductorAPI
from cyborg.objects import TaskKind

LOG = log.getLogger(__name__)

TRIES = 3  #: to tell results; after that the task comes back with a plan, and is repeated
MOST_FINISHED = 4096  #: tasks that are remembered after their end
#: the tasks of one handle, in the order in which they are performed
ORDER = {TaskKind.PREPARE: 0, TaskKind.RELEASE: 1, TaskKind.CLEAN: 2}
#: what is remembered of an image that was loaded: our name -> its names in Glance
IMAGE_FACTS = {
    'owner': ('owner',), 'visibility': ('visibility',), 'name': ('bs-name', 'name'),
    'function_id': ('function_uuid', 'accel:function_id'),
    'function_name': ('function_name', 'accel:function_name')}


class Worker:
    """Works on several cards at a time, on one card never twice at a time."""

    def __init__(self, hostname: str, guards: Sequence[Guard], conductor: ConductorAPI,
                 pool: Pool, bitstreams: Bitstreams, cleaner: Cleaner) -> None:
        self._hostname = hostname
        self._guards = {guard.name: guard for guard in guards}
        self._conductor = conductor
        self._pool = pool
        self._bitstreams = bitstreams
        self._cleaner = cleaner
        self._perform_kind = {
            TaskKind.PREPARE: self._prepare, TaskKind.RELEASE: self._release,
            TaskKind.CLEAN: self._clean, TaskKind.PROGRAM: self._program}
        self._lock = threading.Lock()
        self._queued: dict[str, objects.Task] = {}
        #: of these, the programmings that have not ended, whether told or not
        self._programming: set[str] = set()
        #: by handle, the last task that was asked for; those before it come too late
        self._latest: dict[str, tuple[int, int]] = {}
        #: by handle, the task that prepared it
        self._prepared: dict[str, objects.Task] = {}
        #: the last tasks that were done and told: a plan or message that is late may name them
        self._finished: collections.OrderedDict[str, None] = collections.OrderedDict()
        #: grows with all that was done to the host
        self.count = 0
        #: by handle or deployable, the count when a task of it last ended
        self._ended: dict[str, int] = {}
        #: the same by the name of the deployable
        self._changed: dict[str, int] = {}

    # -- what the inventory asks ---------------------------------------------------------------

    @property
    def prepared(self) -> dict[str, int]:
        """The handles that are prepared, with the generation for which they are."""
        with self._lock:
            return {handle: task.generation for handle, task in self._prepared.items()}

    @property
    def is_programming(self) -> bool:
        """Is an image being loaded, or about to be?"""
        return bool(self._programming)

    def in_flux(self, since: int) -> set[str]:
        """Handles that may have changed since ``count`` was that, or may change now."""
        with self._lock:
            return ({_subject(task) for task in self._queued.values()}
                    | {subject for subject, count in self._ended.items() if count > since})

    def changing(self, since: int) -> set[str]:
        """Deployables, by name, of which a handle may have changed since ``count`` was that, or
        may change now."""
        with self._lock:
            return ({task.deployable_name for task in self._queued.values()}
                    | {name for name, count in self._changed.items() if count > since})

    def lost(self, driver_names: Collection[str]) -> dict[str, int]:
        """Prepared handles that are no longer as they were left, with their generations, as far
        as these drivers can tell."""
        with self._lock:
            prepared = list(self._prepared.values())
        lost: dict[str, int] = {}
        for name in driver_names:
            tasks = [task for task in prepared if task.driver_name == name]
            try:
                gone = self._guards[name].lost(tasks) if tasks else []
            except errors.CyborgError as failure:
                LOG.warning('Could not look at what was prepared: %s', failure.faultstring)
                continue
            lost |= {task.handle.uuid: task.generation for task in gone}
        return lost

    # -- tasks -----------------------------------------------------------------------------------

    def perform(self, tasks: Sequence[objects.Task], asked_at: int | None = None) -> None:
        """Begin these, unless they are under way already.

        The tasks that prepare a server's handles on one card are one job, so that one message
        tells of them. So are the tasks that give a handle back. A task that failed before waits
        for its own delay only.

        ``asked_at``: our count when the conductor was asked for its plan. A programming that has
        ended since is not begun again: if it is not over, it is asked for again.
        """
        jobs: dict[tuple[str, str, float], list[objects.Task]] = {}
        for task in tasks:
            if self._enqueue(task, asked_at):
                whose = task.instance_uuid if task.kind == TaskKind.PREPARE else None
                jobs.setdefault((task.device_key, whose or _subject(task), task.delay),
                                []).append(task)
        for (card, _, delay), job in jobs.items():
            job.sort(key=_order)
            self._pool.submit((self._hostname, card), delay, self._run, job)

    def _enqueue(self, task: objects.Task, asked_at: int | None) -> bool:
        with self._lock:
            if task.uuid in self._queued or task.uuid in self._finished:
                return False
            if task.kind == TaskKind.PROGRAM:
                if asked_at is not None and self._ended.get(_subject(task), 0) > asked_at:
                    return False
                self._programming.add(task.uuid)
            else:
                latest = self._latest.get(task.handle.uuid, _order(task))
                self._latest[task.handle.uuid] = max(latest, _order(task))
            self._queued[task.uuid] = task
            return True

    def _run(self, tasks: list[objects.Task]) -> None:
        done: list[str] = []
        more: list[objects.Task] = []
        try:
            results = self._results(tasks)
            told = self._tell(results)
            if told is not None:
                more = told
                done = [result.task_uuid for result in results if result.error is None]
        finally:
            with self._lock:
                self._finished.update(dict.fromkeys(done))
                while len(self._finished) > MOST_FINISHED:
                    self._finished.popitem(last=False)
                self.count += 1
                for task in tasks:
                    self._ended[_subject(task)] = self.count
                    self._changed[task.deployable_name] = self.count
                    self._queued.pop(task.uuid, None)
        self.perform(more)

    def _results(self, tasks: Sequence[objects.Task]) -> list[objects.TaskResult]:
        """Perform the tasks of a job. What follows a task of the same handle that failed is left
        for later."""
        results: list[objects.TaskResult] = []
        for subject, group in itertools.groupby(tasks, _subject):
            for task in group:
                result = self._result(task)
                if result is not None:
                    results.append(result)
                if result is None or result.error is not None:
                    LOG.debug('What else is to be done to %s waits.', subject)
                    break
        return results

    def _result(self, task: objects.Task) -> objects.TaskResult | None:
        if self._is_late(task):
            LOG.info('Too late to %s %s of %s.', task.kind, task.handle.key,
                     task.deployable_name)
            return None
        facts: dict[str, Any] = {}
        started = time.monotonic()
        try:
            self._perform_kind[TaskKind(task.kind)](task, facts)
        except Exception as failure:
            if not isinstance(failure, errors.CyborgError):
                LOG.exception('Task %s failed unexpectedly.', task.uuid)
                failure = errors.CyborgError()
            facts |= {'error': failure.faultstring,
                      'can_retry': task.kind != TaskKind.PROGRAM or isinstance(
                          failure, errors.Unavailable)}
            LOG.warning('Could not %s %s: %s', task.kind, _name(task), failure.faultstring)
        finally:
            with self._lock:
                self._programming.discard(task.uuid)
        return objects.TaskResult(
            task_uuid=task.uuid, kind=task.kind, generation=task.generation,
            handle_uuid=task.handle.uuid if task.handle else None,
            seconds=time.monotonic() - started, **facts)

    def _is_late(self, task: objects.Task) -> bool:
        """Was the handle released, or taken by somebody else, since this was asked for? A
        clean-up is also left for later while a release of the handle is still to be done."""
        if task.handle is None:
            return False
        with self._lock:
            generation, step = self._latest[task.handle.uuid]
            if task.kind == TaskKind.CLEAN and any(
                    each.kind == TaskKind.RELEASE and _subject(each) == task.handle.uuid
                    and each.delay for each in self._queued.values()):
                return True
        # a handle that is being given back is released before it is cleaned
        return _order(task) < (generation, min(step, ORDER[TaskKind.RELEASE]))

    # -- kinds -----------------------------------------------------------------------------------

    def _guard(self, task: objects.Task) -> Guard:
        guard = self._guards.get(task.driver_name)
        if guard is None:
            raise errors.DriverFailed(
                name=task.driver_name, why=f'it is not enabled on {self._hostname}.')
        return guard

    def _prepare(self, task: objects.Task, facts: dict[str, Any]) -> None:
        self._guard(task).attach(task)
        with self._lock:
            self._prepared[task.handle.uuid] = task

    def _release(self, task: objects.Task, facts: dict[str, Any]) -> None:
        with self._lock:
            self._prepared.pop(task.handle.uuid, None)
        self._guard(task).detach(task)

    def _clean(self, task: objects.Task, facts: dict[str, Any]) -> None:
        guard = self._guard(task)
        facts['versions'] = self._cleaner.versions(guard, task)
        try:
            facts['steps'] = self._cleaner.clean(guard, task)
        except errors.CleaningFailed as failure:
            facts['steps'] = failure.steps
            raise

    def _program(self, task: objects.Task, facts: dict[str, Any]) -> None:
        guard = self._guard(task)
        facts['is_touched'] = False
        wanted = Wanted(task.image, task.vendor, task.boards, task.region_types,
                        task.project_id if task.arq_uuid else None, task.request_id)
        with self._bitstreams.fetched(wanted, lambda text: self._note(task, text),
                                      task.loaded_image) as image:
            facts |= {'image_uuid': image.uuid, 'image_facts': _image_facts(task, image)}
            if image.path is None:
                LOG.info('Image %s is in %s already.', image.uuid, task.deployable_name)
                return
            facts['is_touched'] = True
            self._note(task, f'Loading image {image.uuid}.')
            guard.program(task.device_key,
                          task.deployable_name.removeprefix(f'{self._hostname}_'),
                          image.path, image.properties)
            facts['content'] = self._content(guard, task)
        LOG.info('Loaded image %s into %s.', image.uuid, task.deployable_name)

    def _content(self, guard: Guard, task: objects.Task) -> dict[str, str]:
        """What the hardware tells of a deployable that was programmed; empty if it does not."""
        try:
            found = guard.discover()
        except errors.CyborgError as error:
            LOG.warning('Could not look at %s: %s', task.deployable_name, error.faultstring)
            return {}
        return next((part.given('content', {}) for device in found for part in device.deployables
                     if f'{self._hostname}_{part.name}' == task.deployable_name), {})

    # -- the conductor ---------------------------------------------------------------------------

    _pause = staticmethod(time.sleep)

    def _note(self, task: objects.Task, progress: str) -> None:
        """Tell how far a task has got, if anybody hears it."""
        try:
            self._conductor.note_progress(
                context.internal(), self._hostname, task.uuid, progress)
        except (messaging.MessagingException, errors.Unavailable) as error:
            LOG.debug('Could not tell progress: %s', error)

    def _tell(self, results: list[objects.TaskResult]) -> list[objects.Task] | None:
        """Returns what the host has to do next; None if no conductor has heard."""
        for attempt in range(TRIES if results else 0):
            try:
                return self._conductor.finish_tasks(
                    context.internal(), self._hostname, results)
            except (messaging.MessagingException, errors.Unavailable) as error:
                LOG.warning('Could not tell how tasks ended: %s', error)
                self._pause(attempt)
        return None


def _subject(task: objects.Task) -> str:
    """The handle or deployable that a task is about."""
    return task.handle.uuid if task.handle is not None else task.deployable_uuid


def _name(task: objects.Task) -> str:
    return f'{task.handle.key} of {task.deployable_name}' if task.handle else task.deployable_name


def _order(task: objects.Task) -> tuple[int, int]:
    """A request that takes a handle has it prepared, and released and cleaned afterwards; then
    comes the next request."""
    return task.generation, ORDER.get(TaskKind(task.kind), 0)


def _image_facts(task: objects.Task, image: Any) -> dict[str, str]:
    """What the conductor remembers of an image."""
    facts = {ours: next((image.properties[name] for name in names if name in image.properties), '')
             for ours, names in IMAGE_FACTS.items()}
    if 'bitstream_name' in task.image:  # an image may be asked for by either of its names
        facts['name'] = task.image['bitstream_name']
    return {name: value for name, value in facts.items() if value}
