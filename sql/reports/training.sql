-- Reward, pass rate and length of the training episodes from step to step.
with chosen as (
    select id
    from campaign
    where id = coalesce(
        nullif(current_setting('cuda_agent.campaign', true), '')::uuid,
        (select id from campaign order by created_at desc, id desc limit 1)
    )
),
counted as (  -- the attempt of each episode that counts: the last one without an infrastructure error
    select distinct on (batch_id, position) *
    from rollout
    where error is null and outcome is not null and outcome <> 'infra_error'
    order by batch_id, position, attempt desc
)
select
    stage_run.stage,
    rollout_batch.step,
    rollout_batch.engine,
    count(*) as episodes,
    round(avg(counted.reward)::numeric, 3) as mean_reward,
    round(avg((counted.outcome = 'correct')::int), 3) as pass_rate,
    round(avg(counted.turns), 1) as turns,
    round(avg(counted.tokens)) as tokens,
    round(avg(counted.seconds)::numeric, 1) as seconds
from chosen
join campaign_stage on campaign_stage.campaign_id = chosen.id
join stage_run on stage_run.id = campaign_stage.stage_run_id
join rollout_batch on rollout_batch.stage_run_id = stage_run.id and rollout_batch.purpose = 'train'
join counted on counted.batch_id = rollout_batch.id
group by campaign_stage.position, stage_run.id, rollout_batch.id
order by campaign_stage.position, rollout_batch.step;
