-- The commonest messages of the judge on what was not correct, with one rollout to look at (`cuda-agent rollouts show ID`).
with chosen as (
    select id
    from campaign
    where id = coalesce(
        nullif(current_setting('cuda_agent.campaign', true), '')::uuid,
        (select id from campaign order by created_at desc, id desc limit 1)
    )
)
select
    verdict.status,
    verdict.kind,
    count(*) as rollouts,
    left(split_part(verdict.message, E'\n', 1), 120) as message,
    min(rollout.id::text) as example
from chosen
join campaign_stage on campaign_stage.campaign_id = chosen.id
join rollout_batch on rollout_batch.stage_run_id = campaign_stage.stage_run_id
join rollout on rollout.batch_id = rollout_batch.id
join verdict on verdict.id = rollout.verdict_id
where verdict.status <> 'correct'
group by verdict.status, verdict.kind, left(split_part(verdict.message, E'\n', 1), 120)
order by rollouts desc
limit 50;
