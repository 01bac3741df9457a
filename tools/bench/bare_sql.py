# SPDX-License-Identifier: Apache-2.0
"""The SQL statements of one request's life, without the conductor: SQLAlchemy core on a plain
engine, built once, without objects made from rows.

They are written here, not recorded, so that they stay the same when the conductor changes.
"""

import datetime
import uuid

import sqlalchemy as sa
from sqlalchemy import bindparam as given

from cyborg.db.sqlalchemy import clock, models

Arq, Handle, Transition, Event, Profile, Part, Device, Agent, Attribute = (
    model.__table__
    for model in (
        models.ExtArq,
        models.AttachHandle,
        models.ArqTransition,
        models.NovaEvent,
        models.DeviceProfile,
        models.Deployable,
        models.Device,
        models.Agent,
        models.Attribute,
    )
)

SHOWN = (
    sa.select(
        Arq, Profile.c.name, Handle.c.type, Handle.c.uuid, Handle.c.info, Agent.c.last_heartbeat
    )
    .select_from(
        Arq.outerjoin(Profile, Arq.c.device_profile_id == Profile.c.id)
        .outerjoin(Handle, Handle.c.arq_id == Arq.c.id)
        .outerjoin(Agent, Agent.c.hostname == Arq.c.hostname)
    )
    .order_by(Arq.c.id)
)
IS_FREE = sa.and_(
    Handle.c.arq_id.is_(None), Handle.c.withheld.is_(None), Handle.c.is_missing.is_(False)
)
LOCKED = sa.select(Arq).order_by(Arq.c.id).with_for_update()
WHERE = sa.select(Handle, Part, Device).select_from(
    Handle.join(Part, Handle.c.deployable_id == Part.c.id).join(
        Device, Part.c.device_id == Device.c.id
    )
)

PROFILE = sa.select(Profile).where(Profile.c.name == given('profile'))
ADD_ARQ, ADD_STEP, ADD_EVENT = sa.insert(Arq), sa.insert(Transition), sa.insert(Event)
LOCK_WANTED = LOCKED.where(
    sa.or_(Arq.c.uuid.in_([given('arq')]), Arq.c.instance_uuid.in_([given('instance')]))
)
LOCK_INSTANCE = LOCKED.where(Arq.c.instance_uuid == given('instance'))
PROVIDER = (
    sa.select(Part, Device)
    .join(Device, Part.c.device_id == Device.c.id)
    .where(Part.c.rp_uuid == given('rp'))
)
FREE = (
    sa.select(Handle).where(Handle.c.deployable_id == given('part'), IS_FREE).order_by(Handle.c.id)
)
TAKE = (
    sa.update(Handle)
    .where(Handle.c.id == given('handle'), IS_FREE)
    .values(arq_id=given('arq'), generation=given('generation_'))
)
BIND = (
    sa.update(Arq)
    .where(Arq.c.id == given('arq'), Arq.c.state == 'Initial')
    .values(
        state='Bound',
        hostname=given('host'),
        device_rp_uuid=given('rp'),
        instance_uuid=given('instance'),
    )
)
SHOW_ARQ = SHOWN.where(Arq.c.uuid == given('arq'))
SHOW_INSTANCE = SHOWN.where(Arq.c.instance_uuid == given('instance'))
HELD = WHERE.where(Handle.c.arq_id == given('arq'))
RELEASE = sa.update(Handle).where(Handle.c.id == given('handle')).values(arq_id=None)
FORGET = sa.delete(Event).where(Event.c.arq_uuid == given('arq'))
DELETE = sa.delete(Arq).where(Arq.c.id == given('arq'))
#: the queries of each list
LISTS = {
    'devices': (sa.select(Device).order_by(Device.c.id),),
    'deployables': (
        sa.select(Part, Device).join(Device, Part.c.device_id == Device.c.id).order_by(Part.c.id),
        sa.select(Attribute)
        .join(Part, Attribute.c.deployable_id == Part.c.id)
        .order_by(Attribute.c.id),
    ),
    'arqs': (SHOWN,),
}
#: the delay of events that must not be sent
FAR = datetime.timedelta(days=3650)


def connect(database: str) -> sa.Engine:
    """Return a plain engine."""
    if database.startswith('sqlite'):
        return sa.create_engine(database, connect_args={'timeout': 60})
    return sa.create_engine(database, isolation_level='READ COMMITTED', pool_size=16)


def read(engine: sa.Engine, what: str, limit: int) -> None:
    """Read the rows of a list."""
    with engine.begin() as connection:
        for query in LISTS[what]:
            connection.execute(query.limit(limit)).all()


class Life:
    """Runs the statements of requests one after another, with a transaction per step."""

    def __init__(self, engine: sa.Engine, profile: str, host: str, provider: str) -> None:
        self._engine, self._profile, self._host, self._rp = engine, profile, host, provider

    def live(self) -> None:
        """Create, bind, read and delete a request."""
        self._arq, self._instance = str(uuid.uuid4()), str(uuid.uuid4())
        for step in (self._create, self._bind, self._read, self._delete):
            with self._engine.begin() as connection:
                step(connection)

    def _create(self, connection: sa.Connection) -> None:
        profile = connection.execute(PROFILE, {'profile': self._profile}).one()
        connection.execute(
            ADD_ARQ,
            {
                'uuid': self._arq,
                'state': 'Initial',
                'device_profile_id': profile.id,
                'device_profile_group_id': 0,
                'profile_group': profile.groups[0],
                'project_id': 'bare',
            },
        )
        self._note(connection, 'create', None, 'Initial')

    def _bind(self, connection: sa.Connection) -> None:
        arq = connection.execute(LOCK_WANTED, {'arq': self._arq, 'instance': self._instance}).one()
        part = connection.execute(PROVIDER, {'rp': self._rp}).one()
        for handle in connection.execute(FREE, {'part': part.id}).all():
            if connection.execute(
                TAKE, {'handle': handle.id, 'arq': arq.id, 'generation_': handle.generation + 1}
            ).rowcount:
                break
        connection.execute(
            BIND, {'arq': arq.id, 'host': self._host, 'rp': self._rp, 'instance': self._instance}
        )
        connection.execute(SHOW_ARQ, {'arq': self._arq}).one()
        self._note(connection, 'bind', 'Initial', 'Bound')
        connection.execute(
            ADD_EVENT,
            {
                'instance_uuid': self._instance,
                'arq_uuid': self._arq,
                'status': 'completed',
                'attempts': 0,
                'due_at': clock.now() + FAR,
            },
        )

    def _read(self, connection: sa.Connection) -> None:
        connection.execute(SHOW_INSTANCE, {'instance': self._instance}).one()

    def _delete(self, connection: sa.Connection) -> None:
        arq = connection.execute(LOCK_INSTANCE, {'instance': self._instance}).one()
        handle = connection.execute(HELD, {'arq': arq.id}).one()
        connection.execute(RELEASE, {'handle': handle.id})
        connection.execute(FORGET, {'arq': self._arq})
        connection.execute(DELETE, {'arq': arq.id})
        self._note(connection, 'delete', 'Bound', 'Deleting')

    def _note(self, connection: sa.Connection, event: str, before: str | None, after: str) -> None:
        connection.execute(
            ADD_STEP,
            {
                'arq_uuid': self._arq,
                'project_id': 'bare',
                'event': event,
                'from_state': before,
                'to_state': after,
                'actor': 'bare',
            },
        )
