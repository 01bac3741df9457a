# SPDX-License-Identifier: Apache-2.0
"""The tables. Foreign keys RESTRICT: deleting a row never deletes others implicitly."""

import datetime
import json
from typing import Any, cast

import sqlalchemy as sa
from oslo_utils import uuidutils
from sqlalchemy import orm
from sqlalchemy.dialects import mysql

from cyborg.db.sqlalchemy.clock import Moment, now
from cyborg.objects import arq_states, devices, tasks

NAMES = {
    'ix': 'ix_%(table_name)s_%(column_0_N_name)s',
    'uq': 'uq_%(table_name)s_%(column_0_N_name)s',
    'ck': 'ck_%(table_name)s_%(constraint_name)s',
    'fk': 'fk_%(table_name)s_%(column_0_N_name)s',
    'pk': 'pk_%(table_name)s',
}


#: rows that are deleted with their owner's row
OWNED = 'all, delete-orphan'


class Json(sa.TypeDecorator[Any]):
    """A JSON document in a text column: the same on every database, readable in a dump."""

    impl = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> str | None:
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: Any) -> Any:
        return None if value is None else json.loads(value)


class JsonList(Json):
    """A JSON list; NULL is the empty list."""

    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Any) -> Any:
        return [] if value is None else json.loads(value)


def any_of(name: str) -> sa.BindParameter[Any]:
    """Returns a list parameter of a prepared statement, for ``in_``."""
    return sa.bindparam(name, expanding=True)


def matched(result: sa.Result[*tuple[Any, ...]]) -> int:
    """Returns how many rows an UPDATE or DELETE has matched. Their result is a CursorResult, which
    the hints of ``Session.execute`` do not say."""
    return cast(sa.CursorResult[*tuple[Any, ...]], result).rowcount


class Base(orm.DeclarativeBase):
    metadata = sa.MetaData(naming_convention=NAMES)
    __table_args__: Any = {
        'mysql_engine': 'InnoDB',
        'mysql_charset': 'utf8mb4',
        'mysql_collate': 'utf8mb4_bin',
    }

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    created_at: orm.Mapped[datetime.datetime] = orm.mapped_column(Moment, default=now)
    updated_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(Moment, onupdate=now)


def table(model: type[Base]) -> sa.Table:
    """Returns the table of a model, for statements that do not need the mapper. The hints say
    FromClause, but each of our models declares a table."""
    return cast(sa.Table, model.__table__)


def _table(*constraints: Any) -> tuple[Any, ...]:
    return (*constraints, Base.__table_args__)


def _uuid() -> orm.Mapped[str]:
    """A column for a uuid that Cyborg generates. It identifies the rows of one INSERT statement."""
    return orm.mapped_column(
        sa.String(36), unique=True, default=uuidutils.generate_uuid, insert_sentinel=True
    )


def _reference(target: str, **options: Any) -> orm.Mapped[Any]:
    return orm.mapped_column(sa.ForeignKey(target, ondelete='RESTRICT'), **options)


def _one_of(column: str, values: Any) -> sa.CheckConstraint:
    listed = ', '.join(f"'{value}'" for value in values)
    return sa.CheckConstraint(f'{column} IN ({listed})', name=column)


class Agent(Base):
    """A host's agent, as of its last heartbeat or report."""

    __tablename__ = 'agents'

    uuid: orm.Mapped[str] = _uuid()
    hostname: orm.Mapped[str] = orm.mapped_column(sa.String(255), unique=True)
    last_heartbeat: orm.Mapped[datetime.datetime] = orm.mapped_column(Moment)
    #: sequence of the last accepted report; a report that does not follow it is refused
    sequence: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    #: digest of the last accepted report; a heartbeat with another digest triggers a new report
    digest: orm.Mapped[str] = orm.mapped_column(sa.String(64))
    is_ready: orm.Mapped[bool]
    drivers: orm.Mapped[list[dict[str, Any]]] = orm.mapped_column(Json)
    conflicts: orm.Mapped[dict[str, str]] = orm.mapped_column(Json)
    #: the newest RPC version that it reads, and its release of Cyborg; None: not reported
    rpc_version: orm.Mapped[str | None] = orm.mapped_column(sa.String(16))
    cyborg_release: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    #: set while the devices of this agent are reserved because it is silent
    withdrawal: orm.Mapped[str | None] = orm.mapped_column(sa.String(16))
    #: the sequence of the last report that a conductor of this release has stored. If it differs
    #: from ``sequence``, a conductor of an earlier release has stored the last report, without
    #: the fields that are new in this release.
    stored_sequence: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    #: why an operator lets no request be bound on the host; None: they are bound
    disabled_reason: orm.Mapped[str | None] = orm.mapped_column(sa.Text)


class Device(Base):
    __tablename__ = 'devices'
    __table_args__ = _table(
        sa.UniqueConstraint('hostname', 'key'), _one_of('status', devices.DeviceStatus)
    )

    uuid: orm.Mapped[str] = _uuid()
    hostname: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    key: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    type: orm.Mapped[str] = orm.mapped_column(sa.String(30), index=True)
    vendor: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    model: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    driver_name: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    std_board_info: orm.Mapped[dict[str, str]] = orm.mapped_column(Json)
    vendor_board_info: orm.Mapped[dict[str, str]] = orm.mapped_column(Json)
    status: orm.Mapped[str] = orm.mapped_column(sa.String(16), default=devices.DeviceStatus.ENABLED)
    is_missing: orm.Mapped[bool] = orm.mapped_column(default=False)
    fault: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    #: imported from the database of another service, and not reported by a driver yet
    is_imported: orm.Mapped[bool] = orm.mapped_column(default=False, server_default=sa.false())

    deployables: orm.Mapped[list['Deployable']] = orm.relationship(
        back_populates='device', order_by='Deployable.id', cascade=OWNED
    )
    control_paths: orm.Mapped[list['ControlPath']] = orm.relationship(
        order_by='ControlPath.id', cascade=OWNED
    )


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
    #: resource class of its inventory in Placement; None if only its children are offered
    resource_class: orm.Mapped[str | None] = orm.mapped_column(sa.String(255), index=True)
    #: traits of its provider in Placement, without OWNER_CYBORG
    traits: orm.Mapped[list[str]] = orm.mapped_column(JsonList, default=list, nullable=True)
    #: number of its handles that cannot be used because others use the resources of the card
    reserved: orm.Mapped[int] = orm.mapped_column(default=0)
    bitstream_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    #: the content that the hardware has reported since that image was loaded
    bitstream_content: orm.Mapped[dict[str, str] | None] = orm.mapped_column(Json)
    #: facts about that image from Glance: its name, its functions
    bitstream_facts: orm.Mapped[dict[str, str] | None] = orm.mapped_column(Json)
    #: its card may have lost power, and no report has shown its content since then
    may_have_lost_image: orm.Mapped[bool] = orm.mapped_column(
        default=False, server_default=sa.false()
    )
    #: the boot of its host in which that did not apply, or of the first report; None: not known.
    #: 'pulled': its card was missing since
    boot_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    is_programmable: orm.Mapped[bool] = orm.mapped_column(default=False)
    #: the last task that has loaded, or is to load, an image into it
    program_task_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36))
    num_accelerators: orm.Mapped[int]
    #: imported from the database of another service, and held since then. Until it is free, it
    #: keeps the resource class of its allocations, and is kept though drivers report other parts.
    is_imported: orm.Mapped[bool] = orm.mapped_column(default=False, server_default=sa.false())

    device: orm.Mapped[Device] = orm.relationship(back_populates='deployables')
    parent: orm.Mapped['Deployable | None'] = orm.relationship(
        foreign_keys=[parent_id], remote_side='Deployable.id'
    )
    root: orm.Mapped['Deployable | None'] = orm.relationship(
        foreign_keys=[root_id], remote_side='Deployable.id'
    )
    attributes: orm.Mapped[list['Attribute']] = orm.relationship(
        order_by='Attribute.id', cascade=OWNED
    )
    attach_handles: orm.Mapped[list['AttachHandle']] = orm.relationship(
        back_populates='deployable', order_by='AttachHandle.id', cascade=OWNED
    )


class Attribute(Base):
    __tablename__ = 'attributes'

    uuid: orm.Mapped[str] = _uuid()
    deployable_id: orm.Mapped[int] = _reference('deployables.id', index=True)
    parent_attribute_id: orm.Mapped[int | None] = _reference('attributes.id', index=True)
    key: orm.Mapped[str] = orm.mapped_column(sa.String(255), index=True)
    value: orm.Mapped[str] = orm.mapped_column(sa.Text)
    #: added over the API: reports do not remove it
    is_users: orm.Mapped[bool] = orm.mapped_column(default=False)

    parent: orm.Mapped['Attribute | None'] = orm.relationship(remote_side='Attribute.id')


class DeviceProfile(Base):
    __tablename__ = 'device_profiles'

    uuid: orm.Mapped[str] = _uuid()
    name: orm.Mapped[str] = orm.mapped_column(sa.String(255), unique=True)
    description: orm.Mapped[str | None] = orm.mapped_column(
        sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')
    )
    groups: orm.Mapped[list[dict[str, str]]] = orm.mapped_column(Json)
    #: new requests can be made with it
    is_enabled: orm.Mapped[bool] = orm.mapped_column(default=True)
    #: visible only to the projects in device_profile_projects
    is_private: orm.Mapped[bool] = orm.mapped_column(default=False)


class DeviceProfileProject(Base):
    """A project that may see a private profile."""

    __tablename__ = 'device_profile_projects'
    __table_args__ = _table(sa.UniqueConstraint('device_profile_id', 'project_id'))

    device_profile_id: orm.Mapped[int] = _reference('device_profiles.id')
    project_id: orm.Mapped[str] = orm.mapped_column(sa.String(255), index=True)


class ExtArq(Base):
    """An accelerator request."""

    __tablename__ = 'ext_arqs'
    __table_args__ = _table(
        _one_of('state', arq_states.State),
        sa.Index('ix_ext_arqs_state_bind_deadline', 'state', 'bind_deadline'),
        sa.Index('ix_ext_arqs_state_created_at', 'state', 'created_at'),
        sa.Index('ix_ext_arqs_hostname_state', 'hostname', 'state'),
    )

    uuid: orm.Mapped[str] = _uuid()
    state: orm.Mapped[str] = orm.mapped_column(sa.String(32), default=arq_states.State.INITIAL)
    #: None for a request that os_acc has created without a profile
    device_profile_id: orm.Mapped[int | None] = _reference('device_profiles.id', index=True)
    #: the name that the profile had then, for the history
    device_profile_name: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    device_profile_group_id: orm.Mapped[int]
    group: orm.Mapped[dict[str, str]] = orm.mapped_column('profile_group', Json)
    project_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(255), index=True)
    hostname: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    device_rp_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36))
    instance_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36), index=True)
    #: a bind that has not ended by then has failed
    bind_deadline: orm.Mapped[datetime.datetime | None] = orm.mapped_column(Moment)
    reason: orm.Mapped[str | None] = orm.mapped_column(sa.Text)

    device_profile: orm.Mapped[DeviceProfile | None] = orm.relationship()
    attach_handle: orm.Mapped['AttachHandle | None'] = orm.relationship(back_populates='arq')


class AttachHandle(Base):
    """An attach handle. ``arq_id`` is the request that holds it, or NULL."""

    __tablename__ = 'attach_handles'
    __table_args__ = _table(
        sa.UniqueConstraint('deployable_id', 'key'), _one_of('type', devices.HandleType)
    )

    uuid: orm.Mapped[str] = _uuid()
    deployable_id: orm.Mapped[int] = _reference('deployables.id')
    key: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    type: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    info: orm.Mapped[dict[str, str]] = orm.mapped_column(Json)
    is_host_prepared: orm.Mapped[bool] = orm.mapped_column(default=False)
    #: no driver reports it any more; kept because a request holds it
    is_missing: orm.Mapped[bool] = orm.mapped_column(default=False)
    arq_id: orm.Mapped[int | None] = _reference('ext_arqs.id', unique=True)
    #: why it cannot be taken though no request holds it. It is in the row that a bind locks, so
    #: that a bind and a transaction that withholds the handle exclude each other.
    withheld: orm.Mapped[str | None] = orm.mapped_column(sa.String(16), index=True)
    #: grows each time it is taken, so that a message about an earlier holder is recognized as
    #: late. It begins with the sequence of the report that added the handle, because the handle of
    #: a card that returns is a new row with the same uuid.
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
    """A task of a host, open or finished. It outlives its handle and its request, so it refers to
    them by value. A finished task is the record of a hand-back or of a programming."""

    __tablename__ = 'tasks'
    __table_args__ = _table(
        _one_of('kind', tasks.TaskKind),
        _one_of('state', tasks.TaskState),
        sa.Index('ix_tasks_hostname_state', 'hostname', 'state'),
        sa.Index('ix_tasks_state_created_at', 'state', 'created_at'),
        sa.Index('ix_tasks_handle_uuid_state', 'handle_uuid', 'state'),
    )

    uuid: orm.Mapped[str] = _uuid()
    kind: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16), default=tasks.TaskState.OPEN)
    hostname: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    device_uuid: orm.Mapped[str] = orm.mapped_column(sa.String(36), index=True)
    deployable_uuid: orm.Mapped[str] = orm.mapped_column(sa.String(36), index=True)
    #: None: the task concerns the deployable as a whole
    handle_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36))
    #: generation of the handle when the task was created
    generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, default=0)
    #: the request for which, or after which, the host performs it; None: an operator asked for it
    arq_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36), index=True)
    instance_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36))
    project_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    request_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    #: program: the image as requested, and the uuid of the image that was found
    image: orm.Mapped[dict[str, str] | None] = orm.mapped_column(Json)
    image_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36))
    #: clean: the level of the profile; None: as the host is configured
    cleaning: orm.Mapped[str | None] = orm.mapped_column(sa.String(8))
    is_cleaning_required: orm.Mapped[bool | None]
    #: clean: no other request holds a part of the deployable
    is_alone: orm.Mapped[bool | None]
    #: number of failed attempts, and the last error
    attempts: orm.Mapped[int] = orm.mapped_column(default=0)
    error: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    progress: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    #: time of the next attempt
    due_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(Moment)
    finished_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(Moment, index=True)
    seconds: orm.Mapped[float | None] = orm.mapped_column(sa.Float)
    steps: orm.Mapped[list[dict[str, Any]] | None] = orm.mapped_column(Json)
    #: versions of the kernel's driver and the firmware at that time
    versions: orm.Mapped[dict[str, str] | None] = orm.mapped_column(Json)
    #: clean: the decision of an operator after it had failed, with the operator, reason and time
    decision: orm.Mapped[str | None] = orm.mapped_column(sa.String(16))
    decided_by: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    decision_reason: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    decided_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(Moment)


class ArqTransition(Base):
    """The history of requests; it outlives them, so it refers to them by value."""

    __tablename__ = 'arq_transitions'
    __table_args__ = _table(sa.Index('ix_arq_transitions_created_at', 'created_at'))

    arq_uuid: orm.Mapped[str] = orm.mapped_column(sa.String(36), index=True)
    project_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    event: orm.Mapped[str] = orm.mapped_column(sa.String(32))
    from_state: orm.Mapped[str | None] = orm.mapped_column(sa.String(32))
    to_state: orm.Mapped[str] = orm.mapped_column(sa.String(32))
    #: a user, an agent, or the conductor itself
    actor: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    request_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    hostname: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    instance_uuid: orm.Mapped[str | None] = orm.mapped_column(sa.String(36), index=True)
    reason: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    #: what the request asks for; None in steps that an earlier release recorded
    device_profile_name: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    resource_class: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))


class Receipt(Base):
    """Proves that a transaction was committed, and lists what a request has created.

    The uuid of a receipt with a digest derives from the idempotency key of the request.
    """

    __tablename__ = 'receipts'
    __table_args__ = _table(sa.Index('ix_receipts_created_at', 'created_at'))

    uuid: orm.Mapped[str] = _uuid()
    #: digest of the content of the request; None: the request has no idempotency key
    digest: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    #: uuids of the objects that the request has created
    made: orm.Mapped[list[str] | None] = orm.mapped_column(Json)


class NovaEvent(Base):
    """The outbox: events that Nova has not accepted yet."""

    __tablename__ = 'nova_events'
    __table_args__ = _table(sa.Index('ix_nova_events_due_at', 'due_at'))

    instance_uuid: orm.Mapped[str] = orm.mapped_column(sa.String(36), index=True)
    arq_uuid: orm.Mapped[str] = orm.mapped_column(sa.String(36), index=True)
    #: completed or failed
    status: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    request_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    attempts: orm.Mapped[int] = orm.mapped_column(default=0)
    #: it is not sent before then; a conductor moves this ahead before it sends the event, so that
    #: no other conductor sends it
    due_at: orm.Mapped[datetime.datetime] = orm.mapped_column(Moment)
    #: the conductor that moved it
    claim: orm.Mapped[str | None] = orm.mapped_column(sa.String(36), index=True)
    #: when Nova first refused it; NULL while Nova only fails to answer
    refused_since: orm.Mapped[datetime.datetime | None] = orm.mapped_column(Moment)
    #: since when it is no longer sent; it is kept, so that operators see it and can resume it
    given_up_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(Moment)


class Round(Base):
    """A kind of periodic work over the whole cloud, which one conductor at a time does: the lease
    of its holder, and the figures of the last round. All times are by the database's clock."""

    __tablename__ = 'rounds'

    name: orm.Mapped[str] = orm.mapped_column(sa.String(32), unique=True)
    #: host, process and a unique number of this lease
    holder: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    #: the lease cannot be taken before then
    until: orm.Mapped[datetime.datetime] = orm.mapped_column(Moment)
    finished_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(Moment)
    figures: orm.Mapped[dict[str, Any] | None] = orm.mapped_column(Json)


class DividedCard(Base):
    """A card that was removed from its host while its virtual functions were offered."""

    __tablename__ = 'divided_cards'
    __table_args__ = _table(sa.UniqueConstraint('hostname', 'key'))

    hostname: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    #: key of the device, and the ids that distinguish it from another card in the same slot
    key: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    vendor: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    model: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))


class ImportedRow(Base):
    """The record of a row that was imported from the database of another service. It outlives the
    row, so that a second import does not restore rows that were deleted since."""

    __tablename__ = 'imported_rows'
    __table_args__ = _table(
        sa.UniqueConstraint('kind', 'uuid'),
        sa.Index('ix_imported_rows_hostname_kind', 'hostname', 'kind'),
    )

    #: profile, device, deployable, provider, handle or request
    kind: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    #: as the other service has it
    uuid: orm.Mapped[str] = orm.mapped_column(sa.String(36))
    #: of a provider: the compute node above it
    hostname: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    #: of a request: its state there
    state: orm.Mapped[str | None] = orm.mapped_column(sa.String(32))
    #: the uuid of our row, if that is another one
    merged_into: orm.Mapped[str | None] = orm.mapped_column(sa.String(36))
