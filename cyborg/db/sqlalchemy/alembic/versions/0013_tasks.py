# SPDX-License-Identifier: Apache-2.0
"""What hosts have to do is a table of its own"""

import json
import uuid

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = '0013'
down_revision = '0012'

MOMENT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql', 'mariadb')
JSON = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')
INDEXES = {
    'hostname_state': ['hostname', 'state'],
    'state_created_at': ['state', 'created_at'],
    'handle_uuid_state': ['handle_uuid', 'state'],
    'device_uuid': ['device_uuid'],
    'deployable_uuid': ['deployable_uuid'],
    'arq_uuid': ['arq_uuid'],
    'finished_at': ['finished_at'],
}
#: the first column that is dropped: rows can be moved as long as it is there
FIRST_DROPPED = 'turn'


def upgrade() -> None:
    _create_table()
    for table, name, kind, present in (
        ('attach_handles', 'withheld', sa.String(16), None),
        ('attach_handles', 'generation', sa.BigInteger(), '0'),
        ('attach_handles', 'cleaning', sa.String(8), 'none'),
        ('deployables', 'bitstream_facts', JSON, None),
        ('deployables', 'program_task_uuid', sa.String(36), None),
    ):
        op.add_column(
            table, sa.Column(name, kind, nullable=present is None, server_default=present)
        )
    op.create_index('ix_attach_handles_withheld', 'attach_handles', ['withheld'])
    _move_rows_once()
    op.drop_index('ix_attach_handles_cleanup_since', 'attach_handles')
    op.drop_index('ix_deployables_program_image', 'deployables')
    op.drop_index('ix_deployables_program_since', 'deployables')
    for table, names in {
        'attach_handles': (
            FIRST_DROPPED,
            'is_programming',
            'cleanup_since',
            'work_attempts',
            'work_error',
            'work_due_at',
        ),
        'deployables': (
            'program_image',
            'program_turn',
            'program_since',
            'program_request_id',
            'program_error',
        ),
        'ext_arqs': ('is_prepared',),
    }.items():
        for name in names:
            op.drop_column(table, name)


def _create_table() -> None:
    op.create_table(
        'tasks',
        sa.Column('id', sa.Integer(), nullable=False),
        sa.Column('created_at', MOMENT, nullable=False),
        sa.Column('updated_at', MOMENT),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.Column('kind', sa.String(16), nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('hostname', sa.String(255), nullable=False),
        sa.Column('device_uuid', sa.String(36), nullable=False),
        sa.Column('deployable_uuid', sa.String(36), nullable=False),
        sa.Column('handle_uuid', sa.String(36)),
        sa.Column('generation', sa.BigInteger(), nullable=False),
        sa.Column('arq_uuid', sa.String(36)),
        sa.Column('instance_uuid', sa.String(36)),
        sa.Column('project_id', sa.String(255)),
        sa.Column('request_id', sa.String(64)),
        sa.Column('image', JSON),
        sa.Column('image_uuid', sa.String(36)),
        sa.Column('cleaning', sa.String(8)),
        sa.Column('is_cleaning_required', sa.Boolean()),
        sa.Column('is_alone', sa.Boolean()),
        sa.Column('attempts', sa.Integer(), nullable=False),
        sa.Column('error', sa.Text()),
        sa.Column('progress', sa.Text()),
        sa.Column('due_at', MOMENT),
        sa.Column('finished_at', MOMENT),
        sa.Column('seconds', sa.Float()),
        sa.Column('steps', JSON),
        sa.Column('versions', JSON),
        sa.PrimaryKeyConstraint('id', name='pk_tasks'),
        sa.UniqueConstraint('uuid', name='uq_tasks_uuid'),
        sa.CheckConstraint(
            "kind IN ('program', 'prepare', 'release', 'clean')", name=op.f('ck_tasks_kind')
        ),
        sa.CheckConstraint(
            "state IN ('open', 'done', 'failed', 'quarantined', 'cancelled')",
            name=op.f('ck_tasks_state'),
        ),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        mysql_collate='utf8mb4_bin',
    )
    for name, columns in INDEXES.items():
        op.create_index(f'ix_tasks_{name}', 'tasks', columns)


def _table(name: str, *columns: str) -> sa.TableClause:
    return sa.table(name, *map(sa.column, columns))


def _move_rows_once() -> None:
    """Move the rows, unless an interrupted run has done so and has begun to drop columns."""
    columns = sa.inspect(op.get_bind()).get_columns('attach_handles')
    if FIRST_DROPPED in [column['name'] for column in columns]:
        # An interrupted run may have committed its tasks: MySQL commits before each DDL statement.
        op.execute('DELETE FROM tasks')
        _move_rows()


def _move_rows() -> None:
    """Make a task of all that hosts have still to do."""
    handles = _table(
        'attach_handles',
        'id',
        'uuid',
        'deployable_id',
        'arq_id',
        'turn',
        'generation',
        'withheld',
        'is_programming',
        'cleanup_since',
        'is_host_prepared',
        'work_attempts',
        'work_error',
    )
    parts = _table(
        'deployables',
        'id',
        'uuid',
        'device_id',
        'program_image',
        'program_since',
        'program_request_id',
        'program_task_uuid',
    )
    devices = _table('devices', 'id', 'uuid', 'hostname')
    arqs = _table(
        'ext_arqs',
        'id',
        'uuid',
        'state',
        'is_prepared',
        'instance_uuid',
        'project_id',
        'updated_at',
        'created_at',
    )
    connection = op.get_bind()
    connection.execute(sa.update(handles).values(generation=handles.c.turn))
    connection.execute(
        sa.update(handles)
        .where(handles.c.is_programming == sa.true())
        .values(withheld='programming')
    )
    connection.execute(
        sa.update(handles)
        .where(handles.c.cleanup_since.is_not(None), handles.c.is_host_prepared == sa.true())
        .values(withheld='cleaning')
    )
    place = parts.join(devices, parts.c.device_id == devices.c.id)
    columns = (
        devices.c.hostname,
        devices.c.uuid.label('device_uuid'),
        parts.c.uuid.label('deployable_uuid'),
    )
    held = handles.join(place, handles.c.deployable_id == parts.c.id)
    of_handle = (
        handles.c.uuid.label('handle_uuid'),
        handles.c.turn.label('generation'),
        handles.c.work_attempts.label('attempts'),
        handles.c.work_error.label('error'),
    )
    found = [
        ('release', row)
        for row in connection.execute(
            sa.select(*columns, *of_handle, handles.c.cleanup_since.label('created_at'))
            .select_from(held)
            .where(handles.c.cleanup_since.is_not(None), handles.c.is_host_prepared == sa.true())
        ).mappings()
    ]
    found += [
        ('prepare', row)
        for row in connection.execute(
            sa.select(
                *columns,
                *of_handle,
                arqs.c.uuid.label('arq_uuid'),
                arqs.c.instance_uuid,
                arqs.c.project_id,
                sa.func.coalesce(arqs.c.updated_at, arqs.c.created_at).label('created_at'),
            )
            .select_from(held.join(arqs, handles.c.arq_id == arqs.c.id))
            .where(
                handles.c.is_host_prepared == sa.true(),
                sa.or_(
                    sa.and_(arqs.c.state == 'BindStarted', arqs.c.is_prepared == sa.false()),
                    arqs.c.state == 'Provisioning',
                ),
            )
        ).mappings()
    ]
    found += [
        ('program', row)
        for row in connection.execute(
            sa.select(
                *columns,
                parts.c.program_since.label('created_at'),
                parts.c.program_request_id.label('request_id'),
                parts.c.program_image.label('image_uuid'),
            )
            .select_from(place)
            .where(parts.c.program_image.is_not(None))
        ).mappings()
    ]
    _insert(connection, parts, found)


def _insert(
    connection: sa.Connection, parts: sa.TableClause, found: list[tuple[str, sa.RowMapping]]
) -> None:
    names = (
        'uuid',
        'kind',
        'state',
        'hostname',
        'device_uuid',
        'deployable_uuid',
        'handle_uuid',
        'generation',
        'arq_uuid',
        'instance_uuid',
        'project_id',
        'request_id',
        'image',
        'image_uuid',
        'attempts',
        'error',
        'created_at',
    )
    tasks = _table('tasks', *names)
    nothing = dict.fromkeys(names) | {'state': 'open', 'generation': 0, 'attempts': 0}
    rows = [
        nothing
        | dict(row)
        | {
            'kind': kind,
            'uuid': str(uuid.uuid4()),
            'image': json.dumps({'bitstream_id': row['image_uuid']}) if kind == 'program' else None,
        }
        for kind, row in found
    ]
    if rows:
        connection.execute(sa.insert(tasks), rows)
    for row in rows:
        if row['kind'] == 'program':
            connection.execute(
                sa.update(parts)
                .where(parts.c.uuid == row['deployable_uuid'])
                .values(program_task_uuid=row['uuid'])
            )
