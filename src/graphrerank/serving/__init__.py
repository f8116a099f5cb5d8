"""HTTP service for exported artifacts."""

from graphrerank.installation.extras import is_installed, require_extra

# only looked up, because importing them would take seconds and the command line imports the settings
if not all(map(is_installed, ("fastapi", "starlette", "uvicorn", "prometheus_client"))):
    require_extra("serve", "graphrerank.serving")
