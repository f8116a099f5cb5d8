"""Static files of the page for judging."""
