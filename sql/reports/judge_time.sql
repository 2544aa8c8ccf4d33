-- Seconds that the judge spent in each phase on the counted verdicts of each stage.
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
    phase.key as phase,
    count(*) as verdicts,
    round(sum(phase.value::numeric), 1) as seconds,
    round(percentile_cont(0.5) within group (order by phase.value::float8)::numeric, 3) as median,
    round(max(phase.value::numeric), 2) as slowest
from chosen
join campaign_stage on campaign_stage.campaign_id = chosen.id
join stage_run on stage_run.id = campaign_stage.stage_run_id
join rollout_batch on rollout_batch.stage_run_id = stage_run.id
join rollout on rollout.batch_id = rollout_batch.id
join verdict on verdict.id = rollout.verdict_id
cross join lateral jsonb_each_text(verdict.phases) as phase
where jsonb_typeof(verdict.phases -> phase.key) = 'number'
group by campaign_stage.position, stage_run.id, phase.key
order by campaign_stage.position, seconds desc;
