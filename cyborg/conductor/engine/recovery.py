# SPDX-License-Identifier: Apache-2.0
"""Creates the tasks that a host must perform again for requests that hold its handles: after a
restart, a loss of power, or the loss of a device that it had prepared."""

from collections.abc import Iterable, Mapping, Sequence

from oslo_log import log

from cyborg import errors
from cyborg.conductor.engine import arqs, tasks
from cyborg.conductor.engine.lost_images import Emptied, keep_loss
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import arqs as arqs_db
from cyborg.db.sqlalchemy import models
from cyborg.db.sqlalchemy import tasks as tasks_db
from cyborg.objects.arq_states import Event, State

Arq = models.ExtArq
LOG = log.getLogger(__name__)


def prepare_again(unit: UnitOfWork, rows: Sequence[Arq]) -> None:
    """Have the host prepare handles again. A bind in progress keeps waiting."""
    if not rows:
        return
    opened = {
        task.arq_uuid for task in tasks_db.unfinished(unit.session, [row.uuid for row in rows], ())
    }
    rows = [row for row in rows if row.uuid not in opened]
    arqs.move(unit, [row for row in rows if row.state == State.BOUND], Event.PROVISION)
    arqs.prepare_held(unit, rows, is_told=False)


def program_again(unit: UnitOfWork, emptied: Iterable[Emptied]) -> None:
    """Have a host load images again that deployables have lost and requests need. It is the image
    that a request asks for, or the one that an operator had loaded."""
    for each in emptied:
        rows = arqs_db.by_ids(unit.session, each.holders)
        arq = next(
            (
                row
                for row in rows
                if tasks.image_of(row.group)
                and (row.state == State.PROVISIONING or _may_lack_image(each, row))
            ),
            None,
        )
        if arq is not None:
            image = tasks.image_of(arq.group)
            if any(tasks.is_loaded(part, image, arq.project_id) for part in each.parts):
                continue
        elif each.lost_image is not None:
            image = {'bitstream_id': each.lost_image}
        else:
            continue
        if tasks_db.programming_of(unit.session, [each.part.uuid]):
            continue
        why = _restore_image(unit, each, image, arq)
        if why is not None and each.lost is not None:
            # requests that do not name an image need it also when those that do are gone
            is_awaited = arq is not None or any(row.state == State.PROVISIONING for row in rows)
            keep_loss(each.part, each.lost, is_awaited=is_awaited)
        if why is not None and arq is None:
            arqs.note_failed_load(unit, rows, why)
            continue
        arqs.move(unit, [row for row in rows if row.state == State.BOUND], Event.PROVISION)
        if why is not None:
            arqs.note_failed_load(
                unit, [row for row in rows if row.state == State.PROVISIONING], why
            )


def _may_lack_image(emptied: Emptied, arq: Arq) -> bool:
    """Returns whether a Bound request may have lost its image. A function that was in the card
    when the request was bound counts as there until a report shows another one."""
    is_known = emptied.is_function_shown or emptied.lost_image is not None
    return emptied.may_have_lost_image and (
        is_known or tasks.image_of(arq.group).keys() != {'function_id'}
    )


def _restore_image(
    unit: UnitOfWork, emptied: Emptied, image: Mapping[str, str], arq: Arq | None
) -> str | None:
    """Have a host load an image that running servers use. Returns why it cannot, or None.

    If it cannot now, the next report tries again. No error is raised, because this report must be
    stored in any case."""
    try:
        with unit.session.begin_nested():
            tasks.program(unit, emptied.part, image, arq, emptied.holders, even_disabled=True)
    except errors.CannotProgram as error:
        LOG.warning('An image that servers use is lost: %s', error.faultstring)
        return error.faultstring
    return None
