# SPDX-License-Identifier: Apache-2.0
"""The tables. Foreign keys RESTRICT: nothing disappears because something else did."""

import datetime
import json
from typing import Any

import sqlalchemy as sa
from oslo_utils import timeutils, uuidutils
from sqlalchemy import orm
from sqlalchemy.dialects import mysql
from sqlalchemy.ext import compiler
from sqlalchemy.sql import functions

from cyborg.objects import arq_states, devices, tasks

UTC = datetime.UTC
NAMES = {
    'ix': 'ix_%(table_name)s_%(column_0_N_name)s',
    'uq': 'uq_%(table_name)s_%(column_0_N_name)s',
    'ck': 'ck_%(table_name)s_%(constraint_name)s',
    'fk': 'fk_%(table_name)s_%(column_0_N_name)s',
    'pk': 'pk_%(table_name)s',
}


#: parts that live and die with their owner's row
OWNED = 'all, delete-orphan'


class Json(sa.TypeDecorator[Any]):
    """A document in a text column: alike on every database, and readable in a dump."""

    impl = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> str | None:
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: Any) -> Any:
        return None if value is None else json.loads(value)


class Moment(sa.TypeDecorator[datetime.datetime]):
    """A point in time: UTC in the column, aware in Python, to the microsecond everywhere."""

    impl = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql', 'mariadb')
    cache_ok = True

    def process_bind_param(self, value: datetime.datetime | None, dialect: Any) -> Any:
        return None if value is None else timeutils.normalize_time(value)

    def process_result_value(self, value: datetime.datetime | None, dialect: Any) -> Any:
        return None if value is None else value.replace(tzinfo=UTC)


def any_of(name: str) -> sa.BindParameter[Any]:
    """What a statement that is built once is later given: a list, for ``in_``."""
    return sa.bindparam(name, expanding=True)


def now() -> datetime.datetime:
    """The present, as Moment columns give it back."""
    return timeutils.utcnow(with_timezone=True).replace(tzinfo=UTC)


class database_now(functions.FunctionElement[datetime.datetime]):
    """The present by the database's clock, where those of conductors may differ."""

    type = Moment()
    inherit_cache = True


#: in UTC, to the microsecond as columns have it
_DATABASE_NOW = {'sqlite': "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
                 'mysql': 'UTC_TIMESTAMP(6)', 'mariadb': 'UTC_TIMESTAMP(6)',
                 'postgresql': "timezone('utc', clock_timestamp())"}


@compiler.compiles(database_now)
def _compile_now(element: database_now, compiled: Any, **options: Any) -> str:
    return _DATABASE_NOW[compiled.dialect.name]


class Base(orm.DeclarativeBase):
    metadata = sa.MetaData(naming_convention=NAMES)
    __table_args__: Any = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
                           'mysql_collate': 'utf8mb4_bin'}

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    created_at: orm.Mapped[datetime.datetime] = orm.mapped_column(Moment, default=now)
    updated_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(Moment, onupdate=now)


def _table(*constraints: Any) -> tuple[Any, ...]:
    return (*constraints, Base.__table_args__)


def _uuid() -> orm.Mapped[str]:
    """Made by us, and so what tells rows that are inserted by one statement apart."""
    return orm.mapped_column(sa.String(36), unique=True, default=uuidutils.generate_uuid,
                             insert_sentinel=True)


def _reference(target: str, **options: Any) -> orm.Mapped[Any]:
    return orm.mapped_column(sa.ForeignKey(target, ondelete='RESTRICT'), **options)


def _one_of(column: str, values: Any) -> sa.CheckConstraint:
    listed = ', '.join(f"'{value}'" for value in values)
    return sa.CheckConstraint(f'{column} IN ({listed})', name=column)


class Agent(Base):
    """A host's agent, as last heard of."""

    __tablename__ = 'agents'

    uuid: orm.Mapped[str] = _uuid()
    hostname: orm.Mapped[str] = orm.mapped_column(sa.String(255), unique=True)
    last_heartbeat: orm.Mapped[datetime.datetime] = orm.mapped_column(Moment)
    #: of the last report taken; one that does not follow it comes too late
    sequence: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    #: of the last report taken; a heartbeat with another one asks for a new report
    digest: orm.Mapped[str] = orm.mapped_column(sa.String(64))
    is_ready: orm.Mapped[bool]
    drivers: orm.Mapped[list[dict[str, Any]]] = orm.mapped_column(Json)
    conflicts: orm.Mapped[dict[str, str]] = orm.mapped_column(Json)


class Device(Base):
    __tablename__ = 'devices'
    __table_args__ = _table(sa.UniqueConstraint('hostname', 'key'),
                            _one_of('status', devices.DeviceStatus))

    uuid: orm.Mapped[str] = _uuid()
    hostname: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    key: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    type: orm.Mapped[str] = orm.mapped_column(sa.String(30), index=True)
    vendor: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    model: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    driver_name: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    std_board_info: orm.Mapped[dict[str, str]] = orm.mapped_column(Json)
    vendor_board_info: orm.Mapped[dict[str, str]] = orm.mapped_column(Json)
    status: orm.Mapped[str] = orm.mapped_column(
        sa.String(16), default=devices.DeviceStatus.ENABLED)
    is_missing: orm.Mapped[bool] = orm.mapped_column(default=False)
    fault: orm.Mapped[str | None] = orm.mapped_column(sa.Text)

    deployables: orm.Mapped[list['Deployable']] = orm.relationship(
        back_populates='device', order_by='Deployable.id', cascade=OWNED)
    control_paths: orm.Mapped[list['ControlPath']] = orm.relationship(
        order_by='ControlPath.id', cascade=OWNED)


class ControlPath(Base):
    __tablename__ = 'control_path_ids'

    device_id: orm.Mapped[int] = _reference('devices.id', index=True)
    type: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    info: orm.Mapped[dict[str, str]] = orm.mapped_column(Json)


class Deployable(Base):
    __tablename__ = 'deployables'
    __table_args__ = _table(sa.UniqueConstraint('device_id', 'name'))

    uuid: orm.Mapped[str] = _uuid()
    device_id: orm.Mapped[int] = _reference('devices.id')
    name: orm.Mapped[str] = orm.mapped_column(sa.String(200))  # as long as Placement allows
    parent_id: orm.Mapped[int | None] = _reference('deployables.id', index=True)
    root_id: orm.Mapped[int | None] = _reference('deployables.id', index=True)
    rp_uuid: orm.Mapped[str] = orm.mapped_column(sa.String(36), unique=True)
    driver_name: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    bitstream_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    #: what the hardware told of its content since that image was loaded
    bitstream_content: orm.Mapped[dict[str, str] | None] = orm.mapped_column(Json)
    #: what Glance says of that image: its name, its functions
    bitstream_facts: orm.Mapped[dict[str, str] | None] = orm.mapped_column(Json)
    is_programmable: orm.Mapped[bool] = orm.mapped_column(default=False)
    #: the last task that loaded an image into it, or is to do so
    program_task_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36))
    num_accelerators: orm.Mapped[int]

    device: orm.Mapped[Device] = orm.relationship(back_populates='deployables')
    parent: orm.Mapped['Deployable | None'] = orm.relationship(
        foreign_keys=[parent_id], remote_side='Deployable.id')
    root: orm.Mapped['Deployable | None'] = orm.relationship(
        foreign_keys=[root_id], remote_side='Deployable.id')
    attributes: orm.Mapped[list['Attribute']] = orm.relationship(
        order_by='Attribute.id', cascade=OWNED)
    attach_handles: orm.Mapped[list['AttachHandle']] = orm.relationship(
        back_populates='deployable', order_by='AttachHandle.id', cascade=OWNED)


class Attribute(Base):
    __tablename__ = 'attributes'

    uuid: orm.Mapped[str] = _uuid()
    deployable_id: orm.Mapped[int] = _reference('deployables.id', index=True)
    parent_attribute_id: orm.Mapped[int | None] = _reference('attributes.id', index=True)
    key: orm.Mapped[str] = orm.mapped_column(sa.String(255), index=True)
    value: orm.Mapped[str] = orm.mapped_column(sa.Text)
    #: made over the API: no report takes it away
    is_users: orm.Mapped[bool] = orm.mapped_column(default=False)

    parent: orm.Mapped['Attribute | None'] = orm.relationship(remote_side='Attribute.id')


class DeviceProfile(Base):
    __tablename__ = 'device_profiles'

    uuid: orm.Mapped[str] = _uuid()
    name: orm.Mapped[str] = orm.mapped_column(sa.String(255), unique=True)
    description: orm.Mapped[str | None] = orm.mapped_column(
        sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb'))
    groups: orm.Mapped[list[dict[str, str]]] = orm.mapped_column(Json)
    #: new requests can be made with it
    is_enabled: orm.Mapped[bool] = orm.mapped_column(default=True)
    #: for the projects of device_profile_projects only
    is_private: orm.Mapped[bool] = orm.mapped_column(default=False)


class DeviceProfileProject(Base):
    """A project that may see a private profile."""

    __tablename__ = 'device_profile_projects'
    __table_args__ = _table(sa.UniqueConstraint('device_profile_id', 'project_id'))

    device_profile_id: orm.Mapped[int] = _reference('device_profiles.id')
    project_id: orm.Mapped[str] = orm.mapped_column(sa.String(255), index=True)


class ExtArq(Base):
    """An accelerator request, with what only we know about it."""

    __tablename__ = 'ext_arqs'
    __table_args__ = _table(
        _one_of('state', arq_states.State),
        sa.Index('ix_ext_arqs_state_bind_deadline', 'state', 'bind_deadline'),
        sa.Index('ix_ext_arqs_state_created_at', 'state', 'created_at'),
        sa.Index('ix_ext_arqs_hostname_state', 'hostname', 'state'))

    uuid: orm.Mapped[str] = _uuid()
    state: orm.Mapped[str] = orm.mapped_column(
        sa.String(32), default=arq_states.State.INITIAL)
    #: None for what came by os_acc without a profile
    device_profile_id: orm.Mapped[int | None] = _reference('device_profiles.id', index=True)
    device_profile_group_id: orm.Mapped[int]
    group: orm.Mapped[dict[str, str]] = orm.mapped_column('profile_group', Json)
    project_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(255), index=True)
    hostname: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    device_rp_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36))
    instance_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36), index=True)
    #: when a bind that has not ended by then has failed
    bind_deadline: orm.Mapped[datetime.datetime | None] = orm.mapped_column(Moment)
    reason: orm.Mapped[str | None] = orm.mapped_column(sa.Text)

    device_profile: orm.Mapped[DeviceProfile | None] = orm.relationship()
    attach_handle: orm.Mapped['AttachHandle | None'] = orm.relationship(back_populates='arq')


class AttachHandle(Base):
    """Taken is one pointer: the request that holds a handle, or nobody."""

    __tablename__ = 'attach_handles'
    __table_args__ = _table(sa.UniqueConstraint('deployable_id', 'key'),
                            _one_of('type', devices.HandleType))

    uuid: orm.Mapped[str] = _uuid()
    deployable_id: orm.Mapped[int] = _reference('deployables.id')
    key: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    type: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    info: orm.Mapped[dict[str, str]] = orm.mapped_column(Json)
    is_host_prepared: orm.Mapped[bool] = orm.mapped_column(default=False)
    #: no driver sees it any more; kept because somebody holds it
    is_missing: orm.Mapped[bool] = orm.mapped_column(default=False)
    arq_id: orm.Mapped[int | None] = _reference('ext_arqs.id', unique=True)
    #: why nobody can take it though no request holds it; here, in the row that a bind takes, so
    #: that a bind and whatever withholds the handle never pass one another
    withheld: orm.Mapped[str | None] = orm.mapped_column(sa.String(16), index=True)
    #: grows each time it is taken, so that a message about an earlier holder is known as late;
    #: begins with the sequence of the report that brought it, for the handle of a card that
    #: comes back is made anew, with the same uuid
    generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, default=0)
    #: how its host cleans it after each request
    cleaning: orm.Mapped[str] = orm.mapped_column(sa.String(8), default=devices.Cleaning.NONE)

    deployable: orm.Mapped[Deployable] = orm.relationship(back_populates='attach_handles')

    arq: orm.Mapped[ExtArq | None] = orm.relationship(back_populates='attach_handle')

    @property
    def is_unused(self) -> bool:
        """No request holds it, and its host has no task for it."""
        return self.arq_id is None and self.withheld is None


class Task(Base):
    """What a host must do, and what it did. It outlives what it is about, so it refers to that by
    value. A finished task is the record of a hand-back, or of a programming."""

    __tablename__ = 'tasks'
    __table_args__ = _table(
        _one_of('kind', tasks.TaskKind), _one_of('state', tasks.TaskState),
        sa.Index('ix_tasks_hostname_state', 'hostname', 'state'),
        sa.Index('ix_tasks_state_created_at', 'state', 'created_at'),
        sa.Index('ix_tasks_handle_uuid_state', 'handle_uuid', 'state'))

    uuid: orm.Mapped[str] = _uuid()
    kind: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16), default=tasks.TaskState.OPEN)
    hostname: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    device_uuid: orm.Mapped[str] = orm.mapped_column(sa.String(36), index=True)
    deployable_uuid: orm.Mapped[str] = orm.mapped_column(sa.String(36), index=True)
    #: None: the task concerns the deployable as a whole
    handle_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36))
    #: of the handle when the task was made
    generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, default=0)
    #: the request for which, or after which, the host does it; None: for an operator
    arq_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36), index=True)
    instance_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36))
    project_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    request_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    #: program: the image as it was asked for, and the one that it turned out to be
    image: orm.Mapped[dict[str, str] | None] = orm.mapped_column(Json)
    image_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36))
    #: clean: what the profile says; None: as the host is configured
    cleaning: orm.Mapped[str | None] = orm.mapped_column(sa.String(8))
    is_cleaning_required: orm.Mapped[bool | None]
    #: clean: no other request holds a part of the deployable
    is_alone: orm.Mapped[bool | None]
    #: how often the host failed, and why it failed last
    attempts: orm.Mapped[int] = orm.mapped_column(default=0)
    error: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    progress: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    #: the host does not try again before then
    due_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(Moment)
    finished_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(Moment, index=True)
    seconds: orm.Mapped[float | None] = orm.mapped_column(sa.Float)
    steps: orm.Mapped[list[dict[str, Any]] | None] = orm.mapped_column(Json)
    #: of the kernel's driver and the firmware at that time
    versions: orm.Mapped[dict[str, str] | None] = orm.mapped_column(Json)


class ArqTransition(Base):
    """The history of requests; it outlives them, so it refers to them by value."""

    __tablename__ = 'arq_transitions'
    __table_args__ = _table(sa.Index('ix_arq_transitions_created_at', 'created_at'))

    arq_uuid: orm.Mapped[str] = orm.mapped_column(sa.String(36), index=True)
    project_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    event: orm.Mapped[str] = orm.mapped_column(sa.String(32))
    from_state: orm.Mapped[str | None] = orm.mapped_column(sa.String(32))
    to_state: orm.Mapped[str] = orm.mapped_column(sa.String(32))
    #: who: a user, an agent, the conductor itself
    actor: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    request_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    hostname: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    instance_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36), index=True)
    reason: orm.Mapped[str | None] = orm.mapped_column(sa.Text)


class Receipt(Base):
    """Proves that a transaction was committed whose COMMIT got no answer."""

    __tablename__ = 'receipts'
    __table_args__ = _table(sa.Index('ix_receipts_created_at', 'created_at'))

    uuid: orm.Mapped[str] = _uuid()


class NovaEvent(Base):
    """The outbox: what Nova is still to hear."""

    __tablename__ = 'nova_events'
    __table_args__ = _table(sa.Index('ix_nova_events_due_at', 'due_at'))

    instance_uuid: orm.Mapped[str] = orm.mapped_column(sa.String(36), index=True)
    arq_uuid: orm.Mapped[str] = orm.mapped_column(sa.String(36), index=True)
    #: completed or failed
    status: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    request_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    attempts: orm.Mapped[int] = orm.mapped_column(default=0)
    #: not before; a conductor that sends it first moves this ahead, so that no other does
    due_at: orm.Mapped[datetime.datetime] = orm.mapped_column(Moment)
    #: whoever moved it
    claim: orm.Mapped[str | None] = orm.mapped_column(sa.String(36), index=True)
    #: when Nova first answered that it does not want it; a Nova that is away answers nothing
    refused_since: orm.Mapped[datetime.datetime | None] = orm.mapped_column(Moment)
    #: since when it is no longer sent; kept, so that operators are told and can have it sent
    given_up_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(Moment)


class Round(Base):
    """Work over the whole cloud that one conductor at a time does every so often: whose lease it
    is, and what the last round found. All its times are the database's."""

    __tablename__ = 'rounds'

    name: orm.Mapped[str] = orm.mapped_column(sa.String(32), unique=True)
    #: host, process and a number of this lease alone
    holder: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    #: nobody takes the lease before then
    until: orm.Mapped[datetime.datetime] = orm.mapped_column(Moment)
    finished_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(Moment)
    figures: orm.Mapped[dict[str, Any] | None] = orm.mapped_column(Json)


class DividedCard(Base):
    """A card that was given out by its virtual functions when it left its host."""

    __tablename__ = 'divided_cards'
    __table_args__ = _table(sa.UniqueConstraint('hostname', 'key'))

    hostname: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    #: of the device, and by what another card in its place is told from it
    key: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    vendor: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    model: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
