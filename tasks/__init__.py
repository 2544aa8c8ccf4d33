"""Prefect tasks: thin steps that flows call. Ids in, ids out; what they do lives in cuda_agent, what they show here."""
