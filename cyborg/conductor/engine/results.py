# SPDX-License-Identifier: Apache-2.0
"""Results of tasks: applies them to requests and handles, and decides which tasks are retried."""

import datetime
from collections.abc import Collection, Sequence

from cyborg import objects
from cyborg.conductor.engine import arqs, changes, device_events, tasks
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import agents, attach_handles, attributes, clock, deployables, models
from cyborg.db.sqlalchemy import arqs as arqs_db
from cyborg.db.sqlalchemy import tasks as tasks_db
from cyborg.objects import TaskKind, TaskState, Withheld, arq_states
from cyborg.objects.arq_states import Event, State
from cyborg.objects.tasks import BLANK

Arq = models.ExtArq
Handle = models.AttachHandle
Task = models.Task

#: the fault of a card until the report that follows: a tool that hangs may still write to it
LOAD_FAILED = 'An image could not be loaded into it, and its host has not reported it since.'


class Results:
    """The results in one message of a host, with the requests and handles that they concern."""

    def __init__(
        self,
        unit: UnitOfWork,
        hostname: str,
        results: Sequence[objects.TaskResult],
        most_attempts: int,
    ) -> None:
        self._unit = unit
        self._hostname = hostname
        self._most = most_attempts
        self._results = {result.task_uuid: result for result in results}
        if any(result.kind == TaskKind.PROGRAM or _is_blanked(result) for result in results):
            # a concurrent report of the host waits: it updates the content of the same deployables
            agents.lock(unit.session, hostname)
        # lock order: requests, then handles, then tasks, then regions
        self._servers = arqs.by_server(unit, tasks_db.requests_of(unit.session, self._results))
        self._handles = attach_handles.by_uuid(
            unit.session, {result.handle_uuid for result in results if result.handle_uuid}
        )
        self._tasks = {
            task.uuid: task
            for task in tasks_db.get(unit.session, self._results)
            if task.hostname == hostname
        }

    def take(self) -> list[objects.Task]:
        """Apply all results. Returns the tasks that the host must perform next: retries, and
        releases of handles that no request needs any more."""
        again = self._prepared() + self._handed_back() + self._programmed()
        self._unit.session.flush()
        return tasks_db.describe(self._unit.session, again, tasks.pause)

    def _of(self, *kinds: TaskKind) -> list[tuple[Task | None, objects.TaskResult]]:
        return [
            (self._tasks.get(uuid), result)
            for uuid, result in self._results.items()
            if result.kind in kinds
        ]

    # -- prepare -----------------------------------------------------------------------------

    def _prepared(self) -> list[str]:
        again, done, unwanted = [], [], []
        for task, result in self._of(TaskKind.PREPARE):
            handle = self._handles.get(result.handle_uuid)
            arq = self._holder(task, handle)
            if task is None or arq is None:
                if result.error is None and handle is not None:
                    unwanted.append(handle)
            elif result.error is None:
                done.append(task)
            elif self._try_again(task, arq, result):
                again.append(task.uuid)
        tasks_db.remove(self._unit.session, [task.uuid for task in done])
        self._complete([task.arq_uuid for task in done])
        return again + self._undo(unwanted)

    def _holder(self, task: Task | None, handle: Handle | None) -> Arq | None:
        """Returns the request for which a handle was prepared, if it still needs the handle."""
        if task is None or handle is None or handle.generation != task.generation:
            return None
        return next(
            (
                row
                for rows in self._servers
                for row in rows
                if row.id == handle.arq_id and row.state in arq_states.HOLDING
            ),
            None,
        )

    def _try_again(self, task: Task, arq: Arq, result: objects.TaskResult) -> bool:
        """Retry a bind up to a limit, then fail all requests of the server. A preparation for a
        running server is retried without limit."""
        self._note_failure(task, result)
        if arq.state == State.BIND_STARTED and (
            task.attempts >= self._most or not result.can_retry
        ):
            self._fail([arq], result.error)
            return False
        return True

    def _note_failure(self, task: Task, result: objects.TaskResult) -> None:
        """Record a failed attempt, after which the task is retried or its bind fails."""
        due_at = clock.now() + datetime.timedelta(seconds=tasks.pause(task.attempts + 1))
        tasks_db.note_failure(task, result.error, due_at)
        if task.kind == TaskKind.PROGRAM:
            # the host's own says until the next attempt that it loads an image
            task.progress = (
                f'Attempt {task.attempts} failed; the next one begins at '
                f'{due_at:%Y-%m-%dT%H:%M:%SZ}.'
            )
        self._unit.note(changes.of_task(task, 'attempt failed', result.error))

    def _close(self, task: Task, state: TaskState, result: objects.TaskResult) -> None:
        """Close a task, which stays as a record."""
        tasks_db.close(task, state, result)
        self._unit.note(
            changes.of_task(task, state, result.error, seconds=round(result.seconds, 3))
        )

    def _fail(self, failed: Sequence[Arq], why: str) -> None:
        for rows in self._servers:
            if any(row in rows for row in failed):
                self._unit.session.flush()
                arqs.fail(self._unit, rows, why)

    def _complete(self, uuids: Collection[str | None]) -> None:
        for rows in self._servers:
            if any(row.uuid in uuids for row in rows):
                arqs.complete(
                    self._unit,
                    rows,
                    attach_handles.held_by_any(self._unit.session, [row.id for row in rows]),
                )

    def _undo(self, handles: Sequence[Handle]) -> list[str]:
        """Release handles that were prepared for requests which no longer exist."""
        free = [handle for handle in handles if handle.arq_id is None]
        if not free:
            return []
        tasks.release_unwanted(self._unit, free)
        return [
            task.uuid
            for task in tasks_db.of_handles(
                self._unit.session, [handle.uuid for handle in free], TaskKind.RELEASE
            )
        ]

    # -- release and clean -------------------------------------------------------------------

    def _handed_back(self) -> list[str]:
        again, done = [], []
        for task, result in self._of(TaskKind.RELEASE, TaskKind.CLEAN):
            handle = self._handles.get(result.handle_uuid)
            if task is None or handle is None or handle.generation != task.generation:
                continue
            self._note_blank(handle.deployable, result)
            if result.error is None:
                if task.attempts or tasks.changes_inventory(handle):
                    self._unit.hosts_to_wake.add(self._hostname)
                self._close(task, TaskState.DONE, result)
                self._note_hand_back(task)
                done.append(handle)
            elif task.kind == TaskKind.CLEAN and task.attempts + 1 >= self._most:
                self._quarantine(task, handle, result)
            else:
                self._note_failure(task, result)
                if task.attempts == 1:  # Placement must not offer it from now on
                    self._unit.hosts_to_wake.add(self._hostname)
                again.append(task.uuid)
        if done:
            self._unit.session.flush()
            again += self._give_back(done)
        return again

    def _note_blank(self, part: models.Deployable, result: objects.TaskResult) -> None:
        """Forget the functions of a region that the host has blanked, or tried to blank. This
        happens before the region is offered again: no request may be bound for a function that is
        no longer loaded."""
        if not _is_blanked(result):
            return
        region = tasks.region_of(part) or part
        region.bitstream_id = region.bitstream_facts = region.bitstream_content = None
        for each in _functions_of(region):
            attributes.forget_functions(each)
        self._unit.hosts_to_wake.add(self._hostname)

    def _note_hand_back(self, task: Task) -> None:
        """Record in the request's history how its handle was cleaned, also if the request was
        deleted."""
        if task.kind != TaskKind.CLEAN:
            return
        steps = (
            ', '.join(f'{step["name"]} ({step["error"] or "done"})' for step in task.steps or ())
            or 'nothing had to be done'
        )
        outcome = 'could not be cleaned' if task.state == TaskState.QUARANTINED else 'was cleaned'
        tasks.note_hand_back(
            self._unit,
            task,
            f'Handle {task.handle_uuid} {outcome} in {task.seconds:.1f} s: {steps}.',
        )

    def _quarantine(self, task: Task, handle: Handle, result: objects.TaskResult) -> None:
        """Withhold the handle until an operator decides."""
        task.attempts += 1
        self._close(task, TaskState.QUARANTINED, result)
        self._note_hand_back(task)
        handle.withheld = Withheld.QUARANTINED
        if not task.is_alone:  # others can use the rest of its region
            tasks.give_back_parts(self._unit, handle.deployable)
        self._unit.hosts_to_wake.add(self._hostname)

    def _give_back(self, handles: Sequence[Handle]) -> list[str]:
        """Offer handles without open tasks again; returns the next tasks of the others."""
        opened = {
            task.uuid: task.handle_uuid
            for task in tasks_db.of_handles(
                self._unit.session, [handle.uuid for handle in handles], *tasks_db.HAND_BACK
            )
        }
        tasks.give_back(
            self._unit,
            [
                handle
                for handle in handles
                if handle.uuid not in opened.values() and handle.withheld == Withheld.CLEANING
            ],
        )
        return [uuid for uuid in opened if uuid not in self._results]

    # -- program -----------------------------------------------------------------------------

    def _programmed(self) -> list[str]:
        again = []
        for task, result in self._of(TaskKind.PROGRAM):
            if task is None:
                continue
            part = deployables.locked(self._unit.session, task.deployable_uuid)
            if part is None:
                self._close(task, TaskState.CANCELLED, result)
                continue
            if result.error is None and not result.is_touched and part.may_have_lost_image:
                # the host found the image loaded before its card was removed
                again.append(task.uuid)
                continue
            self._note_content(part, result)
            waiting = self._waiting(part)
            if result.error is not None and self._loads_again(task, result, waiting):
                self._note_failure(task, result)
                arqs.note_failed_load(self._unit, waiting, result.error)
                again.append(task.uuid)
            else:
                self._close(task, TaskState.FAILED if result.error else TaskState.DONE, result)
                self._end_programming(part, result, waiting)
            # its driver reports the new functions
            self._unit.hosts_to_wake.add(self._hostname)
        return again

    @staticmethod
    def _note_content(part: models.Deployable, result: objects.TaskResult) -> None:
        """Record which image is in a deployable, if that is known."""
        if result.error is None:
            part.bitstream_id = result.image_uuid
            part.bitstream_facts = result.image_facts or None
        elif result.is_touched:
            part.bitstream_id = part.bitstream_facts = None
        if result.is_touched:
            part.may_have_lost_image = False
            part.boot_id = None  # the next report has the boot in which it was loaded
            part.bitstream_content = result.content or None
            for each in _functions_of(part):
                attributes.forget_functions(each, result.content.get('function', '').split())

    def _waiting(self, part: models.Deployable) -> list[Arq]:
        """Returns the requests that hold a part of a deployable and wait for its image."""
        held = attach_handles.held_in(
            self._unit.session, deployables.at_and_below(self._unit.session, part)
        )
        holders = [handle.arq_id for handle in held if handle.arq_id is not None]
        return [
            row
            for row in arqs_db.by_ids(self._unit.session, holders)
            if row.state in arq_states.UNFINISHED
        ]

    def _loads_again(self, task: Task, result: objects.TaskResult, waiting: Sequence[Arq]) -> bool:
        """Returns whether the programming is retried: always for a running server, and for a bind
        if the failure may be temporary."""
        if any(row.state == State.PROVISIONING for row in waiting):
            return True
        return bool(waiting) and result.can_retry and task.attempts + 1 < self._most

    def _end_programming(
        self, part: models.Deployable, result: objects.TaskResult, waiting: Sequence[Arq]
    ) -> None:
        session = self._unit.session
        if result.error is not None and result.is_touched:
            part.device.fault = LOAD_FAILED
            self._unit.note(device_events.of_failure(session, part.device))
        session.flush()
        ids = deployables.at_and_below(session, part)
        # a request that ended meanwhile leaves a clean-up, which may blank the region
        then = Withheld.CLEANING if tasks_db.is_clean_up_due(session, ids) else None
        attach_handles.give_back(session, ids, Withheld.PROGRAMMING, then)
        servers = arqs.by_server(self._unit, [row.uuid for row in waiting])
        if result.error is not None:
            for rows in servers:
                arqs.fail(self._unit, rows, result.error)
            return
        for row in waiting:
            self._unit.step(
                row,
                Event.PROGRAM,
                row.state,
                row.state,
                f'Image {result.image_uuid} was loaded in {result.seconds:.1f} s.',
            )
        # after a restart of its agent, a preparation may already wait for the image
        opened = {
            task.arq_uuid
            for task in tasks_db.unfinished(session, [row.uuid for row in waiting], ())
        }
        arqs.prepare_held(self._unit, [row for row in waiting if row.uuid not in opened])
        for rows in servers:
            arqs.complete(
                self._unit, rows, attach_handles.held_by_any(session, [row.id for row in rows])
            )


def _functions_of(part: models.Deployable) -> list[models.Deployable]:
    """Returns a deployable and, if it is a region, the functions below it. What is written into
    the flash of a card does not change its regions yet."""
    if part.parent_id is None:
        return [part]
    return [part, *(each for each in part.device.deployables if each.parent_id == part.id)]


def _is_blanked(result: objects.TaskResult) -> bool:
    """Returns whether the host has blanked a region, or tried to."""
    return any(step.name == BLANK for step in result.steps)
