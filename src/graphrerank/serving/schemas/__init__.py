"""Pydantic models of request and response bodies, with one module per route or group of routes."""
