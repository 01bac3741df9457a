# SPDX-License-Identifier: Apache-2.0
"""What hosts tell of their tasks: what follows from each result, and what is tried again."""

from collections.abc import Collection, Sequence

from cyborg import objects
from cyborg.conductor.engine import arqs, tasks
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import arqs as arqs_db
from cyborg.db.sqlalchemy import attach_handles, deployables, models
from cyborg.db.sqlalchemy import tasks as tasks_db
from cyborg.objects import TaskKind, TaskState, Withheld, arq_states
from cyborg.objects.arq_states import Event, State

Arq, Handle, Task = models.ExtArq, models.AttachHandle, models.Task


class Results:
    """The results of one message of a host, and the requests and handles that they concern."""

    def __init__(self, unit: UnitOfWork, hostname: str, results: Sequence[objects.TaskResult],
                 most_attempts: int) -> None:
        self._unit = unit
        self._hostname = hostname
        self._most = most_attempts
        self._results = {result.task_uuid: result for result in results}
        #: requests first, then handles, then tasks: everybody locks in this order
        self._servers = arqs.by_server(unit, tasks_db.requests_of(unit.session, self._results))
        self._handles = attach_handles.by_uuid(unit.session, {
            result.handle_uuid for result in results if result.handle_uuid})
        self._tasks = {task.uuid: task for task in tasks_db.get(unit.session, self._results)
                       if task.hostname == hostname}

    def take(self) -> list[objects.Task]:
        """Write down all results; returns what the host has to do next: what it should try again,
        and what it must undo because nobody wants it any more."""
        again = self._prepared() + self._handed_back() + self._programmed()
        self._unit.session.flush()
        return tasks_db.describe(self._unit.session, again)

    def _of(self, *kinds: TaskKind) -> list[tuple[Task | None, objects.TaskResult]]:
        return [(self._tasks.get(uuid), result) for uuid, result in self._results.items()
                if result.kind in kinds]

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
        """The request for which a handle was prepared, if it still wants it."""
        if task is None or handle is None or handle.generation != task.generation:
            return None
        return next((row for rows in self._servers for row in rows
                     if row.id == handle.arq_id and row.state in arq_states.HOLDING), None)

    def _try_again(self, task: Task, arq: Arq, result: objects.TaskResult) -> bool:
        """A bind is tried so often, then all of the server's requests fail. What is prepared
        again for a server that runs is tried for ever."""
        tasks_db.note_failure(task, result.error)
        if arq.state == State.BIND_STARTED and (
                task.attempts >= self._most or not result.can_retry):
            self._fail([arq], result.error)
            return False
        return True

    def _fail(self, failed: Sequence[Arq], why: str) -> None:
        for rows in self._servers:
            if any(row in rows for row in failed):
                self._unit.session.flush()
                arqs.fail(self._unit, rows, why)

    def _complete(self, uuids: Collection[str | None]) -> None:
        for rows in self._servers:
            if any(row.uuid in uuids for row in rows):
                arqs.complete(self._unit, rows, attach_handles.held_by_any(
                    self._unit.session, [row.id for row in rows]))

    def _undo(self, handles: Sequence[Handle]) -> list[str]:
        """Clean-ups of handles that were prepared for requests which are gone meanwhile."""
        free = [handle for handle in handles if handle.arq_id is None]
        if not free:
            return []
        tasks.release_unwanted(self._unit, free)
        return [task.uuid for task in tasks_db.of_handles(
            self._unit.session, [handle.uuid for handle in free], TaskKind.RELEASE)]

    # -- release and clean -------------------------------------------------------------------

    def _handed_back(self) -> list[str]:
        again, done = [], []
        for task, result in self._of(TaskKind.RELEASE, TaskKind.CLEAN):
            handle = self._handles.get(result.handle_uuid)
            if task is None or handle is None or handle.generation != task.generation:
                continue
            if result.error is None:
                if task.attempts or handle.is_missing:  # this is news to Placement
                    self._unit.hosts_to_wake.add(self._hostname)
                tasks_db.close(task, TaskState.DONE, result)
                self._note_hand_back(task)
                done.append(handle)
            elif task.kind == TaskKind.CLEAN and task.attempts + 1 >= self._most:
                self._quarantine(task, handle, result)
            else:
                tasks_db.note_failure(task, result.error)
                if task.attempts == 1:  # from now on Placement should not offer it
                    self._unit.hosts_to_wake.add(self._hostname)
                again.append(task.uuid)
        if done:
            self._unit.session.flush()
            again += self._give_back(done)
        return again

    def _note_hand_back(self, task: Task) -> None:
        """Tell in the request's history how its handle was cleaned, also if it is gone."""
        if task.kind != TaskKind.CLEAN or task.arq_uuid is None:
            return
        [row] = arqs_db.named(self._unit.session, [task.arq_uuid]) or [Arq(
            uuid=task.arq_uuid, project_id=task.project_id, hostname=task.hostname,
            instance_uuid=task.instance_uuid, state=State.DELETING)]
        steps = ', '.join(f'{step["name"]} ({step["error"] or "done"})'
                          for step in task.steps or ()) or 'nothing had to be done'
        outcome = 'could not be cleaned' if task.state == TaskState.QUARANTINED else 'was cleaned'
        self._unit.step(row, Event.HANDED_BACK, row.state, row.state,
                        f'Handle {task.handle_uuid} {outcome} in {task.seconds:.1f} s: {steps}.')

    def _quarantine(self, task: Task, handle: Handle, result: objects.TaskResult) -> None:
        """Nobody gets the handle before an operator has looked at it."""
        task.attempts += 1
        tasks_db.close(task, TaskState.QUARANTINED, result)
        self._note_hand_back(task)
        handle.withheld = Withheld.QUARANTINED
        self._unit.hosts_to_wake.add(self._hostname)

    def _give_back(self, handles: Sequence[Handle]) -> list[str]:
        """Let handles be taken for which the host has nothing left to do; returns what it has to
        do next for the others."""
        opened = {task.uuid: task.handle_uuid for task in tasks_db.of_handles(
            self._unit.session, [handle.uuid for handle in handles], *tasks_db.HAND_BACK)}
        for handle in handles:
            if handle.uuid not in opened.values() and handle.withheld == Withheld.CLEANING:
                handle.withheld = None
        parts = {handle.deployable for handle in handles if handle.deployable.is_programmable}
        for part in parts:
            self._give_back_parts(part)
        return [uuid for uuid in opened if uuid not in self._results]

    def _give_back_parts(self, part: models.Deployable) -> None:
        """Let the other handles of a deployable be taken that were withheld while it was cleaned,
        unless an image is being loaded into it."""
        self._unit.session.flush()
        if tasks_db.is_being_cleaned(self._unit.session, part.uuid):
            return
        is_programming = bool(tasks_db.programming_of(self._unit.session, [part.uuid]))
        attach_handles.give_back(self._unit.session, [part.id], Withheld.CLEANING,
                                 Withheld.PROGRAMMING if is_programming else None)

    # -- program -----------------------------------------------------------------------------

    def _programmed(self) -> list[str]:
        again = []
        for task, result in self._of(TaskKind.PROGRAM):
            if task is None:
                continue
            part = deployables.locked(self._unit.session, task.deployable_uuid)
            if part is None:
                tasks_db.close(task, TaskState.CANCELLED, result)
                continue
            self._note_content(part, result)
            waiting = self._waiting(part)
            if result.error is not None and self._loads_again(task, result, waiting):
                tasks_db.note_failure(task, result.error)
                again.append(task.uuid)
            else:
                tasks_db.close(task, TaskState.FAILED if result.error else TaskState.DONE, result)
                self._end_programming(part, result, waiting)
            # its driver tells what it does now
            self._unit.hosts_to_wake.add(self._hostname)
        return again

    @staticmethod
    def _note_content(part: models.Deployable, result: objects.TaskResult) -> None:
        """Remember which image is in a deployable now, as far as that is known."""
        if result.error is None:
            part.bitstream_id = result.image_uuid
            part.bitstream_facts = result.image_facts or None
        elif result.is_touched:
            part.bitstream_id = part.bitstream_facts = None
        if result.is_touched:
            part.bitstream_content = result.content or None

    def _waiting(self, part: models.Deployable) -> list[Arq]:
        """Requests that hold a part of a deployable and wait for its image."""
        held = attach_handles.held_in(
            self._unit.session, deployables.at_and_below(self._unit.session, part))
        return [row for row in arqs_db.by_ids(
            self._unit.session, [handle.arq_id for handle in held])
            if row.state in arq_states.UNFINISHED]

    def _loads_again(self, task: Task, result: objects.TaskResult, waiting: Sequence[Arq]) -> bool:
        """A server that runs gets its image back, however long that takes. A bind is tried again
        where that may help."""
        if any(row.state == State.PROVISIONING for row in waiting):
            return True
        return bool(waiting) and result.can_retry and task.attempts + 1 < self._most

    def _end_programming(self, part: models.Deployable, result: objects.TaskResult,
                         waiting: Sequence[Arq]) -> None:
        session = self._unit.session
        session.flush()
        attach_handles.give_back(session, deployables.at_and_below(session, part),
                                 Withheld.PROGRAMMING)
        servers = arqs.by_server(self._unit, [row.uuid for row in waiting])
        if result.error is not None:
            for rows in servers:
                arqs.fail(self._unit, rows, result.error)
            return
        for row in waiting:
            self._unit.step(row, Event.PROGRAM, row.state, row.state,
                            f'Image {result.image_uuid} was loaded in {result.seconds:.1f} s.')
        arqs.prepare_held(self._unit, waiting)
        for rows in servers:
            arqs.complete(self._unit, rows, attach_handles.held_by_any(
                session, [row.id for row in rows]))
