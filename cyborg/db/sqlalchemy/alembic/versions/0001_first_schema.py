# SPDX-License-Identifier: Apache-2.0
"""First schema

Types are spelt out here rather than taken from the models: a migration must not change when
they do.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = '0001'
down_revision = None

DOCUMENT = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')
MOMENT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql', 'mariadb')
STATES = (
    'Initial',
    'BindStarted',
    'Bound',
    'BindFailed',
    'Unbound',
    'UnbindFailed',
    'Deleting',
    'Provisioning',
)


def column(name: str, type_: Any, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=null)


def reference(table: str, name: str, target: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        [name], [f'{target}.id'], ondelete='RESTRICT', name=f'fk_{table}_{name}'
    )


def unique(table: str, *names: str) -> sa.UniqueConstraint:
    return sa.UniqueConstraint(*names, name=f'uq_{table}_{"_".join(names)}')


def one_of(table: str, name: str, *values: str) -> sa.CheckConstraint:
    listed = ', '.join(f"'{value}'" for value in values)
    return sa.CheckConstraint(f'{name} IN ({listed})', name=op.f(f'ck_{table}_{name}'))


def create(table: str, *parts: Any, indexes: tuple[tuple[str, ...], ...] = ()) -> None:
    op.create_table(
        table,
        sa.Column('id', sa.Integer(), nullable=False),
        column('created_at', MOMENT),
        column('updated_at', MOMENT, null=True),
        *parts,
        sa.PrimaryKeyConstraint('id', name=f'pk_{table}'),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        mysql_collate='utf8mb4_bin',
    )
    for names in indexes:
        op.create_index(f'ix_{table}_{"_".join(names)}', table, names)


def upgrade() -> None:
    create(
        'agents',
        column('uuid', sa.String(36)),
        column('hostname', sa.String(255)),
        column('last_heartbeat', MOMENT),
        column('sequence', sa.BigInteger()),
        column('digest', sa.String(64)),
        column('is_ready', sa.Boolean()),
        column('drivers', DOCUMENT),
        column('conflicts', DOCUMENT),
        unique('agents', 'hostname'),
        unique('agents', 'uuid'),
    )
    create(
        'device_profiles',
        column('uuid', sa.String(36)),
        column('name', sa.String(255)),
        column('description', DOCUMENT, null=True),
        column('groups', DOCUMENT),
        unique('device_profiles', 'name'),
        unique('device_profiles', 'uuid'),
    )
    create(
        'devices',
        column('uuid', sa.String(36)),
        column('hostname', sa.String(255)),
        column('key', sa.String(255)),
        column('type', sa.String(30)),
        column('vendor', sa.String(255)),
        column('model', sa.String(255), null=True),
        column('driver_name', sa.String(255)),
        column('std_board_info', DOCUMENT),
        column('vendor_board_info', DOCUMENT),
        column('status', sa.String(16)),
        column('is_missing', sa.Boolean()),
        column('fault', sa.Text(), null=True),
        one_of('devices', 'status', 'enabled', 'maintaining'),
        unique('devices', 'hostname', 'key'),
        unique('devices', 'uuid'),
        indexes=(('type',),),
    )
    create(
        'nova_events',
        column('instance_uuid', sa.String(36)),
        column('arq_uuid', sa.String(36)),
        column('status', sa.String(16)),
        column('request_id', sa.String(64), null=True),
        column('attempts', sa.Integer()),
        column('due_at', MOMENT),
        column('claim', sa.String(36), null=True),
        indexes=(('instance_uuid',), ('arq_uuid',), ('due_at',), ('claim',)),
    )
    create(
        'arq_transitions',
        column('arq_uuid', sa.String(36)),
        column('project_id', sa.String(255), null=True),
        column('event', sa.String(32)),
        column('from_state', sa.String(32), null=True),
        column('to_state', sa.String(32)),
        column('actor', sa.String(255)),
        column('request_id', sa.String(64), null=True),
        column('hostname', sa.String(255), null=True),
        column('instance_uuid', sa.String(36), null=True),
        column('reason', sa.Text(), null=True),
        indexes=(('arq_uuid',), ('created_at',)),
    )
    create(
        'control_path_ids',
        column('device_id', sa.Integer()),
        column('type', sa.String(255)),
        column('info', DOCUMENT),
        reference('control_path_ids', 'device_id', 'devices'),
        indexes=(('device_id',),),
    )
    create(
        'deployables',
        column('uuid', sa.String(36)),
        column('device_id', sa.Integer()),
        column('name', sa.String(200)),
        column('parent_id', sa.Integer(), null=True),
        column('root_id', sa.Integer(), null=True),
        column('rp_uuid', sa.String(36)),
        column('driver_name', sa.String(255)),
        column('bitstream_id', sa.String(255), null=True),
        column('num_accelerators', sa.Integer()),
        reference('deployables', 'device_id', 'devices'),
        reference('deployables', 'parent_id', 'deployables'),
        reference('deployables', 'root_id', 'deployables'),
        unique('deployables', 'device_id', 'name'),
        unique('deployables', 'rp_uuid'),
        unique('deployables', 'uuid'),
        indexes=(('parent_id',), ('root_id',)),
    )
    create(
        'attributes',
        column('uuid', sa.String(36)),
        column('deployable_id', sa.Integer()),
        column('parent_attribute_id', sa.Integer(), null=True),
        column('key', sa.String(255)),
        column('value', sa.Text()),
        column('is_users', sa.Boolean()),
        reference('attributes', 'deployable_id', 'deployables'),
        reference('attributes', 'parent_attribute_id', 'attributes'),
        unique('attributes', 'uuid'),
        indexes=(('deployable_id',), ('parent_attribute_id',), ('key',)),
    )
    create(
        'ext_arqs',
        column('uuid', sa.String(36)),
        column('state', sa.String(32)),
        column('device_profile_id', sa.Integer(), null=True),
        column('device_profile_group_id', sa.Integer()),
        column('profile_group', DOCUMENT),
        column('project_id', sa.String(255), null=True),
        column('hostname', sa.String(255), null=True),
        column('device_rp_uuid', sa.String(36), null=True),
        column('instance_uuid', sa.String(36), null=True),
        column('is_prepared', sa.Boolean()),
        column('bind_deadline', MOMENT, null=True),
        column('reason', sa.Text(), null=True),
        one_of('ext_arqs', 'state', *STATES),
        reference('ext_arqs', 'device_profile_id', 'device_profiles'),
        unique('ext_arqs', 'uuid'),
        indexes=(
            ('device_profile_id',),
            ('project_id',),
            ('instance_uuid',),
            ('hostname', 'state'),
            ('state', 'bind_deadline'),
        ),
    )
    create(
        'attach_handles',
        column('uuid', sa.String(36)),
        column('deployable_id', sa.Integer()),
        column('key', sa.String(255)),
        column('type', sa.String(16)),
        column('info', DOCUMENT),
        column('is_host_prepared', sa.Boolean()),
        column('is_missing', sa.Boolean()),
        column('arq_id', sa.Integer(), null=True),
        column('cleanup_since', MOMENT, null=True),
        column('work_attempts', sa.Integer()),
        column('work_error', sa.Text(), null=True),
        column('work_due_at', MOMENT, null=True),
        one_of('attach_handles', 'type', 'PCI', 'MDEV', 'TEST_PCI'),
        reference('attach_handles', 'deployable_id', 'deployables'),
        reference('attach_handles', 'arq_id', 'ext_arqs'),
        unique('attach_handles', 'deployable_id', 'key'),
        unique('attach_handles', 'arq_id'),
        unique('attach_handles', 'uuid'),
        indexes=(('cleanup_since',),),
    )
