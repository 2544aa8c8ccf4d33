-- Why candidate problems were refused, by source and number of operators, with one reason as an example.
with chosen as (
    select id
    from campaign
    where id = coalesce(
        nullif(current_setting('cuda_agent.campaign', true), '')::uuid,
        (select id from campaign order by created_at desc, id desc limit 1)
    )
)
select
    problem.data_source,
    jsonb_array_length(problem.ops) as operators,
    coalesce(problem.rule, 'accepted, ' || problem.split) as result,
    count(*) as problems,
    left(min(problem.reason), 120) as example
from chosen
join campaign_stage on campaign_stage.campaign_id = chosen.id
join dataset on dataset.stage_run_id = campaign_stage.stage_run_id
join problem on problem.dataset_id = dataset.id
group by 1, 2, 3
order by 1, 2, problems desc;
