"""The benchmark that others can run, beside what is published."""
