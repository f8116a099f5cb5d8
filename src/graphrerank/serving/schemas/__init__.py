"""Bodies of requests and answers, as pydantic models: one module for each route, or group of routes."""
