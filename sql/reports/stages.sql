-- The campaign's stages in order: how long each worked, and how often it was tried.
with chosen as (
    select id
    from campaign
    where id = coalesce(
        nullif(current_setting('cuda_agent.campaign', true), '')::uuid,
        (select id from campaign order by created_at desc, id desc limit 1)
    )
)
select
    campaign_stage.position,
    stage_run.stage,
    stage_run.label,
    stage_run.status,
    round((stage_run.seconds / 60)::numeric, 2) as minutes,
    stage_run.attempt,
    stage_run.generation,
    stage_run.campaign_id is distinct from chosen.id as reused,
    stage_run.message
from chosen
join campaign_stage on campaign_stage.campaign_id = chosen.id
join stage_run on stage_run.id = campaign_stage.stage_run_id
order by campaign_stage.position;
