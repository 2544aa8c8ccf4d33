"""Prefect flows: one for each stage, and the campaign that chains them. No domain logic."""
