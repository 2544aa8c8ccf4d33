-- How the rollouts of each stage ended, every attempt counted, and what stopped them.
with chosen as (
    select id
    from campaign
    where id = coalesce(
        nullif(current_setting('cuda_agent.campaign', true), '')::uuid,
        (select id from campaign order by created_at desc, id desc limit 1)
    )
)
select
    stage_run.stage,
    stage_run.label,
    coalesce(rollout.outcome, 'infra_error') as outcome,
    rollout.stop_reason,
    count(*) as attempts,
    round(avg(rollout.turns), 1) as turns,
    round(avg(rollout.seconds)::numeric, 1) as seconds
from chosen
join campaign_stage on campaign_stage.campaign_id = chosen.id
join stage_run on stage_run.id = campaign_stage.stage_run_id
join rollout_batch on rollout_batch.stage_run_id = stage_run.id
join rollout on rollout.batch_id = rollout_batch.id
group by campaign_stage.position, stage_run.id, coalesce(rollout.outcome, 'infra_error'), rollout.stop_reason
order by campaign_stage.position, attempts desc;
