# SPDX-License-Identifier: Apache-2.0
"""Performs the tasks of a host and sends the results to the conductor."""

import collections
import itertools
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any

import oslo_messaging as messaging
from oslo_log import log

from cyborg import backoff, context, errors, metrics, objects, tracing
from cyborg.agent.bitstreams import Bitstreams, WantedImage
from cyborg.agent.cleaning import Cleaner
from cyborg.agent.driver_guard import Guard
from cyborg.agent.node_devices import NodeDevices
from cyborg.agent.pool import Pool
from cyborg.conductor.rpcapi import ConductorAPI
from cyborg.objects import TaskKind

LOG = log.getLogger(__name__)

#: attempts to send results; after that the next plan has the task again, and it is repeated
TRIES = 3
LONGEST_PAUSE = 2.0  #: seconds between two of these attempts
#: why a task that loaded an image is repeated
REMOVED = 'The card was removed while an image was loaded into it.'
MOST_FINISHED = 4096  #: finished tasks that are remembered
#: the order in which the tasks of one handle are performed
ORDER = {TaskKind.PREPARE: 0, TaskKind.RELEASE: 1, TaskKind.CLEAN: 2}
#: kinds that change what a device holds; such a task is not repeated if only its result was lost
LASTING = frozenset({TaskKind.PROGRAM, TaskKind.CLEAN})
#: facts about a loaded image that the conductor stores: our name -> properties in Glance
IMAGE_FACTS = {
    'owner': ('owner',),
    'visibility': ('visibility',),
    'name': ('bs-name', 'name'),
    'function_id': ('function_uuid', 'accel:function_id'),
    'function_name': ('function_name', 'accel:function_name'),
}


class Worker:
    """Performs tasks on several cards in parallel, and on each card one at a time."""

    def __init__(
        self,
        hostname: str,
        guards: Sequence[Guard],
        conductor: ConductorAPI,
        pool: Pool,
        bitstreams: Bitstreams,
        cleaner: Cleaner,
        node_devices: NodeDevices | None = None,
    ) -> None:
        self._hostname = hostname
        self._guards = {guard.name: guard for guard in guards}
        self._conductor = conductor
        self._pool = pool
        self._bitstreams = bitstreams
        self._cleaner = cleaner
        self._node_devices = node_devices
        self._perform_kind = {
            TaskKind.PREPARE: self._prepare,
            TaskKind.RELEASE: self._release,
            TaskKind.CLEAN: self._clean,
            TaskKind.PROGRAM: self._program,
        }
        self._lock = threading.Lock()
        self._queued: dict[str, objects.Task] = {}
        #: queued tasks of kind PROGRAM that have not ended, by uuid -> key of the card
        self._programming: dict[str, str] = {}
        #: handle -> order of its latest task; earlier tasks are obsolete
        self._latest: dict[str, tuple[int, int]] = {}
        #: handle -> the task that prepared it
        self._prepared: dict[str, objects.Task] = {}
        #: tasks whose results were sent, in case a late plan or message repeats them
        self._finished: collections.OrderedDict[str, None] = collections.OrderedDict()
        #: results of LASTING tasks that could not be sent, with the keys of the cards
        self._unsent: collections.OrderedDict[str, tuple[str, objects.TaskResult]] = (
            collections.OrderedDict()
        )
        #: LASTING tasks, by uuid, that have begun and whose cards were not removed since
        self._undisturbed: set[str] = set()
        #: number of jobs that have ended
        self.count = 0
        #: handle or deployable -> ``count`` when its last task ended
        self._ended: dict[str, int] = {}
        #: name of a deployable -> ``count`` when its last task ended
        self._changed: dict[str, int] = {}
        #: key of a card -> ``count`` when the last task that loads an image into it ended
        self._programmed: dict[str, int] = {}

    # -- used by the inventory -----------------------------------------------------------------

    @property
    def prepared(self) -> dict[str, int]:
        """The prepared handles with their generations."""
        with self._lock:
            return {handle: task.generation for handle, task in self._prepared.items()}

    @property
    def cards_being_programmed(self) -> set[str]:
        """The keys of cards for which a task that loads an image is queued or running."""
        with self._lock:
            return set(self._programming.values())

    def cards_programmed(self, since: int) -> set[str]:
        """Return the keys of cards into which tasks may have loaded an image since ``count`` was
        ``since``."""
        with self._lock:
            return {*self._programming.values()} | {
                card for card, count in self._programmed.items() if count > since
            }

    def in_flux(self, since: int) -> set[str]:
        """Return the handles that tasks may have changed since ``count`` was ``since``."""
        with self._lock:
            return {_subject(task) for task in self._queued.values()} | {
                subject for subject, count in self._ended.items() if count > since
            }

    def changing(self, since: int) -> set[str]:
        """Return the names of deployables that tasks may have changed since ``count`` was
        ``since``."""
        with self._lock:
            return {task.deployable_name for task in self._queued.values()} | {
                name for name, count in self._changed.items() if count > since
            }

    def lost(self, driver_names: Collection[str]) -> dict[str, int]:
        """Return the prepared handles, with generations, of which these drivers report that they
        are no longer prepared."""
        with self._lock:
            prepared = list(self._prepared.values())
        lost: dict[str, int] = {}
        for name in driver_names:
            tasks = [task for task in prepared if task.driver_name == name]
            try:
                gone = self._guards[name].lost(tasks) if tasks else []
            except errors.CyborgError as failure:
                LOG.warning('Could not check the prepared handles: %s', failure.faultstring)
                continue
            lost |= {task.handle.uuid: task.generation for task in gone}
        return lost

    def note_removed(self, cards: Collection[str]) -> None:
        """Forget what tasks have loaded into these cards, by key, or erased from them. The cards
        were removed, so they were without power, even if they are back."""
        with self._lock:
            for uuid in [uuid for uuid, (card, _) in self._unsent.items() if card in cards]:
                del self._unsent[uuid]
            for task in self._queued.values():
                if task.device_key in cards:
                    self._undisturbed.discard(task.uuid)
                    task.loaded_image = None

    # -- tasks -----------------------------------------------------------------------------------

    def perform(self, tasks: Sequence[objects.Task], asked_at: int | None = None) -> None:
        """Queue tasks, except those that are queued already.

        The tasks that prepare the handles of a server on one card are one job, so that one
        message has all results. So are the tasks that release and clean a handle. A task that is
        retried waits for its own delay only.

        :param asked_at: ``count`` when the conductor was asked for the plan. What was programmed
            or cleaned since then is left alone; the next plan has the task if it is still open.
        """
        jobs: dict[tuple[str, str, float], list[objects.Task]] = {}
        for task in tasks:
            if self._enqueue(task, asked_at):
                whose = task.instance_uuid if task.kind == TaskKind.PREPARE else None
                jobs.setdefault((task.device_key, whose or _subject(task), task.delay), []).append(
                    task
                )
        for (card, _, delay), job in jobs.items():
            job.sort(key=_order)
            self._pool.submit((self._hostname, card), delay, tracing.carried(self._run), job)

    def _enqueue(self, task: objects.Task, asked_at: int | None) -> bool:
        with self._lock:
            if (queued := self._queued.get(task.uuid)) is not None:
                queued.loaded_image = task.loaded_image
                return False
            if task.uuid in self._finished:
                return False
            if (
                asked_at is not None
                and task.kind in LASTING
                and self._ended.get(_subject(task), 0) > asked_at
            ):
                return False
            if task.kind == TaskKind.PROGRAM:
                self._programming[task.uuid] = task.device_key
            elif task.handle is not None:
                latest = self._latest.get(task.handle.uuid, _order(task))
                self._latest[task.handle.uuid] = max(latest, _order(task))
            self._queued[task.uuid] = task
            return True

    def _run(self, tasks: list[objects.Task]) -> None:
        done: list[str] = []
        more: list[objects.Task] = []
        unsent: list[objects.TaskResult] = []
        cards = {task.uuid: task.device_key for task in tasks}
        try:
            results = self._results(tasks)
            told = self._send_results(results)
            succeeded = [result for result in results if result.error is None]
            if told is not None:
                more = told
                # the conductor may want a task again although it succeeded
                again = {task.uuid for task in more}
                done = [each.task_uuid for each in succeeded if each.task_uuid not in again]
            else:
                unsent = [result for result in succeeded if result.kind in LASTING]
        finally:
            with self._lock:
                self._finished.update(dict.fromkeys(done))
                for result in unsent:
                    if result.task_uuid in self._undisturbed:
                        self._unsent[result.task_uuid] = cards[result.task_uuid], result
                self._undisturbed -= cards.keys()
                for remembered in (self._finished, self._unsent):
                    while len(remembered) > MOST_FINISHED:
                        remembered.popitem(last=False)
                self.count += 1
                for task in tasks:
                    self._ended[_subject(task)] = self.count
                    self._changed[task.deployable_name] = self.count
                    if task.kind == TaskKind.PROGRAM:
                        self._programmed[task.device_key] = self.count
                    self._queued.pop(task.uuid, None)
                    self._programming.pop(task.uuid, None)  # not all tasks were performed
        self.perform(more)

    def _results(self, tasks: Sequence[objects.Task]) -> list[objects.TaskResult]:
        """Perform the tasks of a job. After a failure the other tasks of the same handle are
        skipped; the conductor sends them again."""
        results: list[objects.TaskResult] = []
        for subject, group in itertools.groupby(tasks, _subject):
            for task in group:
                result = self._result(task)
                if result is not None:
                    results.append(result)
                if result is None or result.error is not None:
                    LOG.debug('The remaining tasks of %s are skipped.', subject)
                    break
        return results

    def _result(self, task: objects.Task) -> objects.TaskResult | None:
        if task.kind not in self._perform_kind:
            return self._refuse(task)
        if self._is_late(task):
            LOG.info(
                'A newer task replaces %s of %s of %s.',
                task.kind,
                task.handle.key,
                task.deployable_name,
            )
            return None
        if (unsent := self._take_unsent(task)) is not None:
            return unsent
        facts: dict[str, Any] = {}
        started = time.monotonic()
        try:
            with tracing.span('task', f'{task.kind} {task.driver_name}'):
                self._perform_kind[TaskKind(task.kind)](task, facts)
        except Exception as failure:
            if not isinstance(failure, errors.CyborgError):
                LOG.exception('Task %s failed unexpectedly.', task.uuid)
                failure = errors.CyborgError()
            facts |= {
                'error': failure.faultstring,
                'can_retry': task.kind != TaskKind.PROGRAM
                or isinstance(failure, errors.Unavailable),
            }
            LOG.warning('Could not %s %s: %s', task.kind, _name(task), failure.faultstring)
        finally:
            with self._lock:
                self._programming.pop(task.uuid, None)
        seconds = time.monotonic() - started
        metrics.AGENT_TASKS.labels(
            task.kind,
            # a driver that is not enabled here may have any name
            task.driver_name if task.driver_name in self._guards else 'other',
            metrics.FAILED if 'error' in facts else metrics.OK,
        ).observe(seconds)
        return objects.TaskResult(
            task_uuid=task.uuid,
            kind=task.kind,
            generation=task.generation,
            handle_uuid=task.handle.uuid if task.handle else None,
            seconds=seconds,
            **facts,
        )

    def _take_unsent(self, task: objects.Task) -> objects.TaskResult | None:
        """Return the kept result of a task, if there is one. Otherwise the task begins now."""
        with self._lock:
            self._undisturbed.add(task.uuid)
            _, result = self._unsent.pop(task.uuid, (None, None))
            return result

    def _refuse(self, task: objects.Task) -> objects.TaskResult:
        """Return the result of a task of a later release."""
        error = errors.UnknownTask(kind=task.kind, host=self._hostname)
        LOG.error('Task %s: %s', task.uuid, error.faultstring)
        return objects.TaskResult.of(  # unlike the constructor, it does not validate the kind
            {
                'task_uuid': task.uuid,
                'kind': task.kind,
                'generation': task.generation,
                'handle_uuid': task.handle.uuid if task.handle else None,
                'error': error.faultstring,
                'can_retry': False,
                'is_touched': False,
            }
        )

    def _is_late(self, task: objects.Task) -> bool:
        """Return whether a newer task of the handle makes this one obsolete.

        A handle is also not cleaned as long as its release is waiting for a retry.
        """
        if task.handle is None:
            return False
        with self._lock:
            generation, step = self._latest[task.handle.uuid]
            if task.kind == TaskKind.CLEAN and any(
                each.kind == TaskKind.RELEASE and _subject(each) == task.handle.uuid and each.delay
                for each in self._queued.values()
            ):
                return True
        # CLEAN does not make RELEASE obsolete: it follows it
        return _order(task) < (generation, min(step, ORDER[TaskKind.RELEASE]))

    # -- kinds -----------------------------------------------------------------------------------

    def _guard(self, task: objects.Task) -> Guard:
        guard = self._guards.get(task.driver_name)
        if guard is None:
            raise errors.DriverFailed(
                name=task.driver_name, why=f'it is not enabled on {self._hostname}.'
            )
        return guard

    def _prepare(self, task: objects.Task, facts: dict[str, Any]) -> None:
        self._guard(task).attach(task)
        if self._node_devices is not None:
            self._node_devices.wait_for(task.handle)
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
        self._require_wanted(task)
        wanted = WantedImage(
            task.image,
            task.vendor,
            task.boards,
            task.region_types,
            task.project_id if task.arq_uuid else None,
            task.request_id,
        )
        with self._bitstreams.fetched(
            wanted, lambda text: self._note(task, text), task.loaded_image
        ) as image:
            facts |= {'image_uuid': image.uuid, 'image_facts': _image_facts(task, image)}
            if image.path is None:
                LOG.info('Image %s is in %s already.', image.uuid, task.deployable_name)
                return
            self._require_wanted(task)
            facts['is_touched'] = True
            with self._lock:  # an earlier removal does not matter to what is loaded now
                self._undisturbed.add(task.uuid)
            self._note(task, f'Loading image {image.uuid}.')
            try:
                guard.program(
                    task.device_key,
                    task.deployable_name.removeprefix(f'{self._hostname}_'),
                    image.path,
                    image.properties,
                )
            except errors.NotLoaded:
                facts['is_touched'] = False
                raise
            facts['content'] = self._content(guard, task)
        LOG.info('Loaded image %s into %s.', image.uuid, task.deployable_name)

    def _content(self, guard: Guard, task: objects.Task) -> dict[str, str]:
        """Return the content that the hardware reports after programming, if it reports any."""
        try:
            found = guard.discover()
        except errors.CyborgError as error:
            LOG.warning('Could not read %s: %s', task.deployable_name, error.faultstring)
            return {}
        return next(
            (
                part.given('content', {})
                for device in found
                for part in device.deployables
                if f'{self._hostname}_{part.name}' == task.deployable_name
            ),
            {},
        )

    # -- the conductor ---------------------------------------------------------------------------

    _pause = staticmethod(time.sleep)

    def _note(self, task: objects.Task, progress: str) -> None:
        """Send the progress of a task. A message that cannot be sent is dropped."""
        try:
            self._conductor.note_progress(context.internal(), self._hostname, task.uuid, progress)
        except (messaging.MessagingException, errors.Unavailable) as error:
            LOG.debug('Could not send progress: %s', error)

    def _require_wanted(self, task: objects.Task) -> None:
        """Raise TaskNotWanted if the conductor answers that nobody waits for the task any more.
        Without an answer the task is performed."""
        try:
            is_wanted = self._conductor.is_task_wanted(
                context.internal(), self._hostname, task.uuid
            )
        except (messaging.MessagingException, errors.Unavailable) as error:
            LOG.debug('Could not ask whether task %s is wanted: %s', task.uuid, error)
            return
        if not is_wanted:
            raise errors.TaskNotWanted()

    def _send_results(self, results: list[objects.TaskResult]) -> list[objects.Task] | None:
        """Send results. Returns the next tasks of the host, or None if no conductor answered."""
        for failures in range(TRIES if results else 0):
            self._pause(backoff.pause(failures, LONGEST_PAUSE))
            self._fail_disturbed(results)
            try:
                return self._conductor.finish_tasks(context.internal(), self._hostname, results)
            except (messaging.MessagingException, errors.Unavailable) as error:
                LOG.warning('Could not send the results of tasks: %s', error)
        return None

    def _fail_disturbed(self, results: Sequence[objects.TaskResult]) -> None:
        """Turn into errors the results of images that were loaded, or found to be there, before
        their card was removed."""
        with self._lock:
            for result in results:
                if (
                    result.kind == TaskKind.PROGRAM
                    and result.error is None
                    and result.task_uuid not in self._undisturbed
                ):
                    LOG.warning('Task %s: %s', result.task_uuid, REMOVED)
                    result.error, result.can_retry, result.is_touched = REMOVED, True, True
                    result.content = {}


def _subject(task: objects.Task) -> str:
    """Return the UUID of the handle or deployable of a task."""
    uuid: str = task.handle.uuid if task.handle is not None else task.deployable_uuid
    return uuid


def _name(task: objects.Task) -> str:
    return f'{task.handle.key} of {task.deployable_name}' if task.handle else task.deployable_name


def _order(task: objects.Task) -> tuple[int, int]:
    """Return the sort key of a task: by the generation of its handle, then by ORDER."""
    return task.generation, ORDER.get(task.kind, 0)


def _image_facts(task: objects.Task, image: Any) -> dict[str, str]:
    """Return the facts about an image that the conductor stores."""
    facts = {
        ours: next((image.properties[name] for name in names if name in image.properties), '')
        for ours, names in IMAGE_FACTS.items()
    }
    if 'bitstream_name' in task.image:  # the request may have used either name
        facts['name'] = task.image['bitstream_name']
    return {name: value for name, value in facts.items() if value}
