"""The first tables: exactly those of cuda_agent/store/tables.py at this revision."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0001"
down_revision: str | None = None
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "campaign",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("config", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("flow_run_id", sa.Uuid(), nullable=True),
        sa.Column("start_seconds", sa.Double(), nullable=False),
        sa.Column("ended_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaign")),
    )
    op.create_table(
        "verdict",
        sa.Column("cache_key", sa.String(), nullable=False),
        sa.Column("problem_sha256", sa.String(), nullable=False),
        sa.Column("submission_sha256", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=True),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("reward", sa.Double(), nullable=True),
        sa.Column("candidate_ms", sa.Double(), nullable=True),
        sa.Column("eager_ms", sa.Double(), nullable=True),
        sa.Column("compile_ms", sa.Double(), nullable=True),
        sa.Column("phases", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("environment", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verdict")),
    )
    op.create_index(op.f("ix_verdict_cache_key"), "verdict", ["cache_key"], unique=False)
    op.create_index(
        op.f("ix_verdict_problem_sha256_submission_sha256"), "verdict", ["problem_sha256", "submission_sha256"], unique=False
    )
    op.create_table(
        "stage_run",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("campaign_id", sa.Uuid(), nullable=True),
        sa.Column("config", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("inputs", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("outputs", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("flow_run_id", sa.Uuid(), nullable=True),
        sa.Column("ui_url", sa.String(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("ended_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.id"], name=op.f("fk_stage_run_campaign_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_stage_run")),
        sa.UniqueConstraint("key", "generation", name=op.f("uq_stage_run_key_generation")),
    )
    op.create_index(op.f("ix_stage_run_stage_status"), "stage_run", ["stage", "status"], unique=False)
    op.create_table(
        "campaign_stage",
        sa.Column("campaign_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("stage_run_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.id"], name=op.f("fk_campaign_stage_campaign_id")),
        sa.ForeignKeyConstraint(["stage_run_id"], ["stage_run.id"], name=op.f("fk_campaign_stage_stage_run_id")),
        sa.PrimaryKeyConstraint("campaign_id", "position", name=op.f("pk_campaign_stage")),
    )
    op.create_table(
        "dataset",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("stage_run_id", sa.Uuid(), nullable=True),
        sa.Column("provenance", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["stage_run_id"], ["stage_run.id"], name=op.f("fk_dataset_stage_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset")),
    )
    op.create_table(
        "policy_version",
        sa.Column("parent_id", sa.Uuid(), nullable=True),
        sa.Column("stage_run_id", sa.Uuid(), nullable=True),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("base_sha256", sa.String(), nullable=False),
        sa.Column("weights_uri", sa.String(), nullable=False),
        sa.Column("weights_sha256", sa.String(), nullable=False),
        sa.Column("tokenizer_sha256", sa.String(), nullable=False),
        sa.Column("template_sha256", sa.String(), nullable=False),
        sa.Column("dtype", sa.String(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["parent_id"], ["policy_version.id"], name=op.f("fk_policy_version_parent_id")),
        sa.ForeignKeyConstraint(["stage_run_id"], ["stage_run.id"], name=op.f("fk_policy_version_stage_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policy_version")),
    )
    op.create_table(
        "trainer_state",
        sa.Column("stage_run_id", sa.Uuid(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("uri", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["stage_run_id"], ["stage_run.id"], name=op.f("fk_trainer_state_stage_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trainer_state")),
        sa.UniqueConstraint("stage_run_id", "step", name=op.f("uq_trainer_state_stage_run_id_step")),
    )
    op.create_table(
        "critic_version",
        sa.Column("parent_id", sa.Uuid(), nullable=True),
        sa.Column("policy_version_id", sa.Uuid(), nullable=False),
        sa.Column("stage_run_id", sa.Uuid(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("weights_uri", sa.String(), nullable=False),
        sa.Column("weights_sha256", sa.String(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["parent_id"], ["critic_version.id"], name=op.f("fk_critic_version_parent_id")),
        sa.ForeignKeyConstraint(["policy_version_id"], ["policy_version.id"], name=op.f("fk_critic_version_policy_version_id")),
        sa.ForeignKeyConstraint(["stage_run_id"], ["stage_run.id"], name=op.f("fk_critic_version_stage_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_critic_version")),
    )
    op.create_table(
        "problem",
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("ops", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("data_source", sa.String(), nullable=False),
        sa.Column("code", sa.String(), nullable=False),
        sa.Column("code_sha256", sa.String(), nullable=False),
        sa.Column("split", sa.String(), nullable=True),
        sa.Column("rule", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("eager_ms", sa.Double(), nullable=True),
        sa.Column("compile_ms", sa.Double(), nullable=True),
        sa.Column("facts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["dataset.id"], name=op.f("fk_problem_dataset_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_problem")),
        sa.UniqueConstraint("dataset_id", "position", name=op.f("uq_problem_dataset_id_position")),
    )
    op.create_index(op.f("ix_problem_dataset_id_split"), "problem", ["dataset_id", "split"], unique=False)
    op.create_table(
        "rollout_batch",
        sa.Column("stage_run_id", sa.Uuid(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("policy_version_id", sa.Uuid(), nullable=True),
        sa.Column("engine", sa.String(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("science", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("episodes", sa.Integer(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["dataset.id"], name=op.f("fk_rollout_batch_dataset_id")),
        sa.ForeignKeyConstraint(["policy_version_id"], ["policy_version.id"], name=op.f("fk_rollout_batch_policy_version_id")),
        sa.ForeignKeyConstraint(["stage_run_id"], ["stage_run.id"], name=op.f("fk_rollout_batch_stage_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollout_batch")),
        sa.UniqueConstraint("stage_run_id", "step", name=op.f("uq_rollout_batch_stage_run_id_step")),
    )
    op.create_table(
        "evaluation",
        sa.Column("stage_run_id", sa.Uuid(), nullable=True),
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("policy_version_id", sa.Uuid(), nullable=True),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("summary", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["rollout_batch.id"], name=op.f("fk_evaluation_batch_id")),
        sa.ForeignKeyConstraint(["policy_version_id"], ["policy_version.id"], name=op.f("fk_evaluation_policy_version_id")),
        sa.ForeignKeyConstraint(["stage_run_id"], ["stage_run.id"], name=op.f("fk_evaluation_stage_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluation")),
    )
    op.create_table(
        "rollout",
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Uuid(), nullable=False),
        sa.Column("engine", sa.String(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("stop_reason", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("reward", sa.Double(), nullable=True),
        sa.Column("verdict_id", sa.Uuid(), nullable=True),
        sa.Column("turns", sa.Integer(), nullable=False),
        sa.Column("invalid_tool_calls", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("submission", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("tokens", sa.Integer(), nullable=True),
        sa.Column("token_id", sa.LargeBinary(), nullable=True),
        sa.Column("logprob", sa.LargeBinary(), nullable=True),
        sa.Column("mask", sa.LargeBinary(), nullable=True),
        sa.Column("turn", sa.LargeBinary(), nullable=True),
        sa.Column("blob_uri", sa.String(), nullable=True),
        sa.Column("blob_sha256", sa.String(), nullable=True),
        sa.Column("template_sha256", sa.String(), nullable=True),
        sa.Column("flow_run_id", sa.Uuid(), nullable=True),
        sa.Column("task_run_id", sa.Uuid(), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["rollout_batch.id"], name=op.f("fk_rollout_batch_id")),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name=op.f("fk_rollout_problem_id")),
        sa.ForeignKeyConstraint(["verdict_id"], ["verdict.id"], name=op.f("fk_rollout_verdict_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollout")),
        sa.UniqueConstraint("batch_id", "position", "attempt", name=op.f("uq_rollout_batch_id_position_attempt")),
    )
    op.create_index(op.f("ix_rollout_batch_id_outcome"), "rollout", ["batch_id", "outcome"], unique=False)
    op.create_index(op.f("ix_rollout_problem_id"), "rollout", ["problem_id"], unique=False)
    op.create_table(
        "update",
        sa.Column("stage_run_id", sa.Uuid(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.Uuid(), nullable=True),
        sa.Column("policy_version_id", sa.Uuid(), nullable=True),
        sa.Column("critic_version_id", sa.Uuid(), nullable=True),
        sa.Column("metrics", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["rollout_batch.id"], name=op.f("fk_update_batch_id")),
        sa.ForeignKeyConstraint(["critic_version_id"], ["critic_version.id"], name=op.f("fk_update_critic_version_id")),
        sa.ForeignKeyConstraint(["policy_version_id"], ["policy_version.id"], name=op.f("fk_update_policy_version_id")),
        sa.ForeignKeyConstraint(["stage_run_id"], ["stage_run.id"], name=op.f("fk_update_stage_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_update")),
        sa.UniqueConstraint("stage_run_id", "step", name=op.f("uq_update_stage_run_id_step")),
    )
    op.create_table(
        "turn",
        sa.Column("rollout_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("tool_calls", sa.JSON(), nullable=False),
        sa.Column("verdict_id", sa.Uuid(), nullable=True),
        sa.Column("generate_seconds", sa.Double(), nullable=False),
        sa.Column("tool_seconds", sa.Double(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["rollout_id"], ["rollout.id"], name=op.f("fk_turn_rollout_id")),
        sa.ForeignKeyConstraint(["verdict_id"], ["verdict.id"], name=op.f("fk_turn_verdict_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_turn")),
        sa.UniqueConstraint("rollout_id", "position", name=op.f("uq_turn_rollout_id_position")),
    )


def downgrade() -> None:
    op.drop_table("turn")
    op.drop_table("update")
    op.drop_index(op.f("ix_rollout_problem_id"), table_name="rollout")
    op.drop_index(op.f("ix_rollout_batch_id_outcome"), table_name="rollout")
    op.drop_table("rollout")
    op.drop_table("evaluation")
    op.drop_table("rollout_batch")
    op.drop_index(op.f("ix_problem_dataset_id_split"), table_name="problem")
    op.drop_table("problem")
    op.drop_table("critic_version")
    op.drop_table("trainer_state")
    op.drop_table("policy_version")
    op.drop_table("dataset")
    op.drop_table("campaign_stage")
    op.drop_index(op.f("ix_stage_run_stage_status"), table_name="stage_run")
    op.drop_table("stage_run")
    op.drop_index(op.f("ix_verdict_problem_sha256_submission_sha256"), table_name="verdict")
    op.drop_index(op.f("ix_verdict_cache_key"), table_name="verdict")
    op.drop_table("verdict")
    op.drop_table("campaign")
