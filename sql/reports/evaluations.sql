-- What each policy reaches on the held-out problems: the figures of `cuda-agent report`, without intervals.
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
    coalesce(policy_version.stage, evaluation.label) as policy,
    policy_version.step,
    count(*) as episodes,
    round(avg((counted.outcome = 'correct')::int), 4) as pass_rate,
    round(avg(counted.reward)::numeric, 4) as mean_reward,
    round(avg((counted.outcome = 'correct' and coalesce(verdict.eager_ms > verdict.candidate_ms, false))::int), 4) as faster_than_eager,
    round(avg((counted.outcome = 'correct' and coalesce(verdict.compile_ms > verdict.candidate_ms, false))::int), 4) as faster_than_compile,
    round(exp(avg(ln(verdict.eager_ms / nullif(verdict.candidate_ms, 0))) filter (where counted.outcome = 'correct'))::numeric, 4) as geomean_vs_eager,
    round(exp(avg(ln(verdict.compile_ms / nullif(verdict.candidate_ms, 0))) filter (where counted.outcome = 'correct'))::numeric, 4) as geomean_vs_compile
from chosen
join campaign_stage on campaign_stage.campaign_id = chosen.id
join evaluation on evaluation.stage_run_id = campaign_stage.stage_run_id
join counted on counted.batch_id = evaluation.batch_id
left join policy_version on policy_version.id = evaluation.policy_version_id
left join verdict on verdict.id = counted.verdict_id
group by campaign_stage.position, evaluation.id, policy_version.id
order by campaign_stage.position;
