"""Requests and responses as msgspec types: what is checked, encoded, and written into the OpenAPI document."""
