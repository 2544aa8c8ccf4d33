"""Migrations, views and report queries of the store's database."""
