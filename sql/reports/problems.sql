-- Held-out problems by how often each policy passed, the hardest first.
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
    problem.id as problem,
    problem.ops,
    coalesce(policy_version.stage, evaluation.label) as policy,
    count(*) as episodes,
    round(avg((counted.outcome = 'correct')::int), 2) as pass_rate,
    round(avg(counted.reward)::numeric, 2) as mean_reward,
    round(max(verdict.eager_ms / nullif(verdict.candidate_ms, 0)) filter (where counted.outcome = 'correct')::numeric, 2) as best_vs_eager
from chosen
join campaign_stage on campaign_stage.campaign_id = chosen.id
join evaluation on evaluation.stage_run_id = campaign_stage.stage_run_id
join counted on counted.batch_id = evaluation.batch_id
join problem on problem.id = counted.problem_id
left join policy_version on policy_version.id = evaluation.policy_version_id
left join verdict on verdict.id = counted.verdict_id
group by campaign_stage.position, evaluation.id, policy_version.id, problem.id
order by avg(avg((counted.outcome = 'correct')::int)) over (partition by problem.id), problem.id, campaign_stage.position;
