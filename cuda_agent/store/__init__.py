"""Rows in Postgres and blobs in a folder or bucket: the only state that stages share."""
